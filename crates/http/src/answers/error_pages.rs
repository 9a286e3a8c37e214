//! Pages for errors: files in memory, which are sent in place of the text of a status.
//!
//! They are read when a configuration is taken on, not when there is an error: the reason for an
//! error may be that no file can be opened.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_LOCATION,
    CONTENT_TYPE, ETAG, LAST_MODIFIED, TRAILER, TRANSFER_ENCODING, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use superpoll_config::{self, ErrorKind, LARGEST_PAGE, bounded_file};

use crate::body::Body;
use crate::files;

/// The fields that describe the body of a response, and are wrong for another one.
const OF_BODY: [HeaderName; 13] = [
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_LOCATION,
    CONTENT_LENGTH,
    TRANSFER_ENCODING,
    TRAILER,
    ETAG,
    LAST_MODIFIED,
    ACCEPT_RANGES,
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
];

/// The file of a page for errors cannot be read, or is too large.
#[derive(thiserror::Error, Debug)]
#[error("reading the page for errors {path}: {source}")]
pub struct PageError {
    /// The file.
    pub path: PathBuf,
    /// The kernel's error.
    pub source: io::Error,
}

#[derive(Clone, Debug)]
struct ErrorPage {
    kind: HeaderValue,
    bytes: Bytes,
}

/// Pages by the errors that they are for. Clones share the bytes.
#[derive(Clone, Default, Debug)]
pub(crate) struct ErrorPages(BTreeMap<ErrorKind, ErrorPage>);

impl ErrorPages {
    /// Reads pages.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or is too large.
    pub(crate) fn open(paths: &superpoll_config::ErrorPages) -> Result<ErrorPages, PageError> {
        let pages = paths.iter().map(|(errors, path)| {
            let kind = files::media_type(&path.to_string_lossy());
            let cannot = |source| PageError { path: path.clone(), source };
            let bytes = bounded_file::read(path, LARGEST_PAGE).map_err(cannot)?;
            Ok((*errors, ErrorPage { kind, bytes: bytes.into() }))
        });
        pages.collect::<Result<_, PageError>>().map(ErrorPages)
    }

    /// Returns these pages, and those of `others` where these have none.
    pub(crate) fn or(mut self, others: &ErrorPages) -> ErrorPages {
        for (errors, page) in &others.0 {
            // A page for a class counts more than one of the others for one status.
            let class = match errors {
                ErrorKind::Status(status) => ErrorKind::Class(status / 100),
                class => *class,
            };
            if !self.0.contains_key(&class) {
                self.0.entry(*errors).or_insert_with(|| page.clone());
            }
        }
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn for_status(&self, status: StatusCode) -> Option<&ErrorPage> {
        ErrorKind::of_status(status).iter().find_map(|errors| self.0.get(errors))
    }

    /// Puts a page in the place of the body of an error. The status stays, and so do the fields
    /// that do not describe the body.
    pub(crate) fn replace(&self, response: &mut Response<Body>, is_head: bool) {
        let Some(page) = self.for_status(response.status()) else { return };
        let headers = response.headers_mut();
        OF_BODY.iter().for_each(|name| drop(headers.remove(name)));
        headers.insert(CONTENT_TYPE, page.kind.clone());
        headers.insert(CONTENT_LENGTH, HeaderValue::from(page.bytes.len()));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        *response.body_mut() = match is_head {
            true => Body::empty(),
            false => Body::from(page.bytes.clone()),
        };
    }
}
