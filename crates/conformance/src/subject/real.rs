//! A world of real descriptors, with a subject in it that watches them.
//!
//! Numbers must be reused exactly as in the model, although other threads of the test process open
//! and close descriptors meanwhile. So each world sets a range of high numbers aside, to which it
//! moves every descriptor that it opens.

use std::collections::BTreeMap;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use superpoll::{Readiness, Watch};

use super::{How, Kind, Number, Op, Ready, Reply, Subject, Tag};
use crate::sys;

/// The first number of the first world. The process itself uses the numbers below: the check that
/// counts memory takes 770, next to those of the tests that run at the same time.
const LOWEST: RawFd = 904;
/// The size of a world's range.
pub const SPAN: usize = 20;

/// The most worlds at a time. The numbers from [`HIGH`](sys::HIGH) on belong to single checks.
const WORLDS: usize = (sys::HIGH as usize - LOWEST as usize) / SPAN;

static TAKEN: Mutex<[bool; WORLDS]> = Mutex::new([false; WORLDS]);
static GIVEN_BACK: Condvar = Condvar::new();

fn taken() -> MutexGuard<'static, [bool; WORLDS]> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A range of descriptor numbers that no other world uses. With many tests at a time, those that
/// find no range wait for one, so no test may have two.
#[derive(Debug)]
struct Range(usize);

impl Range {
    fn take() -> Range {
        let mut taken = GIVEN_BACK
            .wait_while(taken(), |taken| taken.iter().all(|&taken| taken))
            .unwrap_or_else(PoisonError::into_inner);
        let place = taken.iter().position(|taken| !taken).expect("one is free");
        taken[place] = true;
        Range(place)
    }

    fn raw(&self, number: Number) -> RawFd {
        LOWEST + (self.0 * SPAN + number) as RawFd
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        taken()[self.0] = false;
        GIVEN_BACK.notify_one();
    }
}

/// Watches real descriptors that it owns while they are registered.
pub trait Engine {
    /// Its name, for failures.
    fn name(&self) -> String;

    /// Registers a descriptor and takes it over.
    ///
    /// # Errors
    ///
    /// The reason of the refusal, and the descriptor.
    fn register(&mut self, tag: Tag, fd: OwnedFd, watch: Watch) -> Result<(), (OwnedFd, String)>;

    /// Changes interest and mode.
    ///
    /// # Errors
    ///
    /// The reason of the refusal.
    fn modify(&mut self, tag: Tag, watch: Watch) -> Result<(), String>;

    /// Ends a registration and gives the descriptor back, open.
    ///
    /// # Errors
    ///
    /// The reason of the refusal.
    fn deregister(&mut self, tag: Tag) -> Result<OwnedFd, String>;

    /// Ends a registration and closes the descriptor.
    ///
    /// # Errors
    ///
    /// The reason of the refusal.
    fn close(&mut self, tag: Tag) -> Result<(), String>;

    /// Waits.
    ///
    /// # Errors
    ///
    /// The error of the wait.
    fn wait(&mut self, limit: usize, nap: bool) -> Result<Ready, String>;

    /// See [`Subject::may_repeat_edges`].
    fn may_repeat_edges(&mut self) -> bool {
        false
    }

    /// See [`Subject::has_limit`].
    fn has_limit(&self) -> bool {
        true
    }

    /// Takes note of readiness that the caller knows of.
    ///
    /// # Errors
    ///
    /// The reason of the refusal.
    fn mark_ready(&mut self, _tag: Tag, _readiness: Readiness) -> Result<(), String> {
        Err("cannot be marked ready".to_owned())
    }

    /// Makes the next wait return.
    ///
    /// # Errors
    ///
    /// The reason of the refusal.
    fn wake(&mut self) -> Result<(), String> {
        Err("cannot be woken".to_owned())
    }

    /// See [`Subject::woken`].
    fn woken(&self) -> Option<bool> {
        None
    }
}

/// A world of real descriptors.
pub struct Real<E> {
    // Fields are dropped in this order: the engine and its descriptors, ours, and then the range.
    engine: E,
    open: BTreeMap<Number, OwnedFd>,
    registered: BTreeMap<Number, Tag>,
    range: Range,
}

impl<E: Engine> Real<E> {
    /// Creates an empty world, watched by the engine.
    pub fn new(engine: E) -> Real<E> {
        Real { engine, open: BTreeMap::new(), registered: BTreeMap::new(), range: Range::take() }
    }

