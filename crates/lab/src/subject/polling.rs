//! The crate polling in its cheapest mode here: level-triggered.

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::subject::work::{ReadLog, Subject, Turns};
use crate::sys::polling::Readers;

pub(super) fn build(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let mut watched = Readers::watch(pairs.reader_handles().iter().collect(), pairs.len())
        .map_err(|e| Error::system("adding descriptors to polling", e))?;
    Ok(Box::new(Turns(move |log: &mut ReadLog| {
        for pair in watched.wait().map_err(|e| Error::system("polling::Poller", e))? {
            log.read(pair, pairs.readers()[pair]);
        }
        Ok(())
    })))
}
