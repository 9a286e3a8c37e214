//! Pollers in a poller.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use superpoll::{BackendKind, Events, Interest, Poller, Readiness};

use crate::oracle::scene::Scene;
use crate::oracle::sys;
use crate::sys::{epoll_control, epoll_create, eventfd};

const IN: Readiness = Readiness::READABLE;

pub(super) fn epoll() -> io::Result<Option<Scene>> {
    let (set, counter) = (epoll_create()?, Rc::new(eventfd()?));
    let events = libc::EPOLLIN as u32;
    epoll_control(&set, libc::EPOLL_CTL_ADD, counter.as_raw_fd(), events, 0)?;
    let same = counter.clone();
    let scene = Scene::of([set])
        .then("something in it is ready", move |_| {
            sys::write(&counter, &1u64.to_ne_bytes());
            Ok(())
        })
        .until(IN)
        .then("nothing in it is ready", move |_| {
            sys::read(&same, 8);
            Ok(())
        });
    Ok(Some(scene))
}

pub(super) fn superpoll_adaptive() -> io::Result<Option<Scene>> {
    superpoll(BackendKind::Adaptive)
}

pub(super) fn superpoll_uring() -> io::Result<Option<Scene>> {
    if BackendKind::Uring.is_available() { superpoll(BackendKind::Uring) } else { Ok(None) }
}

fn superpoll(kind: BackendKind) -> io::Result<Option<Scene>> {
    let mut poller = Poller::builder().backend(kind).build()?;
    let outer: OwnedFd = poller.nest()?.try_clone_to_owned()?;
    let (reader, writer) = crate::sys::pipe()?;
    poller.register(&reader, Interest::READABLE)?;
    let poller = Rc::new(RefCell::new(poller));
    let scene = Scene::of([outer])
        .then("something in it is ready", move |_| {
            sys::write(&writer, b"x");
            Ok(())
        })
        .until(IN)
        .then("it has waited, and nothing in it is ready", move |_| {
            let mut events = Events::with_limit(8);
            let mut poller = poller.borrow_mut();
            poller.wait(&mut events, Some(Duration::ZERO))?;
            sys::drain(&reader);
            poller.wait(&mut events, Some(Duration::ZERO))?;
            Ok(())
        });
    Ok(Some(scene))
}
