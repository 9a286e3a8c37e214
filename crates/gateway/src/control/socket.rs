//! The statistics socket: the API on a Unix-domain stream socket that only the same user can open.
//!
//! The first engine watches the socket, as one more idle descriptor, and while no client is
//! connected that is its whole cost: a thread of its own would make every call of an otherwise
//! single-threaded process more expensive.
//!
//! Unless a place is named, a process has its socket in a folder of its user's alone, by its
//! number: `$XDG_RUNTIME_DIR/superpoll-PID.sock`, and where there is no such folder
//! `superpoll-UID/superpoll-PID.sock` in the folder for temporary files. Any user may have made a
//! folder of that name there first, or a link. So a path is not used unless it is a folder of this
//! user, closed to all other users.

use std::fs::{self, DirBuilder, Metadata};
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixListener as BlockingListener;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use rustix::fs::{CWD, Mode, RenameFlags, renameat_with};
use rustix::process::geteuid;
use socket2::{Domain, SockAddr, Type};
use superpoll_http::listen::is_left;
use superpoll_rt::net::unix::UnixListener;
use superpoll_rt::{spawn, time};

use super::client::{self, Places};
use super::subject::Subject;
use crate::config::SocketPath;

/// How long the server waits after accepting has failed before it tries again.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket that listens, but on which no client is answered yet.
#[derive(Debug)]
pub struct Socket {
    listener: BlockingListener,
    file: File,
}

impl Socket {
    /// Listens at a place; nowhere, if it is [`SocketPath::Off`]. A socket that an ended process
    /// has left there is replaced. With `takes_over`, the socket of a running process is replaced
    /// as well, when the new one is [opened](Socket::open).
    ///
    /// # Errors
    ///
    /// The attempt and the system's error, in one line; if the folder belongs to another user or is
    /// open to other users; if another process listens there.
    pub fn bind(place: &SocketPath, takes_over: bool) -> io::Result<Option<Socket>> {
        let path = match place {
            SocketPath::Off => return Ok(None),
            SocketPath::At(path) => std::path::absolute(path)?,
            SocketPath::Default => default_path()?,
        };
        let bound = listen(&path, takes_over).map_err(|error| {
            let what = format!("listening for statistics at {}: {error}", path.display());
            io::Error::new(error.kind(), what)
        });
        bound.map(|(listener, file)| Some(Socket { listener, file }))
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Answers clients that connect, on the first engine of the subject's runtime.
    ///
    /// # Errors
    ///
    /// If the runtime has ended, or if the socket cannot be put in the place of another.
    pub fn open(self, subject: impl Into<Arc<Subject>>) -> io::Result<Statistics> {
        let (Socket { listener, mut file }, subject) = (self, subject.into());
        file.put_in_place().map_err(|error| {
            let what = format!("listening for statistics at {}: {error}", file.path().display());
            io::Error::new(error.kind(), what)
        })?;
        let closing: Arc<Closing> = Arc::default();
        let (closes, handle) = (closing.clone(), subject.handle.clone());
        let begin = move || {
            // It fails only outside of an engine.
            let Ok(listener) = UnixListener::from_std(listener) else { return };
            spawn(accept(listener, closes, subject)).detach();
        };
        handle.call_on(0, begin).map_err(io::Error::other)?;
        Ok(Statistics { closing, file })
    }
}

/// A statistics socket at work. Dropping it closes the socket and removes its file; clients
/// continue as long as the runtime does.
#[derive(Debug)]
pub struct Statistics {
    closing: Arc<Closing>,
    file: File,
}

impl Statistics {
    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.file.path().to_path_buf()
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        self.closing.close();
    }
}

/// The signal to close a socket.
#[derive(Debug, Default)]
struct Closing {
    is_closed: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Closing {
    fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether the socket is closed; if not, the waker is woken when it is.
    fn poll(&self, waker: &Waker) -> bool {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
        self.is_closed.load(Ordering::Acquire)
    }
}

/// Accepts clients.
async fn accept(listener: UnixListener, closing: Arc<Closing>, subject: Arc<Subject>) {
    let places: Rc<Places> = Rc::default();
    loop {
        let accepted = poll_fn(|cx| {
            if closing.poll(cx.waker()) {
                return Poll::Ready(None);
            }
            listener.poll_accept(cx).map(Some)
        });
        match accepted.await {
            None => return,
            Some(Ok((stream, _))) => {
                spawn(client::serve(stream, subject.clone(), places.clone())).detach();
            }
            // There is no descriptor, not even for a client that is closed at once.
            Some(Err(_)) => time::sleep(PAUSE).await,
        }
    }
}

// The file of a socket, and its folder.

/// The permissions of a socket: its user's.
const MODE: u32 = 0o600;

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 16;

/// The most files of other processes that are checked when a folder is cleaned, or its sockets are
/// listed.
const MOST: usize = 1024;

/// Returns the folder of the session, where there is one.
fn of_session() -> Option<PathBuf> {
    // The XDG Base Directory Specification requires relative paths to be ignored.
    std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Returns the folder among those for temporary files.
fn temporary_folder() -> PathBuf {
    std::env::temp_dir().join(format!("superpoll-{}", geteuid().as_raw()))
}

/// Returns the reason for which a folder is not used, if there is one.
fn check_folder(found: &Metadata) -> Result<(), &'static str> {
    if found.file_type().is_symlink() {
        Err("it is a symbolic link")
    } else if !found.is_dir() {
        Err("it is no folder")
    } else if found.uid() != geteuid().as_raw() {
        Err("it belongs to another user")
    } else if found.mode() & 0o077 != 0 {
        Err("other users may open it (chmod 700)")
    } else {
        Ok(())
    }
}

/// Whether it is a folder of this user's alone.
fn is_private(folder: &Path) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|found| check_folder(&found).is_ok())
}

