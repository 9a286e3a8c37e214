//! A site: a folder and its options.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Response, StatusCode};
use superpoll_config::Files;
use superpoll_rt::JoinError;
use superpoll_rt::blocking::unblock;

use super::cache::{Cache, Entry};
use super::compress::Levels;
use super::folder::{Folder, Kind as PathKind};
use super::kind::Kind;
use super::path::{self, Refusal, RelativePath};
use super::pieces::read_all;
use super::representation::Source;
use super::resource::{Content, Resource};
use super::status::listing;
use super::status::not_allowed;
use super::version::{OnDisk, Opened, Stamp};
use crate::body::Body;
use crate::encoding::Coding;
use crate::file_region;
use crate::head::Head;
use crate::ready::Ready;
use crate::reply;

/// How many times a file that changes while it is read is read.
const TRIES: usize = 3;

/// A folder and its options, with the resources that one engine has found in it.
pub struct Site {
    folder: Arc<Folder>,
    options: Files,
    levels: Option<Levels>,
    max_age: Option<HeaderValue>,
    cache: RefCell<Cache>,
}

superpoll::debug_fields!(Site, it => options: it.options);

/// The destination of a path.
enum Resolved {
    File(Box<Located>),
    /// A folder without an index, and its path.
    Folder(File, String),
    /// A folder whose path lacks the slash at its end.
    Slashless,
}

/// A file and its siblings in the order of [`Coding::ALL`], and the path of the file.
struct Located {
    path: String,
    opened: [Option<Opened>; 4],
}

impl Located {
    fn stamps(&self) -> [Option<Stamp>; 4] {
        self.opened.each_ref().map(|opened| opened.as_ref().map(|opened| opened.stamp))
    }
}

impl Site {
    /// Opens the folder of `options`.
    ///
    /// # Errors
    ///
    /// There is no such folder, or it may not be read.
    pub fn open(options: Files) -> io::Result<Site> {
        Ok(Site::new(Folder::open(&options.root)?, options))
    }

    /// Creates a site of a folder that is open already.
    #[must_use]
    pub fn new(folder: Folder, options: Files) -> Site {
        let limit = usize::try_from(options.cache_bytes).unwrap_or(usize::MAX);
        let levels = Levels {
            gzip: options.gzip_level,
            brotli: options.brotli_level,
            zstd: options.zstd_level,
        };
        let age = |age: Duration| HeaderValue::try_from(format!("max-age={}", age.as_secs())).ok();
        Site {
            folder: Arc::new(folder),
            levels: options.compress.then_some(levels),
            max_age: options.max_age.and_then(age),
            cache: RefCell::new(Cache::new(limit)),
            options,
        }
    }

    /// Answers a request. `path` is the path below the route, as it was sent; redirects to folders
    /// are made of the path of `head`.
    ///
    /// Cancel safe: everything that has been found by then is kept.
    pub async fn answer(&self, head: Head<'_>, path: &str) -> Response<Body> {
        self.answer_at(head, path, clock()).await
    }

    /// Answers at once, if a look into the cache is enough, or if the kernel knows that there is
    /// nothing.
    #[must_use]
    pub fn answer_now(&self, head: Head<'_>, path: &str) -> Option<Ready> {
        if !head.is_read() {
            return Some(not_allowed(head.method).into());
        }
        let cache = self.cache.borrow();
        if let Some(resource) = cache.fresh(path, clock()) {
            return resource.answer_now(head);
        }
        if cache.stale(path).is_some() || self.options.fallback.is_some() {
            return None;
        }
        let status = match path::relative(path, self.options.hidden) {
            Err(refusal) => refusal.status(),
            Ok(relative) if self.folder.lacks(&relative.path) => StatusCode::NOT_FOUND,
            Ok(_) => return None,
        };
        Some(status.into())
    }

