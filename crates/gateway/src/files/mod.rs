//! Static files: from the head of a request and a folder to the head of a response and where its body is.
//!
//! Nothing here knows of sockets. [`Site::respond`] opens the file, decides by RFC 9110 what of it is to be sent and
//! names those bytes as [`Piece`]s; whoever has the connection sends them by `sendfile`, `splice` or a copy. What a
//! response says of a file it says of the opened descriptor, so that a file exchanged meanwhile is sent whole, old or
//! new.
//!
//! A path is decoded once and refused rather than repaired: `..`, an encoded slash, a backslash and a zero byte get
//! 400. What a symbolic link leads out of the folder to is not found, see [`Folder`].
//!
//! The strong ETag is of size, time of change and inode, as those of other servers are; a file that is overwritten in
//! place within the granularity of the file system's clock, to the same length, keeps it.

mod encoding;
mod folder;
mod path;
mod range;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use headers::{
    ETag, HeaderMapExt, IfMatch, IfModifiedSince, IfNoneMatch, IfRange, IfUnmodifiedSince,
    LastModified,
};
use http::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, LOCATION, RANGE, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, request};

pub use self::folder::Folder;
use self::path::Refusal;
use self::range::Wanted;
use crate::config::Files;

/// A part of a body.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Bytes of a file, which is a regular one.
    File(Arc<File>, Range<u64>),
    /// Bytes in memory.
    Memory(Vec<u8>),
}

impl Piece {
    /// How many bytes it has.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Piece::File(_, range) => range.end - range.start,
            Piece::Memory(bytes) => bytes.len() as u64,
        }
    }
}

/// The body of a response: the pieces in order; none where there is no body, as for HEAD.
pub type Body = Vec<Piece>;

/// A folder together with how it is served.
#[derive(Debug)]
pub struct Site {
    folder: Folder,
    options: Files,
}

/// A file that was found.
struct Found {
    file: File,
    length: u64,
    etag: ETag,
    etag_text: String,
    /// None before 1970, which no date of HTTP is made of.
    modified: Option<SystemTime>,
}

fn plain(status: StatusCode, method: &Method) -> Response<Body> {
    let text = format!("{} {}\n", status.as_u16(), status.canonical_reason().unwrap_or(""));
    let mut response = Response::new(Vec::new());
    *response.status_mut() = status;
    whole(&mut response, text.into_bytes(), "text/plain; charset=utf-8", method);
    response
}

/// Gives a response a body in memory.
fn whole(response: &mut Response<Body>, bytes: Vec<u8>, kind: &'static str, method: &Method) {
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    if method != Method::HEAD {
        *response.body_mut() = vec![Piece::Memory(bytes)];
    }
}

/// Sets a field whose value is made of visible characters; others it leaves out.
fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

impl Found {
    /// What there is to be said of an opened file; none where it is no regular file.
    fn new(file: File) -> io::Result<Option<Found>> {
        let data = file.metadata()?;
        if !data.is_file() {
            return Ok(None);
        }
        let (seconds, nanoseconds) = (data.mtime(), data.mtime_nsec());
        let etag_text =
            format!("\"{:x}-{:x}.{:x}-{:x}\"", data.len(), seconds, nanoseconds, data.ino());
        let etag = etag_text.parse().map_err(|_| io::Error::other("the ETag cannot be written"))?;
        let after = u64::try_from(seconds).ok().map(Duration::from_secs);
        let modified = after.and_then(|after| SystemTime::UNIX_EPOCH.checked_add(after));
        Ok(Some(Found { file, length: data.len(), etag, etag_text, modified }))
    }

    /// What the conditions of a request lead to, in the order of RFC 9110, section 13.2.2; none: it is carried out.
    fn condition(&self, headers: &HeaderMap) -> Option<StatusCode> {
        if headers.contains_key(IF_MATCH) {
            let passes = headers
                .typed_get::<IfMatch>()
                .is_some_and(|tags| tags.precondition_passes(&self.etag));
            if !passes {
                return Some(StatusCode::PRECONDITION_FAILED);
            }
        } else if let (Some(since), Some(modified)) =
            (headers.typed_get::<IfUnmodifiedSince>(), self.modified)
            && !since.precondition_passes(modified)
        {
            return Some(StatusCode::PRECONDITION_FAILED);
        }
        if headers.contains_key(IF_NONE_MATCH) {
            let passes = headers
                .typed_get::<IfNoneMatch>()
                .is_none_or(|tags| tags.precondition_passes(&self.etag));
            if !passes {
                return Some(StatusCode::NOT_MODIFIED);
            }
        } else if let (Some(since), Some(modified)) =
            (headers.typed_get::<IfModifiedSince>(), self.modified)
            && !since.is_modified(modified)
        {
            return Some(StatusCode::NOT_MODIFIED);
        }
        None
    }

