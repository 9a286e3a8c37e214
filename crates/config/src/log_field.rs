//! The fields of a line of the access log in JSON.

use serde::Deserialize;

superpoll::named! {
    /// A field of a line in JSON. docs/logs.md describes each.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    #[expect(missing_docs, reason = "docs/logs.md has the meaning of each")]
    pub enum Field {
        Time = "time",
        Client = "client",
        Proxy = "proxy",
        Method = "method",
        Host = "host",
        Target = "target",
        Protocol = "protocol",
        Status = "status",
        Bytes = "bytes",
        Complete = "complete",
        Seconds = "seconds",
        Referer = "referer",
        UserAgent = "user_agent",
        FirstByteSeconds = "first_byte_seconds",
        BytesIn = "bytes_in",
        HeadBytesIn = "head_bytes_in",
        RequestNumber = "request_number",
        Parked = "parked",
        BrokenBy = "broken_by",
        Route = "route",
        User = "user",
        TlsVersion = "tls_version",
        TlsCipher = "tls_cipher",
        Sni = "sni",
        Upstream = "upstream",
        UpstreamServer = "upstream_server",
        UpstreamTries = "upstream_tries",
        UpstreamReused = "upstream_reused",
        UpstreamStatus = "upstream_status",
        UpstreamConnectSeconds = "upstream_connect_seconds",
        UpstreamFirstByteSeconds = "upstream_first_byte_seconds",
        UpstreamSeconds = "upstream_seconds",
        Relay = "relay",
        RequestId = "request_id",
        TraceId = "trace_id",
    }
}

impl Field {
    /// Returns the fields of a line unless the configuration lists others: all but `sni`, which
    /// each encrypted connection would have to keep.
    #[must_use]
    pub fn usual() -> Vec<Field> {
        Field::ALL.into_iter().filter(|field| *field != Field::Sni).collect()
    }
}