    /// Answers a `GET` or `HEAD` at once, if there is a file, and a look into the cache is enough:
    /// `Some(None)` if the kernel knows that there is none. Whatever is wrong with a path is for
    /// the handler of paths without a file to say.
    #[must_use]
    pub fn find_now(&self, head: Head<'_>, path: &str) -> Option<Option<Ready>> {
        let cache = self.cache.borrow();
        if let Some(resource) = cache.fresh(path, clock()) {
            return resource.answer_now(head).map(Some);
        }
        if cache.stale(path).is_some() {
            return None;
        }
        match path::relative(path, self.options.hidden) {
            Ok(relative) if !self.folder.lacks(&relative.path) => None,
            _ => Some(None),
        }
    }

    /// Answers a `GET` or `HEAD` if there is a file.
    ///
    /// Cancel safe, as [`answer`](Site::answer).
    pub async fn find(&self, head: Head<'_>, path: &str) -> Option<Response<Body>> {
        let response = self.answer(head, path).await;
        let is_missing = matches!(response.status().as_u16(), 400 | 404);
        (!is_missing).then_some(response)
    }

    /// [`answer`](Site::answer) at a given time, which must not be before that of an earlier call.
    pub(super) async fn answer_at(
        &self,
        head: Head<'_>,
        path: &str,
        now: Duration,
    ) -> Response<Body> {
        if !head.is_read() {
            return not_allowed(head.method);
        }
        if let Some(resource) = self.cache.borrow().fresh(path, now)
            && let Some(answer) = resource.answer_now(head)
        {
            return answer.into_response(head.is_head());
        }
        Box::pin(self.answer_later(head, path, now)).await
    }

    /// Answers if a file has to be opened, found or compressed.
    async fn answer_later(&self, head: Head<'_>, path: &str, now: Duration) -> Response<Body> {
        let found = self.cache.borrow().fresh(path, now).map(Rc::clone);
        if let Some(resource) = found {
            let response = resource.respond(head).await;
            self.count(path, &resource);
            if let Some(response) = response {
                return response;
            }
        }
        self.look_up(head, path, now).await
    }

    /// Tells the cache, which limits the memory, by how much a resource has grown.
    fn count(&self, path: &str, resource: &Rc<Resource>) {
        let growth = resource.take_growth();
        if growth > 0 {
            self.cache.borrow_mut().grow(path, resource, growth);
        }
    }

    /// Answers from the file or folder that the path leads to now.
    async fn look_up(&self, head: Head<'_>, path: &str, now: Duration) -> Response<Body> {
        let place = match path::relative(path, self.options.hidden) {
            Err(Refusal::Malformed) => return reply::status(StatusCode::BAD_REQUEST),
            Err(Refusal::Hidden) => Err(io::ErrorKind::NotFound.into()),
            Ok(relative) => self.locate(&relative).await,
        };
        // While the process lacks descriptors or memory, an outdated entry is better than no
        // answer.
        let is_short = |error: &io::Error| status_of(error) == StatusCode::SERVICE_UNAVAILABLE;
        if place.as_ref().err().is_some_and(is_short) {
            let stale = self.cache.borrow().stale(path).map(Rc::clone);
            if let Some(resource) = stale
                && let Some(response) = resource.respond(head).await
            {
                return response;
            }
        } else if !matches!(place, Ok(Resolved::File(_))) {
            self.cache.borrow_mut().remove(path);
        }
        let answer = match place {
            Ok(Resolved::File(located)) => self.send(head, path, *located, now).await,
            Ok(Resolved::Folder(opened, path)) => self.list(head, opened, path).await,
            // The path was rewritten: another slash would lead back here.
            Ok(Resolved::Slashless) if head.path.ends_with('/') && !path.is_empty() => {
                Err(io::ErrorKind::NotFound.into())
            }
            Ok(Resolved::Slashless) => Ok(to_folder(head)),
            Err(error) => Err(error),
        };
        let status = match answer {
            Ok(response) => return response,
            Err(error) => status_of(&error),
        };
        let fallback = self.options.fallback.as_deref();
        match fallback.filter(|fallback| status == StatusCode::NOT_FOUND && *fallback != path) {
            // Its resource is cached by its own path: there are countless paths without a file.
            Some(fallback) => match Box::pin(self.answer_at(head, fallback, now)).await {
                // It is a folder, and the redirect would be to a path without a file.
                response if response.status() == StatusCode::PERMANENT_REDIRECT => {
                    reply::status(status)
                }
                response => response,
            },
            None => reply::status(status),
        }
    }

