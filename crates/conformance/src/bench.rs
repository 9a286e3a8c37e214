//! The subjects of the suite: ways to make pollers, and their capabilities.

use std::cell::OnceCell;
use std::time::Duration;

use superpoll::backend::policy::{CostBased, Fixed, RatioPolicy, Set};
use superpoll::backend::{Adaptive, Rule, Topology, Tuning};
use superpoll::diagnostics::Costs;
use superpoll::{BackendKind, Poller};

use crate::chaos::Chaos;
use crate::erratic_keeper;
use crate::remote_keeper::RemoteKeeper;
use crate::rig::{Fault, Rig};

/// The capabilities of a back-end. Checks of capabilities that it lacks are skipped, except that it
/// must say so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// It offers [`Mode::Edge`](superpoll::Mode::Edge).
    pub edge: bool,
    /// It offers [`Mode::Exclusive`](superpoll::Mode::Exclusive).
    pub exclusive: bool,
    /// It can be nested in another event loop.
    pub nest: bool,
    /// It watches read-closed and priority without readable, and sees a hang-up of a descriptor
    /// whose readability is not wanted.
    pub read_closed_alone: bool,
    /// The first descriptor number that is too large for it.
    pub fd_limit: Option<i32>,
    /// The most wait calls (`poll`, `epoll_wait` and so on) in one wait that finds something.
    pub calls_per_wait: u64,
    /// It registers new descriptors with epoll in the next wait, so its calls can be counted.
    pub registers_with_epoll: bool,
    /// It can be told which descriptors are ready, and woken.
    pub tell_and_wake: bool,
    /// A watched file stays open until the next wait or flush after its owner has closed it.
    pub holds_files: bool,
    /// With [`Mode::Auto`](superpoll::Mode::Auto) it reports an arrival since the last wait even if
    /// nothing is left of it.
    pub reports_arrivals: bool,
    /// It may move descriptors at any time, so the number of its calls says nothing.
    pub moves_at_random: bool,
    /// A keeper watches idle descriptors. The poller has to ask it which are ready before a
    /// wait that does not block long.
    pub is_kept: bool,
}

impl Capabilities {
    /// The capabilities of a back-end on `epoll`.
    pub const EPOLL: Capabilities = Capabilities::of(BackendKind::Epoll);

    /// The capabilities of a back-end on `poll`.
    pub const POLL: Capabilities = Capabilities::of(BackendKind::Poll);

    /// The capabilities of the adaptive back-end with a policy that starts descriptors in epoll.
    pub const ADAPTIVE: Capabilities = Capabilities::of(BackendKind::Adaptive);

    /// Returns the capabilities of a back-end of the `superpoll` crate.
    pub const fn of(kind: BackendKind) -> Capabilities {
        let abilities = kind.abilities();
        Capabilities {
            edge: abilities.edge,
            exclusive: abilities.exclusive,
            nest: abilities.nest,
            read_closed_alone: abilities.read_closed_alone,
            fd_limit: abilities.fd_limit,
            calls_per_wait: abilities.calls_per_wait,
            registers_with_epoll: abilities.registers_with_epoll,
            tell_and_wake: true,
            holds_files: abilities.holds_files,
            reports_arrivals: abilities.reports_arrivals,
            moves_at_random: false,
            is_kept: false,
        }
    }
}

/// A subject of the suite.
pub struct Bench {
    name: String,
    capabilities: Capabilities,
    make: Box<dyn Fn() -> Poller>,
    fault: Fault,
}

impl std::fmt::Debug for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench").field("name", &self.name).field("fault", &self.fault).finish()
    }
}

impl Bench {
    /// Creates a bench of the pollers that `make` makes, called `name` in failures.
    pub fn new(
        name: impl Into<String>,
        capabilities: Capabilities,
        make: impl Fn() -> Poller + 'static,
    ) -> Bench {
        Bench { name: name.into(), capabilities, make: Box::new(make), fault: Fault::None }
    }

