//! The server's side: how a server prepares for its successor, and how it succeeds another server.
//!
//! A server leaves its state as it goes along, without waiting, under its own locks and on its way
//! to clients that do wait. Packets that its link has no room for are kept here, in order, and sent
//! when there is room. A keeper that is busy for a moment, or was stopped for an hour,
//! therefore delays no client and loses nothing. A server never closes its link while it is at
//! work: to the keeper that is the end of the process, after which another server continues with
//! the connections. If a server has to give up, since it keeps more packets than it has memory for,
//! its last message is that it leaves nothing.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use crate::link::{KeeperLink, Peer, is_limit};
use crate::protocol::{
    Notice, PACKET, Request, Role, Watching, decode, decode_first, encode, encode_first,
    encode_into,
};
use crate::records::parts;

/// How long a keeper may take to answer. A server that yields takes a part of that time.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a server that ends tries to say so.
const ROOM: Duration = Duration::from_secs(1);

/// The most bytes that are kept for a link without room. A keeper that lets more pile up is not
/// at work.
const MOST_UNSENT: usize = 64 << 20;

/// The reasons why a keeper cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// No keeper listens at the path.
    Unreachable {
        /// The path.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The keeper has refused.
    Refused {
        /// The path at which it listens.
        path: PathBuf,
        /// The reason that it gave.
        why: String,
    },
    /// An operation with the keeper has failed halfway.
    Lost {
        /// The path at which it listens.
        path: PathBuf,
        /// The operation.
        doing: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unreachable { path, source } => {
                write!(f, "connecting to the keeper at {}: {source}", path.display())
            }
            Error::Refused { path, why } => {
                write!(f, "the keeper at {} refuses: {why}", path.display())
            }
            Error::Lost { path, doing, source } => {
                write!(f, "{doing} the keeper at {}: {source}", path.display())
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Unreachable { source, .. } | Error::Lost { source, .. } => Some(source),
            Error::Refused { .. } => None,
        }
    }
}

/// A descriptor that another server has left, and the state that it left with it.
#[derive(Debug)]
pub struct Orphan {
    /// The descriptor.
    pub descriptor: OwnedFd,
    /// The bytes of [`Watching::state`]. They may have keys in them, and are overwritten when they
    /// are dropped.
    pub state: Zeroizing<Vec<u8>>,
}

/// The descriptors and records that other servers have left.
#[derive(Debug, Default)]
pub struct Adopted {
    /// Descriptors.
    pub orphans: Vec<Orphan>,
    /// Records: space, id and bytes, in this order.
    pub records: Vec<(u64, u64, Vec<u8>)>,
    /// The number of descriptors for which this process had no room (`EMFILE`). Those descriptors
    /// are lost.
    pub without_room: usize,
}

/// A server's own link to its keeper.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    link: KeeperLink,
    session: u64,
    waiting: u64,
    /// The packets that there was no room for, and their total size in bytes.
    unsent: VecDeque<Unsent>,
    unsent_bytes: usize,
    /// The only message that is left to send is that this server leaves nothing.
    has_given_up: bool,
}

/// A packet that waits for room on the link.
#[derive(Debug)]
struct Unsent {
    packet: Zeroizing<Vec<u8>>,
    descriptor: Option<OwnedFd>,
}

/// Opens a link, introduces its user, and returns it with the number of orphans.
fn open(path: &Path, role: Role, session: u64) -> Result<(KeeperLink, u64), Error> {
    let unreachable = |source| Error::Unreachable { path: path.to_path_buf(), source };
    let until = Instant::now() + PATIENCE;
    let link = loop {
        match KeeperLink::connect(path) {
            // Too many other processes are about to connect.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1));
            }
            outcome => break outcome.map_err(unreachable)?,
        }
    };
    let lost = |source| Error::Lost { path: path.to_path_buf(), doing: "greeting", source };
    // Without this check, any user that listens at the path first would be given every connection.
    let (peer, own) = (link.peer().map_err(lost)?, rustix::process::geteuid().as_raw());
    if peer.user != own && peer.user != 0 {
        let why = format!(
            "it is another user's ({peer}); choose a path that only user {own} can write to"
        );
        return Err(Error::Refused { path: path.to_path_buf(), why });
    }
    let (link, revocation) = link.with_revocation().map_err(lost)?;
    let hello = encode_first(&Request::Hello { role, session });
    // A keeper that refuses has closed the link by then, but its answer can still be read.
    let sent = link.send_until(until, &hello, &[revocation.as_fd()]);
    drop(revocation);
    let mut packet = Vec::new();
    receive(&link, &mut packet, &mut Vec::new(), until)
        .map_err(|error| lost(sent.err().unwrap_or(error)))?;
    let refused = |why: String| Error::Refused { path: path.to_path_buf(), why };
    match decode_first::<Notice<'_>>(&packet).map_err(refused)? {
        Notice::Welcome { orphans } => Ok((link, orphans)),
        Notice::Refused(why) => Err(refused(why.to_owned())),
        _ => Err(refused("it does not answer a greeting".to_owned())),
    }
}

