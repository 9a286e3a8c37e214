//! What is said to a babysitter, and what becomes of what it says.

use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use superpoll_sit::{FULL, Notice, PACKET, Request, Watching};

use super::{Babysat, Sitter};
use crate::backend::Context;
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

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the babysitter has ended")
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the babysitter has not answered in time")
}

impl<S: Sitter> Babysat<S> {
    /// Gives some of these away in one packet, and returns how many are done with.
    pub(super) fn send(
        &mut self,
        cx: &mut Context<'_>,
        all: &[u32],
        until: Option<Instant>,
    ) -> Option<usize> {
        let (mut bytes, mut count) = (ENTRY, 0);
        for &index in all.iter().take(FULL) {
            bytes += ENTRY + self.state(cx, index).map_or(0, <[u8]>::len);
            if bytes > PACKET {
                break;
            }
            count += 1;
        }
        let mut some = &all[..count];
        let mut outcome = self.send_packet(cx, some, until);
        let open;
        if outcome.as_ref().is_err_and(|error| is_number(error, libc::EBADF)) {
            // One of them was closed behind our back, which a set of the poller's own would not even have noticed.
            let calls = &mut cx.stats.calls;
            let is_open = |&index: &u32| sys::descriptor::is_open(calls, cx.table.slot(index).fd());
            let (good, bad): (Vec<u32>, Vec<u32>) = some.iter().copied().partition(is_open);
            bad.into_iter().for_each(|index| self.stays.bar(index));
            open = good;
            some = &open;
            if some.is_empty() {
                return Some(count);
            }
            outcome = self.send_packet(cx, some, until);
        }
        match outcome {
            Ok(()) => {
                some.iter().for_each(|&index| self.gone(cx, index));
                return Some(count);
            }
            Err(error) if is_number(&error, libc::ETOOMANYREFS) => cx.stats.sitter_limit += 1,
            Err(error) if is_full(&error) => cx.stats.sitter_full += 1,
            Err(error) => self.lose(cx, error),
        }
        None
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
            let state = if S::TAKES_FILES { self.state(cx, index) } else { None };
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

    /// The babysitter has it: the poller's own set forgets it.
    fn gone(&mut self, cx: &mut Context<'_>, index: u32) {
        if self.epoll.release(cx, index).is_err() {
            // It was closed behind our back, and the number may mean another file.
            self.over.push(self.stays.key(index));
            self.stays.bar(index);
            return;
        }
        self.states.remove(&index);
        self.stays.leave(index);
        cx.table.slot_mut(index).leave();
        self.away += 1;
        cx.stats.moves_away += 1;
    }

    /// Tells the babysitter which stays are over. False if that has to wait.
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
                    self.has_told = true;
                }
                Err(error) if is_full(&error) => {
                    cx.stats.sitter_full += 1;
                    return false;
                }
                Err(error) => {
                    self.lose(cx, error);
                    return true;
                }
            }
        }
        true
    }

    /// Takes a packet from the line; `WouldBlock` if there is none. Returns the number of an answered question.
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
            Notice::Synced(number, _) => Ok(Some(number)),
            Notice::Refused(why) => Err(io::Error::other(why.to_owned())),
            // For a server as a whole.
            _ => Ok(None),
        }
    }

    /// The babysitter does not watch it any more.
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
        cx.stats.moves_back += 1;
        self.take_in(cx, index);
        if is_returned {
            self.stays.bar(index);
        }
    }

    /// Watches in the poller's own set what was away.
    fn take_in(&mut self, cx: &mut Context<'_>, index: u32) {
        self.away -= 1;
        let slot = cx.table.slot_mut(index);
        slot.come_back();
        // Of what has changed, or ended, the poller will tell.
        if !slot.is_live() || slot.is_changed() {
            return;
        }
        let watch = slot.watch();
        if self.epoll.tell(cx, index, (watch.interest, watch.mode)).is_err() {
            // Told again, and refused if it must be, with the next wait.
            cx.table.mark(index);
        }
        self.settle_in(cx, index);
    }

    /// The line is of no use any more: everything comes back.
    pub(super) fn lose(&mut self, cx: &mut Context<'_>, why: io::Error) {
        self.epoll.forget_line(cx);
        self.line = None;
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

    /// There is no babysitter from here on.
    pub(super) fn stop(&mut self) {
        (self.due, self.hand) = (None, 0);
        self.over = Vec::new();
        self.candidates = Vec::new();
        self.states = HashMap::new();
        (self.packet, self.room) = (Vec::new(), Vec::new());
    }

    pub(super) fn ask_and_hear(&mut self, cx: &mut Context<'_>, until: Instant) -> io::Result<()> {
        self.questions += 1;
        let Some(line) = &self.line else { return Ok(()) };
        Request::Sync(self.questions).encode_into(&mut self.packet);
        cx.stats.calls.sendmsg += 1;
        line.send_until(until, &self.packet, &[])?;
        loop {
            match self.listen(cx) {
                Ok(Some(number)) if number == self.questions => {
                    self.has_told = false;
                    return Ok(());
                }
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
