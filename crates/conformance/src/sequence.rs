//! Random operation sequences, and their comparison with the model.
//!
//! A [`Step`] names its operands by their position among the open numbers ("the third registered
//! number"). So any subsequence of a sequence makes sense, and a failure shrinks well. [`compare`]
//! drives the model and one subject through the same steps. After each operation their replies must
//! be the same. After each wait the reported registrations must be those of the model, with the
//! same readiness, no more and no fewer. Two things are left open: a registration with
//! [`Mode::Auto`] may be reported as often as a level-triggered one and must be as often as an
//! edge-triggered one, and edges may be repeated when the subject had to tell the kernel anew.
//!
//! A wait with a limit is compared over as many waits as the ready registrations need. A
//! registration that the caller told to be ready, and for which the kernel has a report as well,
//! may be reported twice in these, or once for both.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use superpoll::{Hint, Interest, Mode, Readiness, Watch};

use crate::bench::Capabilities;
use crate::subject::model::Model;
use crate::subject::{How, Kind, Number, Op, Subject, Tag};

/// The most numbers that are open at a time.
const MOST: usize = 16;

/// One step of a sequence. Its operands are looked up among the open numbers when it is taken.
#[derive(Clone, Debug)]
pub enum Step {
    /// Opens a file.
    Open(Kind),
    /// Opens a file and registers all of its numbers.
    OpenAndRegister(Kind, Watch),
    /// Duplicates a number.
    Duplicate(u8),
    /// Closes a number, registered or not.
    Close(u8),
    /// Registers a number.
    Register(u8, Watch),
    /// Changes a registration.
    Modify(u8, Watch),
    /// Changes a registration and changes it back.
    ModifyAndBack(u8, Watch),
    /// Ends a registration.
    Deregister(u8),
    /// Ends a registration and registers the number again.
    Reregister(u8, Watch),
    /// Writes bytes.
    Write(u8, usize),
    /// Reads bytes.
    Read(u8, usize),
    /// Writes until it would block.
    Fill(u8),
    /// Reads until there is nothing left.
    Drain(u8),
    /// Shuts a socket down.
    Shutdown(u8, How),
    /// Tells the subject that a registration is ready.
    Tell(u8, Interest),
    /// Wakes the subject.
    Wake,
    /// Waits for at most this many events; naps if nothing is ready.
    Wait(usize, bool),
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        4 => Just(Kind::Pipe),
        4 => Just(Kind::Sockets),
        1 => Just(Kind::Eventfd),
        1 => Just(Kind::File),
    ]
}

fn watches() -> impl Strategy<Value = Watch> {
    let read_write = Interest::READABLE | Interest::WRITABLE;
    let interests = prop_oneof![
        6 => Just(Interest::READABLE),
        3 => Just(read_write),
        2 => Just(Interest::WRITABLE),
        2 => Just(Interest::READABLE | Interest::READ_CLOSED),
        1 => Just(Interest::READ_CLOSED),
        1 => Just(Interest::ALL),
        1 => Just(Interest::NONE),
    ];
    let modes = prop_oneof![
        4 => Just(Mode::Level),
        3 => Just(Mode::Edge),
        3 => Just(Mode::OneShot),
        3 => Just(Mode::Auto),
        1 => Just(Mode::Exclusive),
    ];
    let hints = prop_oneof![2 => Just(Hint::None), 1 => Just(Hint::Busy), 1 => Just(Hint::Idle)];
    (interests, modes, hints)
        .prop_map(|(interest, mode, hint)| Watch::new(interest).mode(mode).hint(hint))
}

