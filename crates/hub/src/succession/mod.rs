//! One server after another, with the same connections.
//!
//! A server with a keeper process (`superpoll-keeper`) leaves the state that the next server needs
//! with the keeper. It does so while it is at work and not when it ends, so that the way in
//! which it ends does not matter. The server leaves these things:
//!
//! * its listeners, so that no client is refused meanwhile;
//! * each parked connection, once it has been idle for a while, with its activity: between two
//!   requests, waiting for the answer to a long-poll, or subscribing by WebSocket, and the last
//!   message that it was sent;
//! * each message of a channel, before any subscriber gets it;
//! * the settings of operators and the secrets of tickets, after each change.
//!
//! The state of a connection is a little older than the moment at which the server ended: messages
//! may have been sent to the connection since. The server records nothing for each of these
//! messages. The kernel knows how many bytes were ever written to a TCP connection, and still knows
//! it when the process that wrote them is gone. The kernel's count, minus the count stored when the
//! connection was left, is a number of whole messages and the beginning of at most one more, and
//! the messages are known. So the next server knows to the byte which part of the messages each
//! subscriber has: none is lost, none comes twice. A connection for which the numbers do not fit
//! was in the middle of something else, and is closed. A connection from which anything was read
//! since is closed as well: a server had gone on with it for a moment, and was killed before it had
//! left the connection again.
//!
//! The keys of an encrypted connection are part of its state, if the configuration says so. A
//! successor leaves such a connection again as it came, and touches it only when no other state of
//! it exists (`serve/adoption.rs`); after a crash its first record changes the key.
//! `docs/adr/0010-succession.md` has the rules.
//!
//! A connection of HTTP/2 is left with the record of its codec, and with the subscribers on its
//! streams if there are some (`channel/carrier.rs`).
//!
//! Connections that need more state than that end with their server: those with a client's
//! certificate; those of the Unix domain, whose bytes the kernel does not count; and those in the
//! middle of a request. An upgrade waits for these.

use std::collections::HashMap;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use superpoll_config::{Config, KeeperKind};
use superpoll_http::admin::Settings;
use superpoll_http::certificates::TicketSecrets;
use superpoll_http::connection_state::ConnectionRecord;
use superpoll_http::listen::{Bound, LeftListener};
use superpoll_http::log::{Event, Level, Report};
use superpoll_keeper::{Adopted, Control, KeeperLink};
use zeroize::Zeroizing;

use crate::channel::Offsets;
use crate::channel::message::Message;
use records::{
    CALLBACKS, CHANNELS, CallbackRecord, ChannelRecord, INTENTS, MemberRecord, MemberRecords,
    ORDERLY, RecordStore, SERVER, SETTINGS, TICKETS, WriteIntent, decode_message, member_slot,
};

pub mod records;

/// Receives the error by which the keeper was lost, once.
type LossHandler = Box<dyn Fn(&superpoll_keeper::Error) + Send + Sync>;

/// A server's side of its succession.
pub struct Succession {
    /// `None`: the keeper is lost, and the server continues alone.
    control: Mutex<Option<Control>>,
    next_space: AtomicU64,
    /// Wakes the task that sends records for which the keeper's line had no room.
    sender: Mutex<Option<Waker>>,
    on_loss: LossHandler,
}

/// A channel that another server had.
#[derive(Clone, Debug, Default)]
pub struct Channel {
    /// The number of its records.
    pub space: u64,
    /// The epoch of its messages' numbers.
    pub epoch: u64,
    /// The name of the channel's host and its path, for each name.
    pub names: Vec<(String, String)>,
    /// Whether it is a hub of Mercure.
    pub is_hub: bool,
    /// The last of its messages, in order and without gaps.
    pub messages: Vec<Message>,
    /// The offsets before the first of these.
    pub offsets: Offsets,
    /// The members that were told of, by the numbers of their records.
    pub(crate) members: MemberRecords,
}

/// The state that another server has left, decoded.
#[derive(Debug, Default)]
pub struct PredecessorState {
    /// The parked connections, each with its state.
    pub connections: Vec<(OwnedFd, ConnectionRecord)>,
    /// The channels.
    pub channels: Vec<Channel>,
    /// Descriptors that are of no more use, or for which there was no room.
    pub lost: usize,
    /// The other server came to rest, and has said so.
    pub is_orderly: bool,
    /// The secrets of its tickets.
    pub tickets: Zeroizing<Vec<u8>>,
    /// The settings of operators.
    pub settings: Settings,
    /// The events that applications are still to be told, by their records.
    pub callbacks: Vec<(u64, CallbackRecord)>,
    /// The write intents of connections with subscribers on streams of HTTP/2, by the numbers of
    /// their stays.
    pub intents: HashMap<u64, WriteIntent>,
}

