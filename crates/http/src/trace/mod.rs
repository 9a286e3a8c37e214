//! Following a request from server to server: its id, its trace, and the servers on its way.
//!
//! All three are off until the configuration asks for them. A request then has a [`RequestTrace`],
//! which is made before the route is known, so that each answer has it: files, redirects, errors. A
//! request without them costs one test.
//!
//! | part | fields | on the way to a server | in the response |
//! |---|---|---|---|
//! | `request_id` | `X-Request-Id`, or another name | replaces the client's | replaces the server's |
//! | `context` | `traceparent`, `tracestate` | the same trace, with this server as the parent | nothing |
//! | `via` | `Via` | this server is added | this server is added, if a server has answered |
//!
//! A client may write each of these fields. An id is kept if the client's address is trusted, or if
//! the route trusts the fields about clients (`trust_forwarded`); the id of any other client is
//! replaced. So an id is in the logs of this server for one request, unless a trusted proxy repeats
//! it. An id and a trace are read by rules that leave no character for a log or a head to stumble
//! over.
//!
//! A request is written for its server without the lines that do not pass
//! (`RequestTrace::passes`), and with lines of its own (`RequestTrace::forwarded`). Responses are
//! maps of fields, or lines that are passed on. Both ways have the same decisions here:
//! [`RequestTrace::mark`] next to `RequestTrace::replaces` and `RequestTrace::mark_of_response`.

mod context;
mod request_id;
#[cfg(test)]
mod tests;
mod via;

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;

use http::header::VIA;
use http::{HeaderMap, HeaderName, HeaderValue, Version};
use superpoll_config::{self, ClientRange};

use self::context::TraceContext;
use self::via::Via;
use crate::head::Fields;
use crate::log::Event;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The rules for ids of requests.
#[derive(Debug)]
struct IdRules {
    field: HeaderName,
    /// The field's name as servers may read it that take an underscore for a hyphen.
    hyphened: String,
    is_answered: bool,
    trust: Vec<ClientRange>,
}

/// The rules for traces.
#[derive(Debug)]
struct ContextRules {
    /// The share of new traces that are recorded, in hundredths.
    sample: u8,
    /// The clients whose traces continue; `None`: all.
    trust: Option<Vec<ClientRange>>,
}

/// The rules of a configuration, on one engine.
#[derive(Debug)]
pub struct TraceRules {
    ids: Option<IdRules>,
    contexts: Option<ContextRules>,
    via: Option<Via>,
}

/// The id of a request, its trace, and the server that it came from.
#[derive(Debug)]
pub struct RequestTrace {
    rules: Rc<TraceRules>,
    id: RefCell<Option<HeaderValue>>,
    /// The id that a client has sent which may not choose it, as far as is known.
    offered: RefCell<Option<HeaderValue>>,
    context: Option<TraceContext>,
    /// `tracestate` belongs to the trace.
    has_state: bool,
    /// The version of HTTP that the request came with.
    version: Version,
    /// The request has been here before.
    is_loop: bool,
}

impl IdRules {
    /// Whether a name in lower case is that of the field to some server.
    fn is_field(&self, name: &[u8]) -> bool {
        let hyphened = |byte: u8| if byte == b'_' { b'-' } else { byte };
        name.len() == self.hyphened.len()
            && name.iter().zip(self.hyphened.bytes()).all(|(one, other)| hyphened(*one) == other)
    }
}

impl TraceRules {
    /// Returns the rules of a configuration.
    pub fn new(config: &superpoll_config::Tracing) -> Rc<TraceRules> {
        let ids = config.request_id.as_ref().map(|ids| IdRules {
            field: ids.field.clone(),
            hyphened: ids.field.as_str().replace('_', "-"),
            is_answered: ids.respond,
            trust: ids.trust.clone(),
        });
        let contexts = config.trace.as_ref().map(|trace| ContextRules {
            sample: trace.sample.hundredths(),
            trust: trace.trust.clone(),
        });
        let via = config.via.as_deref().map(Via::new);
        Rc::new(TraceRules { ids, contexts, via })
    }

