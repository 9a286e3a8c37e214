//! The paths of channel routes: one channel, or a channel for each name that fits a pattern.
//!
//! In a pattern `{name}` stands for one component of a path, and `{*name}` at its end for one or
//! more. The name of a channel is its path with these parts percent-decoded, so that each channel
//! has one name, however clients spell it. A part must not be empty, `.` or `..`, nor contain a
//! slash, a backslash or a control character: servers and proxies in between, and the records of
//! the server itself, would read such names in different ways. Nor does a name contain a brace: an
//! application that puts the name of a channel into a token would put in a pattern, which grants
//! more channels than that one.

use std::fmt;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use superpoll_config::has_parameters;

/// The longest name of a channel, in bytes.
const LONGEST_NAME: usize = 256;

/// The path of a route.
pub(crate) struct Pattern {
    text: String,
    /// Finds the parameters; `None` if there are none.
    parameters: Option<matchit::Router<()>>,
}

/// The reason for which a path names no channel.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error, Debug)]
pub(crate) enum NameError {
    /// The path does not fit the pattern.
    #[error("no channel has this path")]
    Elsewhere,
    /// The name is too long.
    #[error("the name of a channel has at most {LONGEST_NAME} bytes")]
    TooLong,
    /// A part of the name is not allowed.
    #[error("the name of the channel {0}")]
    Wrong(&'static str),
}

/// Checks a part of a name.
fn part(text: &str) -> Result<(), NameError> {
    match text {
        "" => Err(NameError::Wrong("has an empty part")),
        "." | ".." => Err(NameError::Wrong("has a part \".\" or \"..\"")),
        _ if text.contains(['/', '\\']) => Err(NameError::Wrong("has a slash within a part")),
        _ if text.chars().any(char::is_control) => Err(NameError::Wrong("has a control character")),
        _ if text.contains(['{', '}']) => {
            Err(NameError::Wrong("has a brace, which stands for a pattern in a token"))
        }
        _ => Ok(()),
    }
}

impl Pattern {
    /// Parses the path of a route.
    ///
    /// # Errors
    ///
    /// The mistake, in words.
    pub(crate) fn parse(text: &str) -> Result<Pattern, String> {
        let mut pattern = Pattern { text: text.to_owned(), parameters: None };
        if has_parameters(text) {
            if text.contains("{{") || text.contains("}}") {
                return Err("no name of a channel has a brace".to_owned());
            }
            let mut router = matchit::Router::new();
            router.insert(text, ()).map_err(|error| error.to_string())?;
            pattern.parameters = Some(router);
        }
        Ok(pattern)
    }

    /// Returns the path as it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the route has a channel for each name.
    pub(crate) fn has_parameters(&self) -> bool {
        self.parameters.is_some()
    }

    /// Returns the name of the channel at a path of a request.
    ///
    /// # Errors
    ///
    /// If the path does not fit the pattern, or the name is not allowed.
    pub(crate) fn name(&self, path: &str) -> Result<Arc<str>, NameError> {
        let Some(router) = &self.parameters else {
            let rest = path.strip_prefix(self.text.trim_end_matches('/'));
            return match rest {
                Some("" | "/") => Ok(self.text.as_str().into()),
                _ => Err(NameError::Elsewhere),
            };
        };
        let found = router.at(path).map_err(|_| NameError::Elsewhere)?;
        let mut name = String::new();
        let mut done = 0;
        for (key, value) in found.params.iter() {
            // The value is a part of the path.
            let start = value.as_ptr() as usize - path.as_ptr() as usize;
            name.push_str(&path[done..start]);
            done = start + value.len();
            let decoded = percent_decode_str(value).decode_utf8();
            let decoded = decoded.map_err(|_| NameError::Wrong("is not UTF-8"))?;
            if self.text.contains(&format!("{{*{key}}}")) {
                // Slashes separate parts here; an escaped one belongs to a part.
                for raw in value.split('/') {
                    part(&percent_decode_str(raw).decode_utf8_lossy())?;
                }
            } else {
                part(&decoded)?;
            }
            name.push_str(&decoded);
        }
        name.push_str(&path[done..]);
        match name.len() {
            ..=LONGEST_NAME => Ok(name.into()),
            _ => Err(NameError::TooLong),
        }
    }

