//! Streams with a bug, each of which the model must find.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use superpoll_rt::net::TcpStream;
use superpoll_rt::{BackendKind, Runtime, spawn};

use super::streams::{Of, Op, Order, Subject};
use super::{Patience, Random, Shared, read, writers};

/// A planted bug of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bug {
    /// A read that is given up has taken a byte.
    Lost,
    /// Bytes that were taken come once more.
    Doubled,
    /// Bytes that were taken come behind those that are taken after them.
    Reordered,
    /// Bytes that are peeked at are taken.
    PeekTakes,
    /// Bytes that are left behind are not taken before other bytes.
    Skipped,
    /// No read takes anything any more after a while.
    Stalls,
    /// The end comes while more bytes are left.
    EndsEarly,
}

struct Planted<S> {
    stream: S,
    bug: Bug,
    kept: Vec<u8>,
    operations: u32,
}

impl<S: Subject> Subject for Planted<S> {
    async fn act(
        &mut self,
        order: Order,
        random: &mut Random,
        taken: &mut Vec<u8>,
    ) -> io::Result<Vec<u8>> {
        self.operations += 1;
        if self.bug == Bug::Stalls && self.operations > 20 {
            order.patience.of(order.limit, std::future::pending::<()>()).await;
            return Ok(Vec::new());
        }
        if self.bug == Bug::EndsEarly && self.operations > 20 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let seen = self.stream.act(order, random, taken).await?;
        let is_given_up = !matches!(order.patience, Patience::Endless);
        match self.bug {
            Bug::Lost if is_given_up && !taken.is_empty() => drop(taken.pop()),
            Bug::Doubled => taken.extend_from_within(taken.len().saturating_sub(1)..),
            Bug::Reordered if order.op == Op::Parts && !taken.is_empty() => {
                taken.append(&mut self.kept);
            }
            Bug::Reordered if self.kept.is_empty() => {
                self.kept = taken.split_off(taken.len().saturating_sub(1));
            }
            Bug::PeekTakes if !seen.is_empty() => {
                taken.extend_from_slice(&seen);
                return Ok(Vec::new());
            }
            Bug::Skipped if order.op == Op::Anew => {
                let all = Order { op: Op::Poll, ..order };
                self.stream.act(all, random, &mut Vec::new()).await?;
            }
            _ => {}
        }
        Ok(seen)
    }

    async fn ends(&mut self, limit: Duration) -> io::Result<usize> {
        self.stream.ends(limit).await
    }
}

#[test]
fn each_planted_bug_is_found() {
    let all = [
        Bug::Lost,
        Bug::Doubled,
        Bug::Reordered,
        Bug::PeekTakes,
        Bug::Skipped,
        Bug::Stalls,
        Bug::EndsEarly,
    ];
    for bug in all {
        let runtime = Runtime::builder().backend(BackendKind::Epoll).build().unwrap();
        let run = async {
            let listener = superpoll_rt::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let client = TcpStream::connect(address).await.unwrap();
            let (server, _) = listener.accept().await.unwrap();
            let (shared, total) = (Rc::new(Shared::default()), 20_000);
            let known = shared.clone();
            let writer =
                spawn(writers::write(client, known, Instant::now(), total, Random::new(1)));
            let stream = Of(Some(server));
            let planted = Planted { stream, bug, kept: Vec::new(), operations: 0 };
            // A stream that stalls never goes on, however long the test waits for that.
            let outcome = read(planted, shared, total, Random::new(2), Duration::from_secs(1));
            let outcome = spawn(outcome).await;
            drop(writer);
            outcome
        };
        match runtime.block_on(run) {
            Ok(Ok(operations)) => panic!("{bug:?} was not found in {operations} operations"),
            Ok(Err(error)) => eprintln!("{bug:?}: {}", error.lines().next().unwrap_or_default()),
            Err(error) => eprintln!("{bug:?}: {error}"),
        }
    }
}
