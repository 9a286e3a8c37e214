//! The part of an engine that other threads reach: its inbox, the poller's waker, and its number of
//! tasks, by which work is spread.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Wake;

use async_task::Runnable;
use superpoll::{Key, Registrar};

use crate::current_engine;
use crate::inbox::Inbox;
use crate::timer_wheel::TimerKey;

/// A request from another thread to an engine.
pub(crate) enum Message {
    /// Run a task that was woken.
    Run(Runnable),
    /// Call this on the engine's thread; it spawns something.
    Call(Box<dyn FnOnce() + Send>),
    /// Forget a source whose descriptor was dropped elsewhere.
    Forget(Key),
    /// Take out a timer that was dropped elsewhere.
    CancelTimer(TimerKey),
    /// End the loop.
    Stop,
}

/// The engines of a runtime.
#[derive(Debug)]
pub(crate) struct Engines(pub Vec<Arc<Remote>>);

/// An engine as other threads see it.
pub(crate) struct Remote {
    /// The number that tells engines of this process apart.
    pub id: u32,
    /// Its back-end's name.
    pub backend: &'static str,
    pub inbox: Inbox<Message>,
    pub registrar: Registrar,
    /// Tasks that live on the engine.
    pub tasks: AtomicUsize,
    /// The blocking calls under way that began on the engine's thread.
    pub calls: AtomicUsize,
    /// The number of users that want its turns measured precisely.
    pub turn_watches: AtomicUsize,
    /// Set when the future that the engine's thread blocks on was woken.
    root: AtomicBool,
    runtime: OnceLock<Weak<Engines>>,
}

impl Remote {
    /// Returns the number of the next engine of this process.
    pub(crate) fn next_id() -> u32 {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn new(id: u32, backend: &'static str, registrar: Registrar) -> Remote {
        Remote {
            id,
            backend,
            inbox: Inbox::new(),
            registrar,
            tasks: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            turn_watches: AtomicUsize::new(0),
            root: AtomicBool::new(false),
            runtime: OnceLock::new(),
        }
    }

    /// Sends a message; gives it back if the engine has ended. An accepted message is always
    /// carried out.
    pub(crate) fn send(&self, message: Message) -> Result<(), Message> {
        if self.inbox.push(message)? {
            self.wake();
        }
        Ok(())
    }

    pub(crate) fn wake(&self) {
        // It cannot fail on an open eventfd, and an engine that has ended waits for nothing.
        let _ = self.registrar.wake();
    }

    /// Sets the runtime that the engine belongs to.
    pub(crate) fn set_runtime(&self, engines: &Arc<Engines>) {
        // It is set once.
        let _ = self.runtime.set(Arc::downgrade(engines));
    }

    /// Returns the engines of the runtime that it belongs to, unless the runtime has ended.
    pub(crate) fn runtime(&self) -> Option<Arc<Engines>> {
        self.runtime.get()?.upgrade()
    }

    /// Makes the engine poll the root future.
    pub(crate) fn wake_root(&self) {
        self.root.store(true, Ordering::Release);
    }

    /// Returns whether the root future was woken since the last call.
    pub(crate) fn take_root(&self) -> bool {
        self.root.load(Ordering::Relaxed) && self.root.swap(false, Ordering::Acquire)
    }

    pub(crate) fn is_root_woken(&self) -> bool {
        self.root.load(Ordering::Acquire)
    }
}

impl Wake for Remote {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.root.swap(true, Ordering::AcqRel) && !current_engine::has_id(self.id) {
            Remote::wake(self);
        }
    }
}

superpoll::debug_fields!(Remote, it => id: it.id);
