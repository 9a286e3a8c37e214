//! Our runtime in each of many processes, as in a server that forks before it serves. All processes
//! wait for one inherited listener, woken together or one at a time, or each waits for its own.
//!
//! For a duplicate of the listener there is a task that accepts from it, as for a second address;
//! for a pipe there is a task that waits until it is readable.

use std::cell::Cell;
use std::fs::File;
use std::future::{Future, poll_fn};
use std::io::{self, Read};
use std::rc::Rc;
use std::task::{Poll, Waker};

use superpoll_rt::net::{ListenOptions, TcpListener};
use superpoll_rt::{AsyncFd, BackendKind, Direction, Runtime};

use crate::herd::method::post::{Post, Report};
use crate::sys::descriptor;

pub(super) fn stand(post: Post, report: &Report) -> io::Result<()> {
    serve(post, report, &ListenOptions::new(), BackendKind::Epoll)
}

pub(super) fn stand_exclusive(post: Post, report: &Report) -> io::Result<()> {
    serve(post, report, &ListenOptions::new().exclusive(true), BackendKind::Epoll)
}

pub(super) fn stand_uring_exclusive(post: Post, report: &Report) -> io::Result<()> {
    serve(post, report, &ListenOptions::new().exclusive(true), BackendKind::Uring)
}

/// The reason why a task has ended, and the waker to notify.
#[derive(Default)]
struct Failure {
    error: Cell<Option<io::Error>>,
    waker: Cell<Option<Waker>>,
}

/// Serves indefinitely; returns only on an error.
fn serve(
    post: Post,
    report: &Report,
    options: &ListenOptions,
    backend: BackendKind,
) -> io::Result<()> {
    let runtime = Runtime::builder().backend(backend).build()?;
    let listener = options.adopt(descriptor::duplicate(post.listener)?.into())?;
    // One reserved descriptor is enough for a process.
    let options = options.clone().shed_load(false);
    let failure = Rc::new(Failure::default());
    runtime.try_block_on(async {
        start(accept(listener, report.clone()), &failure);
        for fd in post.besides {
            if post.of_pipe {
                start(read(AsyncFd::new(File::from(fd))?), &failure);
            } else {
                start(accept(options.adopt(fd.into())?, report.clone()), &failure);
            }
        }
        (report.ready)();
        poll_fn(|cx| {
            failure.waker.set(Some(cx.waker().clone()));
            failure.error.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error)))
        })
        .await
    })?
}

fn start(task: impl Future<Output = io::Result<()>> + 'static, failure: &Rc<Failure>) {
    let failure = failure.clone();
    superpoll_rt::spawn(async move {
        failure.error.set(task.await.err());
        failure.waker.take().into_iter().for_each(Waker::wake);
    })
    .detach();
}

async fn accept(listener: TcpListener, report: Report) -> io::Result<()> {
    loop {
        drop(listener.accept().await?);
        (report.accepted)();
    }
}

/// Waits for the pipe; no process ever writes to it.
async fn read(pipe: AsyncFd<File>) -> io::Result<()> {
    pipe.perform(Direction::Read, |mut pipe| pipe.read(&mut [0])).await?;
    Err(io::ErrorKind::UnexpectedEof.into())
}
