//! A `superpoll::Poller` inside tokio's event loop: tokio watches the descriptor of
//! `Poller::nest`, and the program asks the poller for events when it is readable. A hundred pipes
//! are watched by the poller, and tokio watches one descriptor.

use std::error::Error;
use std::io::{Read, Write};
use std::time::Duration;

use superpoll::{BackendKind, Events, Interest, KeyMap, Poller};
use tokio::io::Interest as TokioInterest;
use tokio::io::unix::AsyncFd;

const PIPES: usize = 100;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    for backend in [BackendKind::Epoll, BackendKind::Adaptive] {
        let mut poller = Poller::builder().backend(backend).build()?;
        let mut readers = KeyMap::new();
        let mut writers = Vec::new();
        for number in 0..PIPES {
            let (reader, writer) = std::io::pipe()?;
            let reader = poller.own(reader, Interest::READABLE)?;
            readers.insert(reader.key(), (number, reader));
            writers.push(writer);
        }
        // A task of tokio makes one pipe after the other readable.
        let writing = tokio::spawn(async move {
            for (number, writer) in writers.iter_mut().enumerate() {
                writer.write_all(&[u8::try_from(number).unwrap_or_default()])?;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            std::io::Result::Ok(writers)
        });

        let nested = poller.nest()?.try_clone_to_owned()?;
        // SAFETY: the `OwnedFd` has one descriptor, which stays open as long as the `AsyncFd` has
        // it.
        let nested = unsafe { AsyncFd::register_with_interest(nested, TokioInterest::READABLE)? };
        let mut events = Events::with_limit(PIPES);
        let mut read = Vec::new();
        while read.len() < PIPES {
            let mut ready = nested.readable().await?;
            if poller.wait(&mut events, Some(Duration::ZERO))? == 0 {
                // Nothing is left: tokio waits until the poller has something again.
                ready.clear_ready();
            }
            for event in &events {
                let (number, pipe) =
                    readers.get_mut(event.key()).ok_or("a pipe of this program")?;
                let mut byte = [0];
                pipe.get_mut().read_exact(&mut byte)?;
                assert_eq!(usize::from(byte[0]), *number);
                read.push(*number);
            }
        }
        writing.await??;
        read.sort_unstable();
        assert_eq!(read, (0..PIPES).collect::<Vec<_>>());
        println!("{backend}: tokio's loop delivered the events of {PIPES} pipes");
    }
    Ok(())
}
