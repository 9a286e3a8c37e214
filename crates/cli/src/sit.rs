//! `superpoll sit`: the babysitter, which has idle connections while servers come and go.

use std::error::Error;
use std::io::{self, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use futures_lite::future::or;
use sd_notify::NotifyState;
use superpoll::{BackendKind, limits};
use superpoll_rt::Runtime;
use superpoll_rt::signal::{SignalKind, signal};
use superpoll_sit::{Babysitter, Happening, Line, Listener};

/// For how long one that was started may take to listen.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long it takes until it is looked again.
const NAP: Duration = Duration::from_millis(2);

/// Options of `sit`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The path where servers of the same user find it
    #[arg(long, value_name = "PATH")]
    pub listen: PathBuf,
    /// How long connections wait for a server when theirs has ended
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = super::proxy::seconds)]
    pub patience: Duration,
    /// End when there is nothing left to hold, as one does that a server has started
    #[arg(long)]
    pub end: bool,
}

fn say(happening: &Happening) {
    // Nobody may be reading any more.
    let _ = writeln!(stderr(), "superpoll: {happening}");
}

/// Works until SIGTERM or SIGINT, or until there is nothing left to hold, if it is to end then.
pub fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let path = options.listen.display();
    limits::raise_descriptors()
        .map_err(|error| format!("raising the limit of descriptors: {error}"))?;
    let listener =
        Listener::bind(&options.listen).map_err(|error| format!("listening on {path}: {error}"))?;
    let sit = superpoll_sit::Options {
        orphans: options.patience,
        ends: options.end,
        ..superpoll_sit::Options::default()
    };
    let mut babysitter = Babysitter::new(sit, say)?;
    babysitter.listen(listener)?;
    // Nobody may be reading any more.
    let _ = writeln!(stdout(), "superpoll: holding connections at {path}");
    let ends = end_on_signals(options.listen.clone());
    thread::Builder::new().name("signals".to_owned()).spawn(ends)?;
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    Ok(babysitter.run()?)
}

/// What ends the process when it is asked to end: the babysitter's own thread waits for connections only.
fn end_on_signals(socket: PathBuf) -> impl FnOnce() + Send {
    move || {
        let asked = || -> io::Result<()> {
            // Nothing but signals comes in here: no back-end is worth to be chosen for it.
            let runtime =
                Runtime::builder().backend(BackendKind::Epoll).build().map_err(io::Error::other)?;
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            runtime
                .block_on(async { or(terminate.recv(), interrupt.recv()).await })
                .map_err(io::Error::other)?
        };
        match asked() {
            Ok(()) => {
                let _ = std::fs::remove_file(socket);
                std::process::exit(0);
            }
            Err(error) => {
                let _ = writeln!(stderr(), "superpoll: listening for signals: {error}");
                std::process::exit(1);
            }
        }
    }
}

/// Starts one for a server, unless one listens at the path; tells whether it did.
pub fn start(path: &Path) -> Result<bool, Box<dyn Error>> {
    if Line::connect(path).is_ok() {
        return Ok(false);
    }
    let program = std::env::current_exe()?;
    let mut command = Command::new(&program);
    command.arg("sit").arg("--end").arg("--listen").arg(path);
    // It goes on when the server, or the terminal of that, has ended, and nobody reads what it would say.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command
        .spawn()
        .map_err(|error| format!("starting the babysitter {}: {error}", program.display()))?;
    let end = Instant::now() + PATIENCE;
    loop {
        match Line::connect(path) {
            Ok(_) => return Ok(true),
            Err(error) if Instant::now() > end => {
                return Err(
                    format!("connecting to the babysitter at {}: {error}", path.display()).into()
                );
            }
            Err(_) => {}
        }
        // Another server may have started one at the same moment, which this one has found.
        if let Some(status) = child.try_wait()?
            && Line::connect(path).is_err()
        {
            let path = path.display();
            return Err(format!("the babysitter at {path} has ended at once ({status})").into());
        }
        thread::sleep(NAP);
    }
}
