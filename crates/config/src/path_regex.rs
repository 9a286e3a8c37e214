//! Regular expressions for the paths of requests (`path_regex`).
//!
//! They are those of the crate `regex`, which match in a time that grows with the length of the
//! path alone, so no request can make one of them slow. A path is ASCII, and so are expressions and
//! their classes.

use std::fmt;

use regex::bytes::{Captures, Regex, RegexBuilder};

/// The longest text of an expression, in bytes.
const LONGEST: usize = 4 << 10;

/// The most memory that an expression may take, in bytes.
const LARGEST: usize = 1 << 20;

/// A regular expression for paths.
#[derive(Clone)]
pub struct PathRegex(Regex);

impl PathRegex {
    /// Reads an expression; the error says why it is wrong.
    ///
    /// # Errors
    ///
    /// The text is no expression, or a large one.
    pub fn parse(text: &str) -> Result<PathRegex, String> {
        let expected = "expected one as \"^/u/([a-z]+)$\"";
        if text.len() > LONGEST {
            let length = text.len();
            return Err(format!("the expression has {length} bytes, expected at most {LONGEST}"));
        }
        if text.is_empty() || !text.is_ascii() {
            let what = "is no expression for paths, which are percent-encoded";
            return Err(format!("{text:?} {what}, {expected}"));
        }
        let mut builder = RegexBuilder::new(text);
        builder.unicode(false).size_limit(LARGEST).dfa_size_limit(LARGEST);
        match builder.build() {
            Ok(expression) => Ok(PathRegex(expression)),
            Err(regex::Error::CompiledTooBig(_)) => {
                let what = "takes more than 1 MiB of memory";
                Err(format!("{text:?} {what}, expected one with less or shorter repetitions"))
            }
            Err(error) => {
                // The last line says what is wrong, after lines that show the place.
                let message = error.to_string();
                let last = message.lines().last().unwrap_or_default();
                let what = last.trim_start_matches("error: ");
                Err(format!("{text:?} is no regular expression: {what}, {expected}"))
            }
        }
    }

    /// Whether a path fits.
    #[inline]
    #[must_use]
    pub fn is_match(&self, path: &str) -> bool {
        self.0.is_match(path.as_bytes())
    }

    /// Returns the text of the expression.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Returns the parts of a path that the groups of the expression stand for.
    pub(crate) fn captures<'p>(&self, path: &'p str) -> Option<Captures<'p>> {
        self.0.captures(path.as_bytes())
    }

    /// Returns the group of a name or a number, as its number.
    pub(crate) fn group(&self, name: &str) -> Option<usize> {
        let is_number = !name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit());
        match name.parse::<usize>() {
            Ok(number) if is_number => Some(number).filter(|it| *it < self.0.captures_len()),
            _ => self.0.capture_names().position(|known| known == Some(name)),
        }
    }

    /// Returns the names of the groups, those without a name by their numbers.
    pub(crate) fn groups(&self) -> impl Iterator<Item = String> {
        let names = self.0.capture_names().enumerate().skip(1);
        names.map(|(number, name)| name.map_or_else(|| number.to_string(), str::to_owned))
    }
}

impl PartialEq for PathRegex {
    fn eq(&self, other: &PathRegex) -> bool {
        self.as_str() == other.as_str()
    }
}

impl fmt::Debug for PathRegex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PathRegex({:?})", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_fit_anywhere_unless_they_are_anchored() {
        for (text, path, expected) in [
            ("a", "/xay", true),
            ("^/a$", "/a", true),
            ("^/a$", "/ab", false),
            ("(?i)^/A$", "/a", true),
            ("^/[^/]+/\\d{2}$", "/x/42", true),
            ("^/[^/]+/\\d{2}$", "/x/y/42", false),
            ("^/\\w+$", "/a_1", true),
            ("%20", "/a%20b", true),
        ] {
            assert_eq!(PathRegex::parse(text).unwrap().is_match(path), expected, "{text} {path}");
        }
    }

    #[test]
    fn groups_have_numbers_and_names() {
        let expression = PathRegex::parse("^/(a)(?:b)(?<c>d)(?P<e>f)?$").unwrap();
        assert_eq!(expression.groups().collect::<Vec<_>>(), ["1", "c", "e"]);
        for (name, expected) in [
            ("1", Some(1)),
            ("2", Some(2)),
            ("3", Some(3)),
            ("c", Some(2)),
            ("e", Some(3)),
            ("0", None),
            ("01", None),
            ("4", None),
            ("+1", None),
            ("d", None),
            ("", None),
        ] {
            assert_eq!(expression.group(name), expected, "{name}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let long = "a".repeat(4097);
        let huge = "x".repeat(10 << 20);
        for (text, what) in [
            ("", "\"\" is no expression for paths"),
            ("/é", "which are percent-encoded"),
            ("^/(a", "\"^/(a\" is no regular expression: unclosed group"),
            ("a(?!b)", "look-around, including look-ahead and look-behind, is not supported"),
            ("(a)\\1", "backreferences are not supported"),
            ("\\p{L}", "is no regular expression: "),
            ("(a{500}){500}", "takes more than 1 MiB of memory"),
            (&long, "the expression has 4097 bytes, expected at most 4096"),
            (&huge, "the expression has 10485760 bytes, expected at most 4096"),
        ] {
            let error = PathRegex::parse(text).unwrap_err();
            assert!(error.contains(what) && error.contains("expected"), "{error}");
            assert!(!error.contains('\n') && error.len() < 5000, "{error}");
        }
    }
}
