//! A wait that finds one event, and the read that follows.

use std::os::fd::AsFd;
use std::time::Duration;

use superpoll::diagnostics::Costs;
use superpoll::{BackendKind, Events, Interest, Poller};

use crate::error::{Error, Result};
use crate::gate::paths::{Pipe, Work, on, wrong};
use crate::sys::descriptor;

/// Pipes that are watched.
const WATCHED: usize = 8;

pub(super) fn set_up_wait(kind: BackendKind) -> Result<Box<dyn Work>> {
    let mut poller = Poller::builder().backend(kind).costs(Costs::ASSUMED).build()?;
    let mut pipes = Vec::new();
    for _ in 0..WATCHED {
        let pipe = Pipe::open()?;
        let key = poller.register(&pipe.reader, Interest::READABLE)?;
        pipes.push((key, pipe));
    }
    let (mut events, mut next) = (Events::with_limit(WATCHED), 0);
    on(poller, move |poller, count| {
        for _ in 0..count {
            let (key, pipe) = &pipes[next];
            next = (next + 1) % WATCHED;
            pipe.write()?;
            poller.wait(&mut events, None)?;
            let mut found = events.iter().map(superpoll::Event::key);
            if found.next() != Some(*key) || found.next().is_some() {
                return wrong("wait", format!("{events:?} instead of {key:?}"));
            }
            pipe.read()?;
        }
        Ok(())
    })
}

// A load that keeps the adaptive back-end moving: some pipes are ready in each pass, and from time
// to time other pipes take their turn.
//
// There are few enough pipes for the array to stay below the length at which its passes start
// being timed.

const PIPES: usize = 24;

/// Pipes that are ready in a pass.
const READY: usize = 6;

/// After this many passes, two other pipes replace two of the ready ones.
const SHIFT_EVERY: u64 = 64;

pub(super) fn set_up_adaptive_moves() -> Result<Box<dyn Work>> {
    let builder = Poller::builder().backend(BackendKind::Adaptive).costs(Costs::ASSUMED);
    let mut poller = builder.build()?;
    let mut pipes = Vec::new();
    for _ in 0..PIPES {
        let pipe = Pipe::open()?;
        poller.register(&pipe.reader, Interest::READABLE)?;
        pipes.push(pipe);
    }
    let (mut events, mut passes) = (Events::with_limit(PIPES), 0);
    on(poller, move |poller, count| {
        for _ in 0..count {
            let first = 2 * (passes / SHIFT_EVERY) as usize;
            passes += 1;
            let ready = || (first..first + READY).map(|place| &pipes[place % PIPES]);
            ready().try_for_each(Pipe::write)?;
            poller.wait(&mut events, None)?;
            if events.len() != READY {
                return wrong("adaptive-moves", format!("{} events", events.len()));
            }
            ready().try_for_each(Pipe::read)?;
        }
        let stats = poller.stats();
        if passes > 2 * SHIFT_EVERY && stats.moves_to_hot.min(stats.moves_to_cold) == 0 {
            return wrong("adaptive-moves", "nothing has moved");
        }
        Ok(())
    })
}

// A registration begins and ends, and the kernel is told of both.

pub(super) fn set_up_registration(kind: BackendKind) -> Result<Box<dyn Work>> {
    let poller = Poller::builder().backend(kind).costs(Costs::ASSUMED).build()?;
    let pipe = Pipe::open()?;
    on(poller, move |poller, count| {
        let before = poller.stats().calls;
        for _ in 0..count {
            let key = poller.register(&pipe.reader, Interest::READABLE)?;
            poller.flush();
            poller.deregister(key)?;
            poller.flush();
        }
        let calls = poller.stats().calls.since(&before);
        if !poller.is_empty() || calls.epoll_ctl() != 2 * count {
            return wrong("register", format!("{calls} for {count} registrations"));
        }
        Ok(())
    })
}

// Changes of an interest before the kernel is told: the kernel sees only the last change, or none
// if the changes cancel out.

/// Sets up `each` changes in every operation, from reading to both directions and back.
pub(super) fn set_up_interest(each: usize) -> Result<Box<dyn Work>> {
    let mut poller = Poller::builder().backend(BackendKind::Epoll).build()?;
    let ends = descriptor::unix_pair().map_err(|e| Error::system("opening a socket pair", e))?;
    let key = poller.register(&ends.0, Interest::READABLE)?;
    poller.flush();
    let mut wants_both = false;
    on(poller, move |poller, count| {
        let _ = &ends;
        for _ in 0..count {
            for _ in 0..each {
                wants_both = !wants_both;
                let interest = if wants_both {
                    Interest::READABLE | Interest::WRITABLE
                } else {
                    Interest::READABLE
                };
                poller.modify(key, interest)?;
            }
            poller.flush();
        }
        Ok(())
    })
}

// A handle wakes a poller.
//
// A poller that does not sleep needs no system call to be woken. For a poller that sleeps, the
// wake-up usually comes from another thread, and then the result depends on timing. A poller that
// is nested in another event loop also sleeps, in the protocol's terms, between its waits.

pub(super) fn set_up_wake() -> Result<Box<dyn Work>> {
    let mut poller = Poller::builder().backend(BackendKind::Epoll).build()?;
    let (waker, mut events) = (poller.waker()?, Events::with_limit(1));
    on(poller, move |poller, count| {
        for _ in 0..count {
            waker.wake()?;
            poller.wait(&mut events, None)?;
            if !events.woken() {
                return wrong("wake", "a wake was lost");
            }
        }
        Ok(())
    })
}

/// Nests the poller in another, its outer loop.
pub(super) fn set_up_wake_asleep() -> Result<Box<dyn Work>> {
    let mut poller = Poller::builder().backend(BackendKind::Epoll).build()?;
    let waker = poller.waker()?;
    let mut outer = Poller::builder().backend(BackendKind::Epoll).build()?;
    outer.register(poller.nest()?.as_fd(), Interest::READABLE)?;
    let mut events = [(); 2].map(|()| Events::with_limit(1));
    on([poller, outer], move |[poller, outer], count| {
        let [events, of_outer] = &mut events;
        for _ in 0..count {
            waker.wake()?;
            if outer.wait(of_outer, None)? != 1 {
                return wrong("wake-asleep", "the outer loop heard nothing");
            }
            poller.wait(events, Some(Duration::ZERO))?;
            if !events.woken() {
                return wrong("wake", "a wake was lost");
            }
        }
        Ok(())
    })
}