fn steps(limits: Limits) -> impl Strategy<Value = Step> {
    let which = any::<u8>;
    let sizes = prop_oneof![3 => Just(1), 1 => Just(8), 2 => Just(100), 1 => Just(3000)];
    let reads = prop_oneof![3 => Just(1), 1 => Just(8), 2 => Just(100), 2 => Just(4096)];
    let hows = prop_oneof![1 => Just(How::Read), 3 => Just(How::Write), 1 => Just(How::Both)];
    let tight = match limits {
        Limits::Ample => 64..65usize,
        Limits::Tight => 1..5usize,
    };
    let limits = prop_oneof![4 => Just(64usize), 3 => tight];
    let told = prop_oneof![Just(Interest::READABLE), Just(Interest::WRITABLE)];
    prop_oneof![
        1 => kinds().prop_map(Step::Open),
        5 => (kinds(), watches()).prop_map(|(kind, watch)| Step::OpenAndRegister(kind, watch)),
        2 => which().prop_map(Step::Duplicate),
        4 => which().prop_map(Step::Close),
        4 => (which(), watches()).prop_map(|(which, watch)| Step::Register(which, watch)),
        6 => (which(), watches()).prop_map(|(which, watch)| Step::Modify(which, watch)),
        1 => (which(), watches()).prop_map(|(which, watch)| Step::ModifyAndBack(which, watch)),
        2 => which().prop_map(Step::Deregister),
        2 => (which(), watches()).prop_map(|(which, watch)| Step::Reregister(which, watch)),
        10 => (which(), sizes).prop_map(|(which, size)| Step::Write(which, size)),
        8 => (which(), reads).prop_map(|(which, size)| Step::Read(which, size)),
        1 => which().prop_map(Step::Fill),
        3 => which().prop_map(Step::Drain),
        2 => (which(), hows).prop_map(|(which, how)| Step::Shutdown(which, how)),
        1 => (which(), told).prop_map(|(which, told)| Step::Tell(which, told)),
        1 => Just(Step::Wake),
        20 => (limits, prop::bool::weighted(0.1)).prop_map(|(limit, nap)| Step::Wait(limit, nap)),
    ]
}

/// Whether waits are ever cut off by their limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limits {
    /// Never.
    Ample,
    /// Often.
    Tight,
}

/// Returns a strategy for sequences of steps, ending with a wait.
pub fn sequences(limits: Limits) -> impl Strategy<Value = Vec<Step>> {
    let first = (kinds(), watches()).prop_map(|(kind, watch)| Step::OpenAndRegister(kind, watch));
    (prop::collection::vec(first, 1..4), prop::collection::vec(steps(limits), 1..60)).prop_map(
        |(mut steps, rest)| {
            steps.extend(rest);
            steps.push(Step::Wait(64, false));
            steps
        },
    )
}

/// Changes a watch to one that the subject offers.
fn offered(capabilities: &Capabilities, mut watch: Watch) -> Watch {
    match watch.mode {
        Mode::Edge if !capabilities.edge => watch.mode = Mode::Auto,
        Mode::Exclusive if !capabilities.exclusive => watch.mode = Mode::Level,
        Mode::Exclusive => {
            watch.interest = watch.interest & (Interest::READABLE | Interest::WRITABLE);
        }
        _ => {}
    }
    let needs_readable = Interest::PRIORITY | Interest::READ_CLOSED;
    if !capabilities.read_closed_alone && watch.interest.intersects(needs_readable) {
        watch.interest |= Interest::READABLE;
    }
    watch
}

fn pick(numbers: &[Number], which: u8) -> Option<Number> {
    (!numbers.is_empty()).then(|| numbers[which as usize % numbers.len()])
}

