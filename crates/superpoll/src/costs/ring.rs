//! The cost of watching with io_uring on this machine, in nanoseconds.

use std::sync::OnceLock;

use crate::costs::Kind;
#[cfg(feature = "uring")]
use crate::costs::calibrate;
use crate::error::{Error, Result};

/// The cost of one descriptor of a kind in a ring, in nanoseconds, watched by a poll that stays.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct RingKindCosts {
    /// Beginning to watch it, by an entry that is submitted together with more.
    pub arm: f32,
    /// One event: working off and fetching a completion.
    pub event: f32,
    /// The writer's cost to wake a descriptor that the ring watches.
    pub wake: f32,
    /// Ceasing to watch it, by an entry that is submitted together with more.
    pub cancel: f32,
}

/// The cost of watching with io_uring here, by kind of descriptor and per call.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct RingCosts {
    /// Pipes.
    pub pipe: RingKindCosts,
    /// Unix-domain sockets.
    pub unix: RingKindCosts,
    /// TCP sockets.
    pub tcp: RingKindCosts,
    /// An `io_uring_enter` that submits and finds nothing.
    pub enter: f32,
}

impl RingCosts {
    /// The costs of this machine: measured at the first call, in a few milliseconds, and the same
    /// for the rest of the process. Only the choice between io_uring and the other back-ends needs
    /// them. Takes about forty descriptors for that time.
    ///
    /// # Errors
    ///
    /// The error from making a ring where io_uring is refused ([`Error::BackendUnavailable`]); or
    /// [`Error::System`] if the costs could not be measured, or make no sense. Nothing is assumed.
    pub fn calibrated() -> Result<&'static RingCosts, &'static Error> {
        static COSTS: OnceLock<Result<RingCosts>> = OnceLock::new();
        #[cfg(feature = "uring")]
        return COSTS.get_or_init(calibrate::measure_ring).as_ref();
        #[cfg(not(feature = "uring"))]
        return COSTS.get_or_init(|| Err(Error::without_uring())).as_ref();
    }

    /// The costs of a kind; those of a pipe for an unknown one.
    pub fn of(&self, kind: Kind) -> &RingKindCosts {
        match kind {
            Kind::Unknown | Kind::Pipe => &self.pipe,
            Kind::Unix => &self.unix,
            Kind::Tcp => &self.tcp,
        }
    }
}