/// Returns the folder for the sockets of this user, made if need be.
fn folder() -> io::Result<PathBuf> {
    if let Some(folder) = of_session().filter(|folder| is_private(folder)) {
        return Ok(folder);
    }
    let folder = temporary_folder();
    let failed = |error: io::Error| {
        let what = format!("making the folder {} for statistics: {error}", folder.display());
        io::Error::new(error.kind(), what)
    };
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let found = fs::symlink_metadata(&folder).map_err(failed)?;
    check_folder(&found).map_err(|why| {
        let what = format!("not using the folder {} for statistics: {why}", folder.display());
        io::Error::new(io::ErrorKind::PermissionDenied, what)
    })?;
    Ok(folder)
}

fn name(process: u32) -> String {
    format!("superpoll-{process}.sock")
}

/// Returns the path of this process's socket, in a folder that was made and cleaned for it.
fn default_path() -> io::Result<PathBuf> {
    let folder = folder()?;
    for ProcessSocket { process, path } in sockets(&folder) {
        // A process that has just begun to listen would refuse as well.
        if !Path::new(&format!("/proc/{process}")).exists() && is_left(&path) {
            let _ = fs::remove_file(path);
        }
    }
    Ok(folder.join(name(std::process::id())))
}

/// A socket that was found.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ProcessSocket {
    /// The process that it is named after.
    pub process: u32,
    /// The path of the socket.
    pub path: PathBuf,
}

fn sockets(folder: &Path) -> Vec<ProcessSocket> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let socket = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let number = name.to_str()?.strip_prefix("superpoll-")?.strip_suffix(".sock")?;
        Some(ProcessSocket { process: number.parse().ok()?, path: entry.path() })
    };
    entries.filter_map(socket).take(MOST).collect()
}

fn folders() -> impl Iterator<Item = PathBuf> {
    of_session().into_iter().chain([temporary_folder()]).filter(|folder| is_private(folder))
}

/// Returns the sockets in the usual places at which a process of this user listens, by the number
/// of the process. Callers have to know the sockets in other places.
#[must_use]
pub fn list() -> Vec<ProcessSocket> {
    let all = folders().flat_map(|folder| sockets(&folder));
    let mut alive: Vec<ProcessSocket> = all.filter(|found| !is_left(&found.path)).collect();
    alive.sort();
    alive
}

/// Returns the socket of a process in the usual places, if it has one there.
#[must_use]
pub fn of_process(process: u32) -> Option<PathBuf> {
    folders().map(|folder| folder.join(name(process))).find(|path| path.exists())
}

/// The file of a socket, removed on drop by the process that made it, if it still is that file.
#[derive(Debug)]
struct File {
    /// The path at which the socket belongs.
    path: PathBuf,
    /// The temporary path of the socket, until it is in place.
    aside: Option<PathBuf>,
    /// The identity of the file, whatever its name.
    identity: (u64, u64),
    owner: u32,
}

impl File {
    fn new(path: &Path, aside: Option<PathBuf>) -> io::Result<File> {
        let found = fs::symlink_metadata(aside.as_deref().unwrap_or(path))?;
        let identity = (found.dev(), found.ino());
        Ok(File { path: path.to_path_buf(), aside, identity, owner: std::process::id() })
    }

    fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the place of whatever socket is there.
    fn put_in_place(&mut self) -> io::Result<()> {
        if let Some(aside) = &self.aside {
            fs::rename(aside, &self.path)?;
            self.aside = None;
        }
        Ok(())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let path = self.aside.as_deref().unwrap_or(&self.path);
        let is_it = |path: &Path| {
            let found = fs::symlink_metadata(path);
            found.is_ok_and(|found| (found.dev(), found.ino()) == self.identity)
        };
        // A child of this process must not remove the file, and another server may have taken its
        // place.
        if std::process::id() != self.owner || !is_it(path) {
            return;
        }
        // It may take the place at this very moment. So the file is moved first, and that of
        // another server goes back.
        let mut moved = path.as_os_str().to_owned();
        moved.push(format!(".{}.ends", self.owner));
        let moved = Path::new(&moved);
        if fs::rename(path, moved).is_ok() {
            if !is_it(moved) {
                let _ = renameat_with(CWD, moved, CWD, path, RenameFlags::NOREPLACE);
            }
            let _ = fs::remove_file(moved);
        }
    }
}