    /// Begins to follow a request.
    pub fn begin(
        self: &Rc<TraceRules>,
        client: Option<IpAddr>,
        version: Version,
        fields: Fields<'_>,
    ) -> Rc<RequestTrace> {
        let (mut id, mut offered) = (None, None);
        if let Some(ids) = &self.ids {
            offered = request_id::valid(fields.values(ids.field.as_str()));
            if ClientRange::any_has(&ids.trust, client) {
                id = offered.take();
            }
            id = id.or_else(request_id::new);
        }
        let (mut context, mut has_state) = (None, false);
        if let Some(rules) = &self.contexts {
            let trusts = |trust: &Vec<ClientRange>| ClientRange::any_has(trust, client);
            let known = match rules.trust.as_ref().is_none_or(trusts) {
                true => TraceContext::parse(fields.values(TRACEPARENT.as_str())),
                false => None,
            };
            has_state = known.is_some();
            context = known.map_or_else(|| TraceContext::new(rules.sample), TraceContext::child);
        }
        let is_loop = self.via.as_ref().is_some_and(|via| via.is_in(fields.values(VIA.as_str())));
        Rc::new(RequestTrace {
            rules: self.clone(),
            id: RefCell::new(id),
            offered: RefCell::new(offered),
            context,
            has_state,
            version,
            is_loop,
        })
    }
}

impl RequestTrace {
    /// Takes on the id that the client has sent: the route trusts the proxy in front.
    pub(crate) fn believe(&self) {
        if let Some(offered) = self.offered.take() {
            self.id.replace(Some(offered));
        }
    }

    /// Whether this server has forwarded the request before.
    pub fn is_loop(&self) -> bool {
        self.is_loop
    }

    /// Returns the name of this server in `Via`.
    pub(crate) fn via(&self) -> &str {
        self.rules.via.as_ref().map_or("", Via::name)
    }

    /// Returns the id, for logs.
    pub(crate) fn id(&self) -> Option<String> {
        // An id has visible characters of ASCII only.
        self.id.borrow().as_ref().and_then(|id| id.to_str().ok()).map(str::to_owned)
    }

    /// Returns the number of the trace in hexadecimal, for logs.
    pub(crate) fn trace_id(&self) -> Option<String> {
        self.context.as_ref().map(TraceContext::trace_id)
    }

    /// Adds the id and the trace to an event about the request.
    pub(crate) fn describe(&self, event: Event) -> Event {
        let event = match self.id() {
            Some(id) => event.with("request_id", id),
            None => event,
        };
        match self.trace_id() {
            Some(id) => event.with("trace_id", id),
            None => event,
        }
    }

    /// Returns the id as the end of a message in words; "" without an id.
    pub(crate) fn suffix(&self) -> String {
        self.id().map_or_else(String::new, |id| format!(" (request {id})"))
    }

    /// Whether a field of a request, whose name is in lower case, is passed on as it is.
    pub(crate) fn passes(&self, name: &[u8]) -> bool {
        if self.rules.ids.as_ref().is_some_and(|ids| ids.is_field(name)) {
            return false;
        }
        match name {
            b"traceparent" => self.rules.contexts.is_none(),
            b"tracestate" => self.rules.contexts.is_none() || self.has_state,
            _ => true,
        }
    }

    /// Gives the fields that a forwarded request gets to a function.
    pub(crate) fn forwarded(&self, mut field: impl FnMut(&HeaderName, &HeaderValue)) {
        if let (Some(ids), Some(id)) = (&self.rules.ids, &*self.id.borrow()) {
            field(&ids.field, id);
        }
        if let Some(parent) = self.context.as_ref().and_then(TraceContext::value) {
            field(&TRACEPARENT, &parent);
        }
        self.via_of_response(self.version, field);
    }

    /// Adds the id to the response, in place of that of a server.
    pub fn mark(&self, headers: &mut HeaderMap) {
        let ids = self.rules.ids.as_ref().filter(|ids| ids.is_answered);
        if let (Some(ids), Some(id)) = (ids, &*self.id.borrow()) {
            headers.insert(ids.field.clone(), id.clone());
        }
    }

    /// Whether a field of a response, whose name is in lower case, makes room for the id.
    pub(crate) fn replaces(&self, name: &[u8]) -> bool {
        let ids = self.rules.ids.as_ref().filter(|ids| ids.is_answered);
        ids.is_some_and(|ids| ids.field.as_str().as_bytes() == name)
    }

    /// Gives the field that each response gets to a function.
    pub(crate) fn mark_of_response(&self, field: impl FnOnce(&HeaderName, &HeaderValue)) {
        let ids = self.rules.ids.as_ref().filter(|ids| ids.is_answered);
        if let (Some(ids), Some(id)) = (ids, &*self.id.borrow()) {
            field(&ids.field, id);
        }
    }

    /// Adds this server to the way of a response that a server has sent with this version of HTTP.
    pub(crate) fn add_via(&self, version: Version, headers: &mut HeaderMap) {
        if let Some(via) = &self.rules.via {
            via.append(version, headers);
        }
    }

    /// Gives the field for that to a function.
    pub(crate) fn via_of_response(
        &self,
        version: Version,
        field: impl FnOnce(&HeaderName, &HeaderValue),
    ) {
        if let Some(via) = &self.rules.via {
            field(&VIA, via.value(version));
        }
    }
}
