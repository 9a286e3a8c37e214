//! `superpoll top`: what the engines of a running server or proxy are doing.
//!
//! One thread and one runtime for all there is to wait for: the statistics socket, the keys, signals, and a clock that
//! tells when nothing is heard any more. Keys are read here rather than by crossterm, whose reader has a poller of its
//! own, and goes on reading for ever where the terminal is gone.

mod figures;
mod keys;
mod model;
mod printable;
mod screen;
mod source;
mod text;
mod view;

use std::error::Error;
use std::io::{self, IsTerminal, Write, stdin, stdout};
use std::path::Path;
use std::time::{Duration, Instant};

use futures_lite::future::or;
use rustix::event::{PollFd, PollFlags};
use superpoll::BackendKind;
use superpoll_gateway::statistics::{INTERVALS, Snapshot};
use superpoll_rt::signal::{Signal, SignalKind, signal};
use superpoll_rt::{AsyncFd, Runtime, time};

use keys::Key;
use model::Model;
use printable::printable_json;
use screen::Screen;
use source::{End, Source};
use view::State;

/// The intervals that keys choose among, in milliseconds.
const STEPS: [u64; 10] = [50, 100, 250, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];

/// How long a process may take to tell something for the first time, beyond the interval.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether anything was told.
const TICK: Duration = Duration::from_secs(1);

/// Options of `top`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// A process by its number, or the path of its statistics socket [default: the only one of this user]
    #[arg(value_name = "PATH|PID")]
    pub of: Option<String>,
    /// Tell once, without a terminal, and end
    #[arg(long)]
    pub once: bool,
    /// Tell as the process does, an object of JSON in one line
    #[arg(long, requires = "once")]
    pub json: bool,
    /// The time that rates are taken over
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: u64,
}

/// An interval in milliseconds.
fn interval(text: &str) -> Result<u64, String> {
    let duration = crate::proxy::seconds(text)?;
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if INTERVALS.contains(&millis) {
        Ok(millis)
    } else {
        Err("expected 0.05 to 60 seconds".to_owned())
    }
}

/// Shows until the user has seen enough or there is nothing more to see.
pub fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let has_terminal = stdin().is_terminal() && stdout().is_terminal();
    if !options.once && !has_terminal {
        return Err("showing a process needs a terminal; use --once without one".into());
    }
    let path = source::locate(options.of.as_deref())?;
    // A few descriptors: no back-end is worth to be chosen for them.
    let runtime = Runtime::builder().backend(BackendKind::Epoll).build()?;
    if options.once {
        return runtime.block_on(once(options, &path))?;
    }
    runtime.block_on(show(options, &path))?
}

/// Tells once: as it is, or as text with the rates of an interval.
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
        // The first may be from before the question, the second is an interval later.
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

/// How long a process may take to tell something for the first time.
fn patience(interval_ms: u64) -> Duration {
    PATIENCE + Duration::from_millis(interval_ms)
}

/// What is said of a process that takes longer.
fn silent(path: &Path, patience: Duration) -> String {
    let (path, seconds) = (path.display(), patience.as_secs());
    format!("the process at {path} has told nothing for {seconds} seconds; it is busy or stopped")
}

/// What happens while it shows.
enum Happening {
    Told(Box<Snapshot>),
    Pressed(Vec<Key>),
    /// The size of the terminal is another.
    Resized,
    Tick,
    /// Somebody wants an end, or the terminal is gone.
    Over,
}

/// What keys there are; nothing if the terminal is gone.
async fn pressed(terminal: &AsyncFd<io::Stdin>) -> io::Result<Option<Vec<Key>>> {
    loop {
        let ready = terminal.readable().await?;
        // The terminal blocks, as it does for those that it is shared with. So it is not read on a mere guess.
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

/// The signals that are listened to.
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

/// Shows until it is over.
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
    let mut state = State { interval_ms: options.interval, ..State::default() };
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
                // One that has told something may be stopped and go on; one that has not is no such process.
                if model.snapshot.is_none() && quiet > patience {
                    return Err(silent(path, patience).into());
                }
                state.silent = (quiet > late).then_some(quiet.as_secs());
            }
            Happening::Pressed(keys) => {
                for key in keys {
                    if key == Key::Quit {
                        return Ok(());
                    }
                    if press(key, &mut state, &model) {
                        source.ask(state.interval_ms).await?;
                    }
                }
            }
        }
    }
}

/// Does what a key means; tells whether the interval is another.
fn press(key: Key, state: &mut State, model: &Model) -> bool {
    let before = state.interval_ms;
    let longer = STEPS.iter().find(|&&step| step > before);
    let shorter = STEPS.iter().rev().find(|&&step| step < before);
    match key {
        Key::Quit => {}
        Key::Pause => state.paused = !state.paused,
        Key::Longer => state.interval_ms = longer.copied().unwrap_or(before),
        Key::Shorter => state.interval_ms = shorter.copied().unwrap_or(before),
        Key::Sort => state.sort = state.sort.next(),
        Key::Next | Key::Before => {
            let numbers = view::order(model, state.sort);
            let at = numbers.iter().position(|&number| number == state.engine).unwrap_or(0);
            let count = numbers.len().max(1);
            let step = if key == Key::Next { 1 } else { count - 1 };
            let at = (at + step) % count;
            state.engine = numbers.get(at).copied().unwrap_or(0);
        }
    }
    state.interval_ms != before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_change_what_is_shown_and_stay_within_bounds() {
        let model = model::tests::model(3, 3);
        let mut state = State { interval_ms: 1000, ..State::default() };
        assert!(press(Key::Longer, &mut state, &model) && state.interval_ms == 2000);
        for _ in 0..20 {
            press(Key::Longer, &mut state, &model);
        }
        assert!(!press(Key::Longer, &mut state, &model) && state.interval_ms == 60_000);
        for _ in 0..20 {
            press(Key::Shorter, &mut state, &model);
        }
        assert_eq!(state.interval_ms, 50);
        let engines: Vec<usize> = (0..4)
            .map(|_| {
                press(Key::Next, &mut state, &model);
                state.engine
            })
            .collect();
        assert_eq!(engines, [1, 2, 0, 1]);
        press(Key::Before, &mut state, &model);
        press(Key::Sort, &mut state, &model);
        press(Key::Next, &mut state, &model);
        // By events the last comes first, and after the first there is nothing but it.
        assert_eq!((state.engine, state.sort), (2, view::Sort::Events));
        press(Key::Pause, &mut state, &model);
        assert!(state.paused);
        press(Key::Next, &mut state, &Model::default());
        assert_eq!(state.engine, 0);
    }

    #[test]
    fn intervals_are_those_that_processes_take() {
        assert_eq!(interval("0.05"), Ok(50));
        assert_eq!(interval("60"), Ok(60_000));
        for wrong in ["0", "0.049", "61", "-1", "soon", "1e99"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
        assert!(STEPS.iter().all(|step| INTERVALS.contains(step)) && STEPS.is_sorted());
    }
}