    /// Which parts are asked for, which is all where If-Range names another version.
    fn wanted(&self, head: &request::Parts) -> Wanted {
        let field = head.headers.get(RANGE).and_then(|field| field.to_str().ok());
        let (Some(field), true) = (field, head.method == Method::GET) else { return Wanted::Whole };
        if head.headers.contains_key(IF_RANGE) {
            let last = self.modified.map(LastModified::from);
            let condition = head.headers.typed_get::<IfRange>();
            if condition
                .is_none_or(|condition| condition.is_modified(Some(&self.etag), last.as_ref()))
            {
                return Wanted::Whole;
            }
        }
        range::wanted(field, self.length)
    }
}

/// The type of a file by its name.
fn kind(name: &str) -> String {
    let mime = mime_guess2::from_path(name).first_or_octet_stream();
    let is_text =
        mime.type_() == "text" || matches!(mime.subtype().as_str(), "javascript" | "json");
    if is_text && mime.get_param("charset").is_none() {
        format!("{mime}; charset=utf-8")
    } else {
        mime.to_string()
    }
}

impl Site {
    /// Opens the folder of `options`.
    ///
    /// # Errors
    ///
    /// There is no such folder, or it may not be read.
    pub fn open(options: Files) -> io::Result<Site> {
        Ok(Site { folder: Folder::open(&options.root)?, options })
    }

    /// A site of a folder that is open already.
    #[must_use]
    pub fn new(folder: Folder, options: Files) -> Site {
        Site { folder, options }
    }

