//! hyper on tokio's `current_thread` runtime with the files of a folder, which it holds in memory:
//! bytes, and the fields of their heads. `files/mod.rs` explains why it does no more than that.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT_RANGES, ALLOW, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue,
    IF_NONE_MATCH, LAST_MODIFIED, X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};

use crate::error::{Doing, Result};
use crate::http::tokio::serve_each;
use crate::server::Control;

/// A file in memory.
struct CachedFile {
    bytes: Bytes,
    fields: HeaderMap,
}

/// Files by path.
type Files = HashMap<String, CachedFile>;

/// Reads all files of a folder, without its subfolders.
fn cache(root: &Path) -> std::io::Result<Files> {
    let mut files = Files::new();
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        let about = entry.metadata()?;
        if !about.is_file() {
            continue;
        }
        let modified = about.modified()?;
        let age = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        let tag = format!("\"{:x}-{:x}\"", about.len(), age.as_nanos());
        let date = httpdate::fmt_http_date(modified);
        let mut fields = HeaderMap::new();
        let value = |text: &str| HeaderValue::from_str(text).map_err(std::io::Error::other);
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        fields.insert(CONTENT_LENGTH, HeaderValue::from(about.len()));
        fields.insert(ETAG, value(&tag)?);
        fields.insert(LAST_MODIFIED, value(&date)?);
        // This server sends no parts of files. The heads of servers that do are as long.
        fields.insert(ACCEPT_RANGES, HeaderValue::from_static("none"));
        fields.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        let bytes = Bytes::from(std::fs::read(entry.path())?);
        files.insert(
            format!("/{}", entry.file_name().to_string_lossy()),
            CachedFile { bytes, fields },
        );
    }
    Ok(files)
}

/// Returns the answer to a request.
fn answer<B>(files: &Files, request: &Request<B>) -> Response<Full<Bytes>> {
    let plain = |status| {
        let mut response = Response::default();
        *response.status_mut() = status;
        response
    };
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED);
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let Some(file) = files.get(request.uri().path()) else { return plain(StatusCode::NOT_FOUND) };
    let mut response = Response::new(Full::new(file.bytes.clone()));
    *response.headers_mut() = file.fields.clone();
    if let Some(known) = request.headers().get(IF_NONE_MATCH)
        && Some(known) == file.fields.get(ETAG)
    {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = Full::default();
        response.headers_mut().remove(CONTENT_LENGTH);
    }
    response
}

/// Serves a folder indefinitely to the clients of a listener.
pub(super) fn serve(listener: TcpListener, root: &Path, control: &mut Control) -> Result<()> {
    let files = cache(root).doing(format_args!("reading {}", root.display()))?;
    let files = Arc::new(files);
    serve_each(listener, control, |stream| {
        let files = Arc::clone(&files);
        let service = service_fn(move |request: Request<Incoming>| {
            let response = answer(&files, &request);
            async move { Ok::<_, Infallible>(response) }
        });
        // A client that goes away is no failure of the server's; the generator notices lost
        // answers.
        http1::Builder::new().serve_connection(stream, service)
    })
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[test]
    fn files_are_answered_with_their_bytes_and_others_are_not_found() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("one"), "a file").unwrap();
        std::fs::create_dir(folder.path().join("folder")).unwrap();
        let files = cache(folder.path()).unwrap();
        let ask = |method: &str, path: &str, tag: Option<&HeaderValue>| {
            let mut request = Request::builder().method(method).uri(path).body(()).unwrap();
            if let Some(tag) = tag {
                request.headers_mut().insert(IF_NONE_MATCH, tag.clone());
            }
            answer(&files, &request)
        };
        let response = ask("GET", "/one", None);
        let (head, body) = response.into_parts();
        assert!(head.status == 200 && head.headers[CONTENT_LENGTH] == "6");
        let bytes = futures_lite::future::block_on(body.collect()).unwrap().to_bytes();
        assert_eq!(&bytes[..], b"a file");
        let tag = &head.headers[ETAG];
        assert_eq!(ask("GET", "/one", Some(tag)).status(), StatusCode::NOT_MODIFIED);
        assert_eq!(ask("GET", "/folder", None).status(), StatusCode::NOT_FOUND);
        assert_eq!(ask("GET", "/two", None).status(), StatusCode::NOT_FOUND);
        assert_eq!(ask("POST", "/one", None).status(), StatusCode::METHOD_NOT_ALLOWED);
    }
}
