//! Hands orphans over to a successor, packet by packet, at the speed at which it reads.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use super::{Keeper, PATIENCE, TURN, Whose, is_later};
use crate::happening::Happening;
use crate::line::{Line, is_limit};
use crate::protocol::{FULL, Notice, PACKET, encode};
use crate::records::{Named, part};
use crate::registrations::Registrations;

/// How long to wait before sending again while too many descriptors are under way.
const AGAIN: Duration = Duration::from_millis(2);

/// The progress of a transfer. The descriptors and the bytes of records stay where they are; this
/// has their places.
#[derive(Debug)]
pub(super) struct Handing {
    /// Whether it sends copies of descriptors that are only held, which changes nothing for the
    /// originals.
    pub shows: bool,
    places: Vec<usize>,
    next_place: usize,
    records: Vec<Named>,
    next_record: usize,
    next_part: usize,
    is_done: bool,
    /// When the other side must have read more.
    until: Instant,
    again: Option<Instant>,
    /// Packets to send after the transfer.
    after: VecDeque<Vec<u8>>,
}

impl Handing {
    pub fn new(shows: bool, places: Vec<usize>, records: Vec<Named>) -> Box<Handing> {
        Box::new(Handing {
            shows,
            places,
            next_place: 0,
            records,
            next_record: 0,
            next_part: 0,
            is_done: false,
            until: Instant::now() + PATIENCE,
            again: None,
            after: VecDeque::new(),
        })
    }

    pub fn deadline(&self) -> Instant {
        self.again.map_or(self.until, |again| again.min(self.until))
    }

    /// Whether the transfer waits for room.
    pub fn wants_room(&self) -> bool {
        self.again.is_none()
    }

    pub fn say_later(&mut self, packet: Vec<u8>) {
        self.after.push_back(packet);
    }

    /// Sends the next packet.
    fn step(&mut self, line: &Line, registrations: &Registrations) -> io::Result<()> {
        if self.next_place < self.places.len() {
            let (mut descriptors, mut states, mut bytes) = (vec![], vec![], 0);
            let mut next = self.next_place;
            while next < self.places.len() && descriptors.len() < FULL {
                // A connection that has hung up since is not there any more.
                if let Some((descriptor, state)) = registrations.look(self.places[next], self.shows)
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
                line.send(&encode(&Notice::Left(states)), &descriptors)?;
            }
            self.next_place = next;
            return Ok(());
        }
        while let Some(((space, id), bytes)) = self.records.get(self.next_record) {
            if let Some(record) = part(*space, *id, bytes, self.next_part) {
                line.send(&encode(&Notice::Kept(record)), &[])?;
                self.next_part += 1;
                return Ok(());
            }
            (self.next_record, self.next_part) = (self.next_record + 1, 0);
        }
        line.send(&encode(&Notice::Done), &[])?;
        self.is_done = true;
        Ok(())
    }
}

impl Keeper {
    /// Begins to hand something over.
    pub(super) fn begin_handing(&mut self, index: usize, handing: Box<Handing>) {
        let Some(member) = self.members.get_mut(index) else { return };
        member.handing = Some(handing);
        self.go_on_handing(index);
    }

    /// Sends as many packets as there is room for.
    pub(super) fn go_on_handing(&mut self, index: usize) {
        for _ in 0..TURN {
            let Some(member) = self.members.get_mut(index) else { return };
            let Some(handing) = &mut member.handing else { return };
            if !member.unsent.is_empty() || handing.again.is_some() {
                break;
            }
            match handing.step(&member.line, &self.registrations) {
                Ok(()) if handing.is_done => {
                    self.end_handing(index);
                    break;
                }
                Ok(()) => handing.until = Instant::now() + PATIENCE,
                Err(error) if is_later(&error) => break,
                // The kernel does not report when the descriptors that are under way have arrived.
                Err(error) if is_limit(&error) => {
                    handing.again = Some((Instant::now() + AGAIN).min(handing.until));
                    break;
                }
                Err(error) => return self.give_handing_up(index, &error),
            }
        }
        self.set_interest(index);
    }

    /// Finishes a transfer that has been sent in full.
    fn end_handing(&mut self, index: usize) {
        let Some(member) = self.members.get_mut(index) else { return };
        let Some(handing) = member.handing.take() else { return };
        let (peer, whose) = (member.peer, member.whose);
        if handing.shows {
            return self.say_all(index, handing.after);
        }
        member.is_heir = true;
        self.handed_to = Some(index);
        if let Whose::Control(session) = whose {
            self.registrations.belong_to(session);
            self.inherits(session);
        }
        if let Some(peer) = peer {
            let (descriptors, records) = (handing.places.len(), handing.records.len());
            (self.report)(&Happening::HandedOver { peer, descriptors, records });
        }
        self.say_all(index, handing.after);
    }

    fn say_all(&mut self, index: usize, all: VecDeque<Vec<u8>>) {
        for packet in all {
            self.say(index, packet);
        }
    }

    fn give_handing_up(&mut self, index: usize, error: &io::Error) {
        self.refuse(index, &format!("handing over what others have left: {error}"));
    }

    /// Takes the orphans of an unfinished transfer back, for another successor. The first one has
    /// not got all of them, and acts on none of them before.
    pub(super) fn stop_sending(&mut self, index: usize) {
        let Some(member) = self.members.get_mut(index) else { return };
        member.unsent.clear();
        member.unsent_bytes = 0;
        let Some(handing) = member.handing.take() else { return };
        if !handing.shows {
            self.registrations.take_back();
        }
    }

    /// Tries transfers again, and gives up on successors that do not read.
    pub(super) fn look_at_handings(&mut self, now: Instant) {
        let due = self.members.iter().filter(|(_, member)| {
            member.handing.as_ref().is_some_and(|handing| handing.deadline() <= now)
        });
        let due: Vec<usize> = due.map(|(index, _)| index).collect();
        for index in due {
            let Some(handing) = self.members.get_mut(index).and_then(|it| it.handing.as_mut())
            else {
                continue;
            };
            if handing.until <= now {
                let what = "it does not read what it is sent";
                let error = io::Error::new(io::ErrorKind::TimedOut, what);
                self.give_handing_up(index, &error);
            } else {
                handing.again = None;
                self.go_on_handing(index);
            }
        }
    }
}
