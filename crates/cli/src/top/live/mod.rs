//! The screen that follows a process.
//!
//! One thread and one runtime wait for everything: the statistics socket, the keys, signals, and a
//! clock that tells when the process has gone silent. Keys are read here rather than by a library,
//! whose reader would have a poller of its own.

mod columns;
mod engines;
mod help;
mod keys;
mod requests;
mod screen;
mod state;
mod view;

use std::error::Error;
use std::io::{self, IsTerminal, stdin, stdout};
use std::path::Path;
use std::time::{Duration, Instant};

use futures_lite::future::or;
use rustix::event::{PollFd, PollFlags};
use superpoll_gateway::control::{ApiRequest, Snapshot};
use superpoll_rt::signal::{Signal, SignalKind, signal};
use superpoll_rt::{AsyncFd, time};

use self::keys::Key;
use self::screen::Screen;
use self::state::{Effect, State};
use super::model::Model;
use super::{Options, patience, runtime, silent};
use crate::control::client::Exchange;
use crate::control::target::{Meant, locate};

/// How often to check whether a snapshot has come.
const TICK: Duration = Duration::from_secs(1);

/// Shows figures until the user quits or there is nothing more to show.
pub(super) fn follow(options: &Options) -> Result<(), Box<dyn Error>> {
    if !stdin().is_terminal() || !stdout().is_terminal() {
        return Err("showing a process needs a terminal; use --once without one".into());
    }
    runtime()?.try_block_on(show(options))?
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

/// Returns the figures at another interval, in milliseconds, and the first of them. `None`: the
/// process does not answer at once, has no place for another viewer, or is another one.
async fn at_interval(
    path: &Path,
    interval_ms: u64,
    before: &Exchange,
) -> Option<(Exchange, Box<Snapshot>)> {
    let begins = async {
        let mut next = Exchange::begin(path, &ApiRequest::snapshots(interval_ms)).await.ok()?;
        let snapshot = next.snapshot().await.ok()?;
        Some((next, Box::new(snapshot)))
    };
    let begun = time::timeout(TICK, begins).await.ok()??;
    let number = |of: &Exchange| of.process.as_ref().map(|process| process.number);
    (number(&begun.0) == number(before)).then_some(begun)
}

/// Shows the screen until the end.
async fn show(options: &Options) -> Result<(), Box<dyn Error>> {
    let path = &locate(options.name.get(), Meant::Any).await?;
    let patience = patience(options.interval);
    let request = ApiRequest::snapshots(options.interval);
    let opens = Exchange::begin(path, &request);
    let mut stream = time::timeout(patience, opens).await.map_err(|_| silent(path, patience))??;
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
            let snapshot = stream.snapshot().await?;
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
                let (before, mut is_other) = (state.interval_ms, false);
                for key in keys {
                    match state.press(key, &model) {
                        Effect::None => {}
                        Effect::Interval => is_other = true,
                        Effect::Quit => return Ok(()),
                    }
                }
                if is_other {
                    match at_interval(path, state.interval_ms, &stream).await {
                        Some((next, snapshot)) => {
                            stream = next;
                            heard = Instant::now();
                            if !state.paused {
                                model.take(*snapshot);
                            }
                        }
                        // The figures go on as before.
                        None => state.interval_ms = before,
                    }
                }
            }
        }
    }
}
