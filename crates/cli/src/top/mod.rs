//! `superpoll top`: the requests, servers, channels and engines of a running server or proxy.
//!
//! One thread and one runtime wait for everything: the statistics socket, the keys, signals, and a
//! clock that tells when the process has gone silent. Keys are read here rather than by crossterm,
//! whose reader has a poller of its own, and goes on reading indefinitely where the terminal is
//! gone.

mod columns;
mod engines;
mod figures;
mod help;
mod keys;
mod model;
mod requests;
mod screen;
mod state;
mod text;
mod traffic;
mod view;

use std::error::Error;
use std::io::{self, IsTerminal, Write, stdin, stdout};
use std::path::Path;
use std::time::{Duration, Instant};

use futures_lite::future::or;
use rustix::event::{PollFd, PollFlags};
use superpoll::BackendKind;
use superpoll_gateway::telemetry::socket::{INTERVALS, Snapshot};
use superpoll_rt::signal::{Signal, SignalKind, signal};
use superpoll_rt::{AsyncFd, Runtime, time};

use crate::control::ServerName;
use crate::stats::printable::printable_json;
use crate::stats::source::{self, End, Source};
use keys::Key;
use model::Model;
use screen::Screen;
use state::{Effect, State};

/// How long a process may take to send its first snapshot, beyond the interval.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often to check whether a snapshot has come.
const TICK: Duration = Duration::from_secs(1);

/// Options of `top`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub name: ServerName,
    /// Print the figures once, without a terminal, and end
    #[arg(long)]
    pub once: bool,
    /// Print the snapshot of the process unchanged, as an object of JSON in one line
    #[arg(long, requires = "once")]
    pub json: bool,
    /// The time over which rates are taken
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: u64,
}

/// Parses an interval, and returns it in milliseconds.
fn interval(text: &str) -> Result<u64, String> {
    let duration = crate::proxy::seconds(text)?;
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if INTERVALS.contains(&millis) {
        Ok(millis)
    } else {
        Err("expected 0.05 to 60 seconds".to_owned())
    }
}

/// Shows figures until the user quits or there is nothing more to show.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let has_terminal = stdin().is_terminal() && stdout().is_terminal();
    if !options.once && !has_terminal {
        return Err("showing a process needs a terminal; use --once without one".into());
    }
    let path = source::locate(options.name.get())?;
    // A few descriptors: choosing a back-end is not worth the effort.
    let runtime = Runtime::builder().backend(BackendKind::Epoll).build()?;
    if options.once {
        return runtime.try_block_on(once(options, &path))?;
    }
    runtime.try_block_on(show(options, &path))?
}

/// Prints once: the snapshot as it is, or text with the rates of an interval.
async fn once(options: &Options, path: &Path) -> Result<(), Box<dyn Error>> {
    let tells = async {
        let mut source = Source::connect(path).await?;
        if options.json {
            let line = source.line().await?;
            source.understand(&line)?;
            return Ok(printable_json(&line));
        }
        source.ask(options.interval).await?;
        let mut model = Model::default();
        // The first may be older than the request, the second is an interval later.
        for _ in 0..2 {
            model.take(source.next().await?);
        }
        Ok::<_, End>(text::write(&model).into_bytes())
    };
    let patience = patience(options.interval);
    let mut told = time::timeout(patience, tells).await.map_err(|_| silent(path, patience))??;
    if options.json {
        told.push(b'\n');
    }
    stdout().write_all(&told)?;
    Ok(())
}

/// Returns how long a process may take to send its first snapshot.
fn patience(interval_ms: u64) -> Duration {
    PATIENCE + Duration::from_millis(interval_ms)
}

/// Returns the error for a process that takes longer.
fn silent(path: &Path, patience: Duration) -> String {
    let (path, seconds) = (path.display(), patience.as_secs());
    format!("the process at {path} has sent nothing for {seconds} seconds; it is busy or stopped")
}

/// An event while the screen is shown.
enum Happening {
    Told(Box<Snapshot>),
    Pressed(Vec<Key>),
    /// The size of the terminal has changed.
    Resized,
    Tick,
    /// The user or a signal asks for the end, or the terminal is gone.
    Over,
}

