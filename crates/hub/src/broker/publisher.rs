//! The task that takes commands to the broker, many at a time, on one connection.
//!
//! A publication that could not be sent, or was sent and not answered, is tried again, in its order
//! and with the same token, so that the log has it once. Until a publication is answered or its
//! time is over, it stays at the front. A publication whose time is over before it was sent was not
//! published; one that was sent may have been, and its publisher is told so.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_lite::future;
use superpoll_rt::time::{self, sleep, timeout};

use super::Broker;
use super::log::{Append, Attend, Connect, Failure, Look, MessageLog, Refusal};
use super::queue::{Attendee, Command, MembersQuestion, Publication, Question, Unpublished};
use super::shard::Shard;

/// The most commands that are sent at a time, and their bytes.
const BATCH: usize = 256;
const BATCH_BYTES: u64 = 1 << 20;

/// The time that is left when a publication is not tried again whose replicas do not have it.
pub(super) const LAST_ATTEMPT: Duration = Duration::from_millis(500);

/// How long the broker may take to answer them.
const ATTEMPT: Duration = Duration::from_secs(3);

/// How long a connection may take to be there and checked.
pub(super) const CONNECT: Duration = Duration::from_secs(5);

/// The time between two attempts, which doubles.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The time between two interruptions of the same read.
const AGAIN: Duration = Duration::from_millis(5);

/// The time between two attempts after which a connection fails, which doubles.
pub(super) struct Pause(Duration);

impl Pause {
    pub(super) fn new() -> Pause {
        Pause(PAUSE)
    }

    pub(super) fn reset(&mut self) {
        self.0 = PAUSE;
    }

    pub(super) async fn wait(&mut self) {
        sleep(self.0).await;
        self.0 = (self.0 * 2).min(LONGEST_PAUSE);
    }
}

/// Opens a connection.
pub(super) async fn connect<C: Connect>(connector: &C, limit: Duration) -> Result<C::Log, Failure> {
    match timeout(limit, connector.connect()).await {
        Ok(connected) => connected,
        Err(_) => Err(Failure::passing(format!("no answer within {limit:?}"))),
    }
}

/// The commands under way.
#[derive(Default)]
struct Work {
    publications: Vec<Publication>,
    questions: Vec<Question>,
    members: Vec<MembersQuestion>,
    attendees: Vec<Arc<dyn Attendee>>,
    behind: Vec<Arc<Shard>>,
    /// Before this nothing is appended.
    settled: Option<Instant>,
}

impl Work {
    fn is_empty(&self) -> bool {
        self.waiting() == 0 && self.behind.is_empty()
    }

    /// Returns how many wait for an answer.
    fn waiting(&self) -> usize {
        let questions = self.questions.len() + self.members.len();
        self.publications.len() + questions + self.attendees.len()
    }

