//! Timers that are set and then cancelled before they end, like those of timeouts.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::task::Poll;
use std::time::Duration;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_gateway::relay::{Options, Relay};
use superpoll_rt::net::{TcpListener, TcpStream};
use superpoll_rt::pipe::{self, PipeReader, PipeWriter};
use superpoll_rt::time::sleep;
use superpoll_rt::{Runtime, spawn, yield_now};

use crate::error::{Error, Result};
use crate::gate::paths::{Work, in_tasks, on, runtime, said, wrong};
use crate::random::Random;
use crate::sys::descriptor;

/// Timers that are set at any time.
const TIMERS: usize = 100;

/// The timers would end after an hour or two; the value is in microseconds. Compared with that, the
/// time that passes while they are set does not matter, although the wheel's slots depend on it.
const SOONEST: u64 = 3_600_000_000;
const LATEST: u64 = 7_200_000_000;

pub(super) fn set_up_timer() -> Result<Box<dyn Work>> {
    let (mut set, mut random) = (VecDeque::new(), Random::new(1));
    on(runtime()?, move |runtime, count| {
        let work = poll_fn(|cx| {
            for _ in 0..count {
                let after = Duration::from_micros(random.between(SOONEST, LATEST));
                let mut timer = Box::pin(sleep(after));
                if timer.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(false);
                }
                set.push_back(timer);
                if set.len() > TIMERS {
                    set.pop_front();
                }
            }
            Poll::Ready(true)
        });
        let all_waited = runtime.try_block_on(work).map_err(said)?;
        let held = runtime.stats().iter().map(|engine| engine.timers).sum::<usize>();
        match all_waited && held == set.len() {
            true => Ok(()),
            false => wrong("timer", format!("{held} timers are set instead of {}", set.len())),
        }
    })
}

// Tasks: spawning, a wake-up, joining.

pub(super) fn set_up_task() -> Result<Box<dyn Work>> {
    on(runtime()?, |runtime, count| {
        // The joins run in a task: a thread that blocks on a runtime is woken by other means than a
        // task.
        let joins = async move {
            let mut sum = 0;
            for number in 0..count {
                let task = spawn(async move {
                    yield_now().await;
                    number
                });
                sum += task.await.unwrap_or(0);
            }
            sum
        };
        let sum = runtime.try_block_on(async { spawn(joins).await }).map_err(said)?;
        match sum.map_err(said)? == (0..count).sum::<u64>() {
            true => Ok(()),
            false => wrong("task", "the tasks have not returned the expected sum"),
        }
    })
}

// A byte in a ring of pipes with a task between neighbouring pipes, as in `superpoll-lab ring`.

/// Pipes in the ring.
const PIPES: u64 = 8;

/// Uses pipes whose two ends are not linked as peers.
pub(super) fn set_up_hop() -> Result<Box<dyn Work>> {
    ring(|| {
        let (reader, writer) = descriptor::pipe()?;
        Ok((pipe::reader_from(reader)?, pipe::writer_from(writer)?))
    })
}

/// Uses the runtime's own pipes.
pub(super) fn set_up_hop_peers() -> Result<Box<dyn Work>> {
    ring(pipe::pipe)
}

fn ring(open: impl Fn() -> io::Result<(PipeReader, PipeWriter)>) -> Result<Box<dyn Work>> {
    let runtime = runtime()?;
    let pipes: io::Result<Vec<_>> = (0..PIPES).map(|_| open()).collect();
    let pipes = pipes.map_err(|e| Error::system("opening a pipe", e))?;
    let (readers, mut writers): (Vec<_>, Vec<_>) = pipes.into_iter().unzip();
    writers.rotate_left(1);
    let mut ends = readers.into_iter().zip(writers);
    let Some(driver) = ends.next() else { return wrong("hop", "the ring is empty") };
    let begin = async {
        for (mut reader, mut writer) in ends {
            let pass = async move {
                let mut byte = [0];
                // If a pipe breaks, the driver fails.
                while reader.read_exact(&mut byte).await.is_ok() {
                    if writer.write_all(&byte).await.is_err() {
                        return;
                    }
                }
            };
            spawn(pass).detach();
        }
    };
    runtime.try_block_on(begin).map_err(said)?;
    in_tasks(
        runtime,
        driver,
        "sending a byte round",
        |(mut reader, mut writer), count| async move {
            let mut byte = [b'o'];
            for _ in 0..count.div_ceil(PIPES) {
                writer.write_all(&byte).await?;
                reader.read_exact(&mut byte).await?;
            }
            Ok((reader, writer))
        },
    )
}

// Requests over TCP that a task echoes, and the client that sends them.

/// The length of a request.
const LENGTH: usize = 64;

pub(super) fn set_up_echo() -> Result<Box<dyn Work>> {
    through(|_, origin| Ok((origin, ())))
}

/// Sets up a client of a server that echoes, with an intermediary between the two; `between`
/// returns the address where the intermediary listens, and what must live as long as the client.
pub(super) fn through<Kept: 'static>(
    between: impl FnOnce(&Runtime, SocketAddr) -> Result<(SocketAddr, Kept)>,
) -> Result<Box<dyn Work>> {
    let runtime = runtime()?;
    let failed = |e| Error::system("setting an echo server up", e);
    let origin = runtime.try_block_on(serve()).map_err(said)?.map_err(failed)?;
    let (address, kept) = between(&runtime, origin)?;
    let connected = runtime.try_block_on(TcpStream::connect(address)).map_err(said)?;
    let stream = connected.map_err(failed)?;
    in_tasks(runtime, stream, "asking an echo server", move |mut stream, count| {
        let _ = &kept;
        async move {
            let (mut request, mut answer) = ([0; LENGTH], [0; LENGTH]);
            for number in 0..count {
                request.fill(number as u8);
                stream.write_all(&request).await?;
                stream.read_exact(&mut answer).await?;
                if answer != request {
                    return Err(io::Error::other("another answer than was asked for"));
                }
            }
            Ok(stream)
        }
    })
}

async fn serve() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let accept = async move {
        while let Ok((stream, _)) = listener.accept().await {
            spawn(echo(stream)).detach();
        }
    };
    spawn(accept).detach();
    Ok(address)
}

async fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 4 * LENGTH];
    // If the connection breaks, the client fails.
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

// An echo with the TCP relay in between, on the same engine.

pub(super) fn set_up_relay() -> Result<Box<dyn Work>> {
    through(|runtime, origin| {
        let listen = "127.0.0.1:0".parse().map_err(said)?;
        let to = origin.to_string().parse().map_err(said)?;
        // If the relay fails, the client fails.
        let relay = Relay::start(runtime, &listen, &to, Options::default(), |_| {});
        let relay = relay.map_err(said)?;
        let listening = relay.listening().to_string().parse().map_err(said)?;
        Ok((listening, relay))
    })
}
