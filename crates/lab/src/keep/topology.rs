//! The topologies by name, the keeper's process, and pollers with their keepers.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use superpoll::backend::policy::Policy;
use superpoll::backend::{Topology, Tuning};
use superpoll::{BackendKind, Poller};
use superpoll_keeper::{Control, Keeper, KeeperLink, Listener};
use tempfile::TempDir;

use crate::error::{Doing, Error, Result};
use crate::sys::{descriptor, process};

/// How long a keeper may take until it listens.
const PATIENCE: Duration = Duration::from_secs(5);

crate::by_name::named! {
    /// Where idle descriptors are watched.
    pub(super) enum Kind {
        /// The poller's own epoll set.
        Nested = "nested",
        /// A second thread.
        Thread = "thread",
        /// Another process.
        Process = "process",
    }
}

/// A keeper's process, which ends when this value is dropped.
#[derive(Debug)]
pub(super) struct KeeperProcess {
    child: process::Child,
    folder: TempDir,
}

impl KeeperProcess {
    /// Forks the process, and waits until it listens.
    pub(super) fn start() -> Result<KeeperProcess> {
        let failed = |e| Error::system("starting a keeper's process", e);
        let folder = tempfile::tempdir().map_err(failed)?;
        let path = folder.path().join("keeper");
        let child = process::fork(|| {
            descriptor::close_all_but(&mut []);
            process::survive_broken_pipes();
            // The parent sees that no process listens, and says so.
            let _ = keep(&path);
        })
        .map_err(failed)?;
        let begun = Instant::now();
        loop {
            match KeeperLink::connect(&path) {
                Ok(_) => return Ok(KeeperProcess { child, folder }),
                Err(error) if begun.elapsed() > PATIENCE || child.has_ended() => {
                    return Err(failed(error));
                }
                Err(_) => process::sleep(1_000_000),
            }
        }
    }

    /// Returns the path of its socket.
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("keeper")
    }

    /// Returns its process number.
    pub(super) fn pid(&self) -> i32 {
        self.child.pid()
    }

    /// Returns how many descriptors it has open.
    pub(super) fn descriptors(&self) -> Result<usize> {
        let folder = format!("/proc/{}/fd", self.pid());
        std::fs::read_dir(&folder).map(Iterator::count).doing(format_args!("reading {folder}"))
    }
}

fn keep(path: &Path) -> std::io::Result<()> {
    // The keeper serves one poller after another.
    let options = superpoll_keeper::Options { ends: false, ..superpoll_keeper::Options::default() };
    let mut keeper = Keeper::new(options, |_| {})?;
    keeper.listen(Listener::bind(path)?)?;
    keeper.run()
}

/// A factory for pollers of a topology.
#[derive(Debug)]
pub(super) struct Station {
    /// The topology of the pollers.
    pub kind: Kind,
    /// The path of the keeper process's socket, and its process number.
    keeper: Option<(PathBuf, i32)>,
    /// The main loop's only processor, if the loop keeps to one.
    processor: Option<usize>,
    /// All processors of this process.
    all: Vec<usize>,
    sessions: u64,
}

impl Station {
    /// Creates a station for a topology; [`Kind::Process`] needs a keeper's process.
    pub(super) fn new(
        kind: Kind,
        keeper: Option<&KeeperProcess>,
        processor: Option<usize>,
    ) -> Station {
        let keeper = keeper.map(|keeper| (keeper.path(), keeper.pid()));
        Station { kind, keeper, processor, all: process::processors(), sessions: 0 }
    }

    /// Creates an adaptive poller, with a policy for its poll array if not the default one. From
    /// here on this thread keeps to the main loop's processor; a keeper runs where the
    /// scheduler puts it.
    pub(super) fn poller(
        &mut self,
        tuning: Tuning,
        policy: Option<impl Policy + 'static>,
    ) -> Result<Watcher> {
        let moving = |e| Error::system("moving a loop to its processor", e);
        process::pin(&self.all).map_err(moving)?;
        let (topology, session) = match (self.kind, &self.keeper) {
            (Kind::Nested, _) => (Topology::Nested, None),
            (Kind::Thread, _) => (Topology::Thread(tuning), None),
            (Kind::Process, None) => {
                return Err(Error::usage("the topology process needs a keeper"));
            }
            (Kind::Process, Some((path, _))) => {
                let refused = |error: superpoll_keeper::Error| Error::usage(error.to_string());
                self.sessions += 1;
                let session = u64::from(std::process::id()) << 32 | self.sessions;
                let control = Control::connect(path, session).map_err(refused)?;
                let line = control.link().map_err(refused)?;
                (Topology::Process(line, tuning), Some(Session(Some(control))))
            }
        };
        let builder = Poller::builder().backend(BackendKind::Adaptive).topology(topology);
        let poller = match policy {
            Some(policy) => builder.policy(policy).build()?,
            None => builder.build()?,
        };
        if let Some(processor) = self.processor {
            process::pin(&[processor]).map_err(moving)?;
        }
        Ok(Watcher { poller, _session: session })
    }

    /// The processor time that the keeper has used, in nanoseconds.
    pub(super) fn keeper_time(&self) -> Result<u64> {
        match (self.kind, &self.keeper) {
            (Kind::Nested, _) | (Kind::Process, None) => Ok(0),
            // The process has only these two threads. Their clocks are read one after the other, so
            // a difference may be off by the time between the reads.
            (Kind::Thread, _) => {
                Ok(process::processor_time().saturating_sub(process::thread_time()))
            }
            (Kind::Process, Some((_, pid))) => {
                process::processor_time_of(*pid).doing("reading the processor time of a keeper")
            }
        }
    }
}

/// A poller with its keeper.
#[derive(Debug)]
pub(super) struct Watcher {
    /// The poller. It is dropped before the session that its connection belongs to.
    pub poller: Poller,
    _session: Option<Session>,
}

/// A session with a keeper's process.
#[derive(Debug)]
struct Session(Option<Control>);

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(control) = self.0.take() {
            // A keeper that has gone needs no farewell.
            let _ = control.bye();
        }
    }
}
