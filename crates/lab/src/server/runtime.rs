//! A server on our runtime: what it is made of is the experiment's, how it is asked for its counters is the same for all.

use std::io;

use futures_lite::AsyncReadExt;
use superpoll::BackendKind;
use superpoll_rt::{AsyncFd, Runtime};

use crate::error::{Error, Result};
use crate::server::{Control, Counts};

/// Has `start` begin a server on a runtime with this back-end, says that it is ready, and answers questions for as long
/// as somebody may ask. What `start` returns lives as long.
pub fn serve<T>(
    backend: BackendKind,
    control: &mut Control,
    start: impl FnOnce(&Runtime) -> Result<T>,
) -> Result<()> {
    let said = |error: superpoll_rt::Error| Error::usage(error.to_string());
    let failed = |source: io::Error| Error::system("setting our runtime up", source);
    let runtime = Runtime::builder().backend(backend).build().map_err(said)?;
    let mut questions = AsyncFd::new(control.questions()?).map_err(failed)?;
    let _started = start(&runtime)?;
    control.ready()?;
    loop {
        let asked = runtime.block_on(async { questions.read(&mut [0]).await });
        // Without a parent there is nobody to serve.
        if !matches!(asked.map_err(said)?, Ok(1)) {
            return Ok(());
        }
        let stats = runtime.stats();
        control.counted(&Counts {
            waits: stats.iter().map(|engine| engine.poller.calls.waits()).sum(),
            epoll_ctl: stats.iter().map(|engine| engine.poller.calls.epoll_ctl()).sum(),
        })?;
    }
}
