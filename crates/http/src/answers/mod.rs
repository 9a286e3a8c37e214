//! The rules for all answers of a host or a route: the fields that they get, and the pages in the
//! place of errors.
//!
//! A response gets them in this order, whichever way it takes:
//!
//! 1. the page for its status, if it is an error that this server has found. A response of a server
//!    behind keeps its body, unless the route asks for pages there as well, and so does an answer
//!    that the configuration has (`respond`);
//! 2. the fields of the host that follow from other keys: `Link` of a hub of Mercure, and
//!    `Strict-Transport-Security`, unless the response has its own;
//! 3. the changes of the configuration, those of the host and then those of the route. So they can
//!    also replace or remove the fields before.
//!
//! Responses of handlers have a map of fields ([`Additions::apply_to`]). Where lines of
//! a server are passed on, each field is asked for whether it stays (`Additions::keeps`). A
//! subscriber of a channel that was parked is answered behind the back of the router, and its
//! channel has the rules ([`AnswerRules::change`]).
//!
//! The id of a request comes after all of this, with the response as a whole (`trace`).

mod compression;
mod error_pages;
pub(crate) mod lines;
mod template;

use std::rc::Rc;
use std::sync::Arc;

use http::header::{LINK, STRICT_TRANSPORT_SECURITY};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use superpoll_config::{HeaderChanges, Template};
use superpoll_http1::FieldLines;

pub(crate) use self::compression::Compression;
pub(crate) use self::error_pages::ErrorPages;
pub use self::error_pages::PageError;
pub(crate) use self::template::RequestValues;
use crate::body::Body;
use crate::head::Head;
use crate::peer::Peer;
use crate::trace::RequestTrace;

/// The mark of a response that gets no page, in its extensions: it is that of a server behind, or
/// the configuration says what it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeepsBody;

/// Applies changes to the fields of a message.
pub(crate) fn change(changes: &HeaderChanges, headers: &mut HeaderMap) {
    for name in &changes.removed {
        headers.remove(name);
    }
    for (name, value) in &changes.added {
        headers.append(name, value.clone());
    }
}

/// Whether changes leave a field, whose name is in lower case, as it is.
///
/// Not inlined: most requests have no changes, and are written by code that has to be short.
#[inline(never)]
pub(crate) fn keep(changes: &HeaderChanges, name: &[u8]) -> bool {
    !changes.removed.iter().any(|removed| removed.as_str().as_bytes() == name)
}

/// Returns the added fields as HTTP/1.1 writes them.
pub(crate) fn lines(changes: &HeaderChanges) -> FieldLines {
    let added = changes.added.iter().map(|(name, value)| (name, value));
    added.collect()
}

/// The rules for the answers of a host or a route.
#[derive(Debug)]
pub struct AnswerRules {
    changes: HeaderChanges,
    /// The added fields as HTTP/1.1 writes them.
    lines: FieldLines,
    pages: ErrorPages,
}

impl AnswerRules {
    /// Returns the rules; `None` if there are none.
    pub(crate) fn new(changes: HeaderChanges, pages: ErrorPages) -> Option<Arc<AnswerRules>> {
        let is_empty = changes.is_empty() && pages.is_empty();
        let lines = lines(&changes);
        (!is_empty).then(|| Arc::new(AnswerRules { changes, lines, pages }))
    }

    /// Changes the fields of a response.
    #[inline]
    pub fn change(&self, headers: &mut HeaderMap) {
        change(&self.changes, headers);
    }

    /// Whether there are pages for errors.
    #[inline]
    pub fn has_pages(&self) -> bool {
        !self.pages.is_empty()
    }

