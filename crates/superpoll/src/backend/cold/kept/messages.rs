//! Messages to a keeper, and the handling of its answers.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use superpoll_keeper::{FULL, Notice, PACKET, Request, Watching};
use zeroize::Zeroize;

use super::{KeeperHandle, Kept, PACKETS, SHRINK_ABOVE, States};
use crate::backend::{Context, Synced};
use crate::sys;

/// How many keys go into a packet.
const KEYS: usize = PACKET / 32;

/// The most bytes that a registration takes in a packet, its state not counted.
const ENTRY: usize = 32;

fn is_number(error: &io::Error, number: i32) -> bool {
    error.raw_os_error() == Some(number)
}

/// Whether there is no room for a packet just now.
fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
        || is_number(error, libc::ENOBUFS)
        || is_number(error, libc::ENOMEM)
}

/// Whether the error may be due to one of the descriptors: closed, of a kind that may not be sent,
/// or with too long a state for this system's sockets.
fn is_about_some(error: &io::Error) -> bool {
    let numbers = [libc::EBADF, libc::EINVAL, libc::EMSGSIZE];
    numbers.into_iter().any(|number| is_number(error, number))
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the keeper has ended")
}

pub(super) fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the keeper has not answered in time")
}

impl<S: KeeperHandle> Kept<S> {
    /// Gives some of these away in one packet, and returns how many are finished.
    pub(super) fn send_batch(
        &mut self,
        cx: &mut Context<'_>,
        all: &[u32],
        until: Option<Instant>,
    ) -> Option<usize> {
        let (mut bytes, mut count) = (ENTRY, 0);
        for &index in all.iter().take(FULL) {
            bytes += ENTRY + self.states.get(index).map_or(0, <[u8]>::len);
            if bytes > PACKET {
                break;
            }
            count += 1;
        }
        // Immediately before the packet is sent: no code of this thread can exchange a file in
        // between.
        match all[..count].iter().position(|&index| !self.is_of_its_file(cx, index)) {
            None => {}
            Some(0) => {
                self.eviction.pin(all[0]);
                return Some(1);
            }
            Some(first) => count = first,
        }
        let some = &all[..count];
        match self.send_packet(cx, some, until) {
            Ok(()) => {
                some.iter().for_each(|&index| self.note_moved(cx, index));
                return Some(count);
            }
            Err(error) if is_number(&error, libc::ETOOMANYREFS) => cx.stats.keeper_limit += 1,
            Err(error) if is_full(&error) => cx.stats.keeper_full += 1,
            Err(error) if is_about_some(&error) => match *some {
                [index] if self.is_to_blame(cx, index, &error) => {
                    self.eviction.pin(index);
                    return Some(1);
                }
                [] | [_] => self.disconnect(cx, error),
                // Halves the packet until it finds the descriptor that the error is about.
                _ => return self.send_batch(cx, &all[..count / 2], until),
            },
            Err(error) => self.disconnect(cx, error),
        }
        None
    }

    /// Whether this descriptor cannot be sent, as opposed to a link that can be of no use.
    fn is_to_blame(&self, cx: &mut Context<'_>, index: u32, error: &io::Error) -> bool {
        // Closed behind our back, which a set of the poller's own would not even have noticed.
        !is_number(error, libc::EBADF)
            || !sys::descriptor::is_open(&mut cx.stats.calls, cx.table.slot(index).fd())
    }

    /// Whether the number of a registration still means the file that was registered, so that the
    /// file may be sent.
    ///
    /// An owner may have closed the descriptor, and the number may have been used again. A
    /// registration that keeps its descriptor open rules that out. For any other the kernel is
    /// asked: an epoll set knows number and file together.
    pub(super) fn is_of_its_file(&self, cx: &mut Context<'_>, index: u32) -> bool {
        !S::TAKES_FILES || cx.table.slot(index).is_owned() || self.epoll.confirms(cx, index)
    }

