//! A story of descriptors, as a sequence of steps.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use superpoll::{Interest, Readiness};

use super::state;

/// How long a step may take to show its effect. Only a faulty system takes that long.
const LIMIT: Duration = Duration::from_secs(30);

/// A step's action. It is kept until the story is over, with the descriptors that it holds.
type Action = Box<dyn FnMut(&[OwnedFd]) -> io::Result<()>>;

/// The condition that shows that a step has taken effect.
#[derive(Clone, Copy, Debug)]
enum Seen {
    AtOnce,
    Has(usize, Readiness),
    Lacks(usize, Readiness),
}

/// A change to the descriptors.
pub struct Step {
    /// Its name in a difference.
    pub name: &'static str,
    action: Action,
    seen: Seen,
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Step").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Step {
    /// Carries the step out, and waits until its effect shows.
    ///
    /// # Errors
    ///
    /// The errors of the system, and `TimedOut` if no effect shows.
    pub fn take(&mut self, watched: &[OwnedFd]) -> io::Result<()> {
        (self.action)(watched)?;
        let since = Instant::now();
        loop {
            let is_seen = match self.seen {
                Seen::AtOnce => true,
                Seen::Has(place, bits) => state(&watched[place], Interest::ALL).contains(bits),
                Seen::Lacks(place, bits) => !state(&watched[place], Interest::ALL).contains(bits),
            };
            if is_seen {
                return Ok(());
            }
            if since.elapsed() > LIMIT {
                let text = format!("nothing is seen of the step '{}'", self.name);
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            std::thread::yield_now();
        }
    }
}

/// Descriptors that are watched, and the steps that change them.
#[derive(Debug)]
pub struct Scene {
    /// The descriptors, each to be registered alone.
    pub watched: Vec<OwnedFd>,
    /// The steps, in their order.
    pub steps: Vec<Step>,
}

impl Scene {
    /// Creates a story of these descriptors, without steps.
    pub fn of(watched: impl IntoIterator<Item = OwnedFd>) -> Scene {
        Scene { watched: watched.into_iter().collect(), steps: Vec::new() }
    }

    /// Adds a step.
    #[must_use]
    pub fn then(
        mut self,
        name: &'static str,
        action: impl FnMut(&[OwnedFd]) -> io::Result<()> + 'static,
    ) -> Scene {
        self.steps.push(Step { name, action: Box::new(action), seen: Seen::AtOnce });
        self
    }

    /// Declares that the last step shows when the first descriptor is ready for `bits`.
    #[must_use]
    pub fn until(self, bits: Readiness) -> Scene {
        self.seen(Seen::Has(0, bits))
    }

    /// Like [`until`](Scene::until), for another descriptor.
    #[must_use]
    pub fn until_of(self, place: usize, bits: Readiness) -> Scene {
        self.seen(Seen::Has(place, bits))
    }

    /// Declares that the last step shows when the first descriptor is no longer ready for `bits`.
    #[must_use]
    pub fn until_not(self, bits: Readiness) -> Scene {
        self.seen(Seen::Lacks(0, bits))
    }

    fn seen(mut self, seen: Seen) -> Scene {
        if let Some(step) = self.steps.last_mut() {
            step.seen = seen;
        }
        self
    }
}
