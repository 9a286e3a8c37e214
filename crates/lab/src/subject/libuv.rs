//! The C library libuv: one poll handle per descriptor, one callback per report.

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::subject::work::{ReadLog, Subject};
use crate::sys::libuv::Loop;

struct Libuv {
    run: Loop<ReadLog>,
}

pub(super) fn build(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let run = Loop::new(pairs.readers())
        .ok_or_else(|| Error::usage("libuv refused a descriptor: see uv_poll_init"))?;
    Ok(Box::new(Libuv { run }))
}

impl Subject for Libuv {
    fn round(&mut self, active: &[u32], log: &mut ReadLog) -> Result<()> {
        while log.bytes() < active.len() {
            self.run.run_once(log);
        }
        Ok(())
    }
}
