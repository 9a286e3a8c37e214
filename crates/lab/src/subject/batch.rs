//! Superpoll's batch reader, which returns events together with their bytes.
//!
//! The bytes are looked at in place; the reads are the reader's own, as the floor's are. Its memory
//! is not compared: its table holds the descriptors and replaces the table that users of a poller
//! keep in addition.

use std::os::fd::OwnedFd;

use superpoll::BackendKind;
use superpoll::batch::{Arrivals, BatchReader, Outcome};

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::subject::work::{ReadLog, Subject};

struct Batch<'a> {
    reader: BatchReader<&'a OwnedFd>,
    arrivals: Arrivals,
    /// By index of the key.
    pairs: Vec<u32>,
}

pub(super) fn build<'a>(
    pairs: &'a Pairs,
    kind: BackendKind,
    speculates: bool,
) -> Result<Box<dyn Subject + 'a>> {
    let mut reader = BatchReader::with_backend(kind)?;
    if !speculates {
        reader = reader.without_speculation();
    }
    reader.stay_on_thread();
    let mut numbers = vec![0; pairs.len()];
    for (pair, handle) in (0..).zip(pairs.reader_handles()) {
        let key = reader.register(handle).map_err(|refused| refused.error)?;
        let place = key.index() as usize;
        if place >= numbers.len() {
            numbers.resize(place + 1, 0);
        }
        numbers[place] = pair;
    }
    reader.flush();
    let arrivals = Arrivals::with_limit(pairs.len());
    Ok(Box::new(Batch { reader, arrivals, pairs: numbers }))
}

impl Subject for Batch<'_> {
    #[inline(always)]
    fn turn(&mut self, _active: &[u32], log: &mut ReadLog) -> Result<()> {
        self.reader.wait(&mut self.arrivals, None)?;
        for arrival in &self.arrivals {
            let pair = self.pairs[arrival.key().index() as usize];
            match arrival.outcome() {
                Outcome::Bytes(bytes) => log.note(pair as usize, bytes),
                other => return Err(Error::usage(format!("pair {pair}: {other:?}"))),
            }
        }
        if let Some((_, error)) = self.arrivals.refusals().first() {
            return Err(Error::usage(error.to_string()));
        }
        Ok(())
    }

    fn counters(&self) -> Option<superpoll::diagnostics::Stats> {
        Some(self.reader.stats())
    }
}
