//! Which requests a route is for, in addition to its path (`match`).
//!
//! The server and `superpoll explain` ask the same question: [`Matcher::mismatch`], the first
//! matcher that a request does not fit. It allocates nothing unless a query is encoded.
//!
//! A path is judged as the client sent it, percent-encoded; a query as forms are read; a field by
//! its whole value. [`RouteTable`](crate::RouteTable) puts the routes in their order.

use std::borrow::Cow;
use std::fmt;

use http::HeaderName;
use percent_encoding::percent_decode_str;

use crate::path_regex::PathRegex;

/// The parts of a request that matchers look at, apart from its path.
pub trait RequestFacts {
    /// Returns the method.
    fn method(&self) -> &str;

    /// Returns the query without its `?`.
    fn query(&self) -> Option<&str>;

    /// Whether a test holds for the value of some field of a name, which is in lower case.
    fn has_value(&self, name: &str, is: impl FnMut(&[u8]) -> bool) -> bool;
}

/// The expected value of a field, or of a parameter of the query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expected {
    /// One of the values is this text.
    Text(String),
    /// There is a value, whatever it is.
    Present,
    /// There is no value.
    Absent,
}

/// The requests that a route is for, in addition to its path. All matchers have to fit.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Matcher {
    /// The methods; any, if there are none.
    pub methods: Vec<String>,
    /// The parameters of the query, by their names.
    pub query: Vec<(String, Expected)>,
    /// The fields, by their names.
    pub headers: Vec<(HeaderName, Expected)>,
    /// The ends of the path's last part, in lower case and without the dot; any, if there are none.
    pub extensions: Vec<String>,
    /// The expression that the path fits.
    pub path_regex: Option<PathRegex>,
}

/// A matcher that a request does not fit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Mismatch<'a> {
    /// The method is none of these.
    Method(&'a [String]),
    /// A parameter of the query is not as expected.
    Query(&'a str, &'a Expected),
    /// A field is not as expected.
    Header(&'a HeaderName, &'a Expected),
    /// The path has none of these ends.
    Extension(&'a [String]),
    /// The path does not fit the expression.
    PathRegex(&'a PathRegex),
}

impl Matcher {
    /// Returns the first matcher that a request for a path does not fit; `None` if the route is for
    /// the request.
    #[inline]
    pub fn mismatch(&self, path: &str, facts: &impl RequestFacts) -> Option<Mismatch<'_>> {
        if !self.methods.is_empty() && !self.methods.iter().any(|it| it == facts.method()) {
            return Some(Mismatch::Method(&self.methods));
        }
        if !self.extensions.is_empty() && !self.extensions.iter().any(|end| ends_with(path, end)) {
            return Some(Mismatch::Extension(&self.extensions));
        }
        for (name, expected) in &self.headers {
            let has = |is: &dyn Fn(&[u8]) -> bool| facts.has_value(name.as_str(), is);
            if !expected.is_met(has) {
                return Some(Mismatch::Header(name, expected));
            }
        }
        for (name, expected) in &self.query {
            let has = |is: &dyn Fn(&[u8]) -> bool| has_parameter(facts.query(), name, is);
            if !expected.is_met(has) {
                return Some(Mismatch::Query(name, expected));
            }
        }
        let expression = self.path_regex.as_ref()?;
        (!expression.is_match(path)).then_some(Mismatch::PathRegex(expression))
    }

    /// Whether the matchers are some that every request fits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Matcher::default()
    }
}

impl Expected {
    /// Whether the values are as expected, of which a function says whether a test holds for one.
    fn is_met(&self, has: impl Fn(&dyn Fn(&[u8]) -> bool) -> bool) -> bool {
        match self {
            Expected::Text(text) => has(&|value| value == text.as_bytes()),
            Expected::Present => has(&|_| true),
            Expected::Absent => !has(&|_| true),
        }
    }
}

/// Whether the last part of a path ends with a dot and an extension, which is in lower case.
fn ends_with(path: &str, extension: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default().as_bytes();
    let Some(dot) = name.len().checked_sub(extension.len() + 1) else { return false };
    name[dot] == b'.' && name[dot + 1..].eq_ignore_ascii_case(extension.as_bytes())
}

