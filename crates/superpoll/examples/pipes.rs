//! A thousand pipes, fifty of them busy: where the adaptive back-end puts them, and the system
//! calls of a round.

use std::io::{Read, Write};

use superpoll::{Events, Interest, Mode, Poller, Watch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    superpoll::limits::raise_descriptors()?;
    let mut poller = Poller::new()?;
    let mut pipes = Vec::new();
    for _ in 0..1000 {
        let (reader, writer) = std::io::pipe()?;
        let watch = Watch::new(Interest::READABLE).mode(Mode::Auto);
        pipes.push((poller.own(reader, watch)?, writer));
    }
    let mut events = Events::with_limit(1000);
    let mut before = poller.stats();
    for round in 0..200 {
        if round == 100 {
            before = poller.stats();
        }
        for (_, writer) in pipes.iter_mut().step_by(20) {
            writer.write_all(b"x")?;
        }
        let mut left = 50;
        while left > 0 {
            left -= poller.wait(&mut events, None)?;
            for event in &events {
                // Registered in order, so the dense index of the key is the place.
                pipes[event.key().index() as usize].0.get_mut().read_exact(&mut [0])?;
            }
        }
    }
    let stats = poller.stats();
    println!("back-end {}: {} hot, {} cold", poller.backend(), stats.hot.len, stats.cold.len);
    println!("the last 100 rounds made these calls: {}", stats.calls.since(&before.calls));
    Ok(())
}
