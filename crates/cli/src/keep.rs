//! `superpoll keep`: the keeper, which holds idle connections while servers come and go.

use std::error::Error;
use std::fs::File;
use std::io::{self, ErrorKind, Read, stderr, stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use futures_lite::future::or;
use sd_notify::NotifyState;
use superpoll::{BackendKind, limits};
use superpoll_keeper::{Keeper, KeeperEvent, KeeperLink, Listener};
use superpoll_rt::Runtime;
use superpoll_rt::signal::{Signal, SignalKind, signal};

mod log;

use crate::running_program::running_program;
use crate::secrecy;
use log::{Log, Stream};

/// How long a keeper that was started may take to listen.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most bytes to read of a failed keeper's error message.
const LAST_WORDS: u64 = 4096;

/// How long to wait before the next check.
const NAP: Duration = Duration::from_millis(2);

/// Options of `keep`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// The path where servers of the same user find it
    #[arg(long, value_name = "PATH")]
    pub listen: PathBuf,
    /// How long connections wait for a server when theirs has ended
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = super::proxy::seconds)]
    pub patience: Duration,
    /// End when there is nothing left to hold, like a keeper that a server has started
    #[arg(long)]
    pub end: bool,
    /// Let core files and this user's debuggers have its memory, in which keys of connections may
    /// be
    #[arg(long)]
    pub dumpable: bool,
}

/// The most time that is spent at the end on lines that are not written yet.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Returns a file of its own for a standard stream. The thread that writes to the stream may be in
/// a write for long, and would hold the lock of the standard library meanwhile.
fn duplicate(stream: BorrowedFd<'_>) -> io::Result<File> {
    stream.try_clone_to_owned().map(File::from)
}

/// Starts the thread that writes lines.
fn start_log() -> io::Result<Log> {
    Log::start(duplicate(stdout().as_fd())?, duplicate(stderr().as_fd())?)
}

/// Ends the process, and writes the lines that are left before.
fn exit(log: &Log, code: i32) -> ! {
    log.flush(LAST_LINES);
    std::process::exit(code)
}

/// Explains why a socket cannot be created at a path, and how to solve that.
fn advice(path: &Path, error: &io::Error) -> String {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).display();
    match error.kind() {
        ErrorKind::NotFound => {
            format!("the folder {folder} does not exist: make it, or choose another path")
        }
        ErrorKind::NotADirectory => format!("{folder} is no folder: choose another path"),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            format!("this user may not write to {folder}: choose a path where it may")
        }
        ErrorKind::AddrInUse if KeeperLink::connect(path).is_ok() => {
            "a keeper or another program listens there: end it, or choose another path".into()
        }
        ErrorKind::AddrInUse => {
            "a file that is no socket is in the way: remove it, or choose another path".into()
        }
        ErrorKind::InvalidFilename => {
            "the path of a socket has at most 107 bytes: choose a shorter one".into()
        }
        _ => "choose another path".into(),
    }
}

/// Runs until SIGTERM or SIGINT or, with `--end`, until there is nothing left to hold. SIGHUP
/// and SIGUSR1 change nothing: the connections must outlive the terminal and the server that
/// started the keeper, which has no configuration and no log.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let path = options.listen.display();
    if !options.dumpable {
        secrecy::hide_memory().map_err(|error| format!("hiding this process' memory: {error}"))?;
    }
    limits::raise_descriptors()
        .map_err(|error| format!("raising the limit of descriptors: {error}"))?;
    // From here on only the intended signals end the process.
    let made = Arc::new(AtomicBool::new(false));
    let (sender, caught) = mpsc::channel();
    let log = start_log().map_err(|error| format!("starting the thread for lines: {error}"))?;
    let ends = end_on_signals(options.listen.clone(), made.clone(), log.clone(), sender);
    thread::Builder::new().name("signals".to_owned()).spawn(ends)?;
    let cannot = |error: &dyn std::fmt::Display| format!("listening for signals: {error}");
    caught.recv().map_err(|error| cannot(&error))?.map_err(|error| cannot(&error))?;
    drop(caught);
    let listener = Listener::bind(&options.listen).map_err(|error| {
        format!("listening on {path}: {error}; {}", advice(&options.listen, &error))
    })?;
    made.store(true, Ordering::Release);
    let settings = superpoll_keeper::Options {
        orphans: options.patience,
        ends: options.end,
        ..superpoll_keeper::Options::default()
    };
    let lines = log.clone();
    let say = move |happening: &KeeperEvent| lines.say(Stream::Errors, happening);
    let mut keeper = Keeper::new(settings, say)?;
    keeper.listen(listener)?;
    log.say(Stream::Output, format_args!("holding connections at {path}"));
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    match keeper.run() {
        Ok(()) => exit(&log, 0),
        Err(error) => {
            // Not by the caller, which would wait as long as standard error is not read.
            log.say(Stream::Errors, error);
            exit(&log, 1)
        }
    }
}

