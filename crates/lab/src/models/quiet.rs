//! The cost of a model while nothing happens.
//!
//! In the timed rounds everything is ready before the loop looks, so it never sleeps, and processor
//! time equals the time on the clock. The difference between trying and waiting shows when there is
//! nothing to read. A child process sleeps for a while and then writes one byte. Meanwhile the loop
//! runs as usual, and the kernel's clock of this thread says how long it ran.

use crate::channel::Pairs;
use crate::error::{Doing, Result};
use crate::subject::{Entry, ReadLog};
use crate::sys::{descriptor, process};

/// How long nothing happens, in nanoseconds.
pub(super) const NANOSECONDS: u64 = 20_000_000;

const BYTE: u8 = 0x5a;

/// The share of a processor that a subject takes while it waits for the byte; the byte is checked.
pub(super) fn share(pairs: &Pairs, entry: &Entry) -> Result<f64> {
    let mut subject = entry.build(pairs)?;
    let mut log = ReadLog::new(pairs.len());
    let last = pairs.len() - 1;
    let active = [last as u32];
    let writer = pairs.writers()[last];
    process::watch(entry.name);
    let child = process::fork(|| {
        process::sleep(NANOSECONDS);
        descriptor::write_byte(writer, BYTE);
    })
    .doing("starting a process that writes later")?;
    let before = (process::now(), process::thread_time());
    subject.round(&active, &mut log)?;
    let after = (process::now(), process::thread_time());
    process::unwatch();
    drop(child);
    log.close(entry.name, &active, BYTE)?;
    pairs.answer(&active)?;
    Ok((after.1 - before.1) as f64 / (after.0 - before.0).max(1) as f64)
}