    async fn locate(&self, relative: &RelativePath) -> io::Result<Resolved> {
        let RelativePath { path, is_folder } = relative;
        let file = match self.folder.open_file(path).await {
            // A folder that may not be listed may still have files for another handler.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let is_other = self.options.otherwise.is_some()
                    && matches!(self.folder.kind_now(path), Some(Ok(PathKind::Folder)));
                return Err(if is_other { io::ErrorKind::NotFound.into() } else { error });
            }
            file => file?,
        };
        if !file.metadata()?.is_dir() {
            return match Opened::new(file)? {
                Some(opened) if !is_folder => self.with_siblings(path.clone(), opened).await,
                _ => Err(io::ErrorKind::NotFound.into()),
            };
        }
        // Without an index file another handler may have one.
        if !is_folder && self.options.otherwise.is_none() {
            return Ok(Resolved::Slashless);
        }
        for index in &self.options.index {
            let path = if path.is_empty() { index.clone() } else { format!("{path}/{index}") };
            match self.folder.open_file(&path).await.and_then(Opened::new) {
                Ok(Some(_)) if !is_folder => return Ok(Resolved::Slashless),
                Ok(Some(opened)) => return self.with_siblings(path, opened).await,
                Ok(None) => {}
                Err(error) if status_of(&error) == StatusCode::NOT_FOUND => {}
                Err(error) => return Err(error),
            }
        }
        if !is_folder {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Resolved::Folder(file, path.clone()))
    }

    async fn with_siblings(&self, path: String, opened: Opened) -> io::Result<Resolved> {
        let mut all = [Some(opened), None, None, None];
        if self.options.precompressed {
            for (place, coding) in all[1..].iter_mut().zip(Coding::ALL) {
                let sibling = self.folder.open_file(&format!("{path}{}", coding.suffix())).await;
                // A sibling that cannot be opened counts as missing: the file itself can be opened.
                *place = sibling.and_then(Opened::new).unwrap_or(None);
            }
        }
        Ok(Resolved::File(Box::new(Located { path, opened: all })))
    }

    async fn send(
        &self,
        head: Head<'_>,
        key: &str,
        mut located: Located,
        now: Duration,
    ) -> io::Result<Response<Body>> {
        let known = self.cache.borrow().checked(key, &located.stamps(), now).map(Rc::clone);
        let resource = match known {
            Some(resource) => {
                for (stored, opened) in resource.stored().zip(&located.opened) {
                    if let (Some(Source::Disk(file)), Some(opened)) =
                        (stored.map(|stored| stored.source()), opened)
                    {
                        file.adopt(opened);
                    }
                }
                resource
            }
            None => {
                let is_usual = path::is_usual(key);
                let resource = Rc::new(self.load(&mut located, is_usual).await?);
                if is_usual {
                    let is_young =
                        located.opened.iter().flatten().any(|opened| opened.stamp.is_young());
                    let resource = Rc::clone(&resource);
                    let entry = Entry { resource, stamps: located.stamps(), is_young };
                    self.cache.borrow_mut().insert(key, entry, now);
                }
                resource
            }
        };
        let response = resource.respond(head).await;
        self.count(key, &resource);
        // The descriptors are still in `located`, so that no file had to be opened once more.
        response.ok_or_else(|| io::Error::other("the file was exchanged too often"))
    }

    /// Reads small files. A file that is not kept afterwards is not compressed: each request would
    /// compress it again.
    async fn load(&self, located: &mut Located, is_kept: bool) -> io::Result<Resource> {
        let mut contents = [const { None }; 4];
        let suffixes = [""].into_iter().chain(Coding::ALL.map(Coding::suffix));
        let files = contents.iter_mut().zip(&mut located.opened);
        for ((content, opened), suffix) in files.zip(suffixes) {
            if let Some(opened) = opened {
                *content = Some(self.content(opened, format!("{}{suffix}", located.path)).await?);
            }
        }
        let [Some(content), siblings @ ..] = contents else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let room = self.cache.borrow().room();
        let is_compressed = is_kept && content.source.length() <= room as u64;
        let levels = self.levels.filter(|_| is_compressed);
        let kind = Kind::from_name(&located.path, &self.options);
        Resource::new(kind, content, siblings, self.max_age.as_ref(), levels)
    }

    async fn content(&self, opened: &mut Opened, path: String) -> io::Result<Content> {
        let largest = self.cache.borrow().largest() as u64;
        for _ in 0..TRIES {
            let length = opened.stamp.length();
            if length > largest {
                break;
            }
            let bytes = read_all(&opened.file, length as usize).await?;
            let now = opened.again()?;
            if now.stamp == opened.stamp && bytes.len() as u64 == length {
                let source = Source::Memory(file_region::bytes(bytes, &opened.file));
                return Ok(Content::new(source, &opened.stamp));
            }
            *opened = now;
        }
        // The file is too large, or is being written to: the response sends the bytes that it has
        // at that time.
        let source = Source::Disk(OnDisk::new(&self.folder, path, opened));
        Ok(Content::new(source, &opened.stamp))
    }

    async fn list(&self, head: Head<'_>, opened: File, path: String) -> io::Result<Response<Body>> {
        if !self.options.listing {
            return Err(io::ErrorKind::NotFound.into());
        }
        let hidden = self.options.hidden;
        let page = unblock(move || listing(&opened, &path, hidden)).await??;
        let mut response = reply::status(StatusCode::OK);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(page.len()));
        if !head.is_head() {
            *response.body_mut() = Body::from(page);
        }
        Ok(response)
    }

    #[cfg(test)]
    pub(super) fn cache(&self) -> std::cell::Ref<'_, Cache> {
        self.cache.borrow()
    }
}

