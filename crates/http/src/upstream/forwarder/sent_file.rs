//! Files that a server asks this one to send in its place: `X-Accel-Redirect`, as nginx has it, and
//! `X-Sendfile`, as Apache and lighttpd do.
//!
//! The server decides who may have a file, and this one sends it, with ranges and conditions. Only
//! files of folders that the route names are sent. The fields of the server's response stay, except
//! those about the bytes, which are not its own.

use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName,
    IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED,
    RANGE,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::body::Body;
use crate::files::Site;
use crate::head::{Fields, Head};

/// The path in a URL of this server that stands for the file.
const BY_URL: HeaderName = HeaderName::from_static("x-accel-redirect");

/// The path of the file.
const BY_FILE: HeaderName = HeaderName::from_static("x-sendfile");

/// Fields about the bytes of a file.
const ABOUT_BYTES: [HeaderName; 6] =
    [ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, LAST_MODIFIED];

/// Fields of a request that decide which bytes it gets.
const ABOUT_RANGES: [HeaderName; 6] =
    [RANGE, IF_RANGE, IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE];

const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'?').add(b'#');

/// The folders of a route, each with the path that stands for it.
pub(super) struct SentFiles(Vec<SentFolder>);

struct SentFolder {
    url: String,
    root: PathBuf,
    /// The same without symbolic links.
    resolved: Option<PathBuf>,
    site: Rc<Site>,
}

/// A file that is to be sent.
pub(in crate::upstream) struct SentFile {
    site: Rc<Site>,
    /// Its path below the folder, encoded.
    path: String,
    /// The fields of the server's response that stay.
    headers: HeaderMap,
}

/// The part of a request that decides which bytes of a file its client gets.
#[derive(Debug)]
pub(in crate::upstream) struct AskedBytes {
    is_head: bool,
    headers: HeaderMap,
}

impl AskedBytes {
    pub(super) fn new(fields: Fields<'_>, is_head: bool) -> AskedBytes {
        let mut headers = HeaderMap::new();
        for name in ABOUT_RANGES {
            let value = fields.value(name.as_str());
            let value = value.and_then(|value| HeaderValue::from_bytes(value).ok());
            headers.extend(value.map(|value| (name, value)));
        }
        AskedBytes { is_head, headers }
    }
}

impl SentFiles {
    pub(super) fn new(folders: impl Iterator<Item = (String, PathBuf, Site)>) -> SentFiles {
        let folders = folders.map(|(url, root, site)| SentFolder {
            url: url.trim_end_matches('/').to_owned(),
            resolved: root.canonicalize().ok(),
            root: std::path::absolute(&root).unwrap_or(root),
            site: Rc::new(site),
        });
        SentFiles(folders.collect())
    }

    /// Takes the file that a response asks for out of its fields.
    ///
    /// # Errors
    ///
    /// It is in none of the folders; the error says which one it is.
    pub(super) fn take(&self, headers: &mut HeaderMap) -> Option<Result<SentFile, String>> {
        let (by_url, by_file) = (headers.remove(BY_URL), headers.remove(BY_FILE));
        let asked = by_url.as_ref().or(by_file.as_ref())?;
        let no_file = || Err(format!("it asks for {asked:?}, which is in no folder of send_files"));
        let Ok(text) = std::str::from_utf8(asked.as_bytes()) else { return Some(no_file()) };
        let found = match by_url {
            Some(_) => self.by_url(text),
            None => self.by_file(Path::new(text)),
        };
        let Some((site, path)) = found else { return Some(no_file()) };
        let mut headers = std::mem::take(headers);
        for name in ABOUT_BYTES {
            headers.remove(name);
        }
        Some(Ok(SentFile { site: site.clone(), path, headers }))
    }

    fn by_url(&self, text: &str) -> Option<(&Rc<Site>, String)> {
        let fits = |folder: &&SentFolder| {
            text.strip_prefix(&*folder.url).is_some_and(|rest| rest.starts_with('/'))
        };
        let folder = self.0.iter().filter(fits).max_by_key(|folder| folder.url.len())?;
        let path = text[folder.url.len()..].split('?').next()?;
        let decoded = percent_decode_str(path).decode_utf8().ok()?;
        if decoded.split('/').any(|part| matches!(part, "." | "..")) {
            return None;
        }
        // Programs write names as they are, too.
        let path = match path.contains('%') {
            true => path.to_owned(),
            false => utf8_percent_encode(path, ENCODED).to_string(),
        };
        Some((&folder.site, path))
    }

