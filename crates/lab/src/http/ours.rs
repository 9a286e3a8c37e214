//! Our runtime below hyper, on the back-end that is asked for.

use std::io;
use std::net::TcpListener;

use futures_lite::AsyncReadExt;
use superpoll::BackendKind;
use superpoll_rt::{AsyncFd, Runtime};

use crate::error::{Error, Result};
use crate::http::hello;
use crate::server::{Control, Counts};

pub(super) fn serve_poll(listener: TcpListener, control: &mut Control) -> Result<()> {
    serve(listener, control, BackendKind::Poll)
}

pub(super) fn serve_epoll(listener: TcpListener, control: &mut Control) -> Result<()> {
    serve(listener, control, BackendKind::Epoll)
}

pub(super) fn serve_adaptive(listener: TcpListener, control: &mut Control) -> Result<()> {
    serve(listener, control, BackendKind::Adaptive)
}

pub(super) fn serve_uring(listener: TcpListener, control: &mut Control) -> Result<()> {
    serve(listener, control, BackendKind::Uring)
}

fn serve(listener: TcpListener, control: &mut Control, backend: BackendKind) -> Result<()> {
    let said = |error: superpoll_rt::Error| Error::usage(error.to_string());
    let failed = |source: io::Error| Error::system("setting our runtime up", source);
    let runtime = Runtime::builder().backend(backend).build().map_err(said)?;
    let listener = superpoll_rt::net::TcpListener::from_std(listener).map_err(failed)?;
    let mut questions = AsyncFd::new(control.questions()?).map_err(failed)?;
    runtime.block_on(async { superpoll_rt::spawn(accept(listener)).detach() }).map_err(said)?;
    control.ready()?;
    loop {
        let asked = runtime.block_on(async { questions.read_exact(&mut [0]).await });
        asked.map_err(said)?.map_err(|e| Error::system("reading a question", e))?;
        let stats = runtime.stats();
        control.counted(&Counts {
            waits: stats.iter().map(|engine| engine.poller.calls.waits()).sum(),
            epoll_ctl: stats.iter().map(|engine| engine.poller.calls.epoll_ctl()).sum(),
        })?;
    }
}

async fn accept(listener: superpoll_rt::net::TcpListener) {
    // Who has no connection gets no answer, which the load generator notices.
    while let Ok((stream, _)) = listener.accept().await {
        if stream.set_nodelay(true).is_ok() {
            superpoll_rt::spawn(hello::serve(stream)).detach();
        }
    }
}
