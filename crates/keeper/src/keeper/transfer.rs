//! Hands orphans over to a successor, packet by packet, at the speed at which it reads.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::{ClientKind, Keeper, PATIENCE, TURN, is_later};
use crate::event::KeeperEvent;
use crate::link::{KeeperLink, is_limit};
use crate::protocol::{FULL, Notice, PACKET, encode, encode_into};
use crate::records::{Named, part};
use crate::registrations::Registrations;

/// How long to wait before sending again while too many descriptors are under way.
const AGAIN: Duration = Duration::from_millis(2);

/// Encodes a notice that may have keys in it. The packet does not grow, which would leave a copy of
/// them behind.
fn secret_packet(notice: &Notice<'_>) -> Zeroizing<Vec<u8>> {
    let mut packet = Zeroizing::new(Vec::with_capacity(PACKET));
    encode_into(notice, &mut packet);
    packet
}

/// The progress of a transfer. The descriptors and the bytes of records stay where they are; this
/// has their places.
#[derive(Debug)]
pub(super) struct Transfer {
    /// Whether it sends copies of descriptors that are only held, which changes nothing for the
    /// originals.
    pub shows: bool,
    indices: Vec<usize>,
    next_index: usize,
    records: Vec<Named>,
    next_record: usize,
    next_part: usize,
    is_done: bool,
    /// When the other side must have read more.
    until: Instant,
    retry_at: Option<Instant>,
    /// Packets to send after the transfer.
    queued: VecDeque<Vec<u8>>,
}

impl Transfer {
    pub(super) fn new(shows: bool, indices: Vec<usize>, records: Vec<Named>) -> Box<Transfer> {
        Box::new(Transfer {
            shows,
            indices,
            next_index: 0,
            records,
            next_record: 0,
            next_part: 0,
            is_done: false,
            until: Instant::now() + PATIENCE,
            retry_at: None,
            queued: VecDeque::new(),
        })
    }

    pub(super) fn deadline(&self) -> Instant {
        self.retry_at.map_or(self.until, |retry_at| retry_at.min(self.until))
    }

    /// Whether the transfer waits for room.
    pub(super) fn wants_room(&self) -> bool {
        self.retry_at.is_none()
    }

    pub(super) fn send_later(&mut self, packet: Vec<u8>) {
        self.queued.push_back(packet);
    }

    /// Sends the next packet.
    fn send_next(&mut self, link: &KeeperLink, registrations: &Registrations) -> io::Result<()> {
        if self.next_index < self.indices.len() {
            let (mut descriptors, mut states, mut bytes) = (vec![], vec![], 0);
            let mut next = self.next_index;
            while next < self.indices.len() && descriptors.len() < FULL {
                // A connection that has hung up since is not there any more.
                if let Some((descriptor, state)) =
                    registrations.get_for_transfer(self.indices[next], self.shows)
                {
                    bytes += state.len() + 8;
                    if bytes > PACKET / 2 && !states.is_empty() {
                        break;
                    }
                    descriptors.push(descriptor);
                    states.push(state);
                }
                next += 1;
            }
            if !states.is_empty() {
                link.send(&secret_packet(&Notice::Orphans(states)), &descriptors)?;
            }
            self.next_index = next;
            return Ok(());
        }
        while let Some(((space, id), bytes)) = self.records.get(self.next_record) {
            if let Some(record) = part(*space, *id, bytes, self.next_part) {
                link.send(&secret_packet(&Notice::Record(record)), &[])?;
                self.next_part += 1;
                return Ok(());
            }
            (self.next_record, self.next_part) = (self.next_record + 1, 0);
        }
        link.send(&encode(&Notice::Done), &[])?;
        self.is_done = true;
        Ok(())
    }
}

impl Keeper {
    /// Begins to hand something over.
    pub(super) fn begin_transfer(&mut self, index: usize, transfer: Box<Transfer>) {
        let Some(client) = self.clients.get_mut(index) else { return };
        client.transfer = Some(transfer);
        self.continue_transfer(index);
    }

    /// Sends as many packets as there is room for.
    pub(super) fn continue_transfer(&mut self, index: usize) {
        for _ in 0..TURN {
            let Some(client) = self.clients.get_mut(index) else { return };
            let Some(transfer) = &mut client.transfer else { return };
            if !client.unsent.is_empty() || transfer.retry_at.is_some() {
                break;
            }
            match transfer.send_next(&client.link, &self.registrations) {
                Ok(()) if transfer.is_done => {
                    self.finish_transfer(index);
                    break;
                }
                Ok(()) => transfer.until = Instant::now() + PATIENCE,
                Err(error) if is_later(&error) => break,
                // The kernel does not report when the descriptors that are under way have arrived.
                Err(error) if is_limit(&error) => {
                    transfer.retry_at = Some((Instant::now() + AGAIN).min(transfer.until));
                    break;
                }
                Err(error) => return self.abort_transfer(index, &error),
            }
        }
        self.set_interest(index);
    }

    /// Finishes a transfer that has been sent in full.
    fn finish_transfer(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index) else { return };
        let Some(transfer) = client.transfer.take() else { return };
        let (peer, kind) = (client.peer, client.kind);
        if transfer.shows {
            return self.send_all(index, transfer.queued);
        }
        client.is_successor = true;
        self.handed_to = Some(index);
        if let ClientKind::Control(session) = kind {
            self.registrations.assign_to(session);
            self.mark_successor(session);
        }
        if let Some(peer) = peer {
            let (descriptors, records) = (transfer.indices.len(), transfer.records.len());
            (self.report)(&KeeperEvent::HandedOver { peer, descriptors, records });
        }
        self.send_all(index, transfer.queued);
    }

    fn send_all(&mut self, index: usize, all: VecDeque<Vec<u8>>) {
        for packet in all {
            self.send(index, packet);
        }
    }

    fn abort_transfer(&mut self, index: usize, error: &io::Error) {
        self.refuse(index, &format!("handing over the descriptors of other servers: {error}"));
    }

    /// Takes the orphans of an unfinished transfer back, for another successor. The first one has
    /// not got all of them, and acts on none of them before.
    pub(super) fn stop_sending(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index) else { return };
        client.unsent.clear();
        client.unsent_bytes = 0;
        let Some(transfer) = client.transfer.take() else { return };
        if !transfer.shows {
            self.registrations.unmark_handed_over();
        }
    }

    /// Tries transfers again, and gives up on successors that do not read.
    pub(super) fn check_transfers(&mut self, now: Instant) {
        let due = self.clients.iter().filter(|(_, client)| {
            client.transfer.as_ref().is_some_and(|transfer| transfer.deadline() <= now)
        });
        let due: Vec<usize> = due.map(|(index, _)| index).collect();
        for index in due {
            let Some(transfer) = self.clients.get_mut(index).and_then(|it| it.transfer.as_mut())
            else {
                continue;
            };
            if transfer.until <= now {
                let what = "it does not read its packets";
                let error = io::Error::new(io::ErrorKind::TimedOut, what);
                self.abort_transfer(index, &error);
            } else {
                transfer.retry_at = None;
                self.continue_transfer(index);
            }
        }
    }
}