    fn by_file(&self, path: &Path) -> Option<(&Rc<Site>, String)> {
        if path.components().any(|part| matches!(part, Component::ParentDir)) {
            return None;
        }
        // Programs name a file by the folder's path, or by that which its links lead to.
        let below = |folder: &SentFolder| {
            let roots = [Some(&folder.root), folder.resolved.as_ref()];
            let mut found = roots.into_iter().flatten();
            found.find_map(|root| path.strip_prefix(root).ok())?.to_str().map(str::to_owned)
        };
        let found = self.0.iter().filter_map(|folder| Some((folder, below(folder)?)));
        // The folder that is nearest to it.
        let (folder, below) = found.min_by_key(|(_, below)| below.len())?;
        Some((&folder.site, format!("/{}", utf8_percent_encode(&below, ENCODED))))
    }
}

impl SentFile {
    /// Returns the response to a request.
    pub(super) async fn response(self, asked: Option<&AskedBytes>) -> Response<Body> {
        let mut request = Request::new(());
        if let Some(asked) = asked {
            *request.headers_mut() = asked.headers.clone();
            if asked.is_head {
                *request.method_mut() = Method::HEAD;
            }
        }
        let mut response = self.site.answer(Head::from(&request), &self.path).await;
        // A page about an error has its own.
        if response.status().is_success() || response.status() == StatusCode::NOT_MODIFIED {
            let mut last = None;
            for (name, value) in self.headers {
                last = name.or(last);
                let Some(name) = &last else { continue };
                // The parts of several ranges have their own types.
                let is_multipart =
                    |value: &HeaderValue| value.as_bytes().starts_with(b"multipart/");
                if *name == CONTENT_TYPE && response.headers().get(name).is_some_and(is_multipart) {
                    continue;
                }
                // The first of several takes the place of the file's own.
                if response.headers().contains_key(name) && ours(name) {
                    response.headers_mut().insert(name, value);
                } else {
                    response.headers_mut().append(name, value);
                }
            }
        }
        response
    }
}

/// Whether the answer for a file has a field with this name, of which there is one.
fn ours(name: &HeaderName) -> bool {
    matches!(name.as_str(), "content-type" | "cache-control" | "x-content-type-options")
}

#[cfg(test)]
mod tests {
    use superpoll_config::Files;

    use super::*;

    fn sent() -> (tempfile::TempDir, SentFiles) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("b c")).unwrap();
        let site = |root: &Path| {
            Site::open(Files { root: root.to_owned(), hidden: true, ..Files::default() }).unwrap()
        };
        let root = folder.path().to_owned();
        let inner = root.join("b c");
        let folders = [
            ("/private/".to_owned(), root.clone(), site(&root)),
            ("/private/inner".to_owned(), inner.clone(), site(&inner)),
        ];
        (folder, SentFiles::new(folders.into_iter()))
    }

    fn path(of: &SentFiles, name: &HeaderName, value: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        of.take(&mut headers)?.ok().map(|file| file.path)
    }

    #[test]
    fn a_file_is_found_by_its_url_or_by_its_path() {
        let (folder, sent) = sent();
        for (url, expected) in [
            ("/private/a b.txt", Some("/a%20b.txt")),
            ("/private/a%20b.txt?x", Some("/a%20b.txt")),
            ("/private/inner/x", Some("/x")),
            ("/privateer/x", None),
            ("/private", None),
            ("/private/../etc/passwd", None),
            ("/private/%2e%2E/x", None),
            ("/etc/passwd", None),
        ] {
            assert_eq!(path(&sent, &BY_URL, url).as_deref(), expected, "{url}");
        }
        let root = folder.path().display();
        for (file, expected) in [
            (format!("{root}/a%b"), Some("/a%25b")),
            (format!("{root}/b c/d e"), Some("/d%20e")),
            ("/etc/passwd".to_owned(), None),
            (format!("{root}er/a"), None),
            (format!("{root}/../a"), None),
        ] {
            assert_eq!(path(&sent, &BY_FILE, &file).as_deref(), expected, "{file}");
        }
        assert!(sent.take(&mut HeaderMap::new()).is_none());
    }
}
