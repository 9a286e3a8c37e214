//! The fields of a line of the access log in JSON.

use serde::Deserialize;

/// A field of a line in JSON. docs/logs.md describes each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "docs/logs.md has the meaning of each")]
pub enum Field {
    Time,
    Client,
    Proxy,
    Method,
    Host,
    Target,
    Protocol,
    Status,
    Bytes,
    Complete,
    Seconds,
    Referer,
    UserAgent,
    FirstByteSeconds,
    BytesIn,
    HeadBytesIn,
    RequestNumber,
    Parked,
    BrokenBy,
    Route,
    User,
    TlsVersion,
    TlsCipher,
    Sni,
    Upstream,
    UpstreamServer,
    UpstreamTries,
    UpstreamReused,
    UpstreamStatus,
    UpstreamConnectSeconds,
    UpstreamFirstByteSeconds,
    UpstreamSeconds,
    Relay,
    RequestId,
    TraceId,
}

impl Field {
    /// All fields, in the order of the default.
    pub const ALL: [Field; 35] = [
        Field::Time,
        Field::Client,
        Field::Proxy,
        Field::Method,
        Field::Host,
        Field::Target,
        Field::Protocol,
        Field::Status,
        Field::Bytes,
        Field::Complete,
        Field::Seconds,
        Field::Referer,
        Field::UserAgent,
        Field::FirstByteSeconds,
        Field::BytesIn,
        Field::HeadBytesIn,
        Field::RequestNumber,
        Field::Parked,
        Field::BrokenBy,
        Field::Route,
        Field::User,
        Field::TlsVersion,
        Field::TlsCipher,
        Field::Sni,
        Field::Upstream,
        Field::UpstreamServer,
        Field::UpstreamTries,
        Field::UpstreamReused,
        Field::UpstreamStatus,
        Field::UpstreamConnectSeconds,
        Field::UpstreamFirstByteSeconds,
        Field::UpstreamSeconds,
        Field::Relay,
        Field::RequestId,
        Field::TraceId,
    ];

    /// Returns the fields of a line unless the configuration lists others: all but `sni`, which
    /// each encrypted connection would have to keep.
    #[must_use]
    pub fn usual() -> Vec<Field> {
        Field::ALL.into_iter().filter(|field| *field != Field::Sni).collect()
    }

    /// Returns the name of the field, in the configuration and in a line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Field::Time => "time",
            Field::Client => "client",
            Field::Proxy => "proxy",
            Field::Method => "method",
            Field::Host => "host",
            Field::Target => "target",
            Field::Protocol => "protocol",
            Field::Status => "status",
            Field::Bytes => "bytes",
            Field::Complete => "complete",
            Field::Seconds => "seconds",
            Field::Referer => "referer",
            Field::UserAgent => "user_agent",
            Field::FirstByteSeconds => "first_byte_seconds",
            Field::BytesIn => "bytes_in",
            Field::HeadBytesIn => "head_bytes_in",
            Field::RequestNumber => "request_number",
            Field::Parked => "parked",
            Field::BrokenBy => "broken_by",
            Field::Route => "route",
            Field::User => "user",
            Field::TlsVersion => "tls_version",
            Field::TlsCipher => "tls_cipher",
            Field::Sni => "sni",
            Field::Upstream => "upstream",
            Field::UpstreamServer => "upstream_server",
            Field::UpstreamTries => "upstream_tries",
            Field::UpstreamReused => "upstream_reused",
            Field::UpstreamStatus => "upstream_status",
            Field::UpstreamConnectSeconds => "upstream_connect_seconds",
            Field::UpstreamFirstByteSeconds => "upstream_first_byte_seconds",
            Field::UpstreamSeconds => "upstream_seconds",
            Field::Relay => "relay",
            Field::RequestId => "request_id",
            Field::TraceId => "trace_id",
        }
    }
}
