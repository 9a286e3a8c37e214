//! A worker's side: its connection to the supervisor.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_channel::{mpsc, oneshot};
use futures_lite::{StreamExt, future};
use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::{spawn, time};
use zeroize::Zeroizing;

use super::messages::{Configuration, FromWorker, Kind, ListenerHead, ToWorker, WorkerDrain};
use crate::address::Address;
use crate::admin::{Operation, Outcome, Refusal, Settings};
use crate::broker::local;
use crate::certificates::TicketSecrets;
use crate::ipc::{self, Purpose};
use crate::listen::Inherited;
use crate::serve::{Server, ServerOperations};
use crate::telemetry::overview::Overview;
use crate::telemetry::reload::ReloadState;
use crate::telemetry::socket::{Kept, Subject};

/// How long a supervisor may be away: about the time in which its program is replaced.
const AWAY: Duration = Duration::from_secs(5);

/// The time between two attempts to reach it.
const AGAIN: Duration = Duration::from_millis(20);

/// How long the counters of all workers may take.
const COLLECT: Duration = Duration::from_secs(2);

/// How long an operation may take: a reload waits for all workers.
const OPERATE: Duration = Duration::from_secs(60);

/// How long a process that ends waits until the supervisor has its messages.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The time between two looks at the messages that are not written yet.
const LOOK: Duration = Duration::from_millis(1);

/// The most questions for the counters of all workers at a time.
const QUESTIONS: usize = 256;

/// The most bytes of the head of a listener.
const HEAD: usize = 4096;

/// Where a worker belongs: the name of its supervisor, and its place among the workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerPlace {
    /// The supervisor's name.
    pub name: String,
    /// The place among the workers, from zero.
    pub slot: u32,
}

impl fmt::Display for WorkerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.slot, self.name)
    }
}

impl FromStr for WorkerPlace {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<WorkerPlace, &'static str> {
        let expected = "expected SLOT@NAME, as a supervisor gives it to its workers";
        let (slot, name) = text.split_once('@').ok_or(expected)?;
        let slot = slot.parse().map_err(|_| expected)?;
        Ok(WorkerPlace { name: name.to_owned(), slot })
    }
}

/// A worker process, as a member of its server.
pub struct Worker {
    link: Arc<Link>,
    lost: oneshot::Receiver<()>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("slot", &self.link.place.slot).finish_non_exhaustive()
    }
}

impl Worker {
    /// Joins the server of a supervisor, from a task of the first engine. Returns the listeners as well.
    ///
    /// # Errors
    ///
    /// If the supervisor cannot be reached, or is another version.
    pub async fn join(place: &WorkerPlace) -> io::Result<(Worker, Inherited)> {
        let stream = introduce(place).await?;
        let (outgoing, messages) = mpsc::unbounded();
        let (lose, lost) = oneshot::channel();
        let link = Arc::new(Link {
            place: place.clone(),
            outgoing,
            unwritten: AtomicUsize::new(0),
            asked: Mutex::default(),
            next: AtomicU64::new(0),
            sources: Mutex::default(),
            early_tickets: Mutex::default(),
            told_tickets: Mutex::default(),
            reload: Mutex::default(),
            settings: Mutex::default(),
        });
        // This process knows the settings of operators before it serves any client.
        if let Some(ToWorker::Settings(settings)) = ipc::receive(&stream).await? {
            *lock(&link.settings) = settings;
        }
        spawn(talk(link.clone(), stream, messages, lose)).detach();
        let listeners = take_listeners(place).await?;
        let inherited = Inherited::by_supervisor(listeners, link.clone())?;
        Ok((Worker { link, lost }, inherited))
    }

    /// Returns the text of the configuration that is in use, and its number.
    ///
    /// # Errors
    ///
    /// If the supervisor cannot be reached, or is another version.
    pub async fn configuration(place: &WorkerPlace) -> io::Result<(u64, String)> {
        let stream = ipc::connect(&place.name, Purpose::Configuration).await?;
        let told: Option<Configuration> = ipc::receive(&stream).await?;
        let Configuration { number, text } = told.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((number, text))
    }

    /// Takes the listeners of another configuration.
    ///
    /// # Errors
    ///
    /// If the supervisor cannot be reached.
    pub async fn refresh(&self, server: &Server) -> io::Result<()> {
        server.give(take_listeners(&self.link.place).await?)
    }

    /// Says that the server serves.
    pub fn report_ready(&self, server: &Server) {
        let roots = server.roots().map(|root| root.to_path_buf()).collect();
        self.link.say(FromWorker::Ready { fronts: server.fronts().collect(), roots });
    }

    /// Says that another process has taken over from the keeper, so that this one drains and ends.
    pub fn report_yield(&self) {
        self.link.say(FromWorker::Yields);
    }

    /// Says that the process drains and ends, with these connections.
    pub fn report_drain(&self, drain: WorkerDrain) {
        self.link.say(FromWorker::Drains(drain));
    }