    fn add(&mut self, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Publish(publication) => self.publications.push(publication),
                Command::Look(question) => self.questions.push(question),
                Command::Members(question) => self.members.push(question),
                Command::Attend(attendee) => self.attendees.push(attendee),
                Command::Interrupt(shard) => self.behind.push(shard),
            }
        }
    }

    /// Answers everything whose time is over.
    fn expire(&mut self, broker: &Broker) {
        let now = time::now();
        let is_over = |one: &mut Publication| match one.lacks_copies {
            // Another attempt would be cut off, and the connection with it.
            true => one.until <= now + LAST_ATTEMPT,
            false => one.until <= now,
        };
        for publication in self.publications.extract_if(.., is_over) {
            let why = match publication.was_sent {
                true if publication.lacks_copies => Unpublished::NotReplicated,
                true => Unpublished::Unknown,
                false => Unpublished::Away,
            };
            let outcome = Err(why);
            broker.count(&publication.append.log.key, &outcome);
            broker.queue.answer(publication, outcome);
        }
        for question in self.questions.extract_if(.., |one| one.until <= now) {
            // Who asked may have gone.
            let _ = question.answer.send(Err(Unpublished::Away));
        }
        for question in self.members.extract_if(.., |one| one.until <= now) {
            let _ = question.answer.send(Err(Unpublished::Away));
        }
    }

    /// Returns the time that is left for the first of them, at most this much.
    fn limit(&self, most: Duration) -> Duration {
        let publications = self.publications.iter().map(|one| one.until);
        let questions = self.questions.iter().map(|one| one.until);
        let first = publications.chain(questions).chain(self.members.iter().map(|one| one.until));
        let first = first.min();
        first.map_or(most, |until| most.min(until.saturating_duration_since(time::now())))
    }

    /// Sends all of it once, and removes everything that was answered.
    async fn send<L: MessageLog>(&mut self, log: &L, broker: &Broker) -> Result<(), Failure> {
        self.behind.retain(|shard| shard.is_behind().is_some());
        let names: Vec<i64> = self.behind.iter().filter_map(|shard| shard.is_behind()).collect();
        for name in names {
            if let Err(failure) = log.interrupt(name).await {
                if !failure.is_lasting {
                    return Err(failure);
                }
                // The read ends by itself in a few seconds.
                broker.warn(format!("a new channel is read only after a while: {}", failure.what));
                self.behind.clear();
                break;
            }
        }
        if !self.questions.is_empty() {
            let looks: Vec<Look> = self.questions.iter().map(|one| one.look.clone()).collect();
            let looked = log.look(&looks).await?;
            for (question, looked) in self.questions.drain(..).zip(looked) {
                let refused = |refusal: Refusal| Unpublished::Refused(refusal.to_string());
                // As above.
                let _ = question.answer.send(looked.map_err(refused));
            }
        }
        if self.settled.is_none() {
            self.settled = Some(time::now() + log.settling().await?);
        }
        while let Some(question) = self.members.last() {
            let members = log.members(&question.asked).await?;
            let members = members.map_err(|refusal| Unpublished::Refused(refusal.to_string()));
            if let Some(question) = self.members.pop() {
                // As above.
                let _ = question.answer.send(members);
            }
        }
        if self.settled > Some(time::now()) {
            return Ok(());
        }
        self.attend(log).await?;
        if self.publications.is_empty() {
            return Ok(());
        }
        self.publications.iter_mut().for_each(|one| one.was_sent = true);
        let messages: Vec<Append> =
            self.publications.iter().map(|one| one.append.clone()).collect();
        let outcomes = log.append(&messages).await?;
        let mut again = Vec::new();
        for (mut publication, outcome) in self.publications.drain(..).zip(outcomes) {
            let outcome = match outcome {
                Ok(appended) => Ok(appended),
                Err(Refusal::Full) => Err(Unpublished::Full),
                Err(Refusal::Wrong(what)) => Err(Unpublished::Refused(what)),
                Err(Refusal::Later(_)) => {
                    again.push(publication);
                    continue;
                }
                Err(Refusal::NotReplicated) => {
                    publication.lacks_copies = true;
                    again.push(publication);
                    continue;
                }
            };
            broker.count(&publication.append.log.key, &outcome);
            broker.queue.answer(publication, outcome);
        }
        self.publications = again;
        Ok(())
    }
}

impl Work {
    /// Tells the broker once of the users who have come to this server, or have left it.
    async fn attend<L: MessageLog>(&mut self, log: &L) -> Result<(), Failure> {
        let next = |attendee: &Arc<dyn Attendee>| Some((attendee.clone(), attendee.next_attend()?));
        let (attendees, all): (Vec<_>, Vec<Attend>) =
            self.attendees.iter().filter_map(next).unzip();
        self.attendees = attendees;
        if all.is_empty() {
            return Ok(());
        }
        let outcomes = log.attend(&all).await?;
        let attendees = std::mem::take(&mut self.attendees).into_iter();
        for ((attendee, sent), outcome) in attendees.zip(all).zip(outcomes) {
            if attendee.attended(&sent, &outcome) {
                self.attendees.push(attendee);
            }
        }
        Ok(())
    }
}

/// Takes commands to the broker until there is no more need.
pub(super) async fn run<C: Connect>(broker: Arc<Broker>, connector: Arc<C>) {
    let mut work = Work::default();
    let mut log: Option<C::Log> = None;
    let mut pause = Pause::new();
    while !broker.queue.is_closed() {
        work.expire(&broker);
        let room = BATCH.saturating_sub(work.waiting());
        work.add(broker.queue.take(room, BATCH_BYTES));
        let Some(connection) = &log else {
            match connect(&*connector, work.limit(CONNECT)).await {
                Ok(connected) => {
                    broker.is_connected(true);
                    pause.reset();
                    log = Some(connected);
                }
                Err(failure) => {
                    broker.failed("publishing", &failure);
                    pause.wait().await;
                }
            }
            continue;
        };
        if work.is_empty() {
            let closed = async {
                connection.closed().await;
                true
            };
            let filled = async {
                broker.queue.filled().await;
                false
            };
            if future::or(closed, filled).await {
                broker.failed("publishing", &Failure::passing("the connection was closed"));
                (log, work.settled) = (None, None);
            }
            continue;
        }
        let limit = work.limit(ATTEMPT);
        let sent = match timeout(limit, work.send(connection, &broker)).await {
            Ok(sent) => sent,
            Err(_) => Err(Failure::passing(format!("no answer within {limit:?}"))),
        };
        match sent {
            Ok(()) if work.is_empty() => pause.reset(),
            // A read that is to be interrupted, or something that may be possible soon.
            Ok(()) if work.waiting() == 0 => sleep(AGAIN).await,
            Ok(()) => pause.wait().await,
            Err(failure) => {
                broker.failed("publishing", &failure);
                (log, work.settled) = (None, None);
            }
        }
    }
}