/// The state that the keeper keeps with a listener, and with a listener whose file the server
/// has made.
const LISTENER: &[u8] = b"listener";
const WITH_FILE: &[u8] = b"listener with its file";

/// The beginning of the state of a listener whose port the kernel has chosen, before the
/// [name](superpoll_http::listen::name_of_chosen) by which the configuration asks for it.
const CHOSEN: &[u8] = b"listener for ";

fn is_listener(state: &[u8]) -> bool {
    state == LISTENER || state == WITH_FILE || state.starts_with(CHOSEN)
}

/// Returns a number that no two servers share.
fn session() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // The only randomness of the standard library.
    std::hash::RandomState::new().build_hasher().finish()
}

impl Succession {
    /// Returns the succession of a server with this configuration, if it has a keeper process.
    pub fn from_config(
        config: &Config,
        report: &Report,
    ) -> Result<Option<Arc<Succession>>, superpoll_keeper::Error> {
        let Some(KeeperKind::Process { socket }) = config.keeper.as_ref().map(|one| &one.kind)
        else {
            return Ok(None);
        };
        let report = report.clone();
        let on_loss = move |error: &superpoll_keeper::Error| {
            let message =
                format!("{error}; no other server can take over this server's connections");
            report(&Event::new(Level::Error, "keeper-lost", message));
        };
        Succession::begin(socket, Box::new(on_loss)).map(|begun| Some(Arc::new(begun)))
    }

    /// Introduces a server to the keeper that listens at a path.
    pub(crate) fn begin(
        path: &Path,
        on_loss: LossHandler,
    ) -> Result<Succession, superpoll_keeper::Error> {
        let control = Control::connect(path, session())?;
        let (control, sender) = (Mutex::new(Some(control)), Mutex::default());
        Ok(Succession { control, next_space: AtomicU64::new(1), sender, on_loss })
    }

    fn control(&self) -> MutexGuard<'_, Option<Control>> {
        // No code that can panic runs under the lock.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sender(&self) -> MutexGuard<'_, Option<Waker>> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the keeper. If the keeper is lost, or this call finds that it is, returns
    /// `None`.
    fn with<R>(
        &self,
        act: impl FnOnce(&mut Control) -> Result<R, superpoll_keeper::Error>,
    ) -> Option<R> {
        let mut control = self.control();
        let outcome = act(control.as_mut()?);
        let is_behind = control.as_ref().is_some_and(Control::is_behind);
        match outcome {
            Ok(done) => {
                drop(control);
                if is_behind {
                    self.sender().take().into_iter().for_each(Waker::wake);
                }
                Some(done)
            }
            Err(error) => {
                // This server continues with the state that it has, and no other server may take it
                // over.
                control.take().into_iter().for_each(Control::give_up);
                drop(control);
                (self.on_loss)(&error);
                None
            }
        }
    }

    /// Returns the listeners that are left with the keeper. They are there before any server has
    /// yielded, so that this server can find out whether it can continue.
    pub fn listeners(&self) -> Result<Vec<LeftListener>, superpoll_keeper::Error> {
        let shown = self.control().as_mut().map_or_else(|| Ok(Vec::new()), Control::listeners)?;
        let left = shown.into_iter().map(|shown| {
            let chosen = shown.state.strip_prefix(CHOSEN);
            let chosen = chosen.map(|name| String::from_utf8_lossy(name).into_owned());
            LeftListener { has_file: *shown.state == WITH_FILE, chosen, socket: shown.descriptor }
        });
        Ok(left.collect())
    }

    /// Takes the state that other servers have left. If `upgrades`, a server that is at work is
    /// told to yield.
    pub fn inherit(&self, upgrades: bool) -> Result<PredecessorState, superpoll_keeper::Error> {
        let adopted = match &mut *self.control() {
            Some(control) => control.adopt(upgrades)?,
            None => Adopted::default(),
        };
        let predecessor = PredecessorState::from_adopted(adopted);
        if predecessor.is_orderly {
            // From here on this server acts on the connections.
            self.keep(SERVER, ORDERLY, &[]);
        }
        let spaces = predecessor.channels.iter().map(|channel| channel.space);
        self.next_space.store(spaces.max().unwrap_or(CHANNELS) + 1, Ordering::Relaxed);
        Ok(predecessor)
    }

