//! The C library libev: one watcher per descriptor, one callback per report.

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::subject::work::{ReadLog, Subject};
use crate::sys::libev::Loop;

struct Libev {
    run: Loop<ReadLog>,
}

pub(super) fn build(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let run = Loop::new(pairs.readers())
        .ok_or_else(|| Error::usage("libev has no epoll here: see ev_loop_new in ev(3)"))?;
    Ok(Box::new(Libev { run }))
}

impl Subject for Libev {
    fn round(&mut self, active: &[u32], log: &mut ReadLog) -> Result<()> {
        while log.bytes() < active.len() {
            self.run.run_once(log);
        }
        Ok(())
    }
}
