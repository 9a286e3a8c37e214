//! Servers of other projects, which a test starts on a free port and in a folder of its own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long a server may take until it listens.
const START: Duration = Duration::from_secs(30);

/// How long a server may take to end in order.
const STOP: Duration = Duration::from_secs(10);

/// The user `nobody`, who runs a server that refuses to run as root.
const NOBODY: u32 = 65_534;

/// A running server. It ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    /// The address on which it listens.
    pub address: SocketAddr,
    child: Child,
    _folder: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGINT: PostgreSQL would leave shared memory behind if it were killed.
        let _ = Command::new("sh").args(["-c", &format!("kill -INT {}", self.child.id())]).status();
        let asked = Instant::now();
        while asked.elapsed() < STOP && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(5));
        }
        // No effect on a server that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts `redis-server`, which keeps its data in memory.
///
/// # Errors
///
/// The reason why there is no server, as text.
pub fn redis() -> Result<Server, String> {
    let folder = folder()?;
    start("redis-server", folder, |command, port| {
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
    })
}

/// Starts `nats-server`.
///
/// # Errors
///
/// The reason why there is no server, as text.
pub fn nats() -> Result<Server, String> {
    let folder = folder()?;
    start("nats-server", folder, |command, port| {
        command.args(["--addr", "127.0.0.1", "--port", &port.to_string()]);
    })
}

/// Starts PostgreSQL with an empty database cluster and the user `tester`. PostgreSQL refuses to
/// run as root: then the user `nobody` runs it.
///
/// # Errors
///
/// The reason why there is no server, as text.
pub fn postgres() -> Result<Server, String> {
    let programs = postgres_programs().ok_or("postgresql is not installed")?;
    let folder = folder()?;
    let data = folder.path().join("data");
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let program = |name: &str| {
        let path = programs.join(name);
        if !is_root {
            return Command::new(path);
        }
        let user = NOBODY.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"]).arg(path);
        command
    };
    if is_root {
        let owned = chown(folder.path(), Some(NOBODY), Some(NOBODY));
        owned.map_err(|error| format!("no folder for postgresql's user: {error}"))?;
    }
    let mut initdb = program("initdb");
    initdb.args(["--username", "tester", "--auth", "trust", "--no-sync", "--pgdata"]).arg(&data);
    let made = initdb.current_dir(folder.path()).output();
    let made = made.map_err(|error| format!("starting initdb: {error}"))?;
    if !made.status.success() {
        return Err(format!("initdb fails: {}", String::from_utf8_lossy(&made.stderr).trim()));
    }
    let socket = folder.path().to_owned();
    spawn(program("postgres"), "postgres", folder, |command, port| {
        command.arg("-D").arg(&data).arg("-k").arg(&socket);
        command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-F"]);
    })
}

/// Returns the folder of the newest PostgreSQL's programs, where Debian has them.
fn postgres_programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let folders = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    folders.filter(|folder| is_file(&folder.join("initdb"))).max()
}

fn is_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|data| data.is_file())
}

fn folder() -> Result<TempDir, String> {
    tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))
}

fn start(
    program: &str,
    folder: TempDir,
    arguments: impl FnOnce(&mut Command, u16),
) -> Result<Server, String> {
    spawn(Command::new(program), program, folder, arguments)
}

/// Starts a server and waits until it listens.
///
/// # Panics
///
/// If it ends before it listens, or does not listen in time.
fn spawn(
    mut command: Command,
    program: &str,
    folder: TempDir,
    arguments: impl FnOnce(&mut Command, u16),
) -> Result<Server, String> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = free.local_addr().expect("the socket is bound");
    drop(free);
    arguments(&mut command, address.port());
    command.current_dir(folder.path()).stdin(Stdio::null());
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let child = child.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("{program} is not installed"),
        _ => format!("starting {program}: {error}"),
    })?;
    let mut server = Server { address, child, _folder: folder };
    let begun = Instant::now();
    while TcpStream::connect(address).is_err() {
        let ended = server.child.try_wait().expect("a child's status");
        assert!(ended.is_none(), "{program} ends instead of listening: {ended:?}");
        assert!(begun.elapsed() < START, "{program} does not listen");
        thread::sleep(Duration::from_millis(10));
    }
    Ok(server)
}
