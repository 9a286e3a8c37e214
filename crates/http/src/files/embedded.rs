//! Files that are part of the program, answered like the files of a folder.

use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::io;

use bytes::Bytes;
use http::{Response, StatusCode};
use superpoll_config::Files;

use super::compress::Levels;
use super::kind::Kind;
use super::path::{self, Refusal};
use super::representation::Source;
use super::resource::{Content, Resource};
use super::status::not_allowed;
use crate::body::Body;
use crate::head::Head;
use crate::reply;

/// The demonstration, the page of the root first.
const DEMO: &[(&str, &[u8])] = &[
    ("index.html", include_bytes!("../../demo/index.html")),
    ("style.css", include_bytes!("../../demo/style.css")),
    ("demo.js", include_bytes!("../../demo/demo.js")),
    ("favicon.svg", include_bytes!("../../demo/favicon.svg")),
];

/// The client of channels for pages, as a script and as a module.
const CLIENT: &[(&str, &[u8])] = &[
    ("client.js", include_bytes!("../../client/client.js")),
    (
        "client.mjs",
        concat!(
            include_str!("../../client/client.js"),
            "\nexport const { superpoll } = globalThis;\nexport default superpoll;\n"
        )
        .as_bytes(),
    ),
];

/// They are compressed once for the whole run.
const LEVELS: Levels = Levels { gzip: 9, brotli: 11, zstd: 19 };

/// Files that are part of the program.
pub struct Embedded {
    /// By path; the first file stands for the root as well.
    resources: Vec<(&'static str, Resource)>,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.resources.iter().map(|(name, _)| name)).finish()
    }
}

impl Embedded {
    /// Returns the demonstration site. Its page expects a channel at `/demo/chat`, and itself at
    /// the root of a host.
    ///
    /// # Errors
    ///
    /// No error is known: the contents do not change.
    pub fn demo() -> io::Result<Embedded> {
        Embedded::new(DEMO)
    }

    /// Returns the client of channels for pages: `client.js` and `client.mjs`.
    ///
    /// # Errors
    ///
    /// No error is known: the contents do not change.
    pub fn client() -> io::Result<Embedded> {
        Embedded::new(CLIENT)
    }

    /// Whether there is a file with this name.
    pub fn has(&self, name: &str) -> bool {
        self.resources.iter().any(|(known, _)| *known == name)
    }

    fn new(files: &[(&'static str, &'static [u8])]) -> io::Result<Embedded> {
        let made = |&(name, bytes): &(&'static str, &'static [u8])| {
            // The keys of this hasher are fixed, so that each worker and each run has the same tag.
            let mut hasher = DefaultHasher::new();
            hasher.write(bytes);
            let content = Content {
                source: Source::Memory(Bytes::from_static(bytes)),
                tag: format!("{:x}-{:016x}", bytes.len(), hasher.finish()),
                modified: None,
            };
            let kind = Kind::from_name(name, &Files::default());
            Ok((name, Resource::new(kind, content, [const { None }; 3], None, Some(LEVELS))?))
        };
        Ok(Embedded { resources: files.iter().map(made).collect::<io::Result<_>>()? })
    }

    fn find(&self, path: &str) -> Option<&Resource> {
        let found = self.resources.iter().find(|(name, _)| *name == path);
        let index = || self.resources.first().filter(|_| path.is_empty());
        found.or_else(index).map(|(_, resource)| resource)
    }

    /// Answers a request for a path below the route.
    ///
    /// Cancel safe.
    pub async fn answer(&self, head: Head<'_>, path: &str) -> Response<Body> {
        if !head.is_read() {
            return not_allowed(head.method);
        }
        let mut resource = path.strip_prefix('/').and_then(|path| self.find(path));
        if resource.is_none() {
            match path::relative(path, true) {
                Err(Refusal::Malformed) => return reply::status(StatusCode::BAD_REQUEST),
                Ok(relative) if relative.is_folder == relative.path.is_empty() => {
                    resource = self.find(&relative.path);
                }
                _ => {}
            }
        }
        let Some(resource) = resource else { return reply::status(StatusCode::NOT_FOUND) };
        if let Some(answer) = resource.answer_now(head) {
            return answer.into_response(head.is_head());
        }
        let response = Box::pin(resource.respond(head)).await;
        response.unwrap_or_else(|| reply::status(StatusCode::NOT_FOUND))
    }
}
