//! A server's side: what it does to be succeeded, and to succeed another.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::line::{Line, Peer};
use crate::protocol::{
    Notice, Request, Role, Watching, decode, decode_first, encode, encode_first,
};
use crate::records::parts;

/// For how long a babysitter may take to answer. A server that is to yield takes a part of it.
const PATIENCE: Duration = Duration::from_secs(10);

/// For how long it may leave its line full: whoever says something to it has other things to do.
const ROOM: Duration = Duration::from_secs(1);

/// Why a babysitter cannot be worked with.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Nobody listens there.
    Nobody {
        /// Where.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It has refused.
    Refused {
        /// Where it listens.
        path: PathBuf,
        /// Its reason.
        why: String,
    },
    /// What was begun with it did not come to its end.
    Lost {
        /// Where it listens.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Nobody { path, source } => {
                write!(f, "connecting to the babysitter at {}: {source}", path.display())
            }
            Error::Refused { path, why } => {
                write!(f, "the babysitter at {} refuses: {why}", path.display())
            }
            Error::Lost { path, doing, source } => {
                write!(f, "{doing} the babysitter at {}: {source}", path.display())
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Nobody { source, .. } | Error::Lost { source, .. } => Some(source),
            Error::Refused { .. } => None,
        }
    }
}

/// A descriptor that another server has left, and the state that it left with it.
#[derive(Debug)]
pub struct Orphan {
    /// The descriptor.
    pub descriptor: OwnedFd,
    /// What [`Watching::state`] was.
    pub state: Vec<u8>,
}

/// What other servers have left.
#[derive(Debug, Default)]
pub struct Adopted {
    /// Descriptors.
    pub orphans: Vec<Orphan>,
    /// Records: space, id and bytes, in this order.
    pub records: Vec<(u64, u64, Vec<u8>)>,
    /// Descriptors for which this process had no room (`EMFILE`). They are lost with it.
    pub without_room: usize,
}

/// A server's own line to its babysitter.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    line: Line,
    session: u64,
    waiting: u64,
}

/// Opens a line, says who is on it, and tells how many orphans there are.
fn open(path: &Path, role: Role, session: u64) -> Result<(Line, u64), Error> {
    let nobody = |source| Error::Nobody { path: path.to_path_buf(), source };
    let until = Instant::now() + PATIENCE;
    let line = loop {
        match Line::connect(path) {
            // Too many others are about to connect.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1));
            }
            outcome => break outcome.map_err(nobody)?,
        }
    };
    let lost = |source| Error::Lost { path: path.to_path_buf(), doing: "greeting", source };
    // Whoever listens there first would be given every connection.
    let (peer, own) = (line.peer().map_err(lost)?, rustix::process::geteuid().as_raw());
    if peer.user != own && peer.user != 0 {
        let why = format!(
            "it is another user's ({peer}); choose a path that only user {own} can write to"
        );
        return Err(Error::Refused { path: path.to_path_buf(), why });
    }
    let hello = encode_first(&Request::Hello { role, session });
    // One who refuses has gone by then, but what it said is there.
    let sent = line.send_until(until, &hello, &[]);
    let mut packet = Vec::new();
    receive(&line, &mut packet, &mut Vec::new(), until)
        .map_err(|error| lost(sent.err().unwrap_or(error)))?;
    let refused = |why: String| Error::Refused { path: path.to_path_buf(), why };
    match decode_first::<Notice<'_>>(&packet).map_err(refused)? {
        Notice::Welcome { orphans } => Ok((line, orphans)),
        Notice::Refused(why) => Err(refused(why.to_owned())),
        _ => Err(refused("it does not answer a greeting".to_owned())),
    }
}

/// Waits for a packet; true if descriptors were lost on the way.
fn receive(
    line: &Line,
    packet: &mut Vec<u8>,
    descriptors: &mut Vec<OwnedFd>,
    until: Instant,
) -> io::Result<bool> {
    loop {
        match line.receive(packet, descriptors) {
            Ok(received) if received.length == 0 => {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it has ended"));
            }
            Ok(received) => return Ok(received.cut_off),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if !line.wait(false, until)? {
                    let what = "it has not answered in time";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, what));
                }
            }
            Err(error) => return Err(error),
        }
    }
}

impl Control {
    /// Introduces a server to the babysitter that listens at a path. `session` is a number that no other server has.
    ///
    /// # Errors
    ///
    /// [`Error::Nobody`] if there is none, [`Error::Refused`] if it does not want this server.
    pub fn connect(path: &Path, session: u64) -> Result<Control, Error> {
        let (line, waiting) = open(path, Role::Control, session)?;
        Ok(Control { path: path.to_path_buf(), line, session, waiting })
    }

