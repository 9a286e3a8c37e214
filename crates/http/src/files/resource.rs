//! The resource behind a path: a file as it is, its compressed siblings, and the representations
//! that were compressed here.
//!
//! Compression takes milliseconds, so a thread of its own does it, once. Clients that ask meanwhile
//! get the file as it is, which every client accepts. The resource stays in the cache, with
//! everything that a request gets, for as long as the file does.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::io;
use std::rc::Rc;
use std::time::SystemTime;

use http::{HeaderValue, Response};
use superpoll_rt::blocking::unblock;

use super::compress::{self, Levels, compressed};
use super::kind::Kind;
use super::pieces::fill;
use super::representation::{Parts, Representation, Source};
use crate::body::Body;
use crate::encoding::{Accepted, Coding};
use crate::head::{Fields, Head};
use crate::ready::Ready;

/// The bytes of a file or of a compressed sibling, and the marks that distinguish this version from
/// other versions.
pub(super) struct Content {
    pub(super) source: Source,
    pub(super) tag: String,
    pub(super) modified: Option<SystemTime>,
}

/// The state of a representation that is compressed here.
#[derive(Default)]
enum Made {
    #[default]
    Not,
    UnderWay,
    /// The result would not be shorter, or the file cannot be read any more.
    Useless,
    Ready(Rc<Representation>),
}

/// The representation to send.
enum Choice {
    Ready(Rc<Representation>),
    ToMake(Coding, Levels),
}

/// The resource behind a path.
pub(super) struct Resource {
    kind: Kind,
    tag: String,
    modified: Option<SystemTime>,
    max_age: Option<HeaderValue>,
    /// How to compress the file; `None` if it is not compressed here.
    levels: Option<Levels>,
    /// Whether there are several representations.
    varies: bool,
    identity: Rc<Representation>,
    siblings: [Option<Rc<Representation>>; 3],
    made: [RefCell<Made>; 3],
    /// The part of [`Resource::bytes`] that [`Resource::take_growth`] has not returned yet.
    grown: Cell<usize>,
}

impl Resource {
    /// `siblings` are in the order of [`Coding::ALL`].
    pub(super) fn new(
        kind: Kind,
        content: Content,
        siblings: [Option<Content>; 3],
        max_age: Option<&HeaderValue>,
        levels: Option<Levels>,
    ) -> io::Result<Resource> {
        let sizes = compress::SHORTEST..=compress::LONGEST;
        let is_worth_it = kind.is_compressible && sizes.contains(&content.source.length());
        let levels = levels.filter(|_| is_worth_it);
        let varies = levels.is_some() || siblings.iter().any(Option::is_some);
        let (tag, modified) = (content.tag.clone(), content.modified);
        let made = |content: Content, coding| {
            let parts = Parts {
                source: content.source,
                kind: &kind.field,
                coding,
                tag: &content.tag,
                is_weak: false,
                modified: content.modified,
                varies,
                max_age,
            };
            let unusable = || io::Error::other("the ETag cannot be written");
            Representation::new(parts).map(Rc::new).ok_or_else(unusable)
        };
        let identity = made(content, None)?;
        let sibling =
            |content: Option<Content>, coding| content.map(|c| made(c, Some(coding))).transpose();
        let [brotli, zstd, gzip] = siblings;
        let siblings = [
            sibling(brotli, Coding::Brotli)?,
            sibling(zstd, Coding::Zstd)?,
            sibling(gzip, Coding::Gzip)?,
        ];
        Ok(Resource {
            tag,
            modified,
            max_age: max_age.cloned(),
            levels,
            varies,
            identity,
            siblings,
            made: Default::default(),
            grown: Cell::new(0),
            kind,
        })
    }

    /// Returns the file as it is, and its siblings.
    pub(super) fn stored(&self) -> impl Iterator<Item = Option<&Rc<Representation>>> {
        [Some(&self.identity)].into_iter().chain(self.siblings.iter().map(Option::as_ref))
    }

    /// Returns how many bytes of the resource are in memory.
    pub(super) fn bytes(&self) -> usize {
        self.stored().flatten().map(|stored| stored.bytes()).sum()
    }