    /// Waits until the supervisor has been sent all messages, for a second at most.
    pub async fn written(&self) {
        let wait = async {
            while self.link.unwritten.load(Ordering::Acquire) > 0 {
                time::sleep(LOOK).await;
            }
        };
        let _ = time::timeout(LAST_WORDS, wait).await;
    }

    /// Says that the process cannot serve and is about to end.
    pub async fn report_failure(place: &WorkerPlace, error: &str) {
        let (process, error) = (std::process::id(), error.to_owned());
        // Without a supervisor nobody wants to know.
        let _ = ipc::connect(&place.name, Purpose::Failed { process, error }).await;
    }

    /// Says whether the configuration of a number is in use now.
    pub fn report_reload(&self, number: u64, outcome: Result<(), String>) {
        self.link.say(FromWorker::Reloaded { number, outcome });
    }

    /// Ready when there is no supervisor any more.
    pub async fn lost(&mut self) {
        // A sender that is dropped means the same.
        let _ = (&mut self.lost).await;
    }
}

/// The answers to a question, and the processes of the workers that have not answered.
type Collected = (Vec<Vec<u8>>, Vec<u32>);

/// The connection of a worker to its supervisor, for all engines.
pub(crate) struct Link {
    place: WorkerPlace,
    outgoing: mpsc::UnboundedSender<FromWorker>,
    /// How many messages are on their way to the supervisor.
    unwritten: AtomicUsize,
    /// The questions that the supervisor has not answered.
    asked: Mutex<HashMap<u64, oneshot::Sender<Collected>>>,
    next: AtomicU64,
    sources: Mutex<Option<Sources>>,
    /// The secrets of tickets that came before there was a server.
    early_tickets: Mutex<Vec<u8>>,
    /// Those that the supervisor was told of last.
    told_tickets: Mutex<Zeroizing<Vec<u8>>>,
    reload: Mutex<Option<ReloadState>>,
    /// The settings of operators.
    settings: Mutex<Settings>,
}