    /// Answers a request. `path` is the path below the route, as it was sent; redirects to folders are made of the
    /// path of `head`.
    #[must_use]
    pub fn respond(&self, head: &request::Parts, path: &str) -> Response<Body> {
        let mut response = if head.method != Method::GET && head.method != Method::HEAD {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, &head.method);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            response
        } else {
            match path::relative(path, self.options.hidden) {
                Err(Refusal::Malformed) => plain(StatusCode::BAD_REQUEST, &head.method),
                Err(Refusal::Hidden) => plain(StatusCode::NOT_FOUND, &head.method),
                Ok(relative) => self
                    .find(head, &relative.path, relative.is_folder)
                    .unwrap_or_else(|error| plain(status_of(&error), &head.method)),
            }
        };
        response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }

    fn find(
        &self,
        head: &request::Parts,
        path: &str,
        is_folder: bool,
    ) -> io::Result<Response<Body>> {
        let opened = self.folder.open_below(path)?;
        if !opened.metadata()?.is_dir() {
            return match Found::new(opened)? {
                Some(found) if !is_folder => self.send(head, path, found),
                _ => Err(io::ErrorKind::NotFound.into()),
            };
        }
        if !is_folder {
            return Ok(redirect(head));
        }
        for index in &self.options.index {
            let path = if path.is_empty() { index.clone() } else { format!("{path}/{index}") };
            match self.folder.open_below(&path).and_then(Found::new) {
                Ok(Some(found)) => return self.send(head, &path, found),
                Ok(None) => {}
                Err(error) if status_of(&error) == StatusCode::NOT_FOUND => {}
                Err(error) => return Err(error),
            }
        }
        if !self.options.listing {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut response = Response::new(Vec::new());
        let page = self.listing(&opened, path)?;
        whole(&mut response, page.into_bytes(), "text/html; charset=utf-8", &head.method);
        Ok(response)
    }

    /// The page that lists a folder, in the order of names, folders with `/`.
    fn listing(&self, opened: &File, path: &str) -> io::Result<String> {
        use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(opened)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name == "." || name == ".." || (name.starts_with('.') && !self.options.hidden) {
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
        page.push_str(if path.is_empty() {
            "<ul>\n"
        } else {
            "<ul>\n<li><a href=\"../\">../</a>\n"
        });
        for (name, end) in names {
            let link = utf8_percent_encode(&name, NON_ALPHANUMERIC);
            page.push_str(&format!("<li><a href=\"{link}{end}\">{}{end}</a>\n", escaped(&name)));
        }
        page.push_str("</ul>\n");
        Ok(page)
    }

    fn send(&self, head: &request::Parts, path: &str, found: Found) -> io::Result<Response<Body>> {
        let mut response = Response::new(Vec::new());
        let mut found = found;
        let headers = response.headers_mut();
        if self.options.precompressed {
            headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
            for coding in encoding::accepted(&head.headers) {
                let sibling = self.folder.open_below(&format!("{path}{}", coding.suffix()));
                if let Ok(Some(sibling)) = sibling.and_then(Found::new) {
                    found = sibling;
                    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
                    break;
                }
            }
        }
        let kind = kind(path);
        set(headers, ETAG, &found.etag_text);
        if let Some(modified) = found.modified {
            // A date in the future would be a lie by RFC 9110, section 8.8.2.1.
            set(headers, LAST_MODIFIED, &httpdate::fmt_http_date(modified.min(SystemTime::now())));
        }
        if let Some(age) = self.options.max_age {
            set(headers, CACHE_CONTROL, &format!("max-age={}", age.as_secs()));
        }
        match found.condition(&head.headers) {
            Some(StatusCode::NOT_MODIFIED) => {
                headers.remove(CONTENT_ENCODING);
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                return Ok(response);
            }
            Some(status) => return Ok(plain(status, &head.method)),
            None => {}
        }
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        let length = found.length;
        let mut parts = match found.wanted(head) {
            Wanted::Unsatisfiable => {
                let mut response = plain(StatusCode::RANGE_NOT_SATISFIABLE, &head.method);
                set(response.headers_mut(), CONTENT_RANGE, &format!("bytes */{length}"));
                return Ok(response);
            }
            Wanted::Whole => {
                set(headers, CONTENT_TYPE, &kind);
                headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
                if head.method == Method::GET && length > 0 {
                    *response.body_mut() = vec![Piece::File(Arc::new(found.file), 0..length)];
                }
                return Ok(response);
            }
            Wanted::Parts(parts) => parts,
        };
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let file = Arc::new(found.file);
        let content_range =
            |part: &Range<u64>| format!("bytes {}-{}/{length}", part.start, part.end - 1);
        let mut body = Vec::new();
        let headers = response.headers_mut();
        if parts.len() == 1 {
            let part = parts.remove(0);
            set(headers, CONTENT_TYPE, &kind);
            set(headers, CONTENT_RANGE, &content_range(&part));
            body.push(Piece::File(file, part));
        } else {
            let boundary = boundary();
            set(headers, CONTENT_TYPE, &format!("multipart/byteranges; boundary={boundary}"));
            for part in parts {
                let range = content_range(&part);
                let text = format!(
                    "\r\n--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: {range}\r\n\r\n"
                );
                body.push(Piece::Memory(text.into_bytes()));
                body.push(Piece::File(Arc::clone(&file), part));
            }
            body.push(Piece::Memory(format!("\r\n--{boundary}--\r\n").into_bytes()));
        }
        headers
            .insert(CONTENT_LENGTH, HeaderValue::from(body.iter().map(Piece::length).sum::<u64>()));
        *response.body_mut() = body;
        Ok(response)
    }
}

/// A boundary that nobody who wrote the file could know: the standard library's hasher has a random key.
fn boundary() -> String {
    use std::hash::{BuildHasher, RandomState};

    format!("{:016x}{:016x}", RandomState::new().hash_one(0), RandomState::new().hash_one(1))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// To the same path with `/` at its end. Slashes at its start become one: two would name another host.
fn redirect(head: &request::Parts) -> Response<Body> {
    let mut response = plain(StatusCode::PERMANENT_REDIRECT, &head.method);
    let query = head.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let path = head.uri.path().trim_start_matches('/');
    set(response.headers_mut(), LOCATION, &format!("/{path}/{query}"));
    response
}

fn status_of(error: &io::Error) -> StatusCode {
    use rustix::io::Errno;

    match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => StatusCode::FORBIDDEN,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        // What leads out of the folder, is no file that can be opened, or has too long a name is just not there.
        Some(
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::XDEV
            | Errno::LOOP
            | Errno::NAMETOOLONG
            | Errno::NXIO
            | Errno::NODEV,
        ) => StatusCode::NOT_FOUND,
        None if error.kind() == io::ErrorKind::NotFound => StatusCode::NOT_FOUND,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl Site {
    /// Answers (to be replaced at the merge).
    pub async fn answer(&self, head: &request::Parts, path: &str) -> Response<crate::body::Body> {
        self.respond(head, path).map(|pieces| {
            let mut all = Vec::new();
            for piece in pieces {
                match piece {
                    Piece::Memory(bytes) => all.extend(bytes),
                    Piece::File(file, range) => {
                        let mut part = vec![0; (range.end - range.start) as usize];
                        let _ = std::os::unix::fs::FileExt::read_exact_at(
                            &*file,
                            &mut part,
                            range.start,
                        );
                        all.extend(part);
                    }
                }
            }
            all.into()
        })
    }
}
