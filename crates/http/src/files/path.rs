//! From the path of a request to a path in the folder: decoded once, and refused rather than
//! repaired.

use http::StatusCode;
use percent_encoding::percent_decode_str;

/// A path relative to the folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RelativePath {
    /// Its components joined by `/`; empty for the folder itself.
    pub(super) path: String,
    /// Whether the request's path ended with `/`.
    pub(super) is_folder: bool,
}

/// The reason for which a path is not even looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// It is no path, or a path that only an attacker sends, to leave the folder.
    Malformed,
    /// It names a hidden file.
    Hidden,
}

impl Refusal {
    /// Returns the status of the answer.
    pub(super) fn status(self) -> StatusCode {
        match self {
            Refusal::Malformed => StatusCode::BAD_REQUEST,
            Refusal::Hidden => StatusCode::NOT_FOUND,
        }
    }
}

pub(super) fn relative(path: &str, hidden: bool) -> Result<RelativePath, Refusal> {
    // The path of the route itself, which is that of a folder without its slash.
    if path.is_empty() {
        return Ok(RelativePath { path: String::new(), is_folder: false });
    }
    let rest = path.strip_prefix('/').ok_or(Refusal::Malformed)?;
    let mut parts = Vec::new();
    for part in rest.split('/') {
        let mut after_percent = part.split('%').skip(1);
        let is_escape = |text: &str| {
            text.len() >= 2 && text.bytes().take(2).all(|byte| byte.is_ascii_hexdigit())
        };
        if !after_percent.all(is_escape) {
            return Err(Refusal::Malformed);
        }
        let part = percent_decode_str(part).decode_utf8().map_err(|_| Refusal::Malformed)?;
        if part.contains(['/', '\\', '\0']) || part == ".." {
            return Err(Refusal::Malformed);
        }
        // The folder itself (RFC 3986, section 5.2.4).
        if part == "." {
            continue;
        }
        if part.starts_with('.') && part != ".well-known" && !hidden {
            return Err(Refusal::Hidden);
        }
        if !part.is_empty() {
            parts.push(part);
        }
    }
    let is_folder = matches!(rest.rsplit('/').next(), Some("" | "."));
    Ok(RelativePath { path: parts.join("/"), is_folder })
}

/// Whether a path is written as clients usually do: without empty components, and with nothing
/// escaped that need not be (RFC 3986, section 6.2.2). There are countless other ways to write the
/// same path.
pub(super) fn is_usual(path: &str) -> bool {
    let bytes = path.as_bytes();
    let hex = |byte: u8| (byte as char).to_digit(16).filter(|_| !byte.is_ascii_lowercase());
    let is_needed = |at: usize| {
        let digits = bytes.get(at + 1).zip(bytes.get(at + 2));
        let digits = digits.and_then(|(high, low)| Some((hex(*high)?, hex(*low)?)));
        digits.is_some_and(|(high, low)| {
            let byte = (high * 16 + low) as u8;
            !(byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
        })
    };
    let has_dots = path.contains("/./") || path.ends_with("/.");
    !path.contains("//")
        && !has_dots
        && (0..bytes.len()).all(|at| bytes[at] != b'%' || is_needed(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_ways_to_write_a_path() {
        for path in ["/", "/a.txt", "/a/b", "/a%20b", "/%C3%A9", "/~a", "/a+b", "/a%2Bb"] {
            assert!(is_usual(path), "{path}");
        }
        for path in ["//", "/a//b", "/%61", "/%c3%A9", "/%7Ea", "/%", "/%2", "/%zz", "/./a", "/a/."]
        {
            assert!(!is_usual(path), "{path}");
        }
    }
}
