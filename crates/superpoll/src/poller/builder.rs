//! Chooses the back-end, policy and topology of a poller.

use crate::backend::{Backend, BackendKind, Topology, adaptive, without_keeper};
use crate::costs::Costs;
use crate::error::Result;
use crate::policy::{Policy, PolicyKind};
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

crate::debug_fields!(Builder, it => kind: it.kind);

impl Builder {
    /// Uses this back-end, whatever the environment says.
    #[must_use]
    pub fn backend(self, kind: BackendKind) -> Builder {
        Builder { kind: Some(kind), make: None, ..self }
    }

    /// Uses the adaptive back-end with this placement policy instead of
    /// [`CostBased`](crate::policy::CostBased).
    #[must_use]
    pub fn policy(self, policy: impl Policy + 'static) -> Builder {
        Builder {
            make: Some(Box::new(move |costs, topology| adaptive::make(policy, costs, topology))),
            ..self
        }
    }

    /// The same with a policy that a user has chosen. Without it that is the one which
    /// [`POLICY_VARIABLE`](crate::policy::POLICY_VARIABLE) names, or the default.
    #[must_use]
    pub fn policy_kind(self, kind: PolicyKind) -> Builder {
        let make: Make = Box::new(move |costs, topology| adaptive::of_kind(kind, costs, topology));
        Builder { make: Some(make), ..self }
    }

    /// Uses a back-end of the caller's own.
    #[must_use]
    pub fn custom(self, backend: impl Backend + 'static) -> Builder {
        Builder {
            make: Some(Box::new(move |_, topology| without_keeper(backend, &topology))),
            ..self
        }
    }

    /// Places by these costs instead of those measured in this process.
    #[must_use]
    pub fn costs(self, costs: Costs) -> Builder {
        Builder { costs: Some(costs), ..self }
    }

    /// Makes a keeper watch idle descriptors, in a thread or in another process. Only with the
    /// adaptive back-end, which [`BackendKind::Auto`] stands for in that case.
    #[must_use]
    pub fn topology(self, topology: Topology) -> Builder {
        Builder { topology, ..self }
    }

    /// Makes the poller.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) for a keeper with another back-end
    /// than the adaptive one, [`Error::UnknownBackend`](crate::Error::UnknownBackend) if
    /// `SUPERPOLL_BACKEND` was consulted and names none,
    /// [`Error::UnknownPolicy`](crate::Error::UnknownPolicy) likewise for `SUPERPOLL_POLICY`,
    /// [`Error::DescriptorLimit`](crate::Error::DescriptorLimit) if there is no descriptor left for
    /// an epoll instance, [`Error::BackendUnavailable`](crate::Error::BackendUnavailable) if the
    /// kernel refuses the back-end.
    pub fn build(self) -> Result<Poller> {
        returns::calibrate();
        let backend = match (self.make, self.kind) {
            (Some(make), _) => make(self.costs, self.topology)?,
            (None, Some(kind)) => kind.make(self.costs, self.topology)?,
            (None, None) => BackendKind::from_environment()?.make(self.costs, self.topology)?,
        };
        Ok(Poller::with(backend))
    }
}
