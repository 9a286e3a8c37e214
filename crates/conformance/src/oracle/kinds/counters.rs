//! Descriptors for which the kernel counts or reports: events, time, signals, files and processes.

use std::io;
use std::process::{Command, Stdio};

use superpoll::Readiness;

use super::Folder;
use crate::oracle::scene::Scene;
use crate::oracle::sys;

const IN: Readiness = Readiness::READABLE;

fn read(fds: &[std::os::fd::OwnedFd]) -> io::Result<()> {
    sys::read(&fds[0], 4096);
    Ok(())
}

pub(super) fn eventfd() -> io::Result<Option<Scene>> {
    let scene = Scene::of([crate::sys::eventfd()?])
        .then("one", |fds| {
            sys::write(&fds[0], &1u64.to_ne_bytes());
            Ok(())
        })
        .then("as much as it takes", |fds| {
            sys::write(&fds[0], &(u64::MAX - 2).to_ne_bytes());
            Ok(())
        })
        .then("read", read);
    Ok(Some(scene))
}

pub(super) fn timerfd() -> io::Result<Option<Scene>> {
    let scene = Scene::of([sys::timer()?])
        .then("fired", |fds| sys::set_timer(&fds[0], 1000))
        .until(IN)
        .then("read", read)
        .then("fired again", |fds| sys::set_timer(&fds[0], 1000))
        .until(IN)
        .then("disarmed", |fds| sys::set_timer(&fds[0], 0));
    Ok(Some(scene))
}

pub(super) fn signalfd() -> io::Result<Option<Scene>> {
    let scene = Scene::of([sys::signals()?])
        .then("raised", |_| {
            sys::raise();
            Ok(())
        })
        .until(IN)
        .then("read", read);
    Ok(Some(scene))
}

pub(super) fn inotify() -> io::Result<Option<Scene>> {
    let folder = Folder::new()?;
    let same = folder.clone();
    let scene = Scene::of([sys::watch_folder(&folder.0)?])
        .then("created", move |_| std::fs::write(folder.0.join("file"), b""))
        .until(IN)
        .then("read", read)
        .then("removed", move |_| std::fs::remove_file(same.0.join("file")))
        .until(IN)
        .then("read again", read);
    Ok(Some(scene))
}

pub(super) fn pidfd() -> io::Result<Option<Scene>> {
    let Ok(mut child) = Command::new("cat").stdin(Stdio::piped()).spawn() else {
        return Ok(None);
    };
    let process = sys::process(child.id());
    let mut input = child.stdin.take();
    let scene = Scene::of([process?])
        .then("ended", move |_| {
            input.take();
            Ok(())
        })
        .until(IN)
        .then("reaped", move |_| child.wait().map(drop));
    Ok(Some(scene))
}
