//! Long bodies between two sockets that are not encrypted: through a pipe, without a copy.
//!
//! The pipe is filled only when it is empty, and emptied before it is filled again, so no more than
//! a pipe is held of a body, and a pipe that goes back to the thread is empty.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use rustix::pipe::fcntl_setpipe_size;
use superpoll_rt::pipe::{PipeReader, PipeWriter, pipe};
use superpoll_rt::time;

use super::lost::{LimitTimer, Lost};
use crate::upstream::client::LinesClient;
use crate::upstream::http1::Http1Connection;

/// Bodies with fewer bytes to come are copied.
const LEAST: u64 = 64 << 10;

/// The capacity of a pipe, so that a body takes few calls, and no more of it is held than of a body
/// that is copied.
const CAPACITY: usize = 256 << 10;

/// The pipes that a thread keeps.
const KEPT: usize = 16;

/// The most pipes that a thread has at a time: clients that do not read keep them.
const MOST: usize = 256;

thread_local! {
    static PIPES: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// A pipe, which is empty while no body has it.
struct Pipe {
    reader: PipeReader,
    writer: PipeWriter,
}

impl Pipe {
    /// Takes one, unless there are too many, or no descriptor is left.
    fn take() -> Option<Pipe> {
        if let Some(pipe) = PIPES.with_borrow_mut(Vec::pop) {
            return Some(pipe);
        }
        if COUNT.get() >= MOST {
            return None;
        }
        let (reader, writer) = pipe().ok()?;
        // Refused where the user's total forbids it; the default of 64 KiB works as well.
        let _ = fcntl_setpipe_size(&writer, CAPACITY);
        COUNT.set(COUNT.get() + 1);
        Some(Pipe { reader, writer })
    }

    fn give_back(self) {
        PIPES.with_borrow_mut(|kept| {
            if kept.len() < KEPT {
                kept.push(self);
            }
        });
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        COUNT.set(COUNT.get() - 1);
    }
}

/// Whether it is worth while to splice so many bytes to a client, and possible.
pub(super) fn is_for(connection: &Http1Connection, client: &impl LinesClient, length: u64) -> bool {
    length >= LEAST && connection.can_splice() && client.can_splice()
}

/// Passes the rest of a body on, of which `left` bytes have not arrived. They are all copied
/// instead if there is no pipe.
pub(super) async fn pass(
    connection: &mut Http1Connection,
    client: &mut impl LinesClient,
    left: &mut u64,
    body: &Cell<u64>,
    (limit, timer): (Duration, &mut LimitTimer),
) -> Result<(), Lost> {
    let Some(pipe) = Pipe::take() else { return Ok(()) };
    let mut held = 0;
    let mut due = time::now() + limit;
    let passed = poll_fn(|cx| {
        while held > 0 || *left > 0 {
            if held > 0 {
                match client.poll_splice(cx, &pipe.reader, held) {
                    Poll::Ready(Ok(count @ 1..)) => {
                        held -= count;
                        body.set(body.get() + count as u64);
                        due = time::now() + limit;
                        continue;
                    }
                    Poll::Ready(_) => return Poll::Ready(Err(Lost::Client)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            let most = usize::try_from(*left).map_or(CAPACITY, |left| left.min(CAPACITY));
            match connection.poll_splice(cx, &pipe.writer, most) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(Lost::at_end())),
                Poll::Ready(Ok(count)) => {
                    held = count;
                    *left -= count as u64;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Lost::Server(error))),
                Poll::Pending => {
                    if client.is_gone(cx) {
                        return Poll::Ready(Err(Lost::Client));
                    }
                    let silent = || Err(Lost::Server(io::ErrorKind::TimedOut.into()));
                    return timer.poll(cx, due).map(|()| silent());
                }
            }
        }
        Poll::Ready(Ok(()))
    })
    .await;
    // What is left in it is nobody else's.
    if held == 0 {
        pipe.give_back();
    }
    passed
}
