//! Counting without BPF: a thread that traces the program with `ptrace(2)`.
//!
//! Each system call of a traced thread stops it twice, so this slows the program that it counts,
//! and no other. It is for users to whom the kernel permits no BPF. The counts go to memory of the
//! same layout as those of BPF, so there is one report and one verdict.
//!
//! Threads are seized, which does not stop them; then each is interrupted, as only a stopped thread
//! can be told to stop at its calls. A wait in which it sleeps fails with `EINTR` at that moment,
//! as it does under strace and gdb. The end interrupts nothing: when the tracing thread or this
//! process ends, however it ends, the kernel lets the traced threads continue.

mod tally;

use std::collections::BTreeSet;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::process;
use crate::sys::trace::{self, Call, Stop};
pub(crate) use tally::Tally;

/// How many calls of a process are measured to learn by how much tracing slows a call.
const MEASURED: u32 = 500;

/// The thread that traces, until this is dropped.
#[derive(Debug)]
pub(crate) struct Tracer {
    thread: Option<JoinHandle<()>>,
    state: Arc<State>,
    /// The tally of a program that is started later.
    tally: Option<Tally>,
}

#[derive(Debug, Default)]
struct State {
    is_over: AtomicBool,
    /// The number of the thread that traces.
    thread: Mutex<u32>,
}

impl Tracer {
    /// Traces all threads of a process, and what they start. Returns once they are traced.
    ///
    /// # Errors
    ///
    /// The process cannot be traced, or there can be no thread.
    pub(crate) fn of(process: u32, tally: Tally) -> io::Result<Tracer> {
        let state = Arc::new(State::default());
        let (tell, told) = channel();
        let work = {
            let state = Arc::clone(&state);
            move || {
                let seized = seize_all(process);
                let is_traced = seized.is_ok();
                let _ = tell.send(seized.map(|_| ()));
                if is_traced {
                    follow(&state, tally, None);
                }
            }
        };
        let thread = spawn(&state, work)?;
        let tracer = Tracer { thread: Some(thread), state, tally: None };
        told.recv().unwrap_or_else(|_| Err(io::Error::other("the tracing thread has ended")))?;
        Ok(tracer)
    }

    /// Prepares to trace a program that [`start`](Tracer::start) starts.
    pub(crate) fn of_a_program(tally: Tally) -> Tracer {
        Tracer { thread: None, state: Arc::new(State::default()), tally: Some(tally) }
    }

    /// Starts a program, and traces it from its first call.
    ///
    /// # Errors
    ///
    /// It cannot be started or traced.
    pub(crate) fn start(&mut self, command: &mut Command) -> io::Result<Child> {
        let tally = self.tally.take();
        let tally = tally.ok_or_else(|| io::Error::other("one program is traced already"))?;
        let (number, tell) = io::pipe()?;
        let (answer, go) = io::pipe()?;
        let mut instead = tell.try_clone()?;
        trace::hold(command, tell, answer);
        let (tell_seized, seized) = channel();
        let (tell_started, started) = channel();
        let state = Arc::clone(&self.state);
        let work = move || {
            if let Some(child) = hold_and_seize(number, go, &tell_seized, &started) {
                follow(&state, tally, Some(child));
            }
        };
        self.thread = Some(spawn(&self.state, work)?);
        let child = command.spawn();
        if child.is_err() {
            // There may have been none to tell its number.
            instead.write_all(&[0; 4])?;
        }
        let _ = tell_started.send(child.is_ok());
        match seized.try_recv() {
            Ok(Err(error)) if child.is_err() => Err(error),
            _ => child,
        }
    }

    /// Ends to trace. The threads continue.
    pub(crate) fn end(&mut self) {
        self.state.is_over.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() {
            let number =
                *self.state.thread.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if number != 0 {
                trace::kick(number);
            }
            thread::sleep(Duration::from_millis(2));
        }
        let _ = thread.join();
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.end();
    }
}

fn spawn(state: &Arc<State>, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    trace::allow_kicks();
    let state = Arc::clone(state);
    let run = move || {
        *state.thread.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            trace::this_thread();
        work();
    };
    thread::Builder::new().name("tracer".to_owned()).spawn(run)
}