/// Returns the operations that a step means now.
fn resolve(model: &mut Model, step: &Step) -> Vec<Op> {
    let open = model.open();
    let registered = model.registered();
    let capabilities = *model.capabilities();
    let unregistered: Vec<Number> =
        open.iter().copied().filter(|number| !registered.contains(number)).collect();
    let opens = |kind: Kind| open.len() + kind.numbers() <= MOST;
    let one = |op: Option<Op>| op.into_iter().collect::<Vec<_>>();
    match *step {
        Step::Open(kind) if opens(kind) => vec![Op::Open(kind, model.free(kind.numbers()))],
        Step::OpenAndRegister(kind, watch) if opens(kind) => {
            let numbers = model.free(kind.numbers());
            let mut ops = vec![Op::Open(kind, numbers.clone())];
            for number in numbers {
                ops.push(Op::Register(number, model.tag(), offered(&capabilities, watch)));
            }
            ops
        }
        Step::Open(_) | Step::OpenAndRegister(..) => Vec::new(),
        Step::Duplicate(_) if open.len() >= MOST => Vec::new(),
        Step::Duplicate(which) => {
            one(pick(&open, which).map(|number| Op::Duplicate(number, model.free(1)[0])))
        }
        Step::Close(which) => one(pick(&open, which).map(Op::Close)),
        Step::Register(which, watch) => one(pick(&unregistered, which)
            .map(|number| Op::Register(number, model.tag(), offered(&capabilities, watch)))),
        Step::Modify(which, watch) => one(pick(&registered, which)
            .map(|number| Op::Modify(number, offered(&capabilities, watch)))),
        Step::ModifyAndBack(which, watch) => match pick(&registered, which) {
            None => Vec::new(),
            Some(number) => {
                let before = model.watch(number);
                vec![Op::Modify(number, offered(&capabilities, watch)), Op::Modify(number, before)]
            }
        },
        Step::Deregister(which) => one(pick(&registered, which).map(Op::Deregister)),
        Step::Reregister(which, watch) => match pick(&registered, which) {
            None => Vec::new(),
            Some(number) => vec![
                Op::Deregister(number),
                Op::Register(number, model.tag(), offered(&capabilities, watch)),
            ],
        },
        Step::Write(which, size) => {
            let able: Vec<_> =
                open.into_iter().filter(|&number| model.writes(number).is_some()).collect();
            one(pick(&able, which).and_then(|number| {
                let most = model.writes(number)?;
                Some(Op::Write(number, if most == 8 { 8 } else { size.min(most) }))
            }))
        }
        Step::Read(which, size) => {
            let able: Vec<_> =
                open.into_iter().filter(|&number| model.reads(number).is_some()).collect();
            one(pick(&able, which).and_then(|number| {
                Some(match model.reads(number)? {
                    0 => Op::Drain(number),
                    8 => Op::Read(number, 8),
                    most => Op::Read(number, size.min(most)),
                })
            }))
        }
        Step::Fill(which) => {
            let sockets: Vec<_> =
                open.into_iter().filter(|&number| model.is_socket(number)).collect();
            one(pick(&sockets, which).map(Op::Fill))
        }
        Step::Drain(which) => {
            let able: Vec<_> =
                open.into_iter().filter(|&number| model.reads(number).is_some()).collect();
            one(pick(&able, which).map(Op::Drain))
        }
        Step::Shutdown(which, how) => {
            let sockets: Vec<_> =
                open.into_iter().filter(|&number| model.is_socket(number)).collect();
            one(pick(&sockets, which).map(|number| Op::Shutdown(number, how)))
        }
        Step::Tell(which, told) if capabilities.tell_and_wake => {
            // Once for each wait: the contract does not define the result of two in a row.
            let untold: Vec<_> =
                registered.into_iter().filter(|&number| !model.is_marked_ready(number)).collect();
            one(pick(&untold, which).map(|number| Op::Tell(number, Readiness::of(told))))
        }
        Step::Wake if capabilities.tell_and_wake => vec![Op::Wake],
        Step::Tell(..) | Step::Wake | Step::Wait(..) => Vec::new(),
    }
}