impl Content {
    fn new(source: Source, stamp: &Stamp) -> Content {
        Content { source, tag: stamp.tag(), modified: stamp.modified() }
    }
}

/// Returns the time since some start. It counts milliseconds, which costs a tenth of
/// [`Instant`](std::time::Instant).
pub(crate) fn clock() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Redirects to the same path with `/` at its end. Slashes at its start become one: two would name
/// another host.
#[must_use]
pub fn to_folder(head: Head<'_>) -> Response<Body> {
    let mut response = reply::status(StatusCode::PERMANENT_REDIRECT);
    let query = head.query.map(|query| format!("?{query}")).unwrap_or_default();
    let path = head.path.trim_start_matches('/');
    if let Ok(location) = HeaderValue::try_from(format!("/{path}/{query}")) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// Returns the status of the answer to a request whose file cannot be opened.
pub(crate) fn status_of(error: &io::Error) -> StatusCode {
    use rustix::io::Errno;

    match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => StatusCode::FORBIDDEN,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        // A path that leads out of the folder, is no file that can be opened, or has too long a
        // name counts as missing.
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
        None if is_without_thread(error) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Whether the system has refused a thread for work on a file.
fn is_without_thread(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<JoinError>());
    matches!(error, Some(JoinError::NoThread(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As for other lacks that pass: the client may try again.
    #[test]
    fn a_file_that_no_thread_can_be_started_for_is_unavailable() {
        let lack = || JoinError::NoThread(io::ErrorKind::WouldBlock.into());
        assert_eq!(status_of(&lack().into()), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(status_of(&JoinError::Cancelled.into()), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