/// Whether to try again: there is no room, or too many descriptors are under way.
fn is_later(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || is_limit(error)
}

/// Waits for a packet. Returns true if descriptors were lost on the way.
fn receive(
    link: &KeeperLink,
    packet: &mut Vec<u8>,
    descriptors: &mut Vec<OwnedFd>,
    until: Instant,
) -> io::Result<bool> {
    loop {
        match link.receive(packet, descriptors) {
            Ok(received) if received.length == 0 => {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it has ended"));
            }
            Ok(received) => return Ok(received.cut_off),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if !link.wait(false, until)? {
                    let what = "it has not answered in time";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, what));
                }
            }
            Err(error) => return Err(error),
        }
    }
}

impl Control {
    /// Introduces a server to the keeper that listens at a path. `session` is a number that no
    /// other server has.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] if there is none, [`Error::Refused`] if it refuses this server.
    pub fn connect(path: &Path, session: u64) -> Result<Control, Error> {
        let (link, waiting) = open(path, Role::Control, session)?;
        let (path, unsent) = (path.to_path_buf(), VecDeque::new());
        Ok(Control { path, link, session, waiting, unsent, unsent_bytes: 0, has_given_up: false })
    }

    /// Opens a link for a loop of this server.
    ///
    /// # Errors
    ///
    /// The errors of [`connect`](Control::connect).
    pub fn link(&self) -> Result<KeeperLink, Error> {
        open(&self.path, Role::Loop, self.session).map(|(link, _)| link)
    }

    /// Returns the number of descriptors that other servers had left when this one came.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Returns the path at which the keeper listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the process and the user of the keeper.
    ///
    /// # Errors
    ///
    /// The errors of `getsockopt(2)`.
    pub fn peer(&self) -> io::Result<Peer> {
        self.link.peer()
    }

    fn lost(&self, doing: &'static str, source: io::Error) -> Error {
        Error::Lost { path: self.path.clone(), doing, source }
    }

    /// Sends a request, now or as soon as there is room.
    fn send(
        &mut self,
        doing: &'static str,
        request: &Request<'_>,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), Error> {
        self.catch_up()?;
        if self.has_given_up {
            return Ok(());
        }
        // There may be keys in it. It does not grow, which would leave a copy of them behind.
        let length = match request {
            Request::PutRecord(record) => record.bytes.len() + 64,
            _ => 64,
        };
        let mut packet = Zeroizing::new(Vec::with_capacity(length));
        encode_into(request, &mut packet);
        if self.unsent.is_empty() {
            match self.link.send(&packet, descriptor.as_slice()) {
                Err(error) if is_later(&error) => {}
                outcome => return outcome.map_err(|source| self.lost(doing, source)),
            }
        }
        let descriptor = descriptor.map(|descriptor| descriptor.try_clone_to_owned()).transpose();
        let descriptor = descriptor.map_err(|source| self.lost(doing, source))?;
        self.unsent_bytes += packet.len();
        self.unsent.push_back(Unsent { packet, descriptor });
        if self.unsent_bytes > MOST_UNSENT {
            let packet = encode(&Request::Bye).into();
            (self.unsent, self.has_given_up) = (VecDeque::new(), true);
            self.unsent.push_back(Unsent { packet, descriptor: None });
        }
        Ok(())
    }

