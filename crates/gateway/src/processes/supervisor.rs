//! The supervisor's side: it answers its workers. Their processes are started and ended by its
//! user.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use futures_channel::mpsc;
use futures_lite::{StreamExt, future};
use ring::rand::{SecureRandom, SystemRandom};
use superpoll_http::admin::Settings;
use superpoll_http::certificates;
use superpoll_http::ipc::{self, Purpose};
use superpoll_http::listen::Bound;
use superpoll_hub::broker::local::service::LogService;
use superpoll_hub::broker::local::store::Store;
use superpoll_rt::net::unix::{UnixListener, UnixStream};
use superpoll_rt::{Handle, spawn, time};
use zeroize::Zeroizing;

use super::left::{Leave, Leaving, Left};
use super::link::WorkerPlace;
use super::messages::{Configuration, FromWorker, ListenerHead, ToWorker, WorkerDrain};
use super::operations::Operations;
use super::questions::Asked;
use super::workers::{Answers, Question, WorkerAnswer, Workers};
use crate::config::{Action, Address, Config, Listener};
use crate::control::{CountGuard, Subject, carry_out};
use crate::inherited::Inherited;
use crate::serve::{Error, front_of};
use crate::telemetry::reload::ReloadState;

/// The time between two looks for logs that are not used any more.
const SWEEP: Duration = Duration::from_secs(10);

/// How long to wait before accepting again after accepting has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// A message about a worker.
#[derive(Debug)]
pub enum WorkerEvent {
    /// It serves.
    Ready {
        /// Its place among the workers.
        slot: u32,
        /// The number of its process.
        process: u32,
        /// The addresses that are served, as users write them.
        fronts: Vec<String>,
        /// The files of certificates that clients are to trust.
        roots: Vec<PathBuf>,
    },
    /// It cannot serve, and its process is about to end.
    Failed {
        /// The number of its process.
        process: u32,
        /// The reason, in one line.
        error: String,
    },
    /// It has read the configuration again.
    Reloaded {
        /// The number of its process.
        process: u32,
        /// The number of the configuration.
        number: u64,
        /// The mistake, if it continues with the configuration before.
        outcome: Result<(), String>,
    },
    /// Another process has taken over its keeper; it drains and ends.
    Yielded {
        /// The number of its process.
        process: u32,
    },
    /// It accepts no connections any more, and ends when those that it has are closed.
    Draining {
        /// The number of its process.
        process: u32,
        /// Its connections at that moment.
        drain: WorkerDrain,
    },
}

/// A message for a worker, with the guard of the answer in it until that is sent.
pub(super) type Outgoing = (ToWorker, Option<CountGuard>);

/// A worker that is connected.
pub(super) struct ConnectedWorker {
    pub(super) slot: u32,
    pub(super) process: u32,
    pub(super) outgoing: mpsc::UnboundedSender<Outgoing>,
    /// How many questions it has not answered.
    pub(super) unanswered: Cell<u32>,
}

impl ConnectedWorker {
    /// Sends a message, and returns whether the worker is there to get it.
    pub(super) fn say(&self, message: ToWorker) -> bool {
        self.outgoing.unbounded_send((message, None)).is_ok()
    }
}

/// A supervisor. It belongs to the first engine of a runtime.
pub struct Supervisor {
    name: String,
    door: std::os::unix::net::UnixListener,
    listeners: RefCell<Vec<(Address, Bound)>>,
    inherited: RefCell<Inherited>,
    log: Rc<LogService>,
    configuration: RefCell<Configuration>,
    /// The workers by the numbers of their connections.
    pub(super) members: RefCell<HashMap<u64, ConnectedWorker>>,
    /// The processes of the workers that serve, connected or not.
    pub(super) serving: RefCell<Vec<u32>>,
    /// The questions that are not answered by all workers.
    pub(super) asked: RefCell<HashMap<u64, Asked>>,
    next: Cell<u64>,
    /// The secrets of tickets that all workers have.
    tickets: RefCell<Zeroizing<Vec<u8>>>,
    reload: Cell<ReloadState>,
    /// The settings of operators, and the way of their operations.
    pub(super) operations: Operations,
    told: mpsc::UnboundedSender<WorkerEvent>,
    events: RefCell<mpsc::UnboundedReceiver<WorkerEvent>>,
    questions: RefCell<Option<mpsc::UnboundedReceiver<Question>>>,
    workers: Workers,
}

