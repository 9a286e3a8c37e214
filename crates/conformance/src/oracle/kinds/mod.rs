//! The kinds of descriptors, each with a story.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::scene::Scene;

mod counters;
mod local;
mod nested;
mod network;
mod terminals;

/// A kind of descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name in a difference.
    pub name: &'static str,
    /// Creates the story; `None` if this system does not have the kind.
    pub make: fn() -> io::Result<Option<Scene>>,
}

macro_rules! kinds {
    ($($module:ident { $($name:ident)+ })+) => {
        /// All the kinds.
        pub const KINDS: &[Kind] = &[$($(
            Kind { name: stringify!($name), make: $module::$name },
        )+)+];
    };
}

kinds! {
    network {
        urgent_data
        half_closed
        reset
        reading_shut_down
        connect_refused
        connect_and_listen
        icmp_error
        low_water_mark
    }
    local {
        pipe
        pipe_without_reader
        pipe_without_writer
        fifo
        unix
        unix_closed_unread
        unix_datagrams
        files
    }
    counters {
        eventfd
        timerfd
        signalfd
        inotify
        pidfd
    }
    terminals {
        terminal
        terminal_hung_up
    }
    nested {
        epoll
        superpoll_adaptive
        superpoll_uring
    }
}

/// The other end of a descriptor, until a step closes it.
#[derive(Clone, Debug)]
struct Peer(Rc<RefCell<Option<OwnedFd>>>);

impl Peer {
    fn new(fd: impl Into<OwnedFd>) -> Peer {
        Peer(Rc::new(RefCell::new(Some(fd.into()))))
    }

    /// Returns an empty peer, until it is opened.
    fn none() -> Peer {
        Peer(Rc::default())
    }

    fn open(&self, fd: impl Into<OwnedFd>) {
        *self.0.borrow_mut() = Some(fd.into());
    }

    fn close(&self) {
        self.0.borrow_mut().take();
    }

    /// Calls `f` with the descriptor, if it is open.
    fn with<R>(&self, f: impl FnOnce(&OwnedFd) -> R) {
        if let Some(fd) = &*self.0.borrow() {
            f(fd);
        }
    }
}

/// A folder that is removed with its last owner.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Rc<Folder>> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("superpoll-oracle-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)?;
        Ok(Rc::new(Folder(path)))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
