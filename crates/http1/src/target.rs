//! The targets of requests.

use std::fmt;

use memchr::{memchr, memchr2};

use crate::authority::Authority;
use crate::refusal::Refusal;
use crate::request::Method;

/// The form of a request's target (RFC 9112, section 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A path with an optional query.
    Origin,
    /// A whole URI of `http` or `https`, as a proxy gets it.
    Absolute,
    /// A host with its port, for `CONNECT`.
    Authority,
    /// `*`, for `OPTIONS`.
    Asterisk,
}

/// The target of a request (RFC 9112, section 3.2).
///
/// It has no blank, control character or fragment, and is UTF-8. Bytes that a URI should have in an
/// encoded form only are accepted as they are, as nginx and HAProxy do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Target<'b> {
    text: &'b str,
    form: Form,
    /// Where the path begins; all before it is scheme and authority.
    path: usize,
    /// Where the query begins, at its `?`, or the end.
    query: usize,
}

impl<'b> Target<'b> {
    /// Checks the target of a request with a method.
    ///
    /// # Errors
    ///
    /// [`Refusal::Target`], [`Refusal::Fragment`] or [`Refusal::TargetForm`].
    pub fn new(method: Method<'_>, text: &'b str) -> Result<Target<'b>, Refusal> {
        let is_allowed = |byte: u8| byte > b' ' && byte != 0x7f;
        if text.is_empty() || !text.bytes().all(is_allowed) {
            return Err(Refusal::Target);
        }
        Target::from_visible(method, text)
    }

    /// Checks a target whose bytes are those of a line that was read.
    pub(crate) fn from_visible(method: Method<'_>, text: &'b str) -> Result<Target<'b>, Refusal> {
        let bytes = text.as_bytes();
        let query = match memchr2(b'?', b'#', bytes) {
            None => bytes.len(),
            Some(at) if bytes[at] == b'#' || memchr(b'#', &bytes[at..]).is_some() => {
                return Err(Refusal::Fragment);
            }
            Some(at) => at,
        };
        let whole = |form| Target { text, form, path: 0, query };
        match method {
            Method::Connect => {
                let is_fit = Authority::new(bytes).is_some_and(|host| host.port().is_some());
                let target = Target { path: bytes.len(), ..whole(Form::Authority) };
                is_fit.then_some(target).ok_or(Refusal::TargetForm)
            }
            _ if bytes.starts_with(b"/") => Ok(whole(Form::Origin)),
            Method::Options if text == "*" => Ok(whole(Form::Asterisk)),
            _ => {
                let start = scheme(bytes).ok_or(Refusal::TargetForm)?;
                let length = memchr(b'/', &bytes[start..query]);
                let path = length.map_or(query, |length| start + length);
                let is_fit = Authority::new(&bytes[start..path]).is_some();
                let target = Target { path, ..whole(Form::Absolute) };
                is_fit.then_some(target).ok_or(Refusal::TargetForm)
            }
        }
    }

    /// Returns the form of the target.
    #[must_use]
    #[inline]
    pub const fn form(&self) -> Form {
        self.form
    }

    /// Returns the target as it came.
    #[must_use]
    pub const fn as_str(&self) -> &'b str {
        self.text
    }

    /// Returns the path without the query: `*` in asterisk form, and empty in authority form.
    #[must_use]
    #[inline]
    pub fn path(&self) -> &'b str {
        match (self.form, &self.text[self.path..self.query]) {
            (Form::Origin | Form::Absolute, "") => "/",
            (_, path) => path,
        }
    }

    /// Returns the query without its `?`.
    #[must_use]
    pub fn query(&self) -> Option<&'b str> {
        self.text.get(self.query + 1..)
    }

    /// Returns the host and port of a target in absolute or authority form.
    #[must_use]
    pub fn authority(&self) -> Option<Authority<'b>> {
        let start = match self.form {
            Form::Origin | Form::Asterisk => return None,
            Form::Authority => 0,
            Form::Absolute => scheme(self.text.as_bytes())?,
        };
        Authority::new(self.text.as_bytes().get(start..self.path)?)
    }

    /// Whether the target is a URI of `https`.
    #[must_use]
    pub fn is_https(&self) -> bool {
        let scheme = self.text.as_bytes().first_chunk::<6>();
        self.form == Form::Absolute
            && scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https:"))
    }

    /// Returns the target as an origin server gets it: without scheme and authority (RFC 9112,
    /// section 3.2.1). `OPTIONS` without a path is about the whole server (section 3.2.4).
    #[must_use]
    pub fn to_origin(self, method: Method<'_>) -> Target<'b> {
        match (self.form, &self.text[self.path..]) {
            (Form::Absolute, "") if method == Method::Options => {
                Target { text: "*", form: Form::Asterisk, path: 0, query: 1 }
            }
            (Form::Absolute, "") => Target { text: "/", form: Form::Origin, path: 0, query: 1 },
            (Form::Absolute, text) => {
                Target { text, form: Form::Origin, path: 0, query: self.query - self.path }
            }
            _ => self,
        }
    }

    /// Returns a target in origin form without the first part of its path; `None` if the path does
    /// not begin so. Whether the prefix ends with a segment is not checked.
    #[must_use]
    pub fn without_prefix(self, prefix: &str) -> Option<Target<'b>> {
        let is_origin = self.form == Form::Origin && prefix.len() <= self.query;
        let text = self.text.strip_prefix(prefix).filter(|_| is_origin)?;
        Some(Target { text, form: Form::Origin, path: 0, query: self.query - prefix.len() })
    }
}

impl fmt::Debug for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({:?})", self.form, self.text)
    }
}

/// Returns where the authority of a URI begins, if its scheme is `http` or `https`.
fn scheme(uri: &[u8]) -> Option<usize> {
    let starts_so = |start: &&[u8]| {
        uri.get(..start.len()).is_some_and(|bytes| bytes.eq_ignore_ascii_case(start))
    };
    let schemes: [&[u8]; 2] = [b"http://", b"https://"];
    schemes.iter().find(|start| starts_so(start)).map(|start| start.len())
}
