//! Responses that consist of a status, without a file.

use std::fs::File;
use std::io;

use http::{Response, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use superpoll_http1::Method;

use crate::body::Body;
use crate::reply;

/// Answers a request that is no GET or HEAD: with 501 if no resource knows the method.
pub(super) fn not_allowed(method: Method<'_>) -> Response<Body> {
    match reply::is_known(method) {
        true => reply::not_allowed("GET, HEAD"),
        false => reply::status(StatusCode::NOT_IMPLEMENTED),
    }
}

// The page that lists a folder.

/// Returns a page of the names in a folder in their order, folders with `/`. Names that are not
/// UTF-8 are left out, as no path of a request leads to them.
pub(super) fn listing(opened: &File, path: &str, hidden: bool) -> io::Result<String> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(opened)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name == "." || name == ".." || (name.starts_with('.') && !hidden) {
            continue;
        }
        let end = if entry.file_type() == rustix::fs::FileType::Directory { "/" } else { "" };
        names.push((name.to_owned(), end));
    }
    names.sort();
    let title = escaped(path);
    let mut page = format!(
        "<!doctype html>\n<meta charset=utf-8>\n<title>/{title}</title>\n<h1>/{title}</h1>\n"
    );
    page.push_str(if path.is_empty() { "<ul>\n" } else { "<ul>\n<li><a href=\"../\">../</a>\n" });
    for (name, end) in names {
        let link = utf8_percent_encode(&name, NON_ALPHANUMERIC);
        page.push_str(&format!("<li><a href=\"{link}{end}\">{}{end}</a>\n", escaped(&name)));
    }
    page.push_str("</ul>\n");
    Ok(page)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