/// Ignores signals for servers, which `systemctl kill` sends to all processes of a unit, except for
/// a line on standard error.
async fn pass_over(
    hang_up: &mut Signal,
    (user1, user2): (&mut Signal, &mut Signal),
    log: &Log,
) -> io::Result<()> {
    loop {
        let hung_up = async { hang_up.recv().await.map(|()| "SIGHUP") };
        let reopen = async { user1.recv().await.map(|()| "SIGUSR1") };
        let upgrade = async { user2.recv().await.map(|()| "SIGUSR2") };
        let name = or(hung_up, or(reopen, upgrade)).await?;
        log.say(Stream::Errors, format_args!("{name} changes nothing here"));
    }
}

/// Returns the code that ends the process on a signal: the keeper's own thread waits for
/// connections only. The socket's file is removed with the process, once it is made; `caught`
/// receives a message when the signals are caught.
fn end_on_signals(
    socket: PathBuf,
    made: Arc<AtomicBool>,
    log: Log,
    caught: mpsc::Sender<io::Result<()>>,
) -> impl FnOnce() + Send {
    move || {
        let told = caught.clone();
        let asked = || -> io::Result<()> {
            // This runtime receives only signals, so choosing a back-end is not worth the effort.
            let runtime =
                Runtime::builder().backend(BackendKind::Epoll).build().map_err(io::Error::other)?;
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            let mut hang_up = signal(SignalKind::hangup())?;
            let mut user1 = signal(SignalKind::user_defined1())?;
            let mut user2 = signal(SignalKind::user_defined2())?;
            // The receiver is still waiting for the message.
            let _ = told.send(Ok(()));
            runtime
                .try_block_on(async {
                    or(
                        or(terminate.recv(), interrupt.recv()),
                        pass_over(&mut hang_up, (&mut user1, &mut user2), &log),
                    )
                    .await
                })
                .map_err(io::Error::other)?
        };
        match asked() {
            Ok(()) => {
                if made.load(Ordering::Acquire) {
                    let _ = std::fs::remove_file(socket);
                }
                exit(&log, 0)
            }
            Err(error) => {
                // An error before the signals are caught goes to the receiver that waits for them.
                if let Err(unheard) = caught.send(Err(error)) {
                    let error = unheard.0.err().map_or_else(String::new, |error| error.to_string());
                    log.say(Stream::Errors, format_args!("listening for signals: {error}"));
                    exit(&log, 1)
                }
            }
        }
    }
}

/// Returns the last message of a child that has ended, without the program's name.
fn last_words(child: &mut Child) -> Option<String> {
    let mut said = String::new();
    child.stderr.take()?.take(LAST_WORDS).read_to_string(&mut said).ok()?;
    let said = said.trim();
    let said = said.strip_prefix("superpoll: ").unwrap_or(said).replace('\n', "; ");
    (!said.is_empty()).then_some(said)
}

/// Whether no process listens at a path, and this one may: there is no file, or one that was left
/// behind.
fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
}

/// Starts a keeper for a server, unless one listens at the path. Returns whether it did. The memory
/// of one that is not dumpable is hidden.
pub(crate) fn start(path: &Path, is_dumpable: bool) -> Result<bool, Box<dyn Error>> {
    let at = path.display();
    let begins = |what: &dyn std::fmt::Display| format!("starting a keeper at {at}: {what}");
    match KeeperLink::connect(path) {
        Ok(_) => return Ok(false),
        // So many servers are about to connect that there is no room for one more connection.
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
        Err(error) if is_absence(&error) => {}
        Err(error) => {
            let advice = advice(path, &error);
            return Err(format!("connecting to the keeper at {at}: {error}; {advice}").into());
        }
    }
    let program = running_program();
    let mut command = Command::new(&program);
    command.arg("keep").arg("--end").arg("--listen").arg(path);
    if is_dumpable {
        command.arg("--dumpable");
    }
    // The keeper continues when the server, or the server's terminal, has ended, and then nothing
    // reads its messages. But if it cannot begin, this process reads the reason.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command
        .spawn()
        .map_err(|error| begins(&format!("running {}: {error}", program.display())))?;
    let end = Instant::now() + PATIENCE;
    loop {
        match KeeperLink::connect(path) {
            Ok(_) => return Ok(true),
            Err(error) if Instant::now() > end => {
                let why = format!("it does not listen within {} s: {error}", PATIENCE.as_secs());
                return Err(begins(&why).into());
            }
            Err(_) => {}
        }
        // Another server may have started a keeper at the same moment, which this one has
        // found.
        if let Some(status) = child.try_wait()?
            && KeeperLink::connect(path).is_err()
        {
            let why = format!("it has ended at once ({status})");
            return Err(begins(&last_words(&mut child).unwrap_or(why)).into());
        }
        thread::sleep(NAP);
    }
}