    fn place(&mut self, fd: OwnedFd, number: Number) -> Result<(), String> {
        let fd = sys::move_to(fd, self.range.raw(number)).map_err(|error| error.to_string())?;
        self.open.insert(number, fd);
        Ok(())
    }

    fn make(&mut self, kind: Kind, numbers: &[Number]) -> Result<(), String> {
        let said = |error: std::io::Error| error.to_string();
        match kind {
            Kind::Pipe | Kind::Sockets => {
                let pair = if kind == Kind::Pipe { sys::pipe() } else { sys::socket_pair() };
                let (first, second) = pair.map_err(said)?;
                self.place(first, numbers[0])?;
                self.place(second, numbers[1])
            }
            Kind::Eventfd => self.place(sys::eventfd().map_err(said)?, numbers[0]),
            Kind::File => self.place(sys::regular_file().map_err(said)?.into(), numbers[0]),
        }
    }

    fn try_apply(&mut self, op: &Op) -> Result<Reply, String> {
        let absent = || "no such number".to_owned();
        match *op {
            Op::Open(kind, ref numbers) => self.make(kind, numbers)?,
            Op::Duplicate(old, new) => {
                let raw = self.range.raw(old);
                // The engine may own the descriptor, so the number names it.
                let twin = sys::duplicate_number(raw).map_err(|error| error.to_string())?;
                self.place(twin, new)?;
            }
            Op::Close(number) => match self.registered.remove(&number) {
                Some(tag) => self.engine.close(tag)?,
                None => drop(self.open.remove(&number).ok_or_else(absent)?),
            },
            Op::Register(number, tag, watch) => {
                let fd = self.open.remove(&number).ok_or_else(absent)?;
                if let Err((fd, reason)) = self.engine.register(tag, fd, watch) {
                    self.open.insert(number, fd);
                    return Err(reason);
                }
                self.registered.insert(number, tag);
            }
            Op::Modify(number, watch) => {
                let tag = *self.registered.get(&number).ok_or_else(absent)?;
                self.engine.modify(tag, watch)?;
            }
            Op::Deregister(number) => {
                let tag = self.registered.remove(&number).ok_or_else(absent)?;
                let fd = self.engine.deregister(tag)?;
                self.open.insert(number, fd);
            }
            Op::Tell(number, readiness) => {
                let tag = *self.registered.get(&number).ok_or_else(absent)?;
                self.engine.mark_ready(tag, readiness)?;
            }
            Op::Wake => self.engine.wake()?,
            Op::Write(number, count) => {
                return Ok(Reply::Bytes(sys::write(self.range.raw(number), count)));
            }
            Op::Read(number, count) => {
                return Ok(Reply::Bytes(sys::read(self.range.raw(number), count)));
            }
            Op::Fill(number) => {
                let end = loop {
                    match sys::write(self.range.raw(number), 4096) {
                        Ok(1..) => {}
                        end => break end,
                    }
                };
                if end != Err(libc::EAGAIN) && end != Err(libc::EPIPE) {
                    return Err(format!("filling a socket ends with {end:?}"));
                }
            }
            Op::Drain(number) => {
                while matches!(sys::read(self.range.raw(number), 4096), Ok(1..)) {}
            }
            Op::Shutdown(number, how) => {
                let how = match how {
                    How::Read => libc::SHUT_RD,
                    How::Write => libc::SHUT_WR,
                    How::Both => libc::SHUT_RDWR,
                };
                sys::shutdown(self.range.raw(number), how).map_err(|error| error.to_string())?;
            }
        }
        Ok(Reply::Done)
    }
}

impl<E: Engine> Subject for Real<E> {
    fn name(&self) -> String {
        self.engine.name()
    }

    fn apply(&mut self, op: &Op) -> Reply {
        self.try_apply(op).unwrap_or_else(Reply::Refused)
    }

    fn wait(&mut self, limit: usize, nap: bool) -> Result<Ready, String> {
        self.engine.wait(limit, nap)
    }

    fn may_repeat_edges(&mut self) -> bool {
        self.engine.may_repeat_edges()
    }

    fn has_limit(&self) -> bool {
        self.engine.has_limit()
    }

    fn woken(&self) -> Option<bool> {
        self.engine.woken()
    }
}
