//! The state of a supervisor across the replacement of its program, in a file in memory.
//!
//! Descriptors stay open and keep their numbers, which are in the file, and so is the log. The
//! number of the file's own descriptor is in the environment, in [`Left::VARIABLE`].

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::MemfdFlags;
use rustix::io::{FdFlags, fcntl_setfd};
use serde::{Deserialize, Serialize};
use superpoll_http::admin::Settings;
use superpoll_http::{ipc, sys};
use superpoll_hub::broker::local::store::Store;

use crate::config::Address;

/// The same in numbers and texts.
#[derive(Serialize, Deserialize)]
struct LeftRecord {
    name: String,
    door: RawFd,
    listeners: Vec<(String, RawFd, bool)>,
    log: Store,
    tickets: Vec<u8>,
    workers: Vec<(u32, u32)>,
    settings: Settings,
}

/// The state that the program before has left.
pub struct Left {
    pub(super) name: String,
    /// The socket to which workers connect.
    pub(super) door: OwnedFd,
    /// The listeners by their addresses in the configuration, and whether this process has made
    /// their files.
    pub(super) listeners: Vec<(Address, OwnedFd, bool)>,
    pub(super) log: Store,
    pub(super) tickets: Vec<u8>,
    /// The settings of operators.
    pub(super) settings: Settings,
    /// The places and numbers of the worker processes, which are children of this process.
    pub workers: Vec<(u32, u32)>,
}

superpoll::debug_fields!(Left, it => workers: it.workers);

/// The parts of a supervisor that stay.
pub(super) struct Leaving<'a> {
    pub name: &'a str,
    pub door: BorrowedFd<'a>,
    pub listeners: Vec<(String, BorrowedFd<'a>, bool)>,
    pub log: &'a Store,
    pub tickets: &'a [u8],
    pub workers: Vec<(u32, u32)>,
    pub settings: &'a Settings,
}

/// A file that the next program reads, and the descriptors that it names. They stay open across
/// `execve(2)` until this is dropped.
pub struct Leave {
    file: File,
    kept: Vec<OwnedFd>,
}

superpoll::debug_fields!(Leave, it => kept: it.kept.len());

impl Leave {
    /// Writes the file.
    pub(super) fn new(leaving: Leaving<'_>) -> io::Result<Leave> {
        let Leaving { name, door, listeners, log, tickets, workers, settings } = leaving;
        let mut kept = Vec::new();
        let mut keep = |fd: BorrowedFd<'_>| -> io::Result<RawFd> {
            // A duplicate that is not closed on exec.
            let fd = fd.try_clone_to_owned()?;
            fcntl_setfd(&fd, FdFlags::empty())?;
            let number = fd.as_raw_fd();
            kept.push(fd);
            Ok(number)
        };
        let door = keep(door)?;
        let listeners: io::Result<Vec<_>> = listeners
            .into_iter()
            .map(|(address, fd, has_file)| Ok((address, keep(fd)?, has_file)))
            .collect();
        let record = LeftRecord {
            name: name.to_owned(),
            door,
            listeners: listeners?,
            log: log.clone(),
            tickets: tickets.to_vec(),
            workers,
            settings: settings.clone(),
        };
        let bytes = postcard::to_allocvec(&record).map_err(io::Error::other)?;
        let mut file = File::from(rustix::fs::memfd_create("supervisor", MemfdFlags::empty())?);
        file.write_all(&ipc::PROTOCOL.to_le_bytes())?;
        file.write_all(&bytes)?;
        file.rewind()?;
        Ok(Leave { file, kept })
    }

    /// Returns the variable that the next program finds the file by, and its value.
    #[must_use]
    pub fn variable(&self) -> (&'static str, String) {
        (Left::VARIABLE, self.file.as_fd().as_raw_fd().to_string())
    }
}

