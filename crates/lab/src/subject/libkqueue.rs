//! The C library libkqueue, level-triggered: a `kevent` for each wait.

use crate::channel::Pairs;
use crate::error::{Doing, Result};
use crate::subject::work::{ReadLog, Subject, Turns};
use crate::sys::libkqueue::Queue;

pub(super) fn build(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let mut queue = Queue::new(pairs.readers()).doing("adding descriptors to libkqueue")?;
    Ok(Box::new(Turns(move |log: &mut ReadLog| {
        for pair in queue.wait().doing("kevent of libkqueue")? {
            log.read(pair, pairs.readers()[pair]);
        }
        Ok(())
    })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Kind;
    use crate::subject::tests::do_round;
    use crate::sys::libkqueue;

    #[test]
    fn more_readers_than_a_call_reports_are_all_reported() {
        if let Some(reason) = libkqueue::missing() {
            println!("skipped: {reason}");
            return;
        }
        crate::channel::most_pairs();
        let pairs = Pairs::open(Kind::Pipe, 600).unwrap();
        let mut subject = build(&pairs).unwrap();
        let mut log = ReadLog::new(pairs.len());
        let all: Vec<u32> = (0..600).collect();
        for round in 0..5u8 {
            do_round(&mut *subject, &pairs, &all, round, &mut log);
        }
        assert_eq!(log.empty(), 0);
    }
}
