//! Our runtime in one thread: a task for each descriptor. A task reads like a thread per descriptor
//! would, and yields instead of blocking. A runtime owns its descriptors, so each task has a
//! duplicate of its descriptor.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::task::{Poll, Waker};

use futures_lite::{AsyncRead, AsyncReadExt};
use superpoll_rt::net::TcpStream;
use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::{BackendKind, Runtime, pipe};

use crate::channel::Kind;
use crate::error::{Doing, Error, Result};
use crate::sys::descriptor;
use crate::threads::counters::{Outcome, ROOM, SharedCounters};
use crate::threads::subject::input::{Input, Reading};

/// Whether a task has ended, and the waker to notify.
#[derive(Default)]
struct End {
    reached: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

struct Tasks {
    runtime: Runtime,
    end: Rc<End>,
}

/// A task's descriptor, and the counters in which it notes its reads.
struct Part {
    pair: usize,
    fd: RawFd,
    counters: SharedCounters,
    end: Rc<End>,
}

pub(super) fn set_up<'a>(input: Input<'a>) -> Result<Box<dyn Reading + 'a>> {
    let runtime = Runtime::builder().backend(BackendKind::Adaptive).build()?;
    let end = Rc::new(End::default());
    let start_all = async {
        for (pair, &fd) in input.pairs.readers().iter().enumerate() {
            let part = Part { pair, fd, counters: input.counters.clone(), end: end.clone() };
            let own = descriptor::duplicate(fd)?;
            match input.kind {
                Kind::Pipe => start(part, pipe::reader_from(own)?),
                Kind::Unix => start(part, UnixStream::from_std(own.into())?),
                Kind::Tcp => start(part, TcpStream::from_std(own.into())?),
            }
        }
        io::Result::Ok(())
    };
    runtime.try_block_on(start_all)?.doing("handing a descriptor to the runtime")?;
    Ok(Box::new(Tasks { runtime, end }))
}

fn start(part: Part, mut reader: impl AsyncRead + Unpin + 'static) {
    superpoll_rt::spawn(async move {
        let mut buffer = [0; ROOM];
        loop {
            match reader.read(&mut buffer).await {
                Ok(0) => break,
                Ok(count) => {
                    if part.counters.took(part.pair, &buffer[..count], part.fd) == Outcome::Ended {
                        break;
                    }
                }
                Err(error) => {
                    part.counters.broken(&error);
                    break;
                }
            }
        }
        part.end.reached.set(true);
        if let Some(waker) = part.end.waker.take() {
            waker.wake();
        }
    })
    .detach();
}

impl Reading for Tasks {
    fn read_on(self: Box<Self>) -> Result<()> {
        let end = self.end.clone();
        let ended = poll_fn(|cx| {
            if end.reached.get() {
                return Poll::Ready(());
            }
            end.waker.set(Some(cx.waker().clone()));
            Poll::Pending
        });
        self.runtime.try_block_on(ended).map_err(Error::from)
    }
}