    /// Sends the packets that there was no room for. Call it when [the link](Control::as_fd) is
    /// writable, if [packets are left](Control::is_behind).
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the keeper has gone, or has not read for so long that this server
    /// gave it up; the keeper holds nothing of this server then.
    pub fn catch_up(&mut self) -> Result<(), Error> {
        let doing = "catching up with";
        while let Some(next) = self.unsent.front() {
            let descriptor = next.descriptor.as_ref().map(AsFd::as_fd);
            match self.link.send(&next.packet, descriptor.as_slice()) {
                Err(error) if is_later(&error) => return Ok(()),
                outcome => outcome.map_err(|source| self.lost(doing, source))?,
            }
            self.unsent_bytes -= self.unsent_bytes.min(next.packet.len());
            self.unsent.pop_front();
        }
        if self.has_given_up {
            let what = "it has not read for too long, and holds nothing of this server any more";
            return Err(self.lost(doing, io::Error::new(io::ErrorKind::TimedOut, what)));
        }
        Ok(())
    }

    /// Whether packets are left to send.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends the packets that there was no room for, and waits until all are sent.
    fn catch_up_until(&mut self, doing: &'static str, until: Instant) -> Result<(), Error> {
        loop {
            // The time is taken before the attempt, which may happen long after the last wait.
            let is_over = Instant::now() >= until;
            self.catch_up()?;
            if !self.is_behind() {
                return Ok(());
            }
            if is_over {
                let what = "it does not read its packets";
                return Err(self.lost(doing, io::Error::new(io::ErrorKind::TimedOut, what)));
            }
            // A limit on descriptors under way says nothing about the link's room, so the wait is
            // short.
            let soon = until.min(Instant::now() + Duration::from_millis(10));
            self.link.wait(true, soon).map_err(|source| self.lost(doing, source))?;
        }
    }

    /// Returns copies of the listeners that are [held](Control::hold) there, whichever server left
    /// them. No server yields for that, so a server can find out whether it could take over before
    /// it does.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], [`Error::Lost`].
    pub fn listeners(&mut self) -> Result<Vec<Orphan>, Error> {
        Ok(self.request_transfer("asking for the listeners of", &Request::ListHeld)?.orphans)
    }

    /// Takes the descriptors and records that other servers have left. With `upgrades`, a server
    /// that is still at work is told to yield first.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if another server is at work and is not asked to yield, or does not;
    /// [`Error::Lost`].
    pub fn adopt(&mut self, upgrades: bool) -> Result<Adopted, Error> {
        self.request_transfer("taking over from", &Request::Adopt { upgrades })
    }

    /// Requests something that arrives in several packets.
    fn request_transfer(
        &mut self,
        doing: &'static str,
        request: &Request<'_>,
    ) -> Result<Adopted, Error> {
        self.send(doing, request, None)?;
        self.catch_up_until(doing, Instant::now() + PATIENCE)?;
        let mut adopted = Adopted::default();
        let mut packet = Zeroizing::new(Vec::with_capacity(PACKET));
        let (mut descriptors, mut part) = (Vec::new(), Vec::new());
        loop {
            let until = Instant::now() + PATIENCE;
            receive(&self.link, &mut packet, &mut descriptors, until)
                .map_err(|source| self.lost(doing, source))?;
            let notice: Notice<'_> = decode(&packet).map_err(|source| self.lost(doing, source))?;
            match notice {
                Notice::Orphans(states) => {
                    adopted.without_room += states.len() - descriptors.len().min(states.len());
                    let both = descriptors.drain(..).zip(states);
                    adopted.orphans.extend(both.map(|(descriptor, state)| Orphan {
                        descriptor,
                        state: Zeroizing::new(state.to_vec()),
                    }));
                }
                Notice::Record(record) => {
                    part.extend_from_slice(record.bytes);
                    if !record.more {
                        let bytes = std::mem::take(&mut part);
                        adopted.records.push((record.space, record.id, bytes));
                    }
                }
                Notice::Done => return Ok(adopted),
                Notice::Refused(why) => {
                    let why = why.to_owned();
                    return Err(Error::Refused { path: self.path.clone(), why });
                }
                _ => {}
            }
        }
    }

