//! The connection of a worker to its supervisor, for all parts of the server.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_channel::{mpsc, oneshot};
use futures_lite::future::BoxedLocal;
use superpoll_http::admin::{Operation, Outcome, Refusal, Settings};
use superpoll_http::certificates::TicketSecrets;
use superpoll_hub::broker::local;
use superpoll_rt::{spawn, time};
use zeroize::Zeroizing;

use super::messages::{FromWorker, Question, ToWorker};
use crate::telemetry::reload::ReloadState;

/// How long the counters of all workers may take.
const COLLECT: Duration = Duration::from_secs(2);

/// How long an operation may take: a reload waits for all workers.
const OPERATE: Duration = Duration::from_secs(60);

/// The most questions for the counters of all workers at a time.
const QUESTIONS: usize = 256;

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

/// Answers the supervisor, on the engine that talks with it.
pub(crate) type Counters = Rc<dyn Fn(Question) -> BoxedLocal<Option<Vec<u8>>>>;

/// A server, as far as the supervisor asks about it.
pub(crate) trait Source: Send + Sync {
    /// Returns the secrets of the tickets of all listeners.
    fn tickets(&self) -> &Arc<TicketSecrets>;

    /// Applies the settings of operators.
    fn set(&self, settings: Settings);

    /// Returns the function that counts; each engine has its own.
    fn counters(&self) -> Counters;
}

/// The answers to a question, and the processes of the workers that have not answered.
type Collected = (Vec<Vec<u8>>, Vec<u32>);

/// The connection of a worker to its supervisor, for all engines.
pub(crate) struct SupervisorLink {
    pub(super) place: WorkerPlace,
    outgoing: mpsc::UnboundedSender<FromWorker>,
    /// How many messages are on their way to the supervisor.
    pub(super) unwritten: AtomicUsize,
    /// The questions that the supervisor has not answered.
    pub(super) asked: Mutex<HashMap<u64, oneshot::Sender<Collected>>>,
    next: AtomicU64,
    source: Mutex<Option<Arc<dyn Source>>>,
    /// The secrets of tickets that came before there was a server.
    early_tickets: Mutex<Vec<u8>>,
    /// Those that the supervisor was told of last.
    pub(super) told_tickets: Mutex<Zeroizing<Vec<u8>>>,
    reload: Mutex<Option<ReloadState>>,
    /// The settings of operators.
    pub(super) settings: Mutex<Settings>,
}

superpoll::debug_fields!(SupervisorLink, it => place: it.place);

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that can panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SupervisorLink {
    pub(super) fn new(
        place: WorkerPlace,
        outgoing: mpsc::UnboundedSender<FromWorker>,
    ) -> SupervisorLink {
        SupervisorLink {
            place,
            outgoing,
            unwritten: AtomicUsize::new(0),
            asked: Mutex::default(),
            next: AtomicU64::new(0),
            source: Mutex::default(),
            early_tickets: Mutex::default(),
            told_tickets: Mutex::default(),
            reload: Mutex::default(),
            settings: Mutex::default(),
        }
    }

    pub(super) fn say(&self, message: FromWorker) {
        self.unwritten.fetch_add(1, Ordering::AcqRel);
        // Without a supervisor the process is about to end.
        if self.outgoing.unbounded_send(message).is_err() {
            self.unwritten.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whether a message is to be sent: a question, only while its answer is awaited.
    pub(super) fn is_due(&self, message: &FromWorker) -> bool {
        match message {
            FromWorker::Collect { id, .. } | FromWorker::Operate { id, .. } => {
                lock(&self.asked).contains_key(id)
            }
            _ => true,
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

    /// Answers the supervisor's questions about a server from now on, and shares its tickets'
    /// secrets.
    pub(crate) fn answer_by(self: &Arc<SupervisorLink>, source: Arc<dyn Source>) {
        let mut answering = lock(&self.source);
        let early = std::mem::take(&mut *lock(&self.early_tickets));
        if !early.is_empty() {
            source.tickets().adopt(&early);
        }
        let link = Arc::downgrade(self);
        source.tickets().share_by(move |record| {
            if let Some(link) = link.upgrade() {
                *lock(&link.told_tickets) = record.to_vec().into();
                link.say(FromWorker::Tickets(record.to_vec()));
            }
        });
        // They may have arrived since the server was begun.
        source.set(lock(&self.settings).clone());
        *answering = Some(source);
    }

    /// Returns the counters of all workers, with the processes of those that have not answered.
    /// `None` if the supervisor does not answer, or has too many questions already.
    pub(crate) async fn collect(&self, question: Question) -> Option<Collected> {
        self.ask(COLLECT, |id| FromWorker::Collect { id, question }).await
    }

    /// Makes the supervisor carry out an operation.
    pub(crate) async fn operate(&self, operation: &Operation) -> Outcome {
        let bytes = serde_json::to_vec(operation);
        let operation = bytes.map_err(|error| Refusal::invalid(error.to_string()))?;
        let answer = self.ask(OPERATE, |id| FromWorker::Operate { id, operation }).await;
        let outcome = answer.and_then(|(all, _)| serde_json::from_slice(all.first()?).ok());
        outcome.unwrap_or_else(|| {
            Err(Refusal::unavailable(
                "the supervisor has not answered; whether it has done it is not known",
            ))
        })
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

    pub(super) fn take(
        self: &Arc<SupervisorLink>,
        message: ToWorker,
        counters: &RefCell<Option<Counters>>,
    ) {
        let known = lock(&self.source);
        let source = known.clone();
        match message {
            ToWorker::Collected { id, all, missing } => {
                if let Some(answer) = lock(&self.asked).remove(&id) {
                    // Who asked may have gone.
                    let _ = answer.send((all, missing));
                }
            }
            ToWorker::Tickets(record) => match source {
                Some(source) => source.tickets().adopt(&record),
                None => *lock(&self.early_tickets) = record,
            },
            ToWorker::Reload(state) => *lock(&self.reload) = Some(state),
            ToWorker::Settings(settings) => {
                *lock(&self.settings) = settings.clone();
                if let Some(source) = source {
                    source.set(settings);
                }
            }
            ToWorker::Ask { id, question } => {
                // A server that has just begun has no counters. Every question is answered.
                let Some(source) = source else {
                    return self.say(FromWorker::Answer { id, bytes: Vec::new() });
                };
                let counted =
                    counters.borrow_mut().get_or_insert_with(|| source.counters())(question);
                let link = self.clone();
                let answer = async move {
                    let bytes = counted.await.unwrap_or_default();
                    link.say(FromWorker::Answer { id, bytes });
                };
                spawn(answer).detach();
            }
        }
    }
}
