//! From the path of a request to a path in the folder: decoded once, and refused rather than repaired.

use percent_encoding::percent_decode_str;

/// A path relative to the folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RelativePath {
    /// Its components joined by `/`; empty for the folder itself.
    pub(super) path: String,
    /// Whether the request's path ended with `/`.
    pub(super) is_folder: bool,
}

/// Why a path is not even looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// It is no path, or one that only those send who try to get out.
    Malformed,
    /// It names what is hidden.
    Hidden,
}

pub(super) fn relative(path: &str, hidden: bool) -> Result<RelativePath, Refusal> {
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
        if part.contains(['/', '\\', '\0']) || part == ".." || part == "." {
            return Err(Refusal::Malformed);
        }
        if part.starts_with('.') && part != ".well-known" && !hidden {
            return Err(Refusal::Hidden);
        }
        if !part.is_empty() {
            parts.push(part);
        }
    }
    Ok(RelativePath { path: parts.join("/"), is_folder: rest.is_empty() || rest.ends_with('/') })
}