superpoll::debug_fields!(Supervisor, it => name: it.name, members: it.members.borrow().len());

/// Returns a name that no other supervisor has.
fn name() -> Result<String, Error> {
    let mut random = [0; 8];
    let filled = SystemRandom::new().fill(&mut random);
    filled.map_err(|_| Error::RandomBytes)?;
    let random = data_encoding::HEXLOWER.encode(&random);
    Ok(format!("superpoll-{}-{random}", std::process::id()))
}

/// Returns how many bytes the logs of a configuration's channels may have.
fn most_bytes(config: &Config) -> u64 {
    let routes = config.hosts.iter().flat_map(|host| &host.routes);
    let channels = routes.filter_map(|route| match &route.action {
        Action::Channel(channel) if !channel.broker => Some((channel, &route.path)),
        _ => None,
    });
    let bytes = channels.map(|(channel, path)| match path.contains('{') {
        true => channel.max_bytes,
        // One more than it keeps, with the descriptions of messages.
        false => (channel.history as u64 + 1).saturating_mul(2 * channel.message_bytes + 4096),
    });
    bytes.fold(0, u64::saturating_add)
}

impl Supervisor {
    /// Listens on the addresses of a configuration, on `inherited` sockets where there are some.
    ///
    /// # Errors
    ///
    /// If an address is not available; if a socket was passed on whose address no listener has.
    pub fn new(config: &Config, inherited: Inherited) -> Result<Self, Error> {
        let name = name()?;
        let address = ipc::address(&name).map_err(Error::Workers)?;
        let door = std::os::unix::net::UnixListener::bind_addr(&address).map_err(Error::Workers)?;
        let supervisor = Supervisor::with_workers_log(
            name,
            door,
            Vec::new(),
            Store::new(0),
            Default::default(),
        )?;
        supervisor.inherited.replace(inherited);
        supervisor.change(config)?;
        supervisor.inherited.borrow().all_used().map_err(Error::Inherited)?;
        Ok(supervisor)
    }