/// The parts of a server that the supervisor asks about.
#[derive(Clone)]
pub(crate) struct Sources {
    pub overview: Arc<Overview>,
    pub tickets: Arc<TicketSecrets>,
    pub statistics: Arc<Subject>,
    pub operations: Arc<ServerOperations>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("place", &self.place).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that can panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    fn say(&self, message: FromWorker) {
        self.unwritten.fetch_add(1, Ordering::AcqRel);
        // Without a supervisor the process is about to end.
        if self.outgoing.unbounded_send(message).is_err() {
            self.unwritten.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Returns the place of this process among the workers.
    pub(crate) fn slot(&self) -> u32 {
        self.place.slot
    }

    /// Returns the outcome of the last attempt of the supervisor to take on a configuration.
    pub(crate) fn reload(&self) -> Option<ReloadState> {
        *lock(&self.reload)
    }

    /// Returns the settings of operators.
    pub(crate) fn settings(&self) -> Settings {
        lock(&self.settings).clone()
    }

    /// Returns the log of the supervisor.
    pub(crate) fn log(&self) -> local::Connector {
        local::Connector { name: self.place.name.as_str().into() }
    }

    /// Answers the supervisor's questions about a server from now on, and shares its tickets' secrets.
    pub(crate) fn answer_by(self: &Arc<Link>, sources: Sources) {
        let mut answering = lock(&self.sources);
        let early = std::mem::take(&mut *lock(&self.early_tickets));
        if !early.is_empty() {
            sources.tickets.adopt(&early);
        }
        let link = Arc::downgrade(self);
        sources.tickets.share_by(move |record| {
            if let Some(link) = link.upgrade() {
                *lock(&link.told_tickets) = record.to_vec().into();
                link.say(FromWorker::Tickets(record.to_vec()));
            }
        });
        // They may have come since the server was begun.
        sources.operations.set(lock(&self.settings).clone());
        *answering = Some(sources);
    }

    /// Returns the counters of all workers, with the processes of those that have not answered. `None`
    /// if the supervisor does not answer, or has too many questions already.
    pub(crate) async fn collect(&self, kind: Kind) -> Option<Collected> {
        self.ask(COLLECT, |id| FromWorker::Collect { id, kind }).await
    }

    /// Makes the supervisor carry out an operation.
    pub(crate) async fn operate(&self, operation: &Operation) -> Outcome {
        let bytes = serde_json::to_vec(operation);
        let operation = bytes.map_err(|error| Refusal::invalid(error.to_string()))?;
        let answer = self.ask(OPERATE, |id| FromWorker::Operate { id, operation }).await;
        let outcome = answer.and_then(|(all, _)| serde_json::from_slice(all.first()?).ok());
        outcome.unwrap_or_else(|| Err(Refusal::unavailable("the supervisor has not answered")))
    }

    /// Asks the supervisor, with the number of the question.
    async fn ask(
        &self,
        limit: Duration,
        message: impl FnOnce(u64) -> FromWorker,
    ) -> Option<Collected> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        {
            let mut asked = lock(&self.asked);
            if asked.len() >= QUESTIONS {
                return None;
            }
            asked.insert(id, answer);
        }
        self.say(message(id));
        let all = time::timeout(limit, answered).await;
        lock(&self.asked).remove(&id);
        all.ok()?.ok()
    }

    fn take(self: &Arc<Link>, message: ToWorker, statistics: &Rc<Kept>) {
        let known = lock(&self.sources);
        let sources = known.clone();
        match message {
            ToWorker::Collected { id, all, missing } => {
                if let Some(answer) = lock(&self.asked).remove(&id) {
                    // Who asked may have gone.
                    let _ = answer.send((all, missing));
                }
            }
            ToWorker::Tickets(record) => match sources {
                Some(Sources { tickets, .. }) => tickets.adopt(&record),
                None => *lock(&self.early_tickets) = record,
            },
            ToWorker::Reload(state) => *lock(&self.reload) = Some(state),
            ToWorker::Settings(settings) => {
                *lock(&self.settings) = settings.clone();
                if let Some(sources) = sources {
                    sources.operations.set(settings);
                }
            }
            ToWorker::Count { id, kind } => {
                // A server that has just begun has no counters. Every question is answered.
                let Some(sources) = sources else {
                    return self.say(FromWorker::Counters { id, bytes: Vec::new() });
                };
                let (link, statistics) = (self.clone(), statistics.clone());
                let counts = async move {
                    let bytes = match kind {
                        Kind::Overview => sources.overview.encoded().await,
                        Kind::Engines => sources.overview.encoded_engines().await,
                        Kind::Traffic(channels) => sources.overview.encoded_traffic(&channels),
                        Kind::Statistics(channels) => {
                            let snapshot = statistics.take(sources.statistics, channels).await;
                            postcard::to_allocvec(&snapshot).ok()
                        }
                        Kind::Operation(operation) => {
                            let subject = Some(sources.statistics);
                            Some(super::operations::answer(subject, &operation).await)
                        }
                    };
                    link.say(FromWorker::Counters { id, bytes: bytes.unwrap_or_default() });
                };
                spawn(counts).detach();
            }
        }
    }
}

async fn introduce(place: &WorkerPlace) -> io::Result<UnixStream> {
    let purpose = Purpose::Worker { slot: place.slot, process: std::process::id() };
    ipc::connect(&place.name, purpose).await
}

/// Whether an error says that there is no supervisor, and will not be one.
fn is_end(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

/// Exchanges messages with the supervisor as long as there is one.
async fn talk(
    link: Arc<Link>,
    mut stream: UnixStream,
    mut messages: mpsc::UnboundedReceiver<FromWorker>,
    lose: oneshot::Sender<()>,
) {
    let statistics = Rc::new(Kept::default());
    // Not known to be sent.
    let mut unsent = None;
    loop {
        let reads = async {
            while let Ok(Some(message)) = ipc::receive(&stream).await {
                link.take(message, &statistics);
            }
        };
        let writes = async {
            loop {
                if unsent.is_none() {
                    unsent = messages.next().await;
                }
                let Some(message) = &unsent else { break };
                if ipc::send(&stream, message).await.is_err() {
                    break;
                }
                unsent = None;
                link.unwritten.fetch_sub(1, Ordering::AcqRel);
            }
        };
        future::or(reads, writes).await;
        // Who waits for an answer gets none.
        lock(&link.asked).clear();
        // They may have been on their way.
        let tickets = lock(&link.told_tickets).to_vec();
        if !tickets.is_empty() {
            link.say(FromWorker::Tickets(tickets));
        }
        let end = Instant::now() + AWAY;
        stream = loop {
            match introduce(&link.place).await {
                Ok(stream) => break stream,
                // Its socket stays open while its program is replaced: if nobody listens, it has ended.
                Err(error) if !is_end(&error) && Instant::now() < end => time::sleep(AGAIN).await,
                Err(_) => {
                    // A process that is about to end does not listen any more.
                    let _ = lose.send(());
                    return;
                }
            }
        };
    }
}

/// Takes the listeners of the supervisor, with their addresses in the configuration.
async fn take_listeners(place: &WorkerPlace) -> io::Result<Vec<(Address, OwnedFd)>> {
    let stream = ipc::connect(&place.name, Purpose::Listeners).await?;
    let mut listeners = Vec::new();
    let mut room = vec![0; HEAD];
    loop {
        // Each comes when the one before was taken.
        ipc::send(&stream, &()).await?;
        let received = stream.recv_with_fds(&mut room, 1).await?;
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let head: ListenerHead = postcard::from_bytes(&room[..received.length])
            .map_err(|_| wrong("the supervisor has sent no listener"))?;
        let Some(address) = head.address else { return Ok(listeners) };
        let address = address.parse().map_err(|_| wrong("the address of a listener is none"))?;
        let socket = received.fds.into_iter().next();
        listeners.push((address, socket.ok_or_else(|| wrong("a listener without a socket"))?));
    }
}
