//! Chooses the back-end, policy and topology of a poller.

use crate::backend::{
    Adaptive, BACKEND_VARIABLE, Backend, BackendKind, Choice, Epoll, Poll, Select, Topology, Uring,
    cold,
};
use crate::costs::Costs;
use crate::error::{Error, Result};
use crate::policy::{Governed, Policy};
use crate::poller::Poller;
use crate::sys::returns;

/// Chooses the parts of a poller; see [`Poller::builder`].
#[derive(Default)]
pub struct Builder {
    kind: Option<BackendKind>,
    make: Option<Make>,
    costs: Option<Costs>,
    topology: Topology,
}

/// Makes a back-end from the costs of watching and the topology for idle descriptors.
type Make = Box<dyn FnOnce(Option<Costs>, Topology) -> Result<Box<dyn Backend>>>;

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
        Builder {
            make: Some(Box::new(move |costs, topology| adaptive(policy, costs, topology))),
            ..self
        }
    }

    /// Uses a back-end of the caller's own.
    #[must_use]
    pub fn custom(self, backend: impl Backend + 'static) -> Builder {
        Builder {
            make: Some(Box::new(move |_, topology| without_babysitter(backend, &topology))),
            ..self
        }
    }

    /// Places by these costs instead of those measured in this process.
    #[must_use]
    pub fn costs(self, costs: Costs) -> Builder {
        Builder { costs: Some(costs), ..self }
    }

    /// Makes a babysitter watch idle descriptors, in a thread or in another process. Only with the
    /// adaptive back-end, which [`BackendKind::Auto`] stands for in that case.
    #[must_use]
    pub fn topology(self, topology: Topology) -> Builder {
        Builder { topology, ..self }
    }

    /// Makes the poller.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) for a babysitter with another back-end
    /// than the adaptive one, [`Error::UnknownBackend`](crate::Error::UnknownBackend) if
    /// `SUPERPOLL_BACKEND` was consulted and names none,
    /// [`Error::DescriptorLimit`](crate::Error::DescriptorLimit) if there is no descriptor left for
    /// an epoll instance, [`Error::BackendUnavailable`](crate::Error::BackendUnavailable) if the
    /// kernel refuses the back-end.
    pub fn build(self) -> Result<Poller> {
        returns::calibrate();
        let backend = match (self.make, self.kind) {
            (Some(make), _) => make(self.costs, self.topology)?,
            (None, Some(kind)) => build_kind(kind, self.costs, self.topology)?,
            (None, None) => build_kind(kind_from_environment()?, self.costs, self.topology)?,
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

fn build_kind(
    kind: BackendKind,
    costs: Option<Costs>,
    topology: Topology,
) -> Result<Box<dyn Backend>> {
    match (kind, &topology) {
        (BackendKind::Auto, Topology::Nested) => automatic(costs),
        (BackendKind::Select, _) => without_babysitter(Select::new(), &topology),
        (BackendKind::Poll, _) => without_babysitter(Poll::new(), &topology),
        (BackendKind::Epoll, _) => without_babysitter(Epoll::new()?, &topology),
        (BackendKind::Uring, Topology::Nested) => Ok(Box::new(Uring::new()?)),
        (BackendKind::Uring, _) => Err(no_babysitter("uring")),
        (BackendKind::Auto | BackendKind::Adaptive, _) => {
            adaptive(Governed::default(), costs, topology)
        }
    }
}

fn no_babysitter(backend: &'static str) -> Error {
    let (what, instead) = ("a babysitter", "choose the back-end adaptive, or the nested topology");
    Error::Unsupported { backend, what, instead }
}

/// A back-end that works without a babysitter, or an error if one was asked for.
fn without_babysitter(
    backend: impl Backend + 'static,
    topology: &Topology,
) -> Result<Box<dyn Backend>> {
    match topology {
        Topology::Nested => Ok(Box::new(backend)),
        _ => Err(no_babysitter(backend.name())),
    }
}

/// The back-end that was chosen, and `adaptive` if io_uring has been refused since then.
fn automatic(costs: Option<Costs>) -> Result<Box<dyn Backend>> {
    match Choice::here().kind {
        BackendKind::Uring => match Uring::new() {
            Err(Error::BackendUnavailable { .. }) => {
                adaptive(Governed::default(), costs, Topology::Nested)
            }
            made => Ok(Box::new(made?)),
        },
        _ => adaptive(Governed::default(), costs, Topology::Nested),
    }
}

fn adaptive(
    policy: impl Policy + 'static,
    costs: Option<Costs>,
    topology: Topology,
) -> Result<Box<dyn Backend>> {
    let costs = costs.unwrap_or_else(|| *Costs::calibrated());
    Ok(match topology {
        Topology::Nested => Box::new(Adaptive::new(policy, costs)?),
        Topology::Thread(tuning) => Box::new(Adaptive::over(cold::thread(tuning)?, policy, costs)),
        Topology::Process(line, tuning) => {
            Box::new(Adaptive::over(cold::process(line, tuning)?, policy, costs))
        }
    })
}