    /// Continues with the state that the program before has left in this process. Call
    /// [`change`](Supervisor::change) next, as the configuration may be another one.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn resume(left: Left) -> Result<Self, Error> {
        let listeners: io::Result<Vec<_>> = left
            .listeners
            .into_iter()
            .map(|(address, socket, has_file)| Ok((address, Bound::left(socket, has_file)?)))
            .collect();
        let listeners = listeners.map_err(Error::Workers)?;
        listeners.iter().for_each(|(_, bound)| bound.own(true));
        let kept = (left.tickets.into(), left.settings);
        Supervisor::with_workers_log(left.name, left.door.into(), listeners, left.log, kept)
    }

    fn with_workers_log(
        name: String,
        door: std::os::unix::net::UnixListener,
        listeners: Vec<(Address, Bound)>,
        log: Store,
        (tickets, settings): (Zeroizing<Vec<u8>>, Settings),
    ) -> Result<Self, Error> {
        door.set_nonblocking(true).map_err(Error::Workers)?;
        let (told, events) = mpsc::unbounded();
        let (ask, questions) = mpsc::unbounded();
        Ok(Supervisor {
            name,
            door,
            listeners: RefCell::new(listeners),
            inherited: RefCell::default(),
            log: Rc::new(LogService::new(log)),
            configuration: RefCell::default(),
            members: RefCell::default(),
            serving: RefCell::default(),
            asked: RefCell::default(),
            next: Cell::new(0),
            tickets: RefCell::new(tickets),
            reload: Cell::new(ReloadState::successful()),
            operations: Operations::new(settings),
            told,
            events: RefCell::new(events),
            questions: RefCell::new(Some(questions)),
            workers: Workers(ask),
        })
    }

    /// Listens on the addresses of another configuration, and no longer on those that only the one
    /// before has. If an address is not available, all stays as it is.
    ///
    /// # Errors
    ///
    /// As [`new`](Supervisor::new).
    pub fn change(&self, config: &Config) -> Result<(), Error> {
        let mut before = self.listeners.borrow_mut();
        let mut opened = Vec::new();
        for asked in &config.listeners {
            let address = &asked.address;
            let is_known = before.iter().any(|(known, _)| known == address);
            if is_known || opened.iter().any(|(known, _)| known == address) {
                continue;
            }
            let given = self.inherited.borrow_mut().at(address);
            let bound = match given {
                Some(bound) => bound,
                None => Bound::new(address, asked.mode)
                    .map_err(|source| Error::Listen { address: address.clone(), source })?,
            };
            opened.push((address.clone(), bound));
        }
        before.retain(|(known, _)| config.listeners.iter().any(|asked| asked.address == *known));
        before.extend(opened);
        self.log.with_store(|store| store.limit(most_bytes(config)));
        self.operations.change(config);
        Ok(())
    }

    /// Sets the text of the configuration that workers are to read from now on, and returns its
    /// number. They do not read the file, which may change at any time.
    pub fn set_configuration(&self, text: String) -> u64 {
        let mut configuration = self.configuration.borrow_mut();
        *configuration = Configuration { number: configuration.number + 1, text };
        configuration.number
    }

    /// Notes the outcome of an attempt to take on another configuration, for the metrics.
    pub fn note_reload(&self, is_successful: bool) {
        let state = self.reload.get().after(is_successful);
        self.reload.set(state);
        for member in self.members.borrow().values() {
            // It may be about to go.
            let _ = member.say(ToWorker::Reload(state));
        }
        // Settings were forgotten with their servers; a worker may never have seen the
        // configuration without them.
        self.send_settings();
    }

    /// Returns the addresses that it listens on, in no order, with the ports that the kernel has
    /// chosen.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        let listeners = self.listeners.borrow();
        let address = |(asked, bound): &(Address, Bound)| bound.address(asked).ok();
        listeners.iter().filter_map(address).collect()
    }

    /// Returns the addresses of a configuration's listeners as users write them, with the ports
    /// that the kernel has chosen.
    #[must_use]
    pub fn fronts(&self, config: &Config) -> Vec<String> {
        let listeners = self.listeners.borrow();
        let front = |asked: &Listener| {
            let (_, bound) = listeners.iter().find(|(known, _)| *known == asked.address)?;
            Some(front_of(asked, &bound.address(&asked.address).ok()?))
        };
        config.listeners.iter().filter_map(front).collect()
    }

    /// Returns the place of a worker, which its process needs to know.
    #[must_use]
    pub fn place(&self, slot: u32) -> WorkerPlace {
        WorkerPlace { name: self.name.clone(), slot }
    }

    /// Begins to answer workers, from a task of the first engine.
    ///
    /// # Errors
    ///
    /// The system's error, if the socket for workers cannot be watched.
    pub fn start(self: &Rc<Supervisor>) -> io::Result<()> {
        let door = UnixListener::from_std(self.door.try_clone()?)?;
        let accepting = self.clone();
        let accepts = async move {
            loop {
                match door.accept().await {
                    Ok((stream, _)) if ipc::is_own(&stream) => {
                        let supervisor = accepting.clone();
                        spawn(async move {
                            // A worker that has gone is no failure of the supervisor.
                            let _ = supervisor.answer(stream).await;
                        })
                        .detach();
                    }
                    Ok(_) => {}
                    Err(_) => time::sleep(PAUSE).await,
                }
            }
        };
        spawn(accepts).detach();
        if let Some(mut questions) = self.questions.borrow_mut().take() {
            let asked = self.clone();
            let answers = async move {
                while let Some(question) = questions.next().await {
                    let supervisor = asked.clone();
                    let answers = async move {
                        // Who asked may have gone.
                        match question {
                            Question::Count(kind, answer) => {
                                let _ = answer.send(supervisor.collect(kind).await);
                            }
                            Question::Operate(operation, answer) => {
                                let _ = answer.send(supervisor.operate(operation).await);
                            }
                        }
                    };
                    spawn(answers).detach();
                }
            };
            spawn(answers).detach();
        }
        let log = self.log.clone();
        let sweeps = async move {
            loop {
                time::sleep(SWEEP).await;
                log.with_store(Store::sweep);
            }
        };
        spawn(sweeps).detach();
        Ok(())
    }

    /// Returns the next message about a worker.
    ///
    /// # Cancel safety
    ///
    /// Cancelling loses nothing.
    pub async fn event(&self) -> WorkerEvent {
        poll_fn(|cx| match self.events.borrow_mut().poll_next(cx) {
            Poll::Ready(Some(event)) => Poll::Ready(event),
            // The sender lives as long as this does.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Returns the subject for a statistics socket: the engines of all workers.
    #[must_use]
    pub fn subject(&self, backend: &'static str, handle: Handle) -> Subject {
        Subject::of_workers("serve", backend, handle, self.workers.clone())
    }

    /// Sends the settings of operators to all workers.
    pub(super) fn send_settings(&self) {
        let settings = self.operations.settings();
        for member in self.members.borrow().values() {
            // It may be about to go.
            let _ = member.say(ToWorker::Settings(settings.clone()));
        }
    }

    /// Returns how many workers are connected.
    #[must_use]
    pub fn members(&self) -> usize {
        self.members.borrow().len()
    }

    /// Whether the worker of a process is connected: messages of it may be on their way.
    #[must_use]
    pub fn has_member(&self, process: u32) -> bool {
        self.members.borrow().values().any(|member| member.process == process)
    }

    /// Notes the processes of the workers that serve. One of them that is not connected counts as
    /// one that does not answer.
    pub fn set_serving(&self, processes: impl IntoIterator<Item = u32>) {
        let mut serving = self.serving.borrow_mut();
        serving.clear();
        serving.extend(processes);
    }

    /// Writes down the state for the program that takes this one's place in the process. The
    /// workers are given by their places and the numbers of their processes.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn leave(&self, workers: Vec<(u32, u32)>) -> io::Result<Leave> {
        let listeners = self.listeners.borrow();
        let tickets = self.tickets.borrow();
        let state = listeners
            .iter()
            .map(|(address, bound)| (address.to_string(), bound.as_fd(), bound.has_file()));
        self.log.with_store(|store| {
            Leave::new(Leaving {
                name: &self.name,
                door: self.door.as_fd(),
                listeners: state.collect(),
                log: store,
                tickets: &tickets,
                workers,
                settings: &self.operations.settings(),
            })
        })
    }

    async fn answer(self: Rc<Supervisor>, stream: UnixStream) -> io::Result<()> {
        match ipc::welcome(&stream).await? {
            Some(Purpose::Worker { slot, process }) => self.attend(&stream, slot, process).await,
            Some(Purpose::Failed { process, error }) => {
                self.tell(WorkerEvent::Failed { process, error });
                Ok(())
            }
            Some(Purpose::Configuration) => {
                let configuration = self.configuration.borrow().clone();
                ipc::send(&stream, &configuration).await
            }
            Some(Purpose::Listeners) => self.pass_listeners(&stream).await,
            Some(Purpose::Log) => self.log.clone().serve(stream).await,
            None => Ok(()),
        }
    }

    fn tell(&self, event: WorkerEvent) {
        // The receiver lives as long as this does.
        let _ = self.told.unbounded_send(event);
    }

    async fn pass_listeners(&self, stream: &UnixStream) -> io::Result<()> {
        // The list may change meanwhile.
        let all: io::Result<Vec<_>> = self
            .listeners
            .borrow()
            .iter()
            .map(|(address, bound)| Ok((address.clone(), bound.as_fd().try_clone_to_owned()?)))
            .collect();
        let encode = |head: &ListenerHead| postcard::to_allocvec(head).map_err(io::Error::other);
        for (address, socket) in all? {
            let _: Option<()> = ipc::receive(stream).await?;
            let head = encode(&ListenerHead { address: Some(address.to_string()) })?;
            stream.send_with_fds(&head, &[socket.as_fd()]).await?;
        }
        let _: Option<()> = ipc::receive(stream).await?;
        stream.send_with_fds(&encode(&ListenerHead { address: None })?, &[]).await?;
        Ok(())
    }

    /// Exchanges messages with a worker until one of both ends.
    async fn attend(&self, stream: &UnixStream, slot: u32, process: u32) -> io::Result<()> {
        let (outgoing, mut messages) = mpsc::unbounded();
        let tickets = self.tickets.borrow().to_vec();
        // The queue is there, and empty.
        let _ = outgoing.unbounded_send((ToWorker::Settings(self.operations.settings()), None));
        let _ = outgoing.unbounded_send((ToWorker::Reload(self.reload.get()), None));
        if !tickets.is_empty() {
            let _ = outgoing.unbounded_send((ToWorker::Tickets(tickets), None));
        }
        let id = self.next_id();
        self.members
            .borrow_mut()
            .insert(id, ConnectedWorker { slot, process, outgoing, unanswered: Cell::new(0) });
        let reads = async {
            while let Some(message) = ipc::receive(stream).await? {
                self.handle(id, message);
            }
            Ok(())
        };
        let writes = async {
            while let Some((message, unwritten)) = messages.next().await {
                ipc::send(stream, &message).await?;
                drop(unwritten);
            }
            Ok(())
        };
        let outcome = future::or(reads, writes).await;
        self.members.borrow_mut().remove(&id);
        // Nobody waits for its answers.
        let questions: Vec<u64> = self.asked.borrow().keys().copied().collect();
        questions.into_iter().for_each(|question| self.answered(question, id, None));
        outcome
    }

    pub(super) fn next_id(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    /// Takes a message from the worker of a connection.
    fn handle(&self, member: u64, message: FromWorker) {
        let members = self.members.borrow();
        let Some(known) = members.get(&member) else { return };
        let ConnectedWorker { slot, process, outgoing, unanswered } = known;
        let (slot, process) = (*slot, *process);
        match message {
            FromWorker::Ready { fronts, roots } => {
                self.tell(WorkerEvent::Ready { slot, process, fronts, roots });
            }
            FromWorker::Reloaded { number, outcome } => {
                self.tell(WorkerEvent::Reloaded { process, number, outcome });
            }
            FromWorker::Yields => self.tell(WorkerEvent::Yielded { process }),
            FromWorker::Drains(drain) => self.tell(WorkerEvent::Draining { process, drain }),
            FromWorker::Counters { id, bytes } => {
                unanswered.set(unanswered.get().saturating_sub(1));
                self.answered(id, member, Some(WorkerAnswer { slot, process, bytes }));
            }
            FromWorker::Collect { id, kind } => {
                let (workers, outgoing) = (self.workers.clone(), outgoing.clone());
                spawn(async move {
                    let Answers { all, missing } = workers.ask(kind).await;
                    let all = all.into_iter().map(|answer| answer.bytes).collect();
                    // It may have gone.
                    let collected = ToWorker::Collected { id, all, missing };
                    let _ = outgoing.unbounded_send((collected, None));
                })
                .detach();
            }
            FromWorker::Operate { id, operation } => {
                let (subject, outgoing) = (self.operations.subject(), outgoing.clone());
                spawn(async move {
                    let (outcome, unwritten) = carry_out(subject, &operation).await;
                    let (all, missing) = (vec![outcome], Vec::new());
                    // As above.
                    let collected = ToWorker::Collected { id, all, missing };
                    let _ = outgoing.unbounded_send((collected, unwritten));
                })
                .detach();
            }
            FromWorker::Tickets(record) => self.share_tickets(member, record),
        }
    }

    /// Makes the secrets of one worker those of all. The first one of two that have made new ones
    /// at the same time wins: the other one is told.
    fn share_tickets(&self, from: u64, record: Vec<u8>) {
        let mut tickets = self.tickets.borrow_mut();
        let is_newer = certificates::is_newer(&record, &tickets);
        if is_newer {
            *tickets = record.into();
        }
        for (id, member) in self.members.borrow().iter() {
            // All others get the new ones, or this one those that there are.
            if (*id == from) != is_newer {
                // It may be about to go.
                let _ = member.say(ToWorker::Tickets(tickets.to_vec()));
            }
        }
    }
}
