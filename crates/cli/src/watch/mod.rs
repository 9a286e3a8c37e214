//! `superpoll watch`: the waits of any running program, and the savings of another way to wait.
//!
//! The crate `superpoll-watch` counts; here is the time in which it does so. It ends when the time
//! is over, when the watched process has ended, or by a signal, and the summary is printed in each
//! case. A process that was started here continues if the time is over before it ends.

mod attach;
mod document;
mod recording;
mod text;

use std::error::Error;
use std::io::{IsTerminal, Write, stdout};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use futures_lite::future::or;
use rustix::termios::tcgetwinsize;
use superpoll::BackendKind;
use superpoll::diagnostics::Costs;
use superpoll_rt::signal::{Signal, SignalKind, signal};
use superpoll_rt::{Runtime, time};
use superpoll_watch::{Method, Monitor, Sample, Subject};

use crate::control::ServerProcess;
use crate::sys;
use crate::watch::recording::{Ended, Prepared, Recording};

/// Options of `watch`.
#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("subject").required(true))]
pub(crate) struct Options {
    /// Watch this process, and those that it starts from now on
    #[arg(short, long, value_name = "PROCESS", group = "subject")]
    pid: Option<u32>,
    /// Watch all processes but this one
    #[arg(long, group = "subject")]
    all: bool,
    /// End after this time; otherwise with the process, or by Ctrl-C. A process is traced for two
    /// seconds at most, where BPF is not permitted
    #[arg(long, value_name = "SECONDS", value_parser = crate::proxy::seconds)]
    seconds: Option<Duration>,
    #[command(flatten)]
    recording: recording::Options,
    /// Print one JSON document instead
    #[arg(long)]
    json: bool,
    /// Start a program, and watch it and those that it starts
    #[arg(last = true, value_name = "PROGRAM", group = "subject")]
    program: Vec<String>,
}

/// How often distinct active descriptors are counted, and a screen is drawn.
const TICK: Duration = Duration::from_secs(1);

/// How long a program that was started here may take to end by Ctrl-C.
const GRACE: Duration = Duration::from_secs(10);

/// Why the watch is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Over {
    /// The process has ended, or the time is over.
    Ended,
    /// By Ctrl-C, which all processes of the terminal get.
    Interrupted,
    /// By another signal.
    Told,
}

/// Clears the terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Watches and prints. Returns the code with which a program ended that was started here, as a
/// shell has it.
///
/// # Errors
///
/// The process cannot be watched, or the program cannot be started.
pub(crate) fn run(options: &Options) -> Result<ExitCode, Box<dyn Error>> {
    // Before the program starts, as measuring disturbs and is disturbed.
    let costs = Costs::calibrated();
    // A few descriptors: choosing a back-end is not worth the effort.
    let runtime = Runtime::builder().backend(BackendKind::Epoll).build()?;
    runtime.try_block_on(async {
        let mut signals = Signals::new()?;
        let subject = match options.pid {
            Some(process) => Subject::Process(process),
            None if options.all => Subject::All,
            None => Subject::Children,
        };
        let (mut watch, prepared) =
            attach::attach(subject, options.program.first(), &options.recording)?;
        let mut child = None;
        if let Some((program, arguments)) = options.program.split_first() {
            match watch.start(Command::new(program).args(arguments)) {
                Ok(started) => child = Some(started),
                Err(error) => {
                    prepared.into_iter().for_each(Prepared::abandon);
                    return Err(format!("starting {program}: {error}").into());
                }
            }
        }
        let mut recording = match prepared.map(Prepared::start).transpose() {
            Ok(recording) => recording,
            Err(error) => {
                say_end(child.as_mut())?;
                return Err(error);
            }
        };
        let limit = attach::limit(&watch, subject, options.seconds);
        let process = options.pid.or(child.as_ref().map(Child::id));
        let mut monitor = Monitor::new(watch, process);
        // A terminal that is stopped stops this, and must not stop a traced process.
        let is_traced = monitor.watch().method() == Method::Ptrace;
        let is_live = stdout().is_terminal() && !options.json && child.is_none() && !is_traced;
        if is_traced && child.is_none() {
            sys::ignore_stops();
        }
        let mut followed =
            follow(&mut monitor, &mut recording, process, limit, is_live, &mut signals).await;
        if child.is_some() && matches!(followed, Ok((_, Over::Interrupted))) {
            // Ctrl-C is for the program, too, which may take a moment to end.
            if let Some(process) = process {
                let ends = ServerProcess::new(process);
                let again = async {
                    let _ = signals.recv().await;
                };
                or(or(ends.ended(), again), time::sleep(GRACE)).await;
            }
            followed = Ok((monitor.tick(), Over::Ended));
        }
        // A traced program continues at its own pace while the summary is made.
        monitor.watch_mut().end();
        // Whatever fails from here on, the recording is whole.
        let recording = recording.map(Recording::end);
        let last = match followed {
            Ok((last, _)) => last,
            Err(error) => {
                say_end(child.as_mut())?;
                return Err(error);
            }
        };
        let report = monitor.report(&monitor.start(), &last, true);
        let text = match options.json {
            true => format!("{:#}\n", document::of(&report, costs)),
            false => text::of(&report, costs),
        };
        let clear = if is_live { CLEAR } else { "" };
        let printed = print(&format!("{clear}{text}"));
        let ended = say_end(child.as_mut());
        let recorded = recording.map_or(Ok(()), Ended::say);
        printed.map_err(Into::into).and(recorded).and(ended)
    })?
}

