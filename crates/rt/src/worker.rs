//! An engine on a thread of its own.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use superpoll::Poller;

use crate::engine::{self, Engine, Settings};
use crate::error::{Error, Result};
use crate::remote::{Message, Remote};
use crate::stats::Stats;
use crate::thread_hooks::{HookedThread, ThreadHooks};

/// How long an engine may take to report its counters.
const ANSWER: Duration = Duration::from_secs(1);

/// The parts that a worker begins with.
pub(crate) struct Start {
    pub poller: Poller,
    pub settings: Settings,
    pub hooks: ThreadHooks,
}

pub(crate) struct Worker {
    pub remote: Arc<Remote>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Worker {
    /// Starts a thread and an engine on it.
    pub(crate) fn start(number: usize, start: Start) -> Result<Worker> {
        let (sender, receiver) = mpsc::channel();
        let thread = thread::Builder::new()
            .name(format!("superpoll-{number}"))
            .spawn(move || run(start, &sender))
            .map_err(Error::Thread)?;
        match receiver.recv() {
            Ok(remote) => Ok(Worker { remote, thread: Some(thread) }),
            Err(_) => match thread.join() {
                Ok(Err(error)) => Err(error),
                _ => Err(Error::Ended),
            },
        }
    }

    /// Returns the engine's counters, if it answers.
    pub(crate) fn stats(&self) -> Option<Stats> {
        let (sender, receiver) = mpsc::channel();
        let answer = move || {
            engine::with(|engine| {
                // The receiver has gone if it took too long.
                let _ = sender.send(engine.stats());
            });
        };
        self.remote.send(Message::Call(Box::new(answer))).ok()?;
        receiver.recv_timeout(ANSWER).ok()
    }

    /// Ends the engine and its tasks, and waits for the thread. Returns the error that made it end
    /// before, if there is one.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        // An engine that has ended needs no message.
        let _ = self.remote.send(Message::Stop);
        thread.join().unwrap_or(Ok(()))
    }
}

impl Drop for Worker {
    /// Runs also for a runtime whose start failed after this worker's.
    fn drop(&mut self) {
        // A drop has no caller that it can tell the error; `Runtime::shutdown` returns it.
        let _ = self.stop();
    }
}

fn run(start: Start, sender: &mpsc::Sender<Arc<Remote>>) -> Result<()> {
    let engine = Rc::new(Engine::new(start.poller, &start.settings)?);
    let thread = HookedThread::begin(&engine, start.hooks)?;
    let turn = || {
        let engine = Ending(engine.clone());
        // The thread that starts this worker waits for this.
        let _ = sender.send(engine.0.remote.clone());
        let mut outcome = Ok(());
        while outcome.is_ok() && !engine.0.is_stopped() {
            outcome = engine.0.turn();
        }
        outcome
    };
    // It is the first engine of its thread.
    thread.enter(|| engine.enter(turn)).unwrap_or(Ok(())).map_err(Error::Poller)
}

/// An engine that ends when this is dropped, whatever happens: tasks that join its tasks would wait
/// indefinitely otherwise.
struct Ending(Rc<Engine>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}
