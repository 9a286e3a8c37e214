//! Responses that consist of a status, without a file.

use std::fs::File;
use std::io;

use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use superpoll_http1::Method;

use crate::body::Body;
use crate::reply;

/// Returns a response whose body is its status.
pub(super) fn plain(status: StatusCode, is_head: bool) -> Response<Body> {
    let text = format!("{} {}\n", status.as_u16(), status.canonical_reason().unwrap_or(""));
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if !is_head {
        *response.body_mut() = Body::from(text);
    }
    response
}

/// Answers a request that is no GET or HEAD: with 501 if no resource knows the method.
pub(super) fn not_allowed(method: Method<'_>) -> Response<Body> {
    if !reply::is_known(method) {
        return plain(StatusCode::NOT_IMPLEMENTED, false);
    }
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, false);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
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
