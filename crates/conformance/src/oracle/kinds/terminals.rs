//! Terminals: bytes that one end writes reach the other by way of the line discipline, a little
//! later.

use std::io;

use superpoll::Readiness;

use super::Peer;
use crate::oracle::scene::Scene;
use crate::oracle::sys;

const IN: Readiness = Readiness::READABLE;

fn read(place: usize) -> impl FnMut(&[std::os::fd::OwnedFd]) -> io::Result<()> {
    move |fds| {
        sys::read(&fds[place], 4096);
        Ok(())
    }
}

pub(super) fn terminal() -> io::Result<Option<Scene>> {
    let (master, slave) = sys::terminal()?;
    let scene = Scene::of([master, slave])
        .then("slave has written", |fds| {
            sys::write(&fds[1], b"hi\n");
            Ok(())
        })
        .until(IN)
        .then("master has read", read(0))
        .then("master has written", |fds| {
            sys::write(&fds[0], b"yo\n");
            Ok(())
        })
        .until_of(1, IN)
        .then("slave has read", read(1))
        .then("echo read", read(0));
    Ok(Some(scene))
}

pub(super) fn terminal_hung_up() -> io::Result<Option<Scene>> {
    let (master, slave) = sys::terminal()?;
    let slave = Peer::new(slave);
    let scene = Scene::of([master])
        .then("written and closed", move |_| {
            slave.with(|slave| sys::write(slave, b"bye\n"));
            slave.close();
            Ok(())
        })
        .until(IN | Readiness::HANG_UP)
        .then("read", read(0));
    Ok(Some(scene))
}
