//! The C library libevent: persistent events, one callback per report.

use std::os::fd::RawFd;

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::subject::work::{ReadLog, Subject};
use crate::sys::libevent::Base;

struct Libevent {
    base: Base<ReadLog>,
}

pub(super) fn build(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let readers: &[RawFd] = pairs.readers();
    let base = Base::new(readers)
        .ok_or_else(|| Error::usage("libevent refused a descriptor: see event_add(3)"))?;
    Ok(Box::new(Libevent { base }))
}

impl Subject for Libevent {
    fn round(&mut self, active: &[u32], log: &mut ReadLog) -> Result<()> {
        while log.bytes() < active.len() {
            if !self.base.run_once(log) {
                return Err(Error::usage("event_base_loop of libevent failed"));
            }
        }
        Ok(())
    }
}