    /// Returns a number for the records of a channel.
    pub(crate) fn new_space(&self) -> u64 {
        self.next_space.fetch_add(1, Ordering::Relaxed)
    }

    /// Keeps the record of a channel, without its messages.
    pub(crate) fn keep_channel(&self, space: u64, record: &ChannelRecord) {
        self.keep(CHANNELS, space, &record.encode());
    }

    /// Keeps the secrets of tickets from now on, or no longer.
    pub fn keep_tickets(self: &Arc<Succession>, tickets: &TicketSecrets, keeps: bool) {
        if keeps {
            let succession = self.clone();
            tickets.keep_by(move |record| succession.keep(SERVER, TICKETS, record));
        } else {
            tickets.keep_no_more();
            // An empty record removes another one.
            self.keep(SERVER, TICKETS, &[]);
        }
    }

    /// Keeps the settings of operators, in place of those before.
    pub fn keep_settings(&self, settings: &Settings) {
        let record = match *settings == Settings::default() {
            // An empty record removes another one.
            true => Vec::new(),
            // Names that versions may add to and take from. No field can be refused.
            false => serde_json::to_vec(settings).unwrap_or_default(),
        };
        self.keep(SERVER, SETTINGS, &record);
    }

    /// Removes the records of a channel that no longer exists.
    pub(crate) fn forget_channel(&self, space: u64) {
        // An empty record takes its place.
        self.keep(CHANNELS, space, &[]);
        self.trim(space, u64::MAX);
    }

