//! Plain SIGIO: one signal, which says that some descriptor is readable.
//!
//! Without `F_SETSIG` the kernel sends SIGIO, which is not queued: however many descriptors become
//! ready, one signal is pending, and it does not name them. So the loop tries all of them on each
//! signal. A signal that arrives during the reads stays pending, also if its byte was among those
//! read. Then the next wait ends at once, and every read finds nothing. No event is lost, because
//! the signal is fetched before the descriptors are read.

use crate::channel::Pairs;
use crate::error::{Doing, Result};
use crate::models::sigio::Asked;
use crate::subject::{ReadLog, Subject};
use crate::sys::signal::{self, BlockedSignals};

/// The order of the fields is the order in which they end.
struct Plain<'a> {
    asked: Asked<'a>,
    blocked: BlockedSignals,
    calls: u64,
}

pub(super) fn build(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let blocked = BlockedSignals::new().doing("holding signals back")?;
    let asked = Asked { readers: pairs.readers() };
    for &fd in asked.readers {
        signal::ask_plainly(fd).doing(format_args!("asking for SIGIO of descriptor {fd}"))?;
    }
    Ok(Box::new(Plain { asked, blocked, calls: 0 }))
}

impl Subject for Plain<'_> {
    #[inline(always)]
    fn turn(&mut self, _active: &[u32], log: &mut ReadLog) -> Result<()> {
        self.calls += 1;
        self.blocked.wait().doing("sigtimedwait")?;
        for (pair, &fd) in self.asked.readers.iter().enumerate() {
            log.read(pair, fd);
        }
        Ok(())
    }

    fn calls(&self) -> Option<u64> {
        Some(self.calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Kind;
    use crate::subject::tests::do_round;

    #[test]
    fn many_events_are_one_signal() {
        let pairs = Pairs::open(Kind::Pipe, 50).unwrap();
        let mut subject = build(&pairs).unwrap();
        let mut log = ReadLog::new(pairs.len());
        let all: Vec<u32> = (0..50).collect();
        for round in 0..20u8 {
            do_round(&mut *subject, &pairs, &all, round, &mut log);
        }
        assert_eq!(subject.calls(), Some(20));
        assert_eq!(log.empty(), 0);
    }
}