fn wrong(what: String) -> io::Error {
    let what = format!("taking over from the supervisor before: {what}");
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Left {
    /// The variable with the number of the file's descriptor. It is for the supervisor alone.
    pub const VARIABLE: &str = "SUPERPOLL_SUPERVISOR";

    /// The form of the state. A program can take over only from one with the same number.
    pub const PROTOCOL: u32 = ipc::PROTOCOL;

    /// Takes the state that the program before has left in this process, if it has.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn take() -> io::Result<Option<Left>> {
        let Some(number) = std::env::var_os(Left::VARIABLE) else { return Ok(None) };
        let number = number.to_str().and_then(|number| number.parse::<RawFd>().ok());
        Left::from_number(number.ok_or_else(|| wrong(format!("{} has no number", Left::VARIABLE)))?)
            .map(Some)
    }

    /// Takes the state in the file of a descriptor.
    fn from_number(number: RawFd) -> io::Result<Left> {
        let mut bytes = Vec::new();
        File::from(own(number)?).read_to_end(&mut bytes)?;
        let record = match bytes.split_first_chunk() {
            Some((protocol, record)) if u32::from_le_bytes(*protocol) == Left::PROTOCOL => record,
            _ => return Err(wrong("it is of another version".to_owned())),
        };
        let record: LeftRecord =
            postcard::from_bytes(record).map_err(|error| wrong(error.to_string()))?;
        let mut listeners = Vec::new();
        for (address, number, has_file) in record.listeners {
            let address = address.parse().map_err(|_| wrong(format!("the address {address}")))?;
            listeners.push((address, own(number)?, has_file));
        }
        Ok(Left {
            name: record.name,
            door: own(record.door)?,
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

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::super::Supervisor;
    use super::*;
    use crate::config::Config;
    use crate::inherited::Inherited;

    #[test]
    fn the_next_program_has_the_sockets_the_name_and_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("http");
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[listeners]]\naddress = \"unix:{}\"\n\
             [[hosts]]\n[[hosts.routes]]\npath = \"/c\"\nchannel = {{ history = 3 }}\n",
            socket.display()
        );
        let config = Config::parse("test.toml", &text).unwrap();
        let before = Supervisor::new(&config, Inherited::default()).unwrap();
        let [tcp, _] = &before.addresses()[..] else { panic!("two listeners") };
        let tcp = tcp.clone();
        let leave = before.leave(vec![(0, 7), (1, 8)]).unwrap();
        let (name, number) = leave.variable();
        assert_eq!(name, Left::VARIABLE);
        // As if the program was replaced: nothing is closed, and nothing runs.
        let place = before.place(3);
        std::mem::forget((before, leave));
        let left = Left::from_number(number.parse().unwrap()).unwrap();
        assert_eq!(left.workers, [(0, 7), (1, 8)]);
        let after = Supervisor::resume(left).unwrap();
        after.change(&config).unwrap();
        assert_eq!(after.place(3), place);
        assert_eq!(after.addresses()[0], tcp);
        let Address::Tcp { host: Some(host), port } = tcp else { panic!("it is TCP") };
        assert!(TcpStream::connect((host.as_str(), port)).is_ok());
        assert!(socket.exists());
        drop(after);
        assert!(!socket.exists(), "the file is this program's now");
    }

    #[test]
    fn a_number_that_is_no_file_and_a_state_of_another_form_are_errors() {
        assert!(Left::from_number(RawFd::MAX).is_err());
        for protocol in [None, Some(Left::PROTOCOL), Some(Left::PROTOCOL + 1)] {
            let mut file = File::from(rustix::fs::memfd_create("x", MemfdFlags::empty()).unwrap());
            file.write_all(&protocol.map_or_else(Vec::new, |one| one.to_le_bytes().to_vec()))
                .unwrap();
            file.rewind().unwrap();
            let number = std::os::fd::IntoRawFd::into_raw_fd(file);
            let error = Left::from_number(number).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
            let is_other = error.to_string().contains("another version");
            assert_eq!(is_other, protocol != Some(Left::PROTOCOL), "{error}");
        }
    }
}