    /// A line for a loop of this server.
    ///
    /// # Errors
    ///
    /// As [`connect`](Control::connect).
    pub fn line(&self) -> Result<Line, Error> {
        open(&self.path, Role::Loop, self.session).map(|(line, _)| line)
    }

    /// Descriptors that other servers had left when this one came.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Where the babysitter listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Who the babysitter is.
    ///
    /// # Errors
    ///
    /// What `getsockopt(2)` says.
    pub fn peer(&self) -> io::Result<Peer> {
        self.line.peer()
    }

    fn lost(&self, doing: &'static str, source: io::Error) -> Error {
        Error::Lost { path: self.path.clone(), doing, source }
    }

    fn ask(
        &self,
        doing: &'static str,
        request: &Request<'_>,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), Error> {
        let until = Instant::now() + ROOM;
        let sent = self.line.send_until(until, &encode(request), descriptors);
        sent.map_err(|source| self.lost(doing, source))
    }

    /// Takes what other servers have left. One that is still at work is told to yield first, if `upgrades`.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if another server is at work and is not to yield, or does not; [`Error::Lost`].
    pub fn adopt(&self, upgrades: bool) -> Result<Adopted, Error> {
        let doing = "taking over from";
        self.ask(doing, &Request::Adopt { upgrades }, &[])?;
        let mut adopted = Adopted::default();
        let (mut packet, mut descriptors, mut part) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let until = Instant::now() + PATIENCE;
            receive(&self.line, &mut packet, &mut descriptors, until)
                .map_err(|source| self.lost(doing, source))?;
            let notice: Notice<'_> = decode(&packet).map_err(|source| self.lost(doing, source))?;
            match notice {
                Notice::Left(states) => {
                    adopted.without_room += states.len() - descriptors.len().min(states.len());
                    let both = descriptors.drain(..).zip(states);
                    adopted.orphans.extend(
                        both.map(|(descriptor, state)| Orphan {
                            descriptor,
                            state: state.to_vec(),
                        }),
                    );
                }
                Notice::Kept(record) => {
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

    /// Leaves a descriptor to be held, which is nobody's to watch: a listener.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`].
    pub fn hold(&self, key: u64, descriptor: impl AsFd, state: &[u8]) -> Result<(), Error> {
        let watching = Watching { key, events: 0, number: -1, state };
        let request = Request::Watch(vec![watching]);
        self.ask("leaving a descriptor with", &request, &[descriptor.as_fd()])
    }

    /// Takes back what [`hold`](Control::hold) has left.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`].
    pub fn release(&self, key: u64) -> Result<(), Error> {
        self.ask("taking a descriptor back from", &Request::Forget(vec![key]), &[])
    }

    /// Leaves a record, in the place of the one of the same name. What was left is there for the next server whatever
    /// becomes of this one.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`].
    pub fn keep(&self, space: u64, id: u64, bytes: &[u8]) -> Result<(), Error> {
        for record in parts(space, id, bytes) {
            self.ask("leaving a record with", &Request::Keep(record), &[])?;
        }
        Ok(())
    }

    /// Has records forgotten whose ids are below this one; with `u64::MAX`, all of the space.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`].
    pub fn trim(&self, space: u64, below: u64) -> Result<(), Error> {
        self.ask("removing records from", &Request::Trim { space, below }, &[])
    }

    /// Whether another server wants to take over. To be looked at when [the line](Control::as_fd) is readable.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the babysitter has gone.
    pub fn is_to_yield(&self) -> Result<bool, Error> {
        let doing = "listening to";
        let (mut packet, mut descriptors) = (Vec::new(), Vec::new());
        loop {
            match self.line.receive(&mut packet, &mut descriptors) {
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

    /// Says that all that was idle has been left, and that this server will not touch it again. Returns when the
    /// babysitter knows: from then on the end of this server's loops, whatever they say last, takes nothing away.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`].
    pub fn yielded(&self) -> Result<(), Error> {
        let doing = "yielding to";
        self.ask(doing, &Request::Yielded, &[])?;
        // What is said on one line may overtake what is said on another.
        self.ask(doing, &Request::Sync(0), &[])?;
        let (mut packet, mut descriptors) = (Vec::new(), Vec::new());
        let until = Instant::now() + PATIENCE;
        loop {
            receive(&self.line, &mut packet, &mut descriptors, until)
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

    /// Says that what was adopted is in good hands: the babysitter forgets what was not left with it again.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`].
    pub fn settled(&self) -> Result<(), Error> {
        self.ask("settling with", &Request::Settled, &[])
    }

    /// Ends the session: nothing of this server is kept.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`].
    pub fn bye(self) -> Result<(), Error> {
        self.ask("leaving", &Request::Bye, &[])
    }
}

impl AsFd for Control {
    /// The line: readable when the babysitter has something to say.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}
