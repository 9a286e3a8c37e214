//! The task that reads the logs of a shard, on a connection of its own.
//!
//! The same call catches up and waits for new entries, and each log is read after the last entry
//! that its follower has. So nothing can be lost or doubled when a connection breaks,
//! and entries are fetched no faster than followers take them.
//!
//! Before the first read of a connection, and every few seconds, the logs are looked at. A log that
//! is not the one that its follower knows begins again, which the read then shows: the log was
//! removed, or its server was replaced by a copy that lacks its last entries. Without the look a
//! read after an entry that a new log does not have yet would wait for too long, and then skip the
//! entries before.

use std::sync::Arc;
use std::time::{Duration, Instant};

use superpoll_rt::time::{self, sleep, timeout};

use super::Broker;
use super::log::{BLOCK, Connect, Failure, Look, MessageLog, Position};
use super::publisher::{CONNECT, Pause, connect};
use super::shard::{Follower, Shard};

/// The time between two looks.
const LOOK: Duration = Duration::from_secs(5);

/// How much longer than its wait a read may take.
const SLACK: Duration = Duration::from_secs(2);

/// How long the broker may take for a look.
const ATTEMPT: Duration = Duration::from_secs(3);

/// About the most bytes that are read at a time.
const BYTES: u64 = 8 << 20;

/// The most entries of a log that are read at a time.
const ENTRIES: u64 = 512;

/// Reads the logs of a shard as long as there is a need.
pub(super) async fn run<C: Connect>(broker: Arc<Broker>, shard: Arc<Shard>, connector: Arc<C>) {
    let mut pause = Pause::new();
    while !shard.is_closed() {
        let failure = match connect(&*connector, CONNECT).await {
            Ok(log) => match read(&broker, &shard, &log, &mut pause).await {
                Ok(()) => return,
                Err(failure) => failure,
            },
            Err(failure) => failure,
        };
        shard.end_read();
        shard.set_up(false);
        broker.failed("reading", &failure);
        pause.wait().await;
    }
}

async fn within<T>(
    limit: Duration,
    future: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    match timeout(limit, future).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Failure::passing(format!("no answer within {limit:?}"))),
    }
}

/// Reads until the connection fails.
async fn read<L: MessageLog>(
    broker: &Broker,
    shard: &Shard,
    log: &L,
    pause: &mut Pause,
) -> Result<(), Failure> {
    // While it settles, the other servers look at the logs, too.
    let mut settling = within(ATTEMPT, log.settling()).await?;
    let mut looked: Option<(u64, Instant)> = None;
    let mut readable: Vec<Arc<dyn Follower>> = Vec::new();
    while !shard.is_closed() {
        let mut generation = shard.generation();
        let is_due = looked.is_none_or(|(of, at)| of != generation || time::now() - at >= LOOK);
        if is_due {
            let all;
            (generation, all) = shard.followers();
            readable = look(log, &all).await?;
            looked = Some((generation, time::now()));
            shard.set_up(true);
            broker.recovers();
            pause.reset();
        }
        if !settling.is_zero() {
            sleep(std::mem::take(&mut settling)).await;
            continue;
        }
        let mut places: Vec<(Arc<str>, Position)> = Vec::with_capacity(readable.len());
        readable.retain(|follower| match follower.place() {
            Some(place) => {
                places.push((follower.key().clone(), place.at));
                true
            }
            None => false,
        });
        if places.is_empty() {
            // The wait ends for the next look, too: a log may be readable again.
            let _ = timeout(LOOK, shard.grown(generation)).await;
            continue;
        }
        let count = (BYTES / broker.largest() / places.len() as u64).clamp(1, ENTRIES);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if !shard.begin_read(generation, log.name()) {
            continue;
        }
        let read = within(BLOCK + SLACK, log.read(&places, count)).await;
        shard.end_read();
        for (index, entries) in read? {
            let follower = &readable[index];
            follower.room().await;
            follower.apply_entries(entries);
        }
    }
    Ok(())
}

/// Looks at the logs of followers, and returns those that can be read.
async fn look<L: MessageLog>(
    log: &L,
    followers: &[Arc<dyn Follower>],
) -> Result<Vec<Arc<dyn Follower>>, Failure> {
    let (mut asked, mut looks) = (Vec::new(), Vec::new());
    for follower in followers {
        if let Some(place) = follower.place() {
            looks.push(Look { log: follower.options(), place: Some(place) });
            asked.push(follower.clone());
        }
    }
    let looked = within(ATTEMPT, log.look(&looks)).await?;
    let mut readable = Vec::new();
    for (follower, looked) in asked.into_iter().zip(looked) {
        match looked {
            Ok(looked) => {
                follower.note(&looked);
                readable.push(follower);
            }
            Err(refusal) => follower.refuse(&refusal.to_string()),
        }
    }
    Ok(readable)
}