/// Whether a test holds for some value of a parameter of a query.
fn has_parameter(query: Option<&str>, name: &str, is: &dyn Fn(&[u8]) -> bool) -> bool {
    let pairs = query.into_iter().flat_map(|query| query.split('&'));
    let mut pairs = pairs.filter(|pair| !pair.is_empty());
    pairs.any(|pair| {
        let (one, value) = pair.split_once('=').unwrap_or((pair, ""));
        *decoded(one) == *name.as_bytes() && is(&decoded(value))
    })
}

/// Decodes a part of a query as forms are read.
fn decoded(text: &str) -> Cow<'_, [u8]> {
    match text.contains('+') {
        true => Cow::Owned(percent_decode_str(&text.replace('+', " ")).collect()),
        false => percent_decode_str(text).into(),
    }
}

impl fmt::Display for Mismatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |f: &mut fmt::Formatter<'_>, what: &str, name: &str, expected: &Expected| {
            match expected {
                Expected::Text(text) => write!(f, "{what} {name} is not {text:?}"),
                Expected::Present => write!(f, "there is no {what} {name}"),
                Expected::Absent => write!(f, "there is a {what} {name}"),
            }
        };
        match self {
            Mismatch::Method(known) => write!(f, "the method is not {}", known.join(" or ")),
            Mismatch::Query(name, expected) => of(f, "parameter", name, expected),
            Mismatch::Header(name, expected) => of(f, "header", name.as_str(), expected),
            Mismatch::Extension(known) => {
                write!(f, "the path does not end with .{}", known.join(" or ."))
            }
            Mismatch::PathRegex(expression) => {
                write!(f, "the path does not match {}", expression.as_str())
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A request of a method, with a query and with fields.
    pub(crate) struct Asked(
        pub(crate) &'static str,
        pub(crate) Option<&'static str>,
        pub(crate) &'static [(&'static str, &'static str)],
    );

    impl RequestFacts for Asked {
        fn method(&self) -> &str {
            self.0
        }

        fn query(&self) -> Option<&str> {
            self.1
        }

        fn has_value(&self, name: &str, mut is: impl FnMut(&[u8]) -> bool) -> bool {
            self.2.iter().any(|(one, value)| *one == name && is(value.as_bytes()))
        }
    }

    fn said(matcher: &Matcher, path: &str, facts: &Asked) -> Option<String> {
        matcher.mismatch(path, facts).map(|mismatch| mismatch.to_string())
    }

    #[test]
    fn methods_are_those_that_are_named() {
        let methods = vec!["GET".to_owned(), "POST".to_owned()];
        let matcher = Matcher { methods, ..Matcher::default() };
        for (method, expected) in [
            ("GET", None),
            ("POST", None),
            ("HEAD", Some("the method is not GET or POST")),
            ("get", Some("the method is not GET or POST")),
        ] {
            assert_eq!(said(&matcher, "/", &Asked(method, None, &[])).as_deref(), expected);
        }
        assert!(Matcher::default().is_empty() && !matcher.is_empty());
    }

    #[test]
    fn extensions_are_those_of_the_last_part() {
        let extensions = ["css", "tar.gz"].map(str::to_owned).to_vec();
        let matcher = Matcher { extensions, ..Matcher::default() };
        for (path, fits) in [
            ("/a.css", true),
            ("/x/A.CSS", true),
            ("/.css", true),
            ("/a.min.css", true),
            ("/a.tar.gz", true),
            ("/css", false),
            ("/acss", false),
            ("/a.css/", false),
            ("/a.css/b", false),
            ("/a.gz", false),
            ("/a.cs%73", false),
            ("/", false),
        ] {
            let found = said(&matcher, path, &Asked("GET", None, &[]));
            let expected = "the path does not end with .css or .tar.gz";
            assert_eq!(found.as_deref(), (!fits).then_some(expected), "{path}");
        }
    }

    #[test]
    fn one_value_of_a_query_is_the_text() {
        for (expected, query, fits) in [
            (Expected::Text("a b".into()), Some("x=a+b"), true),
            (Expected::Text("a b".into()), Some("y=1&x=c&x=a%20b"), true),
            (Expected::Text("a b".into()), Some("%78=a%20b"), true),
            (Expected::Text("a b".into()), Some("x=a b c"), false),
            (Expected::Text("a b".into()), Some("X=a+b"), false),
            (Expected::Text("a b".into()), None, false),
            (Expected::Text(String::new()), Some("x"), true),
            (Expected::Text(String::new()), Some("x="), true),
            (Expected::Text(String::new()), Some("x=1"), false),
            (Expected::Text("=".into()), Some("x=="), true),
            (Expected::Present, Some("&&x&"), true),
            (Expected::Present, Some("xx=1"), false),
            (Expected::Present, Some(""), false),
            (Expected::Absent, Some("xx=1"), true),
            (Expected::Absent, None, true),
            (Expected::Absent, Some("x=%zz"), false),
        ] {
            let query_of = vec![("x".to_owned(), expected.clone())];
            let matcher = Matcher { query: query_of, ..Matcher::default() };
            let found = said(&matcher, "/", &Asked("GET", query, &[]));
            let text = match &expected {
                Expected::Text(text) => format!("parameter x is not {text:?}"),
                Expected::Present => "there is no parameter x".to_owned(),
                Expected::Absent => "there is a parameter x".to_owned(),
            };
            assert_eq!(found, (!fits).then_some(text), "{expected:?} {query:?}");
        }
    }

    #[test]
    fn one_value_of_a_field_is_the_text() {
        for (expected, fields, fits) in [
            (Expected::Text("1".into()), &[("x-a", "1")][..], true),
            (Expected::Text("1".into()), &[("x-a", "2"), ("x-a", "1")], true),
            (Expected::Text("1".into()), &[("x-a", "1, 2")], false),
            (Expected::Text("1".into()), &[("x-b", "1")], false),
            (Expected::Present, &[("x-a", "")], true),
            (Expected::Present, &[], false),
            (Expected::Absent, &[("x-b", "")], true),
            (Expected::Absent, &[("x-a", "")], false),
        ] {
            let name = HeaderName::from_static("x-a");
            let matcher = Matcher { headers: vec![(name, expected)], ..Matcher::default() };
            let found = said(&matcher, "/", &Asked("GET", None, fields));
            assert_eq!(found.is_none(), fits, "{matcher:?} {fields:?}");
            assert!(found.is_none_or(|found| found.contains("header x-a")));
        }
    }

    #[test]
    fn each_of_several_parameters_and_fields_has_to_fit() {
        let name = HeaderName::from_static;
        let matcher = Matcher {
            query: vec![
                ("a".to_owned(), Expected::Text("1".into())),
                ("b".to_owned(), Expected::Text("2".into())),
                ("c".to_owned(), Expected::Absent),
            ],
            headers: vec![(name("x"), Expected::Present), (name("y"), Expected::Absent)],
            ..Matcher::default()
        };
        let fits = &[("x", "")][..];
        for (query, fields, expected) in [
            ("a=1&b=2", fits, None),
            ("b=2&a=1", fits, None),
            ("a=2&b=2", fits, Some("parameter a is not \"1\"")),
            ("a=1&b=1", fits, Some("parameter b is not \"2\"")),
            ("a=1", fits, Some("parameter b is not \"2\"")),
            ("a=1&b=2&c", fits, Some("there is a parameter c")),
            ("a=1&b=2", &[], Some("there is no header x")),
            ("a=1&b=2", &[("x", ""), ("y", "")], Some("there is a header y")),
        ] {
            let found = said(&matcher, "/", &Asked("GET", Some(query), fields));
            assert_eq!(found.as_deref(), expected, "{query} {fields:?}");
        }
    }

    #[test]
    fn all_matchers_have_to_fit() {
        let matcher = Matcher {
            methods: vec!["GET".to_owned()],
            query: vec![("q".to_owned(), Expected::Present)],
            headers: vec![(HeaderName::from_static("h"), Expected::Present)],
            extensions: vec!["js".to_owned()],
            path_regex: Some(PathRegex::parse("^/v\\d+/").unwrap()),
        };
        let fields = &[("h", "1")][..];
        for (path, facts, expected) in [
            ("/v1/a.js", Asked("GET", Some("q"), fields), None),
            ("/v1/a.js", Asked("PUT", Some("q"), fields), Some("the method is not GET")),
            ("/v1/a", Asked("GET", Some("q"), fields), Some("the path does not end with .js")),
            ("/v1/a.js", Asked("GET", Some("q"), &[]), Some("there is no header h")),
            ("/v1/a.js", Asked("GET", None, fields), Some("there is no parameter q")),
            ("/v/a.js", Asked("GET", Some("q"), fields), Some("the path does not match ^/v\\d+/")),
        ] {
            assert_eq!(said(&matcher, path, &facts).as_deref(), expected, "{path}");
        }
    }
}
