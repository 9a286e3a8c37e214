//! Pipes, Unix-domain sockets and files.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};

use superpoll::Readiness;

use super::{Folder, Peer};
use crate::oracle::scene::Scene;
use crate::oracle::sys;
use crate::sys::shutdown;

pub(super) fn pipe() -> io::Result<Option<Scene>> {
    let (reader, writer) = crate::sys::pipe()?;
    let scene = Scene::of([writer, reader])
        .then("full", |fds| {
            sys::fill(&fds[0], 512);
            Ok(())
        })
        .then("some read", |fds| {
            sys::read(&fds[1], 100);
            Ok(())
        })
        .then("more read", |fds| {
            sys::read(&fds[1], 2000);
            Ok(())
        })
        .then("all read", |fds| {
            sys::drain(&fds[1]);
            Ok(())
        });
    Ok(Some(scene))
}

pub(super) fn pipe_without_reader() -> io::Result<Option<Scene>> {
    let (reader, writer) = crate::sys::pipe()?;
    let reader = Peer::new(reader);
    let scene = Scene::of([writer])
        .then("reader closed", move |_| {
            reader.close();
            Ok(())
        })
        .until(Readiness::ERROR);
    Ok(Some(scene))
}

pub(super) fn pipe_without_writer() -> io::Result<Option<Scene>> {
    let (reader, writer) = crate::sys::pipe()?;
    let writer = Peer::new(writer);
    let scene = Scene::of([reader])
        .then("data and writer closed", move |_| {
            writer.with(|writer| sys::write(writer, b"abc"));
            writer.close();
            Ok(())
        })
        .until(Readiness::HANG_UP)
        .then("all read", |fds| {
            sys::drain(&fds[0]);
            Ok(())
        });
    Ok(Some(scene))
}

pub(super) fn fifo() -> io::Result<Option<Scene>> {
    let folder = Folder::new()?;
    let path = folder.0.join("fifo");
    sys::make_fifo(&path)?;
    let open = |options: &mut OpenOptions| options.custom_flags(libc::O_NONBLOCK).open(&path);
    let reader = open(OpenOptions::new().read(true))?;
    let writer = Peer::none();
    let [first, writing, closing] = [0; 3].map(|_| writer.clone());
    let opening = move |writer: &Peer| -> io::Result<()> {
        let mut options = OpenOptions::new();
        let path = folder.0.join("fifo");
        writer.open(options.write(true).custom_flags(libc::O_NONBLOCK).open(path)?);
        Ok(())
    };
    let again = opening.clone();
    let scene = Scene::of([reader.into()])
        .then("opened", move |_| opening(&first))
        .then("data", move |_| {
            writing.with(|writer| sys::write(writer, b"x"));
            Ok(())
        })
        .then("closed", move |_| {
            closing.close();
            Ok(())
        })
        .until(Readiness::HANG_UP)
        .then("all read", |fds| {
            sys::drain(&fds[0]);
            Ok(())
        })
        .then("opened again", move |_| again(&writer))
        .until_not(Readiness::HANG_UP);
    Ok(Some(scene))
}

pub(super) fn unix() -> io::Result<Option<Scene>> {
    let (one, other) = UnixStream::pair()?;
    one.set_nonblocking(true)?;
    other.set_nonblocking(true)?;
    let peer = Peer::new(other);
    let [reading, closing] = [0; 2].map(|_| peer.clone());
    let scene = Scene::of([one.into()])
        .then("full", |fds| {
            sys::fill(&fds[0], 4096);
            Ok(())
        })
        .then("read by the peer", move |_| {
            reading.with(sys::drain);
            Ok(())
        })
        .then("peer shut down", move |_| {
            peer.with(|peer| shutdown(peer.as_raw_fd(), libc::SHUT_WR));
            Ok(())
        })
        .then("shut down", |fds| shutdown(fds[0].as_raw_fd(), libc::SHUT_WR))
        .then("closed", move |_| {
            closing.close();
            Ok(())
        });
    Ok(Some(scene))
}

pub(super) fn unix_closed_unread() -> io::Result<Option<Scene>> {
    let (one, other) = UnixStream::pair()?;
    one.set_nonblocking(true)?;
    let peer = Peer::new(other);
    let scene = Scene::of([one.into()])
        .then("data to the peer", |fds| {
            sys::write(&fds[0], b"abc");
            Ok(())
        })
        .then("closed unread", move |_| {
            peer.close();
            Ok(())
        })
        .then("all read", |fds| {
            sys::drain(&fds[0]);
            Ok(())
        });
    Ok(Some(scene))
}

pub(super) fn unix_datagrams() -> io::Result<Option<Scene>> {
    let (one, other) = UnixDatagram::pair()?;
    one.set_nonblocking(true)?;
    other.set_nonblocking(true)?;
    let peer = Peer::new(other);
    let [reading, closing] = [0; 2].map(|_| peer.clone());
    let scene = Scene::of([one.into()])
        .then("full", |fds| {
            sys::fill(&fds[0], 100);
            Ok(())
        })
        .then("read by the peer", move |_| {
            reading.with(sys::drain);
            Ok(())
        })
        .then("empty datagram", move |_| {
            peer.with(|peer| sys::write(peer, b""));
            Ok(())
        })
        .then("received", |fds| {
            sys::read(&fds[0], 100);
            Ok(())
        })
        .then("closed", move |_| {
            closing.close();
            Ok(())
        });
    Ok(Some(scene))
}

/// Files: most are always ready, and some can be watched.
pub(super) fn files() -> io::Result<Option<Scene>> {
    let paths = [
        "/dev/null",
        "/dev/zero",
        "/dev/urandom",
        "/dev/random",
        "/",
        "/proc/self/exe",
        "/proc/self/status",
        "/proc/self/mounts",
    ];
    let opened = paths.iter().filter_map(|path| File::open(path).ok()).map(OwnedFd::from);
    let regular = OwnedFd::from(crate::sys::regular_file()?);
    let scene = Scene::of(opened.chain([regular]));
    Ok(Some(scene.then("nothing", |_| Ok(())).then("nothing again", |_| Ok(()))))
}
