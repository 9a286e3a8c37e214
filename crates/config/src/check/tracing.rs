//! The rules for following requests.

use http::HeaderName;
use toml::Spanned;

use super::Check;
use crate::ejection::Percentage;
use crate::tracing::{RawRequestIds, RawTraces, RawTracing, RequestIds, Switch, Traces, Tracing};

/// The field that has the id of a request, if the configuration does not say.
const FIELD: HeaderName = HeaderName::from_static("x-request-id");

/// The longest name in `Via`, in bytes.
const LONGEST_NAME: usize = 128;

/// Fields with another meaning, which the id of a request must not replace.
const TAKEN: [&str; 16] = [
    "accept",
    "authorization",
    "cache-control",
    "content-encoding",
    "content-type",
    "cookie",
    "etag",
    "forwarded",
    "location",
    "origin",
    "proxy",
    "set-cookie",
    "traceparent",
    "tracestate",
    "via",
    "x-real-ip",
];

/// Whether an id cannot be in a field, whose name is in lower case.
fn is_taken(name: &str) -> bool {
    let name = name.replace('_', "-");
    TAKEN.contains(&&*name)
        || ["x-forwarded-", "client-cert", "x-client-"].iter().any(|start| name.starts_with(start))
}

/// Whether a text is a name as `Via` has it: a token, or a host with a port.
fn is_received_by(text: &str) -> bool {
    let is_of_name =
        |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:[]".contains(&byte);
    (1..=LONGEST_NAME).contains(&text.len()) && text.bytes().all(is_of_name)
}

impl Check<'_> {
    /// Checks how requests are followed.
    pub(super) fn tracing(&mut self, raw: RawTracing) -> Tracing {
        let RawTracing { request_id: Switch(ids), trace: Switch(traces), via } = raw;
        let request_id = ids.and_then(|ids| self.request_ids(ids));
        let trace = traces.map(|RawTraces { sample, trust }| Traces {
            sample: sample.unwrap_or(Percentage::WHOLE),
            trust: trust.map(|trust| self.ranges(trust)),
        });
        if let Some(via) = &via
            && !is_received_by(via.get_ref())
        {
            let what = format!("{:?} is no name of a server in Via", via.get_ref());
            let expected = format!(
                "expected one as \"edge-1\" or \"example.org:8080\", without spaces, of at most \
                 {LONGEST_NAME} characters"
            );
            self.wrong(via.span(), format!("{what}, {expected}"));
        }
        Tracing { request_id, trace, via: via.map(Spanned::into_inner) }
    }

    fn request_ids(&mut self, raw: RawRequestIds) -> Option<RequestIds> {
        let RawRequestIds { field, respond, trust } = raw;
        let trust = self.ranges(trust);
        let field = match field {
            None => FIELD,
            Some(field) => {
                let name = self.common_field_name(field.span(), field.get_ref())?;
                if is_taken(name.as_str()) {
                    let what = format!("the field {:?} has another meaning", field.get_ref());
                    self.wrong(field.span(), format!("{what}, expected one as \"X-Request-Id\""));
                    return None;
                }
                name
            }
        };
        Some(RequestIds { field, respond: respond.unwrap_or(true), trust })
    }
}