    /// Whether a name, as [`name`](Pattern::name) returns it, is that of a channel here.
    pub(crate) fn has(&self, name: &str) -> bool {
        match &self.parameters {
            None => name == self.text,
            Some(router) => router.at(name).is_ok(),
        }
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(pattern: &str, path: &str) -> Result<String, NameError> {
        Pattern::parse(pattern).unwrap().name(path).map(|name| name.to_string())
    }

    #[test]
    fn a_path_without_parameters_is_one_channel() {
        assert_eq!(name("/news", "/news").as_deref(), Ok("/news"));
        assert_eq!(name("/news", "/news/").as_deref(), Ok("/news"));
        assert_eq!(name("/", "/").as_deref(), Ok("/"));
        assert_eq!(name("/news", "/news/today"), Err(NameError::Elsewhere));
        assert_eq!(name("/news", "/newspaper"), Err(NameError::Elsewhere));
    }

    #[test]
    fn parameters_are_decoded_so_that_each_channel_has_one_name() {
        for path in ["/rooms/42", "/rooms/%34%32", "/rooms/4%32"] {
            assert_eq!(name("/rooms/{room}", path).as_deref(), Ok("/rooms/42"), "{path}");
        }
        assert_eq!(name("/rooms/{room}", "/rooms/a.b%20%C3%A4").as_deref(), Ok("/rooms/a.b ä"));
        let pattern = "/users/{user}/inbox/{box}.json";
        assert_eq!(name(pattern, "/users/a/inbox/b.json").as_deref(), Ok("/users/a/inbox/b.json"));
        assert_eq!(name("/t/{*rest}", "/t/a/b%2e/c").as_deref(), Ok("/t/a/b./c"));
    }

    #[test]
    fn names_that_are_read_in_different_ways_are_refused() {
        let wrong = |what| Err(NameError::Wrong(what));
        let dots = wrong("has a part \".\" or \"..\"");
        let slash = wrong("has a slash within a part");
        let brace = wrong("has a brace, which stands for a pattern in a token");
        for (path, expected) in [
            ("/rooms/", Err(NameError::Elsewhere)),
            ("/rooms/a/b", Err(NameError::Elsewhere)),
            ("/rooms/.", dots.clone()),
            ("/rooms/%2e%2E", dots.clone()),
            ("/rooms/a%2fb", slash.clone()),
            ("/rooms/a%5cb", slash.clone()),
            ("/rooms/%00", wrong("has a control character")),
            ("/rooms/a%0d%0ab", wrong("has a control character")),
            ("/rooms/%C2%85", wrong("has a control character")),
            ("/rooms/%ff", wrong("is not UTF-8")),
            ("/rooms/%7Bany%7D", brace.clone()),
            ("/rooms/{any}", brace.clone()),
            ("/rooms/a%7d", brace.clone()),
            ("/rooms/%7B", brace.clone()),
        ] {
            assert_eq!(name("/rooms/{room}", path), expected, "{path}");
        }
        assert_eq!(name("/t/{*rest}", "/t/a//b"), wrong("has an empty part"));
        assert_eq!(name("/t/{*rest}", "/t/a/%2e%2e/b"), dots);
        assert_eq!(name("/t/{*rest}", "/t/a/b%2fc"), slash);
        assert_eq!(name("/t/{*rest}", "/t/a/%7B*all%7D"), brace);
        let long = format!("/rooms/{}", "x".repeat(4096));
        assert_eq!(name("/rooms/{room}", &long), Err(NameError::TooLong));
        let longest = format!("/rooms/{}", "x".repeat(LONGEST_NAME - "/rooms/".len()));
        assert_eq!(name("/rooms/{room}", &longest), Ok(longest));
    }

    #[test]
    fn wrong_patterns_are_refused() {
        for pattern in ["/{", "/{}", "/{*rest}/x", "/{a}{b}", "/{{a}}/{b}", "/{{a}}"] {
            assert!(Pattern::parse(pattern).is_err(), "{pattern}");
        }
    }

    proptest! {
        /// Two paths that are different once decoded have different names, and each name is found
        /// again.
        #[test]
        fn names_are_unambiguous(one in "[a-c%2FfeE./]{1,6}", other in "[a-c%2FfeE./]{1,6}") {
            for pattern in ["/r/{room}", "/r/{*rest}"] {
                let found = [&one, &other].map(|rest| name(pattern, &format!("/r/{rest}")));
                let decoded = [&one, &other].map(|rest| percent_decode_str(rest).collect::<Vec<u8>>());
                if let [Ok(one), Ok(other)] = &found {
                    prop_assert_eq!(one == other, decoded[0] == decoded[1]);
                    prop_assert!(Pattern::parse(pattern).unwrap().has(one));
                }
            }
        }
    }
}
