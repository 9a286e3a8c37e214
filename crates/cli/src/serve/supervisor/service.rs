//! The service of a supervisor for its workers, and the state that they share: the listening
//! sockets, the log of the channels, the text of the configuration, the settings of operators and
//! the secrets of tickets.
//!
//! Workers connect for one of these, or to stay: then they tell [`WorkerNews`], and are asked
//! `questions`. Which processes there are is up to [`Supervision`](super::Supervision).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener as Door;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_channel::mpsc;
use futures_lite::{StreamExt, future};
use superpoll_gateway::config::{Action, Listener};
use superpoll_gateway::control::{CountGuard, Subject};
use superpoll_gateway::processes::{
    Answers, FromWorker, ReloadState, ToWorker, WorkerAnswer, WorkerNews, WorkerPlace,
    pass_listeners,
};
use superpoll_gateway::{Address, Config, ErrorLog, Inherited};
use superpoll_http::admin::{Settings, Upstreams};
use superpoll_http::certificates;
use superpoll_http::ipc::{self, Purpose};
use superpoll_http::listen::{Bound, cannot_listen};
use superpoll_hub::broker::local::service::LogService;
use superpoll_hub::broker::local::store::Store;
use superpoll_rt::net::unix::{UnixListener, UnixStream};
use superpoll_rt::{spawn, time};
use zeroize::Zeroizing;

use super::questions::{Asked, ServiceCall};
use super::state::SupervisorState;

/// The time between two looks for logs that are not used any more.
const SWEEP: Duration = Duration::from_secs(10);

/// How long to wait before accepting again after accepting has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// The news of a process, or the reason for which it cannot serve and is about to end.
pub(super) type ProcessNews = (u32, Result<WorkerNews, String>);

/// A message for a worker, with the guard of the answer in it until that is sent.
type Outgoing = (ToWorker, Option<CountGuard>);

/// A worker that is connected.
pub(super) struct ConnectedWorker {
    pub(super) slot: u32,
    pub(super) process: u32,
    outgoing: mpsc::UnboundedSender<Outgoing>,
    /// How many questions it has not answered.
    pub(super) unanswered: Cell<u32>,
}

impl ConnectedWorker {
    /// Sends a message, and returns whether the worker is there to get it.
    pub(super) fn say(&self, message: ToWorker) -> bool {
        self.outgoing.unbounded_send((message, None)).is_ok()
    }
}

/// The service for workers. It belongs to the engine of the supervisor.
pub(super) struct WorkerService {
    pub(super) name: String,
    pub(super) door: Door,
    pub(super) listeners: RefCell<Vec<(Address, Bound)>>,
    pub(super) log: Rc<LogService>,
    /// The number and the text of the configuration. There is no text if the server has no file.
    configuration: RefCell<(u64, String)>,
    /// The workers by the numbers of their connections.
    pub(super) members: RefCell<HashMap<u64, ConnectedWorker>>,
    /// The processes of the workers that serve, connected or not.
    pub(super) serving: RefCell<Vec<u32>>,
    /// The questions that are not answered by all workers.
    pub(super) asked: RefCell<HashMap<u64, Asked>>,
    next: Cell<u64>,
    /// The secrets of tickets that all workers have.
    pub(super) tickets: RefCell<Zeroizing<Vec<u8>>>,
    reload: Cell<ReloadState>,
    /// The settings of operators.
    pub(super) settings: RefCell<Settings>,
    pub(super) upstreams: RefCell<Upstreams>,
    /// The supervisor's own log.
    pub(super) error_log: Arc<ErrorLog>,
    /// For the operations that come by the admin listener of a worker.
    subject: Arc<Subject>,
    told: mpsc::UnboundedSender<ProcessNews>,
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
    let held = config.grips().into_iter().filter(|grip| !grip.broker);
    let held = held.map(|grip| grip.log().max_bytes);
    bytes.chain(held).fold(0, u64::saturating_add)
}