    fn send_packet(
        &mut self,
        cx: &mut Context<'_>,
        some: &[u32],
        until: Option<Instant>,
    ) -> io::Result<()> {
        let mut packet = std::mem::take(&mut self.packet);
        // A packet that grows would leave a copy of its states behind.
        packet.reserve(PACKET);
        let keys: Vec<u64> = some.iter().map(|&index| self.eviction.next_key(index)).collect();
        let watching = some.iter().zip(keys).map(|(&index, key)| {
            let slot = cx.table.slot(index);
            let events = u32::from(slot.interest().poll_bits().cast_unsigned());
            let number = if S::TAKES_FILES { -1 } else { slot.fd() };
            let state = if S::TAKES_FILES { self.states.get(index) } else { None };
            Watching { key, events, number, state: state.unwrap_or_default() }
        });
        Request::Watch(watching.collect()).encode_into(&mut packet);
        let files: Vec<BorrowedFd<'_>> = if S::TAKES_FILES {
            let number = |&index: &u32| cx.table.slot(index).fd();
            some.iter().map(number).map(sys::descriptor::registered).collect()
        } else {
            Vec::new()
        };
        let outcome = match (&self.link, until) {
            (None, _) => Err(closed()),
            (Some(link), None) => link.send(&packet, &files),
            (Some(link), Some(until)) => link.send_until(until, &packet, &files),
        };
        cx.stats.calls.sendmsg += 1;
        if S::TAKES_FILES {
            // There may be keys in the states.
            packet.zeroize();
        }
        self.packet = packet;
        outcome
    }

    /// Notes that the keeper has it: the poller's own set forgets it.
    pub(super) fn note_moved(&mut self, cx: &mut Context<'_>, index: u32) {
        if self.epoll.release(cx, index).is_err() {
            // It was closed behind our back, and the number may mean another file.
            self.recalled.push(self.eviction.key(index));
            self.eviction.pin(index);
            return;
        }
        self.needs_sync |= self.states.mark_sent(index, self.syncs_sent + 1);
        self.eviction.note_moved_away(index);
        cx.table.slot_mut(index).leave();
        self.away += 1;
        cx.stats.moves_away += 1;
    }

    /// Tells the keeper which stays are over. Returns false if the message must wait, or if no
    /// keeper is left.
    pub(super) fn send_recalls(&mut self, cx: &mut Context<'_>, until: Option<Instant>) -> bool {
        while !self.recalled.is_empty() {
            let Some(link) = &self.link else {
                self.recalled.clear();
                return true;
            };
            let some = self.recalled.len().min(KEYS);
            Request::Forget(self.recalled[..some].to_vec()).encode_into(&mut self.packet);
            cx.stats.calls.sendmsg += 1;
            let outcome = match until {
                None => link.send(&self.packet, &[]),
                Some(until) => link.send_until(until, &self.packet, &[]),
            };
            match outcome {
                Ok(()) => {
                    self.recalled.drain(..some);
                    self.may_hold = true;
                }
                Err(error) if is_full(&error) => {
                    cx.stats.keeper_full += 1;
                    return false;
                }
                Err(error) => {
                    self.disconnect(cx, error);
                    return false;
                }
            }
        }
        self.recalled.shrink_to(SHRINK_ABOVE);
        true
    }

    /// Takes the packets on the link, at most this many. Returns how many packets there were.
    pub(super) fn receive_all(&mut self, cx: &mut Context<'_>, most: usize) -> usize {
        for received in 0..most {
            match self.receive(cx) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return received,
                Err(error) => {
                    self.disconnect(cx, error);
                    return received + 1;
                }
            }
        }
        most
    }

    /// Takes a packet from the link; `WouldBlock` if there is none. Returns the number of an
    /// answered question.
    pub(super) fn receive(&mut self, cx: &mut Context<'_>) -> io::Result<Option<u64>> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(PACKET, 0);
        let mut descriptors: Vec<OwnedFd> = Vec::new();
        cx.stats.calls.recvmsg += 1;
        let received = match &self.link {
            Some(link) => link.receive_into(&mut buffer, &mut descriptors),
            None => Err(closed()),
        };
        let outcome = match received {
            Ok(received) if received.length == 0 => Err(closed()),
            Ok(received) => Notice::decode(&buffer[..received.length])
                .and_then(|notice| self.handle(cx, notice)),
            Err(error) => Err(error),
        };
        self.buffer = buffer;
        outcome
    }

    fn handle(&mut self, cx: &mut Context<'_>, notice: Notice<'_>) -> io::Result<Option<u64>> {
        match notice {
            Notice::Ready(all) => {
                cx.stats.away.watched += self.away as u64;
                cx.stats.away.active += all.len() as u64;
                for (key, _) in all {
                    self.move_back(cx, key, false);
                }
                Ok(None)
            }
            Notice::Returned(all) => {
                for (key, _) in all {
                    self.move_back(cx, key, true);
                }
                Ok(None)
            }
            Notice::Synced(number, _) => {
                self.states.confirm(number.min(self.syncs_sent));
                Ok(Some(number))
            }
            Notice::Refused(why) => Err(io::Error::other(why.to_owned())),
            // A message for the server as a whole.
            _ => Ok(None),
        }
    }

    /// Takes a descriptor back that the keeper does not watch any more.
    fn move_back(&mut self, cx: &mut Context<'_>, key: u64, is_returned: bool) {
        let index = key as u32;
        if index >= cx.table.slots()
            || key != self.eviction.key(index)
            || !cx.table.slot(index).is_away()
        {
            cx.stats.stale += 1;
            return;
        }
        self.eviction.note_moved_back(index);
        if is_returned {
            self.states.restore(index);
        } else {
            self.states.forget_sent(index);
        }
        cx.stats.moves_back += 1;
        self.may_hold = true;
        self.watch_again(cx, index);
        if is_returned {
            self.eviction.delay(index);
        }
    }

    /// Watches a descriptor that was away in the poller's own set.
    fn watch_again(&mut self, cx: &mut Context<'_>, index: u32) {
        self.away -= 1;
        let slot = cx.table.slot_mut(index);
        slot.come_back();
        // The poller will apply the changes of a registration that has changed or ended.
        if !slot.is_live() || slot.is_changed() {
            return;
        }
        let watch = slot.watch();
        let applied = self.epoll.apply(cx, index, (watch.interest, watch.mode));
        if !matches!(applied, Ok(Synced::Applied)) {
            // The next wait applies the watch again, and refuses the registration if it must.
            cx.table.mark(index);
        }
        self.note_arrival(cx, index);
    }

    /// Gives the link up: everything comes back.
    pub(super) fn disconnect(&mut self, cx: &mut Context<'_>, why: io::Error) {
        self.epoll.forget_link(cx);
        if let Some(link) = self.link.take() {
            // The keeper must not hand any of it to another server, whatever room the link has
            // and however this process ends.
            link.revoke();
            // A keeper that is alive must let go of its descriptors: all of them are watched
            // here again.
            Request::Bye.encode_into(&mut self.packet);
            cx.stats.calls.sendmsg += 1;
            let _ = link.send(&self.packet, &[]);
        }
        self.keeper.join();
        cx.stats.keeper_lost += 1;
        self.lost = Some(why);
        for index in 0..cx.table.slots() {
            if cx.table.slot(index).is_away() {
                cx.stats.moves_back += 1;
                self.watch_again(cx, index);
            }
        }
        self.stop();
    }

    /// Notes that there is no keeper from here on.
    pub(super) fn stop(&mut self) {
        (self.due, self.hand) = (None, 0);
        self.recalled = Vec::new();
        self.candidates = Vec::new();
        self.states = States::default();
        self.needs_sync = false;
        (self.packet, self.buffer) = (Vec::new(), Vec::new());
    }

    /// Asks a question; its answer has the same number.
    fn send_sync(&mut self, cx: &mut Context<'_>, until: Option<Instant>) -> io::Result<()> {
        let Some(link) = &self.link else { return Err(closed()) };
        let number = self.syncs_sent + 1;
        Request::Sync(number).encode_into(&mut self.packet);
        cx.stats.calls.sendmsg += 1;
        match until {
            None => link.send(&self.packet, &[])?,
            Some(until) => link.send_until(until, &self.packet, &[])?,
        }
        self.syncs_sent = number;
        self.needs_sync = false;
        Ok(())
    }

    /// Asks without waiting for the answer, as soon as there is room for a question.
    pub(super) fn try_sync(&mut self, cx: &mut Context<'_>) {
        match self.send_sync(cx, None) {
            Ok(()) => {}
            Err(error) if is_full(&error) => cx.stats.keeper_full += 1,
            Err(error) => self.disconnect(cx, error),
        }
    }

    pub(super) fn sync_and_wait(&mut self, cx: &mut Context<'_>, until: Instant) -> io::Result<()> {
        if self.link.is_none() {
            return Ok(());
        }
        self.send_sync(cx, Some(until))?;
        // This thread itself may have been stopped until the time was over. So what has arrived by
        // then is read: more than a link holds is said by a keeper that does not answer.
        let mut late = 0;
        loop {
            match self.receive(cx) {
                Ok(Some(number)) if number == self.syncs_sent => {
                    self.may_hold = false;
                    return Ok(());
                }
                Ok(_) if late == PACKETS => return Err(timed_out()),
                Ok(_) => late += usize::from(Instant::now() >= until),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let Some(link) = &self.link else { return Ok(()) };
                    cx.stats.calls.ppoll += 1;
                    if !link.wait(false, until)? {
                        return Err(timed_out());
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}