/// Drives the model and a subject through the steps.
///
/// # Errors
///
/// The first difference, in words.
pub fn compare(
    subject: &mut dyn Subject,
    capabilities: Capabilities,
    steps: &[Step],
) -> Result<(), String> {
    let mut model = Model::new(capabilities);
    for (place, step) in steps.iter().enumerate() {
        if let Step::Wait(limit, nap) = *step {
            compare_waits(&mut model, subject, limit, nap)
                .map_err(|difference| format!("step {place}, {step:?}: {difference}"))?;
        }
        for op in resolve(&mut model, step) {
            let expected = model.apply(&op);
            let found = subject.apply(&op);
            if found != expected {
                return Err(format!("step {place}, {op:?}: {found:?} instead of {expected:?}"));
            }
        }
    }
    Ok(())
}

fn compare_waits(
    model: &mut Model,
    subject: &mut dyn Subject,
    limit: usize,
    nap: bool,
) -> Result<(), String> {
    model.flush();
    let expectation = model.expectation();
    let limit = if subject.has_limit() { limit } else { usize::MAX };
    let mut told = expectation.told.clone();
    // Readiness that the caller told takes a turn of its own, before or after the kernel's report
    // on the same registration. Between two turns of one registration each other one may have its
    // turn, so the second of the two may come a whole round after the first.
    let round = |reports: usize| match reports.div_ceil(limit) {
        0 | 1 => 1,
        waits if expectation.told.is_empty() => waits,
        waits => 2 * waits,
    };
    let gone = expectation.arrivals.iter().filter(|tag| !expectation.state.contains_key(tag));
    let reports = expectation.state.len() + gone.count() + told.len();
    let mut waits = round(reports);
    let wake = model.take_wake();
    let mut seen: BTreeMap<Tag, usize> = BTreeMap::new();
    let mut forgiven = false;
    let mut wait = 0;
    while wait < waits {
        let ready = subject.wait(limit.min(256), nap && wait == 0)?;
        wait += 1;
        if ready.len() > limit {
            return Err(format!("{} events, limit {limit}", ready.len()));
        }
        if subject.woken().is_some_and(|woken| woken != (wake && wait == 1)) {
            return Err(format!(
                "wait {wait} is woken: {:?}, a wake came: {wake}",
                subject.woken()
            ));
        }
        if subject.may_repeat_edges() {
            model.forgive();
            forgiven = true;
            // A repeated report takes its turn like every other one.
            let repeated = model.expectation().state.len() + told.len();
            waits = wait + round(repeated);
        }
        let mut batch: Vec<Tag> = ready.iter().map(|event| event.0).collect();
        batch.sort_unstable();
        batch.dedup();
        if batch.len() != ready.len() {
            return Err(format!("the same twice in one wait: {ready:?}"));
        }
        for (tag, readiness) in ready {
            let expected = match expectation.state.get(&tag) {
                Some(&state) => Some(state),
                None if forgiven => model.expectation().state.get(&tag).copied(),
                None => None,
            };
            // Readiness that the caller told comes once, alone or together with the kernel's
            // report.
            let as_told = told.remove(&tag).is_some_and(|told| {
                readiness == told || expected.is_some_and(|state| readiness == told | state)
            });
            let as_arrival = expectation.arrivals.contains(&tag)
                && expected.is_none_or(|state| readiness.contains(state));
            if !as_told && !as_arrival && expected != Some(readiness) {
                return Err(format!(
                    "registration {tag} is reported {readiness:?}, not {expected:?}; expected are \
                     {expectation:?}"
                ));
            }
            *seen.entry(tag).or_default() += 1;
        }
    }
    for (tag, once) in &expectation.must {
        match seen.get(tag) {
            None => {
                return Err(format!(
                    "registration {tag} is not reported in {waits} waits; expected are \
                     {expectation:?}, got {seen:?}"
                ));
            }
            Some(&times)
                if times > 1 && *once && !forgiven && !expectation.told.contains_key(tag) =>
            {
                return Err(format!("registration {tag} is reported {times} times"));
            }
            Some(_) => {}
        }
    }
    for (tag, readiness) in told {
        // With a limit, an earlier report of the kernel may stand for the told readiness.
        if !seen.contains_key(&tag) {
            return Err(format!("registration {tag} was marked {readiness:?} and is not reported"));
        }
    }
    model.reported(&seen);
    if forgiven {
        model.forgive();
    }
    Ok(())
}