    /// Returns by how much the resource has grown since the last call.
    pub(super) fn take_growth(&self) -> usize {
        self.grown.take()
    }

    /// Answers a GET or HEAD, if that needs no file to be opened or compressed.
    pub(super) fn answer_now(&self, head: Head<'_>) -> Option<Ready> {
        match self.choose(head.fields) {
            Choice::Ready(chosen) => chosen.answer_now(head),
            Choice::ToMake(..) => None,
        }
    }

    /// Answers a GET or HEAD; `None` if the file has been replaced.
    pub(super) async fn respond(&self, head: Head<'_>) -> Option<Response<Body>> {
        loop {
            match self.choose(head.fields) {
                Choice::Ready(chosen) => return chosen.respond(head).await,
                Choice::ToMake(coding, levels) => self.make(coding, levels).await,
            }
        }
    }

    /// Returns the available representation that the client prefers. If it prefers two alike,
    /// stored ones come first, then Brotli, then Zstandard.
    fn choose(&self, fields: Fields<'_>) -> Choice {
        if !self.varies {
            return Choice::Ready(Rc::clone(&self.identity));
        }
        let accepted = Accepted::of_values(fields.values("accept-encoding"));
        // Representations that are compressed here are not sent in parts; a client that asks for
        // parts is better served with the file as it is.
        let levels = || self.levels.filter(|_| !fields.has("range"));
        let available = Coding::ALL.into_iter().filter_map(|coding| {
            let weight = Some(accepted.weight(coding)).filter(|weight| *weight > 0)?;
            if let Some(sibling) = &self.siblings[coding as usize] {
                return Some(((Reverse(weight), false), Choice::Ready(Rc::clone(sibling))));
            }
            let choice = match (&*self.made[coding as usize].borrow(), levels()?) {
                (Made::Ready(made), _) => Choice::Ready(Rc::clone(made)),
                (Made::Not, levels) => Choice::ToMake(coding, levels),
                _ => return None,
            };
            Some(((Reverse(weight), true), choice))
        });
        let best = available.min_by_key(|(key, _)| *key).map(|(_, choice)| choice);
        best.unwrap_or_else(|| Choice::Ready(Rc::clone(&self.identity)))
    }

    /// Compresses the file, after which there is a representation or it is known that there will be
    /// none.
    async fn make(&self, coding: Coding, levels: Levels) {
        /// Lets another request try if this one ends early.
        struct Attempt<'a>(&'a RefCell<Made>, Made);

        impl Drop for Attempt<'_> {
            fn drop(&mut self) {
                *self.0.borrow_mut() = std::mem::take(&mut self.1);
            }
        }

        let mut attempt = Attempt(&self.made[coding as usize], Made::Not);
        *attempt.0.borrow_mut() = Made::UnderWay;
        let bytes = self.compress(coding, levels).await;
        let made = bytes.ok().flatten().and_then(|bytes| {
            self.grown.set(self.grown.get() + bytes.len());
            Representation::new(Parts {
                source: Source::Memory(bytes.into()),
                kind: &self.kind.field,
                coding: Some(coding),
                tag: &format!("{}-{}", self.tag, coding.name()),
                is_weak: true,
                modified: self.modified,
                varies: true,
                max_age: self.max_age.as_ref(),
            })
        });
        attempt.1 = made.map_or(Made::Useless, |made| Made::Ready(Rc::new(made)));
    }

    async fn compress(&self, coding: Coding, levels: Levels) -> io::Result<Option<Vec<u8>>> {
        match self.identity.source() {
            Source::Memory(bytes) => {
                let bytes = bytes.clone();
                unblock(move || compressed(&bytes, coding, levels)).await?
            }
            Source::Disk(on_disk) => {
                let file = on_disk.open().await.ok_or(io::ErrorKind::NotFound)?;
                let length = usize::try_from(on_disk.length()).unwrap_or(usize::MAX);
                unblock(move || {
                    let mut bytes = vec![0; length];
                    if fill(&file, &mut bytes, 0)? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    compressed(&bytes, coding, levels)
                })
                .await?
            }
        }
    }
}
