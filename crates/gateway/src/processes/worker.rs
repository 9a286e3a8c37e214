//! A worker's side: its connection to the supervisor.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_channel::{mpsc, oneshot};
use futures_lite::{StreamExt, future};
use superpoll_http::ipc::{self, Purpose};
use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::{spawn, time};

use super::link::{SupervisorLink, WorkerPlace, lock};
use super::listeners::take_listeners;
use super::messages::{FromWorker, ToWorker, WorkerDrain, WorkerNews};
use crate::inherited::Inherited;
use crate::serve::Server;

/// How long a supervisor may be away: about the time in which its program is replaced.
const AWAY: Duration = Duration::from_secs(5);

/// The time between two attempts to reach it.
const AGAIN: Duration = Duration::from_millis(20);

/// How long a process that ends waits until the supervisor has its messages.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The time between two looks at the messages that are not written yet.
const LOOK: Duration = Duration::from_millis(1);

/// A worker process, as a member of its server.
pub struct Worker {
    link: Arc<SupervisorLink>,
    lost: oneshot::Receiver<()>,
}

superpoll::debug_fields!(Worker, it => slot: it.link.place.slot);

impl Worker {
    /// Joins the server of a supervisor, from a task of the first engine. Returns the listeners as
    /// well.
    ///
    /// # Errors
    ///
    /// If the supervisor cannot be reached, or is another version.
    pub async fn join(place: &WorkerPlace) -> io::Result<(Worker, Inherited)> {
        let stream = introduce(place).await?;
        let (outgoing, messages) = mpsc::unbounded();
        let (lose, lost) = oneshot::channel();
        let link = Arc::new(SupervisorLink::new(place.clone(), outgoing));
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
        let told: Option<(u64, String)> = ipc::receive(&stream).await?;
        Ok(told.ok_or(io::ErrorKind::UnexpectedEof)?)
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
        let fronts = server.fronts().collect();
        self.report(WorkerNews::Ready { fronts, roots });
    }

    /// Says that another process has taken over from the keeper, so that this one drains and ends.
    pub fn report_yield(&self) {
        self.report(WorkerNews::Yields);
    }

    /// Says that the process drains and ends, with these connections.
    pub fn report_drain(&self, drain: WorkerDrain) {
        self.report(WorkerNews::Drains(drain));
    }

    fn report(&self, news: WorkerNews) {
        self.link.say(FromWorker::News(news));
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
        self.report(WorkerNews::Reloaded { number, outcome });
    }

    /// Ready when there is no supervisor any more.
    pub async fn lost(&mut self) {
        // A sender that is dropped means the same.
        let _ = (&mut self.lost).await;
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
    link: Arc<SupervisorLink>,
    mut stream: UnixStream,
    mut messages: mpsc::UnboundedReceiver<FromWorker>,
    lose: oneshot::Sender<()>,
) {
    let counters = RefCell::new(None);
    // Not known to be sent.
    let mut unsent = None;
    loop {
        let reads = async {
            while let Ok(Some(message)) = ipc::receive(&stream).await {
                link.take(message, &counters);
            }
        };
        let writes = async {
            loop {
                if unsent.is_none() {
                    unsent = messages.next().await;
                }
                let Some(message) = &unsent else { break };
                // Whoever asked before the connection broke was told that there is no answer: the
                // next supervisor must not do it after all.
                if link.is_due(message) && ipc::send(&stream, message).await.is_err() {
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
        let end = time::now() + AWAY;
        stream = loop {
            match introduce(&link.place).await {
                Ok(stream) => break stream,
                // Its socket stays open while its program is replaced: if nobody listens, it has
                // ended.
                Err(error) if !is_end(&error) && time::now() < end => time::sleep(AGAIN).await,
                Err(_) => {
                    // A process that is about to end does not listen any more.
                    let _ = lose.send(());
                    return;
                }
            }
        };
    }
}
