//! A server on our runtime: its parts are the experiment's, and the request for its counters is the
//! same for all.

use std::io;

use futures_lite::AsyncReadExt;
use superpoll::BackendKind;
use superpoll_rt::{AsyncFd, Builder, Runtime};

use crate::error::{Error, Result};
use crate::server::{Calls, Control, Counts};

/// Calls `start` to begin a server on a runtime with this back-end, reports that it is ready, and
/// answers questions until the parent is gone. The value that `start` returns lives as long.
pub(crate) fn serve<T>(
    backend: BackendKind,
    control: &mut Control,
    start: impl FnOnce(&Runtime) -> Result<T>,
) -> Result<()> {
    serve_on(Runtime::builder().backend(backend), control, start, |_| Calls::new())
}

/// Like [`serve`], on a runtime with these settings, whose system calls by name `calls` returns.
pub(crate) fn serve_on<T>(
    builder: Builder,
    control: &mut Control,
    start: impl FnOnce(&Runtime) -> Result<T>,
    calls: impl Fn(&Runtime) -> Calls,
) -> Result<()> {
    let failed = |source: io::Error| Error::system("setting our runtime up", source);
    let runtime = builder.build()?;
    let mut questions = AsyncFd::new(control.questions()?).map_err(failed)?;
    let _started = start(&runtime)?;
    control.ready()?;
    loop {
        let asked = runtime.try_block_on(async { questions.read(&mut [0]).await });
        // Without a parent there is no client to serve.
        if !matches!(asked?, Ok(1)) {
            return Ok(());
        }
        let stats = runtime.stats();
        control.counted(Counts {
            waits: stats.iter().map(|engine| engine.poller.calls.waits()).sum(),
            epoll_ctl: stats.iter().map(|engine| engine.poller.calls.epoll_ctl()).sum(),
            calls: calls(&runtime),
        })?;
    }
}