    /// Returns the added fields whose values depend on the request, if there are any.
    pub fn filled(
        &self,
        head: Head<'_>,
        peer: &Peer,
        trace: Option<&RequestTrace>,
    ) -> Option<FilledFields> {
        let templates = &self.changes.templates;
        if templates.is_empty() {
            return None;
        }
        let host = head.host.or(head.authority).map(str::as_bytes);
        let host = host.or_else(|| head.fields.value("host")).unwrap_or_default();
        let says_encrypted = peer.is_of_trusted_proxy() && head.fields.say_encrypted();
        let query = head.query.map(|query| format!("?{query}")).unwrap_or_default();
        let values = RequestValues {
            method: head.method.as_str(),
            uri: &[head.path, &query].concat(),
            host,
            peer,
            is_encrypted: peer.is_encrypted || says_encrypted,
            trace,
        };
        Some(FilledFields::new(templates, values))
    }
}

/// Fields whose values were made for one request.
#[derive(Clone, Debug)]
pub struct FilledFields(Rc<[(HeaderName, HeaderValue)]>);

impl FilledFields {
    /// Makes the values. A field without a value is left out.
    pub(crate) fn new(
        templates: &[(HeaderName, Template)],
        request: RequestValues<'_>,
    ) -> FilledFields {
        FilledFields(template::filled(templates, request))
    }

    /// Returns the fields.
    pub(crate) fn fields(&self) -> &[(HeaderName, HeaderValue)] {
        &self.0
    }
}

/// The fields that a response gets in addition to its own, and its page if it is an error.
#[derive(Clone, Default, Debug)]
pub struct Additions {
    /// `Strict-Transport-Security`, unless the server has its own.
    pub hsts: Option<HeaderValue>,
    /// The value of the field `Link`, if the answer gets one.
    pub link: Option<HeaderValue>,
    /// The rules of the route for answers.
    pub rules: Option<Arc<AnswerRules>>,
    /// The fields of these rules whose values depend on the request.
    pub filled: Option<FilledFields>,
    /// The request was HEAD, so that a page has no body.
    pub is_head: bool,
    /// The id of the request and its trace, where lines are written. Otherwise they are added with
    /// the end of the response's head.
    pub trace: Option<Rc<RequestTrace>>,
}

impl Additions {
    /// Whether a response stays as it is.
    #[inline]
    pub fn are_none(&self) -> bool {
        self.hsts.is_none() && self.link.is_none() && self.rules.is_none()
    }

    /// Whether errors may get pages.
    #[inline]
    pub fn has_pages(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| rules.has_pages())
    }

    /// Adds the fields to a response.
    pub fn apply_to(self, mut response: Response<Body>) -> Response<Body> {
        if let Some(rules) = &self.rules
            && response.extensions().get::<KeepsBody>().is_none()
        {
            rules.pages.replace(&mut response, self.is_head);
        }
        let headers = response.headers_mut();
        if let Some(link) = self.link {
            headers.append(LINK, link);
        }
        if let Some(hsts) = self.hsts {
            headers.entry(STRICT_TRANSPORT_SECURITY).or_insert(hsts);
        }
        if let Some(rules) = &self.rules {
            rules.change(headers);
        }
        for (name, value) in self.filled.iter().flat_map(|filled| filled.fields()) {
            headers.append(name, value.clone());
        }
        response
    }

    /// Whether all fields of a response stay.
    #[inline]
    pub(crate) fn keep_all(&self) -> bool {
        self.rules.is_none() && self.trace.is_none()
    }

    /// Whether a field, whose name is in lower case, is passed on with the response of a server.
    #[inline(never)]
    pub(crate) fn passes(&self, name: &[u8]) -> bool {
        self.keeps(name) && self.trace.as_ref().is_none_or(|trace| !trace.replaces(name))
    }

    /// Whether a field, whose name is in lower case, stays in a response.
    #[inline]
    pub(crate) fn keeps(&self, name: &[u8]) -> bool {
        self.rules.as_ref().is_none_or(|rules| keep(&rules.changes, name))
    }

    /// Returns the added fields whose values depend on the request.
    pub(crate) fn filled(&self) -> &[(HeaderName, HeaderValue)] {
        self.filled.as_ref().map_or(&[], FilledFields::fields)
    }

    /// Returns the added fields of the configuration as HTTP/1.1 writes them.
    pub(crate) fn lines(&self) -> Option<&FieldLines> {
        self.rules.as_ref().map(|rules| &rules.lines)
    }
}
