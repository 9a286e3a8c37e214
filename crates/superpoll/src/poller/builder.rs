//! Choosing what a poller is made of.

use crate::backend::{
    Adaptive, BACKEND_VARIABLE, Backend, BackendKind, Choice, Epoll, Poll, Select, Uring,
};
use crate::costs::Costs;
use crate::error::{Error, Result};
use crate::policy::{Governed, Policy};
use crate::poller::Poller;
use crate::sys::returns;

/// Chooses what a poller is made of; see [`Poller::builder`].
#[derive(Default)]
pub struct Builder {
    kind: Option<BackendKind>,
    make: Option<Make>,
    costs: Option<Costs>,
}

/// Makes a back-end, given what watching costs.
type Make = Box<dyn FnOnce(Option<Costs>) -> Result<Box<dyn Backend>>>;

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Builder {
    /// Uses this back-end, whatever the environment says.
    #[must_use]
    pub fn backend(self, kind: BackendKind) -> Builder {
        Builder { kind: Some(kind), make: None, ..self }
    }

    /// Uses the adaptive back-end with this placement policy instead of [`Governed`].
    #[must_use]
    pub fn policy(self, policy: impl Policy + 'static) -> Builder {
        Builder { make: Some(Box::new(move |costs| adaptive(policy, costs))), ..self }
    }

    /// Uses a back-end of the caller's own.
    #[must_use]
    pub fn custom(self, backend: impl Backend + 'static) -> Builder {
        Builder { make: Some(Box::new(move |_| Ok(Box::new(backend)))), ..self }
    }

    /// Places by these costs instead of those measured in this process.
    #[must_use]
    pub fn costs(self, costs: Costs) -> Builder {
        Builder { costs: Some(costs), ..self }
    }

    /// Makes the poller.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownBackend`](crate::Error::UnknownBackend) if `SUPERPOLL_BACKEND` was consulted and names none,
    /// [`Error::DescriptorLimit`](crate::Error::DescriptorLimit) if there is no descriptor left for an epoll instance,
    /// [`Error::BackendUnavailable`](crate::Error::BackendUnavailable) if the kernel refuses the back-end.
    pub fn build(self) -> Result<Poller> {
        returns::calibrate();
        let backend = match (self.make, self.kind) {
            (Some(make), _) => make(self.costs)?,
            (None, Some(kind)) => build_kind(kind, self.costs)?,
            (None, None) => build_kind(kind_from_environment()?, self.costs)?,
        };
        Ok(Poller::with(backend))
    }
}

fn kind_from_environment() -> Result<BackendKind> {
    match std::env::var_os(BACKEND_VARIABLE) {
        Some(name) if !name.is_empty() => name.to_string_lossy().parse(),
        _ => Ok(BackendKind::default()),
    }
}

fn build_kind(kind: BackendKind, costs: Option<Costs>) -> Result<Box<dyn Backend>> {
    Ok(match kind {
        BackendKind::Auto => return automatic(costs),
        BackendKind::Select => Box::new(Select::new()),
        BackendKind::Poll => Box::new(Poll::new()),
        BackendKind::Epoll => Box::new(Epoll::new()?),
        BackendKind::Uring => Box::new(Uring::new()?),
        BackendKind::Adaptive => return adaptive(Governed::default(), costs),
    })
}

/// What the choice was, and `adaptive` if io_uring has been refused since it was made.
fn automatic(costs: Option<Costs>) -> Result<Box<dyn Backend>> {
    match Choice::here().kind {
        BackendKind::Uring => match Uring::new() {
            Err(Error::BackendUnavailable { .. }) => adaptive(Governed::default(), costs),
            made => Ok(Box::new(made?)),
        },
        _ => adaptive(Governed::default(), costs),
    }
}

fn adaptive(policy: impl Policy + 'static, costs: Option<Costs>) -> Result<Box<dyn Backend>> {
    let costs = costs.unwrap_or_else(|| *Costs::calibrated());
    Ok(Box::new(Adaptive::new(policy, costs)?))
}