    /// Leaves a descriptor that is held but not watched: a listener.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`].
    pub fn hold(&mut self, key: u64, descriptor: impl AsFd, state: &[u8]) -> Result<(), Error> {
        let watching = Watching { key, events: 0, number: -1, state };
        let request = Request::Watch(vec![watching]);
        self.send("leaving a descriptor with", &request, Some(descriptor.as_fd()))
    }

    /// Takes back the descriptor that [`hold`](Control::hold) left.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`].
    pub fn release(&mut self, key: u64) -> Result<(), Error> {
        self.send("taking a descriptor back from", &Request::Forget(vec![key]), None)
    }

    /// Leaves a record, which replaces the one of the same name; an empty record removes that one.
    /// A record that was left is there for the next server, whatever becomes of this one.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`].
    pub fn keep(&mut self, space: u64, id: u64, bytes: &[u8]) -> Result<(), Error> {
        for record in parts(space, id, bytes) {
            self.send("leaving a record with", &Request::PutRecord(record), None)?;
        }
        Ok(())
    }

    /// Removes the records of a space whose ids are below `below`; with `u64::MAX`, all of the
    /// space.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`].
    pub fn trim(&mut self, space: u64, below: u64) -> Result<(), Error> {
        self.send("removing records from", &Request::TrimRecords { space, below }, None)
    }

    /// Whether another server wants to take over. Call it when [the link](Control::as_fd) is
    /// readable.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the keeper has gone.
    pub fn is_to_yield(&self) -> Result<bool, Error> {
        let doing = "listening to";
        let (mut packet, mut descriptors) = (Vec::new(), Vec::new());
        loop {
            match self.link.receive(&mut packet, &mut descriptors) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(self.lost(doing, error)),
                Ok(received) if received.length == 0 => {
                    let source = io::Error::new(io::ErrorKind::UnexpectedEof, "it has ended");
                    return Err(self.lost(doing, source));
                }
                Ok(_) => {}
            }
            let notice =
                decode::<Notice<'_>>(&packet).map_err(|source| self.lost(doing, source))?;
            if notice == Notice::Yield {
                return Ok(true);
            }
        }
    }

    /// Says that all idle descriptors have been left, and that this server will not touch them
    /// again. Returns when the keeper knows. From then on the end of this server's loops takes
    /// nothing away, whatever they send last.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`].
    pub fn yielded(&mut self) -> Result<(), Error> {
        let doing = "yielding to";
        self.send(doing, &Request::Yielded, None)?;
        // A message on one link may overtake a message on another.
        self.send(doing, &Request::Sync(0), None)?;
        let (mut packet, mut descriptors) = (Vec::new(), Vec::new());
        let until = Instant::now() + PATIENCE;
        self.catch_up_until(doing, until)?;
        loop {
            receive(&self.link, &mut packet, &mut descriptors, until)
                .map_err(|source| self.lost(doing, source))?;
            match decode(&packet).map_err(|source| self.lost(doing, source))? {
                Notice::Synced(0, _) => return Ok(()),
                Notice::Refused(why) => {
                    let why = why.to_owned();
                    return Err(Error::Refused { path: self.path.clone(), why });
                }
                _ => {}
            }
        }
    }

    /// Gives the keeper up while this process continues. Everything that this server left with it
    /// is void, however many of the requests the keeper has received, and no other server is
    /// given any of it.
    pub fn give_up(self) {
        self.link.revoke();
        // If there is room, the keeper learns of it before the link ends.
        let _ = self.link.send(&encode(&Request::Bye), &[]);
    }

    /// Says that this server has taken charge of the adopted descriptors: the keeper forgets
    /// those that were not left with it again.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`].
    pub fn settled(&mut self) -> Result<(), Error> {
        self.send("settling with", &Request::Settled, None)
    }

    /// Ends the session: the keeper keeps nothing of this server.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`].
    pub fn bye(mut self) -> Result<(), Error> {
        let doing = "leaving";
        let sent = self.send(doing, &Request::Bye, None);
        let outcome = sent.and_then(|()| self.catch_up_until(doing, Instant::now() + ROOM));
        if outcome.is_err() {
            self.link.revoke();
        }
        outcome
    }
}

impl AsFd for Control {
    /// Returns the link, which is readable when the keeper has sent a message.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}