/// Says how the program has ended, or that it continues, if one was started.
fn say_end(child: Option<&mut Child>) -> Result<ExitCode, Box<dyn Error>> {
    let Some(child) = child else { return Ok(ExitCode::SUCCESS) };
    let Some(status) = child.try_wait()? else {
        eprintln!("superpoll: process {} continues, and is not watched", child.id());
        return Ok(ExitCode::SUCCESS);
    };
    if !status.success() {
        eprintln!("superpoll: the program has ended: {status}");
    }
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Follows until the end, and returns the last counts.
async fn follow(
    monitor: &mut Monitor,
    recording: &mut Option<Recording>,
    process: Option<u32>,
    limit: Option<Duration>,
    is_live: bool,
    signals: &mut Signals,
) -> Result<(Sample, Over), Box<dyn Error>> {
    let deadline = limit.and_then(|limit| monitor.watch().started().checked_add(limit));
    let process = process.map(ServerProcess::new);
    let costs = Costs::calibrated();
    let mut earlier = monitor.start();
    loop {
        let tick = Instant::now() + TICK;
        let until = deadline.map_or(tick, |deadline| deadline.min(tick));
        let sleep = async {
            time::sleep_until(until).await;
            Ok((deadline == Some(until)).then_some(Over::Ended))
        };
        let end = async {
            match &process {
                Some(process) => process.ended().await,
                None => std::future::pending().await,
            }
            std::io::Result::Ok(Some(Over::Ended))
        };
        let over = or(or(end, signals.recv()), sleep).await?;
        let sample = monitor.tick();
        if let Some(over) = over {
            return Ok((sample, over));
        }
        recording.iter_mut().for_each(Recording::say_early_end);
        if is_live {
            let report = monitor.report(&earlier, &sample, false);
            print(&format!("{CLEAR}{}", first_lines(&text::of(&report, costs))))?;
            earlier = sample;
        }
    }
}

/// Returns the lines of a text that fit on the terminal, without the last end of a line.
fn first_lines(text: &str) -> String {
    let rows = tcgetwinsize(stdout()).map_or(24, |size| size.ws_row.max(2));
    text.lines().take(usize::from(rows)).collect::<Vec<_>>().join("\n")
}

fn print(text: &str) -> Result<(), String> {
    let mut output = stdout().lock();
    let printed = output.write_all(text.as_bytes()).and_then(|()| output.flush());
    printed.map_err(|error| format!("writing to the standard output: {error}"))
}

/// The signals that end the command with its summary.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for one of them.
    async fn recv(&mut self) -> std::io::Result<Option<Over>> {
        let interrupted = async { self.interrupt.recv().await.map(|()| Some(Over::Interrupted)) };
        let told = async {
            or(self.terminate.recv(), self.hang_up.recv()).await.map(|()| Some(Over::Told))
        };
        or(interrupted, told).await
    }
}