fn bind(path: &Path) -> io::Result<BlockingListener> {
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    // Before the socket has a name: the file is made with these permissions, and is never open to
    // other users.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(MODE))?;
    socket.bind(&SockAddr::unix(path)?)?;
    socket.listen(BACKLOG)?;
    Ok(OwnedFd::from(socket).into())
}

/// Listens at a path, or next to it until the time has come to replace the socket there.
fn listen(path: &Path, takes_over: bool) -> io::Result<(BlockingListener, File)> {
    let is_socket = |found: Metadata| std::os::unix::fs::FileTypeExt::is_socket(&found.file_type());
    if takes_over && fs::symlink_metadata(path).is_ok_and(is_socket) {
        let mut aside = path.as_os_str().to_owned();
        aside.push(format!(".{}", std::process::id()));
        let aside = PathBuf::from(aside);
        let listener = replace_stale(&aside)?;
        return Ok((listener, File::new(path, Some(aside))?));
    }
    let listener = replace_stale(path)?;
    Ok((listener, File::new(path, None)?))
}

/// Listens at a path, in the place of a stale socket at which no process listens any more.
fn replace_stale(path: &Path) -> io::Result<BlockingListener> {
    match bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left(path) => {
            fs::remove_file(path)?;
            bind(path)
        }
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_folder_that_is_not_this_users_alone_is_not_used() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        let why = |name: &str| check_folder(&fs::symlink_metadata(path(name)).unwrap());
        DirBuilder::new().mode(0o700).create(path("good")).unwrap();
        assert_eq!(why("good"), Ok(()));
        assert!(is_private(&path("good")) && !is_private(&path("none")));
        symlink(path("good"), path("link")).unwrap();
        assert_eq!(why("link"), Err("it is a symbolic link"));
        fs::write(path("file"), "").unwrap();
        assert_eq!(why("file"), Err("it is no folder"));
        for mode in [0o701, 0o710, 0o770, 0o777] {
            fs::set_permissions(path("good"), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(why("good"), Err("other users may open it (chmod 700)"), "{mode:o}");
        }
        if geteuid().is_root() {
            fs::set_permissions(path("good"), fs::Permissions::from_mode(0o700)).unwrap();
            std::os::unix::fs::chown(path("good"), Some(12345), None).unwrap();
            assert_eq!(why("good"), Err("it belongs to another user"));
        }
    }

    #[test]
    fn a_socket_is_its_users_and_takes_the_place_only_of_one_that_was_left() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("stats");
        let (listener, file) = listen(&path, false).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, MODE);
        let taken = listen(&path, false).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        // As if the process had been killed.
        std::mem::forget(file);
        drop(listener);
        let (_listener, file) = listen(&path, false).unwrap();
        drop(file);
        assert!(!path.exists());
        for make in [
            |path: &Path| fs::write(path, "mine").unwrap(),
            |path: &Path| {
                symlink("nowhere", path).unwrap();
            },
        ] {
            make(&path);
            for takes_over in [false, true] {
                let refused = listen(&path, takes_over).unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
            }
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_successor_replaces_the_socket_when_it_is_ready_and_keeps_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("stats");
        let connects = |listener: &BlockingListener| {
            listener.set_nonblocking(true).unwrap();
            let _client = std::os::unix::net::UnixStream::connect(&path).unwrap();
            listener.accept().is_ok()
        };
        let (old, old_file) = listen(&path, false).unwrap();
        // A takeover that is given up leaves no file.
        drop(listen(&path, true).unwrap());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
        let (new, mut new_file) = listen(&path, true).unwrap();
        assert!(connects(&old));
        new_file.put_in_place().unwrap();
        assert!(connects(&new));
        drop(old_file);
        assert!(connects(&new), "the other server has removed a socket that is not its own");
        drop(new_file);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_server_that_ends_never_removes_the_socket_that_takes_its_place() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("stats");
        let mut ending = listen(&path, false).unwrap();
        for round in 0..2000 {
            let (next, mut file) = listen(&path, true).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| file.put_in_place().unwrap());
                scope.spawn(|| drop(ending.1));
            });
            assert!(path.exists(), "{round}");
            ending = (next, file);
        }
        drop(ending);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_long_path_is_refused_and_not_cut() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("x".repeat(120));
        let refused = listen(&path, false).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{refused}");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }
}
