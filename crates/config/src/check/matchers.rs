//! The rules of matchers of routes, and of routes with the same path.

use std::collections::BTreeMap;
use std::ops::Range;

use http::{HeaderName, HeaderValue};
use toml::Spanned;

use super::Check;
use crate::matcher::{Expected, Matcher};
use crate::path_regex::PathRegex;
use crate::raw;

/// The paths of the routes of a host so far, by the requests that they stand for: each as it is
/// written, and whether one of its routes has no matchers.
pub(super) type KnownPaths = BTreeMap<String, (String, bool)>;

impl Check<'_> {
    /// Checks that a path is that of another route only where matchers tell them apart. Returns
    /// whether the path is new.
    pub(super) fn repeated_path(
        &mut self,
        place: Range<usize>,
        path: &str,
        has_matcher: bool,
        known: &mut KnownPaths,
    ) -> bool {
        // `/a` and `/a/` stand for the same requests except one.
        let Some((other, has_rest)) = known.get_mut(&super::same(path)) else {
            known.insert(super::same(path), (path.to_owned(), !has_matcher));
            return true;
        };
        let is_second = *has_rest && !has_matcher;
        *has_rest |= !has_matcher;
        if is_second {
            let what = format!("the path {path:?} repeats that of another route of this host");
            let expected = "expected each path once, or match in all of its routes but one";
            self.wrong(place, format!("{what}, {expected}"));
        } else if other != path {
            let what = format!("the path {path:?} is {other:?} in another spelling");
            self.wrong(place, format!("{what}, expected the same in all routes with match"));
        }
        false
    }

    pub(super) fn matcher(&mut self, raw: Spanned<raw::Match>) -> Matcher {
        let (place, raw) = (raw.span(), raw.into_inner());
        let methods = self.words(raw.methods, "a method", |word| {
            let is_token = HeaderName::from_bytes(word.as_bytes()).is_ok();
            match is_token && !word.bytes().any(|byte| byte.is_ascii_lowercase()) {
                true => Ok(()),
                false => Err("is no method, expected one in upper case as \"GET\""),
            }
        });
        let extensions = self.words(raw.extensions, "an extension", |word| {
            let is_other = |byte: u8| !byte.is_ascii_graphic() || byte.is_ascii_uppercase();
            let is_wrong = word.starts_with('.') || word.contains(['/', '?', '#']);
            match word.is_empty() || is_wrong || word.bytes().any(is_other) {
                true => Err("is no extension, expected one in lower case and without a dot, as \
                             \"css\""),
                false => Ok(()),
            }
        });
        let query = raw
            .query
            .into_iter()
            .map(|(name, expected)| (name.into_inner(), expected.into_inner()));
        let matcher = Matcher {
            methods,
            query: query.collect(),
            headers: self.expected_headers(raw.headers),
            extensions,
            path_regex: raw.path_regex.and_then(|text| {
                let read = PathRegex::parse(text.get_ref());
                read.map_err(|what| self.wrong(text.span(), what)).ok()
            }),
        };
        if matcher.is_empty() && !self.found.iter().any(|(at, _)| is_within(at, &place)) {
            let what = "a match that all requests fit, expected methods, query, headers, \
                        extensions or path_regex";
            self.missing(place, what);
        }
        matcher
    }

    /// Checks a list of words.
    fn words(
        &mut self,
        list: Option<Spanned<Vec<Spanned<String>>>>,
        one: &str,
        check: impl Fn(&str) -> Result<(), &'static str>,
    ) -> Vec<String> {
        let Some(list) = list else { return Vec::new() };
        if list.get_ref().is_empty() {
            self.missing(list.span(), format!("a list that no request fits, expected {one}"));
        }
        let mut words = Vec::new();
        for word in list.into_inner() {
            if let Err(what) = check(word.get_ref()) {
                self.wrong(word.span(), format!("{:?} {what}", word.get_ref()));
            }
            words.push(word.into_inner());
        }
        words
    }

    fn expected_headers(
        &mut self,
        raw: BTreeMap<Spanned<String>, Spanned<Expected>>,
    ) -> Vec<(HeaderName, Expected)> {
        let mut headers: Vec<(HeaderName, Expected)> = Vec::new();
        for (name, expected) in raw {
            let place = name.span();
            let Ok(read) = HeaderName::from_bytes(name.get_ref().as_bytes()) else {
                let what = format!("{:?} is no name of a field", name.get_ref());
                self.wrong(place, format!("{what}, expected one as \"accept-language\""));
                continue;
            };
            if read == http::header::HOST {
                let what = "requests of HTTP/2 have no such field, expected names in [[hosts]]";
                self.wrong(place, what);
            } else if headers.iter().any(|(known, _)| *known == read) {
                let what = format!("the field {:?} is matched twice", name.get_ref());
                self.wrong(place, format!("{what}, expected it once"));
            }
            if let Expected::Text(text) = expected.get_ref()
                && (text.trim() != text || HeaderValue::from_str(text).is_err())
            {
                let what = format!("no field has the value {text:?}");
                let expected_text = "expected visible characters, with spaces between";
                self.wrong(expected.span(), format!("{what}, {expected_text}"));
            }
            headers.push((read, expected.into_inner()));
        }
        headers
    }
}

/// Whether a place is in another one.
fn is_within(place: &Range<usize>, outer: &Range<usize>) -> bool {
    outer.start <= place.start && place.end <= outer.end
}
