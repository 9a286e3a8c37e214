//! The state of a supervisor that outlives its program, in a file in memory.
//!
//! Descriptors stay open and keep their numbers, which are in the file, and so is the log. The
//! number of the file's own descriptor is in the environment, in [`SupervisorState::VARIABLE`].

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};
use superpoll_gateway::Address;
use superpoll_http::admin::Settings;
use superpoll_http::{ipc, sys};
use superpoll_hub::broker::local::store::Store;

use super::service::WorkerService;

/// The state, in numbers and texts.
#[derive(Serialize, Deserialize)]
struct StateRecord {
    name: String,
    door: RawFd,
    listeners: Vec<(String, RawFd, bool)>,
    log: Store,
    tickets: Vec<u8>,
    workers: Vec<(u32, u32)>,
    settings: Settings,
}

/// The state of a supervisor that begins, or that continues with a new program.
pub(in super::super) struct SupervisorState {
    /// The name that workers connect to, which no other supervisor has.
    pub(super) name: String,
    /// The socket to which workers connect.
    pub(super) door: UnixListener,
    /// The listeners by their addresses in the configuration, and whether this process has made
    /// their files.
    pub(super) listeners: Vec<(Address, OwnedFd, bool)>,
    pub(super) log: Store,
    pub(super) tickets: Vec<u8>,
    /// The settings of operators.
    pub(super) settings: Settings,
    /// The places and numbers of the worker processes, which are children of this process.
    pub(super) workers: Vec<(u32, u32)>,
}

/// A file that the next program reads, and the descriptors that it names. They stay open across
/// `execve(2)` until this is dropped.
pub(super) struct StateFile {
    file: File,
    _kept: Vec<OwnedFd>,
}

impl StateFile {
    /// Returns the variable that the next program finds the file by, and its value.
    pub(super) fn variable(&self) -> (&'static str, String) {
        (SupervisorState::VARIABLE, self.file.as_raw_fd().to_string())
    }
}

impl WorkerService {
    /// Writes down the state for the program that takes this one's place in the process. The
    /// workers are given by their places and the numbers of their processes.
    pub(super) fn leave(&self, workers: Vec<(u32, u32)>) -> io::Result<StateFile> {
        let mut kept = Vec::new();
        let mut keep = |fd: BorrowedFd<'_>| -> io::Result<RawFd> {
            // A duplicate that is not closed on exec.
            let fd = fd.try_clone_to_owned()?;
            fcntl_setfd(&fd, FdFlags::empty())?;
            let number = fd.as_raw_fd();
            kept.push(fd);
            Ok(number)
        };
        let door = keep(self.door.as_fd())?;
        let listeners: io::Result<Vec<_>> = self
            .listeners
            .borrow()
            .iter()
            .map(|(address, bound)| {
                Ok((address.to_string(), keep(bound.as_fd())?, bound.has_file()))
            })
            .collect();
        let record = StateRecord {
            name: self.name.clone(),
            door,
            listeners: listeners?,
            log: self.log.with_store(|store| store.clone()),
            tickets: self.tickets.borrow().to_vec(),
            workers,
            settings: self.settings.borrow().clone(),
        };
        let bytes = postcard::to_allocvec(&record).map_err(io::Error::other)?;
        let mut file = File::from(memfd_create("supervisor", MemfdFlags::empty())?);
        file.write_all(&ipc::PROTOCOL.to_le_bytes())?;
        file.write_all(&bytes)?;
        file.rewind()?;
        Ok(StateFile { file, _kept: kept })
    }
}

fn wrong(what: String) -> io::Error {
    let what = format!("taking over from the supervisor before: {what}");
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl SupervisorState {
    /// The variable with the number of the file's descriptor. It is for the supervisor alone.
    pub(in super::super) const VARIABLE: &str = "SUPERPOLL_SUPERVISOR";

    /// The form of the state. A program can take over only from one with the same number.
    pub(in super::super) const PROTOCOL: u32 = ipc::PROTOCOL;

    /// Returns the state of a supervisor that begins.
    pub(super) fn new() -> io::Result<SupervisorState> {
        let mut random = [0; 8];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let name = format!("superpoll-{}-{:016x}", std::process::id(), u64::from_ne_bytes(random));
        let door = UnixListener::bind_addr(&ipc::address(&name)?)?;
        door.set_nonblocking(true)?;
        Ok(SupervisorState {
            name,
            door,
            listeners: Vec::new(),
            log: Store::new(0),
            tickets: Vec::new(),
            settings: Settings::default(),
            workers: Vec::new(),
        })
    }

    /// Takes the state that the program before has left in this process, if it has.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub(in super::super) fn take() -> io::Result<Option<SupervisorState>> {
        let Some(number) = std::env::var_os(Self::VARIABLE) else { return Ok(None) };
        let number = number.to_str().and_then(|number| number.parse::<RawFd>().ok());
        let number = number.ok_or_else(|| wrong(format!("{} has no number", Self::VARIABLE)))?;
        SupervisorState::from_number(number).map(Some)
    }

    /// Takes the state in the file of a descriptor.
    pub(super) fn from_number(number: RawFd) -> io::Result<SupervisorState> {
        let mut bytes = Vec::new();
        File::from(own(number)?).read_to_end(&mut bytes)?;
        let record = match bytes.split_first_chunk() {
            Some((protocol, record)) if u32::from_le_bytes(*protocol) == Self::PROTOCOL => record,
            _ => return Err(wrong("it is of another version".to_owned())),
        };
        let record: StateRecord =
            postcard::from_bytes(record).map_err(|error| wrong(error.to_string()))?;
        let mut listeners = Vec::new();
        for (address, number, has_file) in record.listeners {
            let address = address.parse().map_err(|_| wrong(format!("the address {address}")))?;
            listeners.push((address, own(number)?, has_file));
        }
        Ok(SupervisorState {
            name: record.name,
            door: own(record.door)?.into(),
            listeners,
            log: record.log,
            tickets: record.tickets,
            settings: record.settings,
            workers: record.workers,
        })
    }
}

/// Takes an inherited descriptor, which is closed on exec from then on.
fn own(number: RawFd) -> io::Result<OwnedFd> {
    let fd = sys::inherited(number)?;
    fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    Ok(fd)
}