/// Seizes a program before it is executed. Returns its number if it was started.
fn hold_and_seize(
    mut number: PipeReader,
    mut go: PipeWriter,
    tell: &Sender<io::Result<()>>,
    started: &Receiver<bool>,
) -> Option<u32> {
    let mut process = [0; 4];
    if number.read_exact(&mut process).is_ok() {
        let seized = trace::seize(u32::from_ne_bytes(process));
        let is_seized = seized.is_ok();
        let _ = tell.send(seized);
        let _ = go.write_all(&[u8::from(is_seized)]);
    }
    // Until then its status is for the one who starts it.
    started.recv().unwrap_or(false).then_some(u32::from_ne_bytes(process))
}

/// Seizes the threads of a process, until there is none that is not.
fn seize_all(process: u32) -> io::Result<()> {
    let mut seized = BTreeSet::new();
    loop {
        let before = seized.len();
        let mut failed = None;
        for thread in process::threads(process) {
            if seized.contains(&thread) {
                continue;
            }
            match trace::seize(thread) {
                Ok(()) => {
                    seized.insert(thread);
                    trace::interrupt(thread)?;
                }
                // It has ended, or is new and was seized with the one that has started it.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if seized.is_empty() {
            return Err(failed.unwrap_or_else(|| io::Error::from_raw_os_error(libc::ESRCH)));
        }
        if seized.len() == before {
            return Ok(());
        }
    }
}

/// Lets traced threads continue from stop to stop until the end, which is also that of `child`: its
/// status is left for the one who has started it. What is traced then continues, as the thread that
/// calls this ends. That interrupts nothing.
fn follow(state: &State, mut tally: Tally, child: Option<u32>) {
    while !state.is_over.load(Ordering::Acquire) {
        let thread = match trace::wait() {
            Ok(thread) => thread,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // There is nothing left to trace.
            Err(_) => return,
        };
        if Some(thread) == child && trace::has_ended(thread) {
            return;
        }
        let Ok(stop) = trace::take(thread) else { continue };
        // A thread that was killed meanwhile is reported again, as one that has ended.
        let _ = match stop {
            Stop::Call => {
                if let Ok(call) = trace::call(thread) {
                    tally.call(thread, call);
                }
                trace::resume(thread, 0)
            }
            Stop::Group => trace::leave_stopped(thread),
            Stop::Event => {
                tally.leave_call(thread);
                trace::resume(thread, 0)
            }
            Stop::Exec(former) => {
                if former != thread {
                    // Its end is not told.
                    tally.forget(former);
                }
                tally.leave_call(thread);
                trace::resume(thread, 0)
            }
            Stop::Signal(signal) => {
                tally.signal(thread, signal);
                trace::resume(thread, signal)
            }
            Stop::Ended => {
                tally.forget(thread);
                Ok(())
            }
        };
    }
}

/// Measures how long a call of a traced process takes that does next to nothing: one that is
/// started for this, and is killed.
///
/// # Errors
///
/// A process cannot be started or traced.
pub(crate) fn measure() -> io::Result<Duration> {
    let measure = || {
        let (start, mut go) = io::pipe()?;
        let process = trace::start_caller(start)?;
        let measured =
            trace::seize(process).and_then(|()| trace::interrupt(process)).and_then(|()| {
                let mut stops = 0;
                let mut begun = Instant::now();
                let mut best = Duration::MAX;
                go.write_all(&[1])?;
                while stops < 2 * MEASURED {
                    if trace::take(process)? == Stop::Call {
                        let _: Call = trace::call(process)?;
                        stops += 1;
                        // A disturbance makes a series longer.
                        if stops % 50 == 0 {
                            best = best.min(begun.elapsed() / 25);
                            begun = Instant::now();
                        }
                    }
                    trace::resume(process, 0)?;
                }
                Ok(best)
            });
        trace::kill(process);
        while !matches!(trace::take(process), Ok(Stop::Ended) | Err(_)) {}
        measured
    };
    // A thread of its own, as it waits for all that it traces.
    let thread = thread::Builder::new().name("measure".to_owned()).spawn(measure)?;
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