    /// Returns the same bench with a planted bug.
    #[must_use]
    pub fn with_fault(self, fault: Fault) -> Bench {
        Bench { name: format!("{} with {fault:?}", self.name), fault, ..self }
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its capabilities.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Creates a poller.
    pub fn rig(&self) -> Rig {
        let rig = Rig::new((self.make)(), self.fault);
        if self.capabilities.is_kept { rig.catching_up() } else { rig }
    }

    /// Returns how long a check waits for an event that must come. Only a failing check waits that
    /// long.
    pub fn patience(&self) -> Duration {
        // A planted bug is expected to fail; a sound poller on a busy machine is not.
        if self.fault == Fault::None { Duration::from_secs(20) } else { Duration::from_millis(300) }
    }
}

fn built(builder: superpoll::Builder) -> Poller {
    builder.build().expect("the back-end under test works on this system")
}

fn adaptive(name: &str, start: impl Fn() -> Poller + 'static, caps: Capabilities) -> Bench {
    Bench::new(format!("adaptive-{name}"), caps, start)
}

/// Returns the adaptive back-end that moves descriptors at random.
pub fn chaotic(seed: u64) -> Bench {
    let caps = Capabilities {
        moves_at_random: true,
        registers_with_epoll: false,
        ..Capabilities::ADAPTIVE
    };
    let make = move || {
        let backend =
            Adaptive::new(Chaos::new(seed), Costs::ASSUMED).expect("an epoll set can be made");
        built(Poller::builder().custom(backend))
    };
    adaptive(&format!("chaos-{seed}"), make, caps)
}

/// Hands every descriptor that may leave to the keeper, after the first wait that does not
/// report it.
const RESTLESS: Tuning = Tuning {
    idle: Duration::ZERO,
    batch: 1,
    rule: Rule::Regret { within: 4, doublings: 6 },
    only_with_state: false,
};

/// Returns the adaptive back-end with a keeper that is given everything at once: in a thread,
/// or as if it were another process.
pub fn with_keeper(is_process: bool) -> Bench {
    let caps = Capabilities {
        moves_at_random: true,
        registers_with_epoll: false,
        is_kept: true,
        // A thread holds files, too, for as long as it takes to forget a descriptor.
        holds_files: true,
        ..Capabilities::ADAPTIVE
    };
    let builder = || Poller::builder().costs(Costs::ASSUMED).backend(BackendKind::Adaptive);
    if !is_process {
        return adaptive(
            "thread",
            move || built(builder().topology(Topology::Thread(RESTLESS))),
            caps,
        );
    }
    let keeper = OnceCell::new();
    let make = move || {
        let link = keeper.get_or_init(RemoteKeeper::start).link();
        built(builder().topology(Topology::Process(link, RESTLESS)))
    };
    adaptive("process", make, caps)
}

/// Returns the adaptive back-end that moves descriptors at random, between its own sets and a
/// keeper's thread, with idle times that follow from the seed.
pub fn chaotic_with_keeper(seed: u64) -> Bench {
    let caps = with_keeper(false).capabilities();
    let make = move || {
        let tuning = Tuning {
            idle: Duration::from_micros(seed % 3 * 100),
            batch: 1 + seed as usize % 4,
            ..RESTLESS
        };
        let builder = Poller::builder().policy(Chaos::new(seed)).costs(Costs::ASSUMED);
        built(builder.topology(Topology::Thread(tuning)))
    };
    adaptive(&format!("chaos-{seed}-thread"), make, caps)
}

/// Returns the adaptive back-end that moves descriptors at random, with an erratic keeper that
/// may end at any time.
pub fn chaotic_with_erratic_keeper(seed: u64, may_end: bool) -> Bench {
    let caps = with_keeper(true).capabilities();
    let make = move || {
        let tuning = Tuning {
            idle: Duration::from_micros(seed % 3 * 100),
            batch: 1 + seed as usize % 4,
            ..RESTLESS
        };
        let builder = Poller::builder().policy(Chaos::new(seed)).costs(Costs::ASSUMED);
        built(builder.topology(Topology::Process(erratic_keeper::start(seed, may_end), tuning)))
    };
    adaptive(&format!("chaos-{seed}-erratic-keeper"), make, caps)
}

/// Returns a back-end whose waits gather events.
fn gathering(kind: BackendKind) -> Bench {
    let make = move || {
        let mut poller = built(Poller::builder().backend(kind).costs(Costs::ASSUMED));
        poller.gather(Duration::from_micros(300)).expect("the time is short");
        poller
    };
    Bench::new(format!("{kind}-gathering"), Capabilities::of(kind), make)
}

/// Whether this system has the back-end; prints a note if not.
fn works(kind: BackendKind) -> bool {
    let works = kind.is_available();
    if !works {
        eprintln!("skipped: {kind} is not available here");
    }
    works
}

/// The environment variable that restricts the suite to one subject, or to all of one back-end:
/// `poll`, `adaptive`, `adaptive-hot`.
pub const BENCH_VARIABLE: &str = "SUPERPOLL_BENCH";

/// Returns the subjects of the suite: those that [`BENCH_VARIABLE`] names, or else [`every`] one.
///
/// # Panics
///
/// The variable names none.
pub fn all() -> Vec<Bench> {
    let mut benches = every();
    let Some(wanted) = std::env::var_os(BENCH_VARIABLE).filter(|name| !name.is_empty()) else {
        return benches;
    };
    let wanted = wanted.to_string_lossy();
    let names: Vec<String> = benches.iter().map(|bench| bench.name.clone()).collect();
    benches.retain(|bench| is_called(&bench.name, &wanted));
    let names = names.join(", ");
    assert!(!benches.is_empty(), "{BENCH_VARIABLE}={wanted} is none of {names}");
    benches
}

/// Whether a subject has this name, or is a variant of the back-end with this name.
fn is_called(name: &str, wanted: &str) -> bool {
    name.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Returns every back-end of the `superpoll` crate, `adaptive` with each policy, with [`Chaos`] and
/// with a keeper.
pub fn every() -> Vec<Bench> {
    let assumed = || Poller::builder().costs(Costs::ASSUMED);
    let hot = Capabilities { registers_with_epoll: false, ..Capabilities::ADAPTIVE };
    let mut benches: Vec<Bench> = BackendKind::ALL
        .into_iter()
        .filter(|&kind| kind != BackendKind::Adaptive && works(kind))
        .map(|kind| {
            let make = move || built(Poller::builder().backend(kind));
            Bench::new(kind.name(), Capabilities::of(kind), make)
        })
        .collect();
    benches.extend([
        adaptive(
            "cost-based",
            move || built(assumed().policy(CostBased::default())),
            Capabilities::ADAPTIVE,
        ),
        adaptive(
            "threshold",
            move || built(assumed().policy(RatioPolicy::default())),
            Capabilities::ADAPTIVE,
        ),
        adaptive(
            "cold",
            move || built(assumed().policy(Fixed::new(Set::Cold))),
            Capabilities { calls_per_wait: 1, ..Capabilities::ADAPTIVE },
        ),
        gathering(BackendKind::Adaptive),
        adaptive("hot", move || built(assumed().policy(Fixed::new(Set::Hot))), hot),
        chaotic(1),
        chaotic(2),
        chaotic(3),
        with_keeper(false),
        with_keeper(true),
    ]);
    if works(BackendKind::Uring) {
        benches.push(gathering(BackendKind::Uring));
    }
    benches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_one_subject_or_all_of_a_back_end() {
        for (name, wanted, is) in [
            ("poll", "poll", true),
            ("adaptive-hot", "adaptive", true),
            ("adaptive-chaos-1", "adaptive-chaos", true),
            ("adaptive-hot", "adaptive-h", false),
            ("epoll", "poll", false),
            ("poll", "adaptive", false),
        ] {
            assert_eq!(is_called(name, wanted), is, "{name} {wanted}");
        }
    }
}
