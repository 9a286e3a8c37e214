//! Where the adaptive back-end puts descriptors.

use std::io::{PipeReader, PipeWriter, Read, Write};

use superpoll::policy::Governed;
use superpoll::{Events, Interest, Owned, Poller};

fn pipes(poller: &mut Poller, count: usize) -> Vec<(Owned<PipeReader>, PipeWriter)> {
    (0..count)
        .map(|_| {
            let (reader, writer) = std::io::pipe().unwrap();
            (poller.own(reader, Interest::READABLE).unwrap(), writer)
        })
        .collect()
}

fn round(poller: &mut Poller, events: &mut Events, pipes: &mut [(Owned<PipeReader>, PipeWriter)]) {
    for (_, writer) in pipes.iter_mut() {
        writer.write_all(b"x").unwrap();
    }
    let mut left = pipes.len();
    while left > 0 {
        left -= poller.wait(events, None).unwrap();
        for event in events.iter() {
            let place = pipes.iter().position(|(reader, _)| reader.key() == event.key()).unwrap();
            pipes[place].0.read_exact(&mut [0]).unwrap();
        }
    }
}

#[test]
fn descriptors_that_are_always_active_stay_in_the_array() {
    let mut poller = Poller::builder().policy(Governed::default()).build().unwrap();
    let mut pipes = pipes(&mut poller, 100);
    let mut events = Events::with_limit(100);
    for _ in 0..100 {
        round(&mut poller, &mut events, &mut pipes);
    }
    let before = poller.stats();
    for _ in 0..100 {
        round(&mut poller, &mut events, &mut pipes);
    }
    let after = poller.stats();
    assert_eq!(after.hot.len, 100, "{after:#?}");
    assert_eq!(after.calls.since(&before.calls).total(), 100, "{after:#?}");
}
