//! Messages to a babysitter, and the handling of its answers.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use superpoll_sit::{FULL, Notice, PACKET, Request, Watching};

use super::{Babysat, KEPT, Sitter, States};
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

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the babysitter has ended")
}

pub(super) fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the babysitter has not answered in time")
}

impl<S: Sitter> Babysat<S> {
    /// Gives some of these away in one packet, and returns how many are finished.
    pub(super) fn send(
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
                self.stays.keep(all[0]);
                return Some(1);
            }
            Some(first) => count = first,
        }
        let some = &all[..count];
        match self.send_packet(cx, some, until) {
            Ok(()) => {
                some.iter().for_each(|&index| self.gone(cx, index));
                return Some(count);
            }
            Err(error) if is_number(&error, libc::ETOOMANYREFS) => cx.stats.sitter_limit += 1,
            Err(error) if is_full(&error) => cx.stats.sitter_full += 1,
            Err(error) if is_about_some(&error) => match *some {
                [index] if self.is_to_blame(cx, index, &error) => {
                    self.stays.keep(index);
                    return Some(1);
                }
                [] | [_] => self.lose(cx, error),
                // Halves the packet until it finds the descriptor that the error is about.
                _ => return self.send(cx, &all[..count / 2], until),
            },
            Err(error) => self.lose(cx, error),
        }
        None
    }

    /// Whether this descriptor cannot be sent, as opposed to a line that can be of no use.
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
        let keys: Vec<u64> = some.iter().map(|&index| self.stays.next_key(index)).collect();
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
        let outcome = match (&self.line, until) {
            (None, _) => Err(ended()),
            (Some(line), None) => line.send(&packet, &files),
            (Some(line), Some(until)) => line.send_until(until, &packet, &files),
        };
        cx.stats.calls.sendmsg += 1;
        self.packet = packet;
        outcome
    }

    /// Notes that the babysitter has it: the poller's own set forgets it.
    pub(super) fn gone(&mut self, cx: &mut Context<'_>, index: u32) {
        if self.epoll.release(cx, index).is_err() {
            // It was closed behind our back, and the number may mean another file.
            self.over.push(self.stays.key(index));
            self.stays.keep(index);
            return;
        }
        self.has_to_ask |= self.states.leave(index, self.questions + 1);
        self.stays.leave(index);
        cx.table.slot_mut(index).leave();
        self.away += 1;
        cx.stats.moves_away += 1;
    }

    /// Tells the babysitter which stays are over. Returns false if the message must wait, or if no
    /// babysitter is left.
    pub(super) fn tell_over(&mut self, cx: &mut Context<'_>, until: Option<Instant>) -> bool {
        while !self.over.is_empty() {
            let Some(line) = &self.line else {
                self.over.clear();
                return true;
            };
            let some = self.over.len().min(KEYS);
            Request::Forget(self.over[..some].to_vec()).encode_into(&mut self.packet);
            cx.stats.calls.sendmsg += 1;
            let outcome = match until {
                None => line.send(&self.packet, &[]),
                Some(until) => line.send_until(until, &self.packet, &[]),
            };
            match outcome {
                Ok(()) => {
                    self.over.drain(..some);
                    self.may_hold = true;
                }
                Err(error) if is_full(&error) => {
                    cx.stats.sitter_full += 1;
                    return false;
                }
                Err(error) => {
                    self.lose(cx, error);
                    return false;
                }
            }
        }
        self.over.shrink_to(KEPT);
        true
    }

    /// Takes the packets on the line, at most this many. Returns how many packets there were.
    pub(super) fn listen_to_all(&mut self, cx: &mut Context<'_>, most: usize) -> usize {
        for heard in 0..most {
            match self.listen(cx) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return heard,
                Err(error) => {
                    self.lose(cx, error);
                    return heard + 1;
                }
            }
        }
        most
    }

    /// Takes a packet from the line; `WouldBlock` if there is none. Returns the number of an
    /// answered question.
    pub(super) fn listen(&mut self, cx: &mut Context<'_>) -> io::Result<Option<u64>> {
        let mut room = std::mem::take(&mut self.room);
        room.resize(PACKET, 0);
        let mut descriptors: Vec<OwnedFd> = Vec::new();
        cx.stats.calls.recvmsg += 1;
        let received = match &self.line {
            Some(line) => line.receive_into(&mut room, &mut descriptors),
            None => Err(ended()),
        };
        let outcome = match received {
            Ok(received) if received.length == 0 => Err(ended()),
            Ok(received) => {
                Notice::decode(&room[..received.length]).and_then(|notice| self.obey(cx, notice))
            }
            Err(error) => Err(error),
        };
        self.room = room;
        outcome
    }

    fn obey(&mut self, cx: &mut Context<'_>, notice: Notice<'_>) -> io::Result<Option<u64>> {
        match notice {
            Notice::Ready(all) => {
                cx.stats.away.watched += self.away as u64;
                cx.stats.away.active += all.len() as u64;
                for (key, _) in all {
                    self.come_back(cx, key, false);
                }
                Ok(None)
            }
            Notice::Returned(all) => {
                for (key, _) in all {
                    self.come_back(cx, key, true);
                }
                Ok(None)
            }
            Notice::Synced(number, _) => {
                self.states.confirm(number.min(self.questions));
                Ok(Some(number))
            }
            Notice::Refused(why) => Err(io::Error::other(why.to_owned())),
            // A message for the server as a whole.
            _ => Ok(None),
        }
    }

    /// Takes a descriptor back that the babysitter does not watch any more.
    fn come_back(&mut self, cx: &mut Context<'_>, key: u64, is_returned: bool) {
        let index = key as u32;
        if index >= cx.table.slots()
            || key != self.stays.key(index)
            || !cx.table.slot(index).is_away()
        {
            cx.stats.stale += 1;
            return;
        }
        self.stays.come_back(index);
        if is_returned {
            self.states.take_back(index);
        } else {
            self.states.forget_sent(index);
        }
        cx.stats.moves_back += 1;
        self.may_hold = true;
        self.take_in(cx, index);
        if is_returned {
            self.stays.bar(index);
        }
    }

    /// Watches a descriptor that was away in the poller's own set.
    fn take_in(&mut self, cx: &mut Context<'_>, index: u32) {
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
        self.settle_in(cx, index);
    }

    /// Gives the line up: everything comes back.
    pub(super) fn lose(&mut self, cx: &mut Context<'_>, why: io::Error) {
        self.epoll.forget_line(cx);
        if let Some(line) = self.line.take() {
            // The babysitter must not hand any of it to another server, whatever room the line has
            // and however this process ends.
            line.revoke();
            // A babysitter that is alive must let go of its descriptors: all of them are watched
            // here again.
            Request::Bye.encode_into(&mut self.packet);
            cx.stats.calls.sendmsg += 1;
            let _ = line.send(&self.packet, &[]);
        }
        self.sitter.end();
        cx.stats.sitter_lost += 1;
        self.lost = Some(why);
        for index in 0..cx.table.slots() {
            if cx.table.slot(index).is_away() {
                cx.stats.moves_back += 1;
                self.take_in(cx, index);
            }
        }
        self.stop();
    }

    /// Notes that there is no babysitter from here on.
    pub(super) fn stop(&mut self) {
        (self.due, self.hand) = (None, 0);
        self.over = Vec::new();
        self.candidates = Vec::new();
        self.states = States::default();
        self.has_to_ask = false;
        (self.packet, self.room) = (Vec::new(), Vec::new());
    }

    /// Asks a question; its answer has the same number.
    fn ask(&mut self, cx: &mut Context<'_>, until: Option<Instant>) -> io::Result<()> {
        let Some(line) = &self.line else { return Err(ended()) };
        let number = self.questions + 1;
        Request::Sync(number).encode_into(&mut self.packet);
        cx.stats.calls.sendmsg += 1;
        match until {
            None => line.send(&self.packet, &[])?,
            Some(until) => line.send_until(until, &self.packet, &[])?,
        }
        self.questions = number;
        self.has_to_ask = false;
        Ok(())
    }

    /// Asks without waiting for the answer, as soon as there is room for a question.
    pub(super) fn ask_later(&mut self, cx: &mut Context<'_>) {
        match self.ask(cx, None) {
            Ok(()) => {}
            Err(error) if is_full(&error) => cx.stats.sitter_full += 1,
            Err(error) => self.lose(cx, error),
        }
    }

    pub(super) fn ask_and_hear(&mut self, cx: &mut Context<'_>, until: Instant) -> io::Result<()> {
        if self.line.is_none() {
            return Ok(());
        }
        self.ask(cx, Some(until))?;
        loop {
            match self.listen(cx) {
                Ok(Some(number)) if number == self.questions => {
                    self.may_hold = false;
                    return Ok(());
                }
                // A babysitter that talks of other things for this long does not answer.
                Ok(_) if Instant::now() >= until => return Err(late()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let Some(line) = &self.line else { return Ok(()) };
                    cx.stats.calls.ppoll += 1;
                    if !line.wait(false, until)? {
                        return Err(late());
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}
