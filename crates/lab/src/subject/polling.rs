//! The crate polling in its cheapest mode here: level-triggered.

use crate::channel::Pairs;
use crate::error::{Doing, Result};
use crate::subject::work::{ReadLog, Subject, Turns};
use crate::sys::polling::Readers;

pub(super) fn build(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let mut watched = Readers::watch(pairs.reader_handles().iter().collect(), pairs.len())
        .doing("adding descriptors to polling")?;
    Ok(Box::new(Turns(move |log: &mut ReadLog| {
        for pair in watched.wait().doing("polling::Poller")? {
            log.read(pair, pairs.readers()[pair]);
        }
        Ok(())
    })))
}