impl WorkerService {
    /// Continues with a state. Call [`change`](WorkerService::change) next, as the configuration
    /// may be another one.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub(super) fn new(
        state: SupervisorState,
        error_log: Arc<ErrorLog>,
        subject: Arc<Subject>,
        told: mpsc::UnboundedSender<ProcessNews>,
    ) -> io::Result<WorkerService> {
        let mut listeners = Vec::new();
        for (address, socket, has_file) in state.listeners {
            listeners.push((address, Bound::left(socket, has_file)?));
        }
        listeners.iter().for_each(|(_, bound)| bound.own(true));
        error_log.level().set(state.settings.log);
        Ok(WorkerService {
            name: state.name,
            door: state.door,
            listeners: RefCell::new(listeners),
            log: Rc::new(LogService::new(state.log)),
            configuration: RefCell::default(),
            members: RefCell::default(),
            serving: RefCell::default(),
            asked: RefCell::default(),
            next: Cell::new(0),
            tickets: RefCell::new(state.tickets.into()),
            reload: Cell::new(ReloadState::successful()),
            settings: RefCell::new(state.settings),
            upstreams: RefCell::default(),
            error_log,
            subject,
            told,
        })
    }

    /// Listens on the addresses of another configuration, on `inherited` sockets where there are
    /// some, and no longer on those that only the one before has. If an address is not available,
    /// all stays as it is.
    ///
    /// # Errors
    ///
    /// If an address is not available; if a socket was passed on whose address no listener has.
    pub(super) fn change(&self, config: &Config, mut inherited: Inherited) -> Result<(), String> {
        let mut before = self.listeners.borrow_mut();
        let mut opened = Vec::new();
        for asked in &config.listeners {
            let address = &asked.address;
            let is_known = before.iter().any(|(known, _)| known == address);
            if is_known || opened.iter().any(|(known, _)| known == address) {
                continue;
            }
            let bound = match inherited.at(address) {
                Some(bound) => bound,
                None => Bound::new(address, asked.mode)
                    .map_err(|error| cannot_listen(address, &error))?,
            };
            opened.push((address.clone(), bound));
        }
        inherited.all_used()?;
        before.retain(|(known, _)| config.listeners.iter().any(|asked| asked.address == *known));
        before.extend(opened);
        self.log.with_store(|store| store.limit(most_bytes(config)));
        let upstreams = Upstreams::from_config(config);
        self.settings.borrow_mut().retain(&upstreams);
        *self.upstreams.borrow_mut() = upstreams;
        Ok(())
    }

    /// Sets the text of the configuration that workers are to read from now on. They do not read
    /// the file, which may change at any time.
    pub(super) fn set_configuration(&self, text: String) {
        let number = self.configuration_number() + 1;
        *self.configuration.borrow_mut() = (number, text);
    }

    /// Returns the number of the configuration that workers are to read.
    pub(super) fn configuration_number(&self) -> u64 {
        self.configuration.borrow().0
    }

    /// Notes the outcome of an attempt to take on another configuration, for the metrics.
    pub(super) fn note_reload(&self, is_successful: bool) {
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

    /// Returns the addresses of a configuration's listeners as users write them, with the ports
    /// that the kernel has chosen.
    pub(super) fn fronts(&self, config: &Config) -> Vec<String> {
        let listeners = self.listeners.borrow();
        let front = |asked: &Listener| {
            let (_, bound) = listeners.iter().find(|(known, _)| *known == asked.address)?;
            Some(asked.front(&bound.address(&asked.address).ok()?))
        };
        config.listeners.iter().filter_map(front).collect()
    }

    /// Returns the place of a worker, which its process needs to know.
    pub(super) fn place(&self, slot: u32) -> WorkerPlace {
        WorkerPlace { name: self.name.clone(), slot }
    }

    /// Begins to answer workers and calls of the API, from a task of the engine.
    ///
    /// # Errors
    ///
    /// The system's error, if the socket for workers cannot be watched.
    pub(super) fn start(
        self: &Rc<WorkerService>,
        mut calls: mpsc::UnboundedReceiver<ServiceCall>,
    ) -> io::Result<()> {
        let door = UnixListener::from_std(self.door.try_clone()?)?;
        let service = self.clone();
        let accepts = async move {
            loop {
                match door.accept().await {
                    Ok((stream, _)) if ipc::is_own(&stream) => {
                        let service = service.clone();
                        spawn(async move {
                            // A worker that has gone is no failure of the supervisor.
                            let _ = service.answer(stream).await;
                        })
                        .detach();
                    }
                    Ok(_) => {}
                    Err(_) => time::sleep(PAUSE).await,
                }
            }
        };
        spawn(accepts).detach();
        let service = self.clone();
        let answers = async move {
            while let Some(call) = calls.next().await {
                let service = service.clone();
                spawn(async move { service.respond(call).await }).detach();
            }
        };
        spawn(answers).detach();
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

    /// Sends the settings of operators to all workers.
    pub(super) fn send_settings(&self) {
        let settings = self.settings.borrow();
        for member in self.members.borrow().values() {
            // It may be about to go.
            let _ = member.say(ToWorker::Settings(settings.clone()));
        }
    }

    /// Whether the worker of a process is connected: messages of it may be on their way.
    pub(super) fn has_member(&self, process: u32) -> bool {
        self.members.borrow().values().any(|member| member.process == process)
    }

    /// Notes the processes of the workers that serve. One of them that is not connected counts as
    /// one that does not answer.
    pub(super) fn set_serving(&self, processes: impl IntoIterator<Item = u32>) {
        let mut serving = self.serving.borrow_mut();
        serving.clear();
        serving.extend(processes);
    }

    async fn answer(self: Rc<WorkerService>, stream: UnixStream) -> io::Result<()> {
        match ipc::welcome(&stream).await? {
            Some(Purpose::Worker { slot, process }) => self.attend(&stream, slot, process).await,
            Some(Purpose::Failed { process, error }) => {
                self.tell(process, Err(error));
                Ok(())
            }
            Some(Purpose::Configuration) => {
                let configuration = self.configuration.borrow().clone();
                ipc::send(&stream, &configuration).await
            }
            Some(Purpose::Listeners) => {
                // The list may change meanwhile.
                let all: io::Result<Vec<_>> = self
                    .listeners
                    .borrow()
                    .iter()
                    .map(|(address, bound)| {
                        Ok((address.clone(), bound.as_fd().try_clone_to_owned()?))
                    })
                    .collect();
                pass_listeners(&stream, all?).await
            }
            Some(Purpose::Log) => self.log.clone().serve(stream).await,
            None => Ok(()),
        }
    }

    fn tell(&self, process: u32, news: Result<WorkerNews, String>) {
        // A supervisor that is about to end listens no more.
        let _ = self.told.unbounded_send((process, news));
    }

    /// Exchanges messages with a worker until one of both ends.
    async fn attend(
        self: &Rc<WorkerService>,
        stream: &UnixStream,
        slot: u32,
        process: u32,
    ) -> io::Result<()> {
        let (outgoing, mut messages) = mpsc::unbounded();
        let member = ConnectedWorker { slot, process, outgoing, unanswered: Cell::new(0) };
        // The queue is there, and empty.
        let _ = member.say(ToWorker::Settings(self.settings.borrow().clone()));
        let _ = member.say(ToWorker::Reload(self.reload.get()));
        let tickets = self.tickets.borrow().to_vec();
        if !tickets.is_empty() {
            let _ = member.say(ToWorker::Tickets(tickets));
        }
        let id = self.next_id();
        self.members.borrow_mut().insert(id, member);
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
    fn handle(self: &Rc<WorkerService>, member: u64, message: FromWorker) {
        let members = self.members.borrow();
        let Some(known) = members.get(&member) else { return };
        let ConnectedWorker { slot, process, outgoing, unanswered } = known;
        let (slot, process) = (*slot, *process);
        match message {
            FromWorker::News(news) => self.tell(process, Ok(news)),
            FromWorker::Answer { id, bytes } => {
                unanswered.set(unanswered.get().saturating_sub(1));
                self.answered(id, member, Some(WorkerAnswer { slot, process, bytes }));
            }
            FromWorker::Collect { id, question } => {
                let (service, outgoing) = (self.clone(), outgoing.clone());
                spawn(async move {
                    let Answers { all, missing } = service.collect(question).await;
                    let all = all.into_iter().map(|answer| answer.bytes).collect();
                    // It may have gone.
                    let collected = ToWorker::Collected { id, all, missing };
                    let _ = outgoing.unbounded_send((collected, None));
                })
                .detach();
            }
            FromWorker::Operate { id, operation } => {
                let (subject, outgoing) = (self.subject.clone(), outgoing.clone());
                spawn(async move {
                    let (outcome, unwritten) = subject.carry_out_json(&operation).await;
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