/// Returns the keys that were pressed, or `None` if the terminal is gone.
async fn pressed(terminal: &AsyncFd<io::Stdin>) -> io::Result<Option<Vec<Key>>> {
    loop {
        let ready = terminal.readable().await?;
        // The terminal blocks, also for the other processes that share it, so it is not read on a
        // mere guess.
        let mut asked = [PollFd::new(terminal.get_ref(), PollFlags::IN)];
        if rustix::event::poll(&mut asked, Some(&rustix::event::Timespec::default()))? == 0 {
            ready.clear();
            continue;
        }
        let mut room = [0; 64];
        return match rustix::io::read(terminal.get_ref(), &mut room) {
            Ok(0) | Err(rustix::io::Errno::IO) => Ok(None),
            Ok(count) => Ok(Some(keys::keys(&room[..count]))),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
            Err(error) => Err(error.into()),
        };
    }
}

/// The signals to which this program listens.
struct Signals {
    ends: [Signal; 3],
    resized: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        let ends = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let [terminate, interrupt, hang_up] = ends.map(signal);
        let ends = [terminate?, interrupt?, hang_up?];
        Ok(Signals { ends, resized: signal(SignalKind::window_change())? })
    }

    async fn next(&mut self) -> Result<Happening, Box<dyn Error>> {
        let Signals { ends: [terminate, interrupt, hang_up], resized } = self;
        let ends = async {
            or(terminate.recv(), or(interrupt.recv(), hang_up.recv())).await?;
            Ok(Happening::Over)
        };
        let resizes = async {
            resized.recv().await?;
            Ok(Happening::Resized)
        };
        or(ends, resizes).await
    }
}

/// Shows the screen until the end.
async fn show(options: &Options, path: &Path) -> Result<(), Box<dyn Error>> {
    let patience = patience(options.interval);
    let opens = async {
        let mut source = Source::connect(path).await?;
        source.ask(options.interval).await?;
        Ok::<_, End>(source)
    };
    let mut source = time::timeout(patience, opens).await.map_err(|_| silent(path, patience))??;
    let mut signals = Signals::new()?;
    let terminal = AsyncFd::nonblocking(stdin());
    let mut screen = Screen::open()
        .map_err(|error| format!("taking the terminal: {error}; use --once without one"))?;
    let mut model = Model::default();
    let mut state = State::new(options.interval);
    let mut heard = Instant::now();
    loop {
        // A terminal that cannot be drawn on is gone.
        if screen.draw(|frame| view::draw(frame, &model, &state)).is_err() {
            return Ok(());
        }
        let tells = async {
            let snapshot = source.next().await?;
            Ok(Happening::Told(Box::new(snapshot)))
        };
        let presses =
            async { Ok(pressed(&terminal).await?.map_or(Happening::Over, Happening::Pressed)) };
        let ticks = async {
            time::sleep(TICK).await;
            Ok(Happening::Tick)
        };
        let happening = or(or(presses, signals.next()), or(tells, ticks)).await?;
        match happening {
            Happening::Over => return Ok(()),
            Happening::Resized => {}
            Happening::Told(snapshot) => {
                heard = Instant::now();
                state.silent = None;
                if !state.paused {
                    model.take(*snapshot);
                }
            }
            Happening::Tick => {
                let late = Duration::from_millis(state.interval_ms) + 2 * TICK;
                let quiet = heard.elapsed();
                // A process that has sent a snapshot may be stopped and go on; one that has not is
                // no such process.
                if model.snapshot.is_none() && quiet > patience {
                    return Err(silent(path, patience).into());
                }
                state.silent = (quiet > late).then_some(quiet.as_secs());
            }
            Happening::Pressed(keys) => {
                for key in keys {
                    match state.press(key, &model) {
                        Effect::None => {}
                        Effect::Interval => source.ask(state.interval_ms).await?,
                        Effect::Quit => return Ok(()),
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_given_in_seconds() {
        assert_eq!(interval("0.05"), Ok(50));
        assert_eq!(interval("60"), Ok(60_000));
        for wrong in ["0", "0.049", "61", "-1", "soon", "1e99"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