    /// Waits until there are records to send for which the keeper's line had no room.
    pub async fn is_behind(&self) {
        poll_fn(|cx| {
            // The waker is stored before the check, so that a record that comes in between wakes
            // the task.
            *self.sender() = Some(cx.waker().clone());
            match self.control().as_ref().is_some_and(Control::is_behind) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// Returns a line for an engine.
    pub fn line(&self) -> Result<Option<KeeperLink>, superpoll_keeper::Error> {
        self.control().as_ref().map(Control::link).transpose()
    }

    /// Leaves a listener. `chosen` is its name if the kernel has chosen its port.
    pub fn hold(&self, key: u64, listener: &Bound, chosen: Option<&str>) {
        let state = match chosen {
            Some(name) => &[CHOSEN, name.as_bytes()].concat(),
            None if listener.has_file() => WITH_FILE,
            None => LISTENER,
        };
        self.with(|control| control.hold(key, listener, state));
    }

    /// Takes a listener back.
    pub fn release(&self, key: u64) {
        self.with(|control| control.release(key));
    }

    /// Returns a duplicate of the line, to be watched: it becomes readable when another server
    /// wants to continue.
    pub fn control_socket(&self) -> Option<OwnedFd> {
        use std::os::fd::AsFd;
        self.control().as_ref()?.as_fd().try_clone_to_owned().ok()
    }

    /// Whether another server wants to continue.
    pub fn should_yield(&self) -> bool {
        self.with(|control| control.is_to_yield()).unwrap_or(false)
    }

    /// Reports that all idle connections have been left, and whether this server came to rest
    /// before.
    pub fn report_yielded(&self, is_orderly: bool) {
        if is_orderly {
            self.keep(SERVER, ORDERLY, &[1]);
        }
        self.with(Control::yielded);
    }

    /// Forgets the write intents of other servers: their connections go on here.
    pub fn forget_intents(&self, below: u64) {
        self.trim(INTENTS, below);
    }

    /// Reports that this server has taken over all that it inherited.
    pub fn report_adopted(&self) {
        self.with(Control::settled);
    }

    /// Makes void everything that was left: no other server is given it.
    pub fn abandon(&self) {
        self.control().take().into_iter().for_each(Control::give_up);
    }

    /// Ends the succession: there will be no successor.
    pub fn end(&self) {
        if let Some(control) = self.control().take() {
            // If the keeper has gone, there is nothing to end.
            let _ = control.bye();
        }
    }
}

impl RecordStore for Succession {
    fn keep(&self, space: u64, id: u64, bytes: &[u8]) {
        self.with(|control| control.keep(space, id, bytes));
    }

    fn trim(&self, space: u64, below: u64) {
        self.with(|control| control.trim(space, below));
    }

    fn has_room(&self) -> bool {
        self.with(|control| {
            control.catch_up()?;
            Ok(!control.is_behind())
        })
        .unwrap_or(true)
    }
}

superpoll::debug_fields!(Succession, it => control: *it.control());

impl PredecessorState {
    fn from_adopted(adopted: Adopted) -> PredecessorState {
        let mut predecessor =
            PredecessorState { lost: adopted.without_room, ..PredecessorState::default() };
        for orphan in adopted.orphans {
            if is_listener(&orphan.state) {
                // A listener was shown before.
            } else if let Some(left) = ConnectionRecord::decode(&orphan.state) {
                predecessor.connections.push((orphan.descriptor, left));
            } else {
                predecessor.lost += 1;
            }
        }
        // In the order of their spaces and ids: channels first.
        for (space, id, bytes) in adopted.records {
            if space == SERVER {
                match id {
                    ORDERLY => predecessor.is_orderly = true,
                    TICKETS => predecessor.tickets = bytes.into(),
                    // Those that another version has in another form are forgotten.
                    SETTINGS => {
                        predecessor.settings = serde_json::from_slice(&bytes).unwrap_or_default();
                    }
                    _ => {}
                }
                continue;
            }
            if space == INTENTS {
                predecessor.intents.extend(WriteIntent::decode(&bytes).map(|intent| (id, intent)));
                continue;
            }
            if space == CALLBACKS {
                let kept = CallbackRecord::decode(&bytes).map(|kept| (id, kept));
                predecessor.callbacks.extend(kept);
                continue;
            }
            if space == CHANNELS {
                if let Some(ChannelRecord { names, epoch, is_hub }) = ChannelRecord::decode(&bytes)
                {
                    predecessor.channels.push(Channel {
                        space: id,
                        epoch,
                        names,
                        is_hub,
                        messages: Vec::new(),
                        offsets: Offsets::default(),
                        members: Vec::new(),
                    });
                }
                continue;
            }
            let mut channels = predecessor.channels.iter_mut();
            let Some(channel) = channels.find(|channel| channel.space == space) else { continue };
            if let Some(slot) = member_slot(id) {
                channel.members.extend(MemberRecord::decode(&bytes).map(|member| (slot, member)));
                continue;
            }
            let Some((message, offsets)) = decode_message(id, &bytes) else { continue };
            // After a gap only the messages that follow it are of use.
            if channel.messages.last().is_some_and(|before| before.id + 1 != id) {
                channel.messages.clear();
            }
            if channel.messages.is_empty() {
                channel.offsets = offsets;
            }
            channel.messages.push(message);
        }
        predecessor
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use records::encode_message;
    use superpoll_keeper::Orphan;

    #[test]
    fn predecessor_state_is_sorted() {
        let orphan = |state: &[u8]| {
            let (reader, _) = std::io::pipe().unwrap();
            Orphan { descriptor: reader.into(), state: state.to_vec().into() }
        };
        let idle = superpoll_http::connection_state::Activity::Idle { requests: 3 };
        let left = ConnectionRecord {
            client: None,
            local: None,
            seconds: 1,
            written: 2,
            read: 3,
            activity: idle,
            keys: None,
        };
        let record = |name: &str| {
            let names = vec![(name.to_owned(), "/".to_owned())];
            ChannelRecord { names, epoch: 7, is_hub: false }.encode()
        };
        let message = |id, text: &'static str| {
            let message = Message::new(id, text, true);
            encode_message(&message, &Offsets::default())
        };
        let predecessor = PredecessorState::from_adopted(Adopted {
            orphans: vec![
                orphan(LISTENER),
                orphan(WITH_FILE),
                orphan(b"listener for 127.0.0.1:0"),
                orphan(&left.encode()),
                orphan(b"?"),
            ],
            records: vec![
                (CHANNELS, 1, record("a")),
                (CHANNELS, 2, record("b")),
                (1, 4, message(4, "before a gap")),
                (1, 6, message(6, "six")),
                (1, 7, message(7, "seven")),
                (3, 1, message(1, "of a channel that is unknown")),
            ],
            without_room: 2,
        });
        assert_eq!(predecessor.lost, 3);
        assert_eq!(predecessor.connections.len(), 1);
        assert_eq!(predecessor.connections[0].1, left);
        let ids = |channel: &Channel| channel.messages.iter().map(|one| one.id).collect::<Vec<_>>();
        assert_eq!(predecessor.channels.len(), 2);
        assert_eq!((ids(&predecessor.channels[0]), predecessor.channels[0].epoch), (vec![6, 7], 7));
        assert_eq!(predecessor.channels[1].messages, []);
    }
}
