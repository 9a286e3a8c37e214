//! Everything that surrounds an engine on its thread: functions that the program has called there,
//! and the context of a tokio runtime.

use std::rc::Rc;
use std::sync::Arc;

use crate::engine::Engine;
use crate::error::Result;
#[cfg(feature = "tokio-context")]
use crate::tokio_context::{TokioContext, Watch};

/// A function to call on each engine's thread.
pub(crate) type Hook = Arc<dyn Fn() + Send + Sync>;

/// The functions to call on each engine's thread, and the context to enter there.
#[derive(Clone, Default)]
pub(crate) struct ThreadHooks {
    pub on_start: Option<Hook>,
    pub on_stop: Option<Hook>,
    #[cfg(feature = "tokio-context")]
    pub tokio: Option<Arc<TokioContext>>,
}

superpoll::debug_fields!(ThreadHooks, it =>
    on_start: it.on_start.is_some(), on_stop: it.on_stop.is_some());

/// An engine's thread, from the first function to the last.
pub(crate) struct HookedThread {
    hooks: ThreadHooks,
    /// Ends with the engine that it belongs to.
    #[cfg(feature = "tokio-context")]
    _watch: Option<Watch>,
}

impl HookedThread {
    /// Begins on this thread, for this engine.
    pub(crate) fn begin(engine: &Rc<Engine>, hooks: ThreadHooks) -> Result<HookedThread> {
        #[cfg(feature = "tokio-context")]
        let _watch = match &hooks.tokio {
            Some(tokio) => engine.as_current(|| tokio.watch())?,
            None => None,
        };
        #[cfg(not(feature = "tokio-context"))]
        let _ = engine;
        let thread = HookedThread {
            hooks,
            #[cfg(feature = "tokio-context")]
            _watch,
        };
        thread.enter(|| thread.hooks.on_start.as_ref().inspect(|hook| hook()));
        Ok(thread)
    }

    /// Calls a function inside the context.
    pub(crate) fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        #[cfg(feature = "tokio-context")]
        let _entered = self.hooks.tokio.as_ref().map(|tokio| tokio.handle().enter());
        f()
    }
}

impl Drop for HookedThread {
    fn drop(&mut self) {
        self.enter(|| self.hooks.on_stop.as_ref().inspect(|hook| hook()));
    }
}
