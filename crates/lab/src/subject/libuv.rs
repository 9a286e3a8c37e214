//! The C library libuv: one poll handle per descriptor, one callback per report.

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::subject::work::{Ledger, Subject};
use crate::sys::libuv::Loop;

struct Libuv {
    run: Loop<Ledger>,
}

pub(super) fn build(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let run = Loop::new(pairs.readers())
        .ok_or_else(|| Error::usage("libuv refused a descriptor: see uv_poll_init"))?;
    Ok(Box::new(Libuv { run }))
}

impl Subject for Libuv {
    fn round(&mut self, active: &[u32], ledger: &mut Ledger) -> Result<()> {
        while ledger.bytes() < active.len() {
            self.run.run_once(ledger);
        }
        Ok(())
    }
}
