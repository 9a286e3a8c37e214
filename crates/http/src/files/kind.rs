//! The media type of a file by its name, and whether files of it are worth compressing.

use std::ffi::OsStr;
use std::path::Path;

use http::HeaderValue;
use mime_guess2::Mime;
use superpoll_config::Files;

/// The description of a file's contents.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    /// The value of Content-Type.
    pub(super) field: HeaderValue,
    /// Whether it is text of some sort, which compression makes much shorter.
    pub(super) is_compressible: bool,
}

impl Kind {
    /// Returns the kind of a file, by its name and the options of its folder.
    pub(super) fn from_name(name: &str, options: &Files) -> Kind {
        let extension = Path::new(name).extension().and_then(OsStr::to_str);
        let own = extension.and_then(|extension| {
            options.types.get(&extension.to_ascii_lowercase())?.parse::<Mime>().ok()
        });
        let is_own = own.is_some();
        let mime = own.unwrap_or_else(|| mime_guess2::from_path(name).first_or_octet_stream());
        let is_script = mime.subtype() == "javascript" && !is_own;
        let is_text = mime.type_() == "text" || mime.subtype() == "json" || is_script;
        // RFC 9239 has done away with the other names of it.
        let mut text = if is_script { "text/javascript".to_owned() } else { mime.to_string() };
        if is_text && options.charset != "off" && mime.get_param("charset").is_none() {
            text.push_str("; charset=");
            text.push_str(&options.charset);
        }
        let unknown = || HeaderValue::from_static("application/octet-stream");
        Kind {
            field: HeaderValue::try_from(text).unwrap_or_else(|_| unknown()),
            is_compressible: is_compressible(&mime),
        }
    }
}

/// Whether bodies with this Content-Type are text of some sort, which compression makes much
/// shorter.
pub(super) fn is_text(field: &[u8]) -> bool {
    let mime = std::str::from_utf8(field).ok().and_then(|field| field.parse().ok());
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
            let kind = Kind::from_name(name, &Files::default());
            assert_eq!(
                (kind.field.to_str().unwrap(), kind.is_compressible),
                (field, is_compressible)
            );
        }
    }

    #[test]
    fn the_options_of_a_folder_come_before_the_usual_types() {
        let types = |types: &[(&str, &str)]| {
            types.iter().map(|(name, mime)| ((*name).to_owned(), (*mime).to_owned())).collect()
        };
        let types = types(&[
            ("mjs", "application/javascript"),
            ("geojson", "application/geo+json"),
            ("log", "text/plain"),
            ("tex", "text/x-tex; charset=latin1"),
            ("html", "application/xhtml+xml"),
        ]);
        let latin = Files { charset: "iso-8859-15".to_owned(), types, ..Files::default() };
        let off = Files { charset: "off".to_owned(), ..latin.clone() };
        for (name, with, without, is_compressible) in [
            ("a.txt", "text/plain; charset=iso-8859-15", "text/plain", true),
            ("a.js", "text/javascript; charset=iso-8859-15", "text/javascript", true),
            ("a.json", "application/json; charset=iso-8859-15", "application/json", true),
            ("a.png", "image/png", "image/png", false),
            ("a.mjs", "application/javascript", "application/javascript", true),
            ("b/a.GeoJSON", "application/geo+json", "application/geo+json", true),
            ("a.b.log", "text/plain; charset=iso-8859-15", "text/plain", true),
            ("a.tex", "text/x-tex; charset=latin1", "text/x-tex; charset=latin1", true),
            ("a.html", "application/xhtml+xml", "application/xhtml+xml", true),
            ("log", "application/octet-stream", "application/octet-stream", false),
        ] {
            for (options, field) in [(&latin, with), (&off, without)] {
                let kind = Kind::from_name(name, options);
                assert_eq!(
                    (kind.field.to_str().unwrap(), kind.is_compressible),
                    (field, is_compressible)
                );
            }
        }
    }
}