/// The number of sequences that a run compares unless `PROPTEST_CASES` is set.
pub const CASES: u32 = 400;

/// Compares random sequences. The seed is fixed unless `PROPTEST_CASES` is set.
///
/// # Errors
///
/// The shortest sequence found that shows a difference, and the difference.
pub fn explore<S: Subject>(
    capabilities: Capabilities,
    limits: Limits,
    cases: u32,
    make: impl Fn() -> S,
) -> Result<(), String> {
    let config =
        Config { failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    let mut runner = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => TestRunner::new(config),
        None => {
            let config = Config { cases, ..config };
            let random = proptest::test_runner::TestRng::deterministic_rng(config.rng_algorithm);
            TestRunner::new_with_rng(config, random)
        }
    };
    let outcome = runner.run(&sequences(limits), |steps| {
        compare(&mut make(), capabilities, &steps).map_err(TestCaseError::fail)
    });
    match outcome {
        Ok(()) => Ok(()),
        Err(TestError::Fail(reason, steps)) => {
            let steps: Vec<String> = steps.iter().map(|step| format!("    {step:?}")).collect();
            Err(format!("{}: {reason}; the steps are\n{}", make().name(), steps.join("\n")))
        }
        Err(TestError::Abort(reason)) => Err(format!("{}: aborted: {reason}", make().name())),
    }
}

/// Decodes steps from arbitrary bytes, three for each: any bytes are a sequence, and a small change
/// of the bytes is a small change of the sequence.
pub fn decode(bytes: &[u8]) -> Vec<Step> {
    let mut steps: Vec<Step> =
        bytes.chunks_exact(3).map(|chunk| step_of(chunk[0], chunk[1], chunk[2])).collect();
    steps.push(Step::Wait(64, false));
    steps
}

fn step_of(what: u8, which: u8, detail: u8) -> Step {
    let kinds = [Kind::Pipe, Kind::Sockets, Kind::Eventfd, Kind::File];
    let kind = kinds[which as usize % kinds.len()];
    let watch = watch_of(detail);
    match what % 17 {
        0 => Step::Open(kind),
        1 | 2 => Step::OpenAndRegister(kind, watch),
        3 => Step::Duplicate(which),
        4 => Step::Close(which),
        5 => Step::Register(which, watch),
        6 => Step::Modify(which, watch),
        7 => Step::ModifyAndBack(which, watch),
        8 => Step::Deregister(which),
        9 => Step::Reregister(which, watch),
        10 => Step::Write(which, [1, 8, 100, 3000][detail as usize % 4]),
        11 => Step::Read(which, [1, 8, 100, 4096][detail as usize % 4]),
        12 => Step::Fill(which),
        13 => Step::Drain(which),
        14 => Step::Shutdown(which, [How::Read, How::Write, How::Both][detail as usize % 3]),
        _ => Step::Wait([64, 1, 2, 3][which as usize % 4], detail == 255),
    }
}

fn watch_of(detail: u8) -> Watch {
    let interests = [
        Interest::READABLE,
        Interest::READABLE | Interest::WRITABLE,
        Interest::WRITABLE,
        Interest::READABLE | Interest::READ_CLOSED,
        Interest::READ_CLOSED,
        Interest::NONE,
    ];
    let modes = [Mode::Level, Mode::Edge, Mode::OneShot, Mode::Auto, Mode::Exclusive];
    let hints = [Hint::None, Hint::Busy, Hint::Idle];
    let detail = detail as usize;
    Watch::new(interests[detail % 6]).mode(modes[detail / 6 % 5]).hint(hints[detail / 30 % 3])
}
