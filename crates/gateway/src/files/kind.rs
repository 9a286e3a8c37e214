//! The media type of a file by its name, and whether files of it are worth compressing.

use http::HeaderValue;
use mime_guess2::Mime;

/// The description of a file's contents.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    /// The value of Content-Type.
    pub(super) field: HeaderValue,
    /// Whether it is text of some sort, which compression makes much shorter.
    pub(super) is_compressible: bool,
}

impl Kind {
    /// Returns the kind of a file, by its name.
    pub(super) fn of(name: &str) -> Kind {
        let mime = mime_guess2::from_path(name).first_or_octet_stream();
        let is_text = mime.type_() == "text" || mime.subtype() == "json";
        let text = if mime.subtype() == "javascript" {
            // RFC 9239 has done away with the other names of it.
            "text/javascript; charset=utf-8".to_owned()
        } else if is_text && mime.get_param("charset").is_none() {
            format!("{mime}; charset=utf-8")
        } else {
            mime.to_string()
        };
        let unknown = || HeaderValue::from_static("application/octet-stream");
        Kind {
            field: HeaderValue::try_from(text).unwrap_or_else(|_| unknown()),
            is_compressible: is_compressible(&mime),
        }
    }
}

/// Whether bodies with this Content-Type are text of some sort, which compression makes much
/// shorter.
pub(super) fn is_text(field: &HeaderValue) -> bool {
    let mime = field.to_str().ok().and_then(|field| field.parse().ok());
    mime.is_some_and(|mime| is_compressible(&mime))
}

fn is_compressible(mime: &Mime) -> bool {
    let subtype = mime.subtype().as_str();
    let by_name = match mime.type_().as_str() {
        "text" => true,
        "application" => matches!(
            subtype,
            "javascript" | "json" | "xml" | "wasm" | "x-javascript" | "rtf" | "x-sh" | "sql"
        ),
        "image" => matches!(subtype, "bmp" | "x-icon" | "vnd.microsoft.icon"),
        "font" => matches!(subtype, "ttf" | "otf"),
        _ => false,
    };
    by_name || mime.suffix().is_some_and(|suffix| matches!(suffix.as_str(), "json" | "xml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_types() {
        for (name, field, is_compressible) in [
            ("a.txt", "text/plain; charset=utf-8", true),
            ("a.html", "text/html; charset=utf-8", true),
            ("a.js", "text/javascript; charset=utf-8", true),
            ("a.json", "application/json; charset=utf-8", true),
            ("a.svg", "image/svg+xml", true),
            ("a.wasm", "application/wasm", true),
            ("a.webmanifest", "application/manifest+json", true),
            ("a.ttf", "font/ttf", true),
            ("a.woff2", "font/woff2", false),
            ("a.png", "image/png", false),
            ("a.zip", "application/zip", false),
            ("a", "application/octet-stream", false),
        ] {
            let kind = Kind::of(name);
            assert_eq!(
                (kind.field.to_str().unwrap(), kind.is_compressible),
                (field, is_compressible)
            );
        }
    }
}
