//! Operations under way in a ring, with everything that the kernel may write to or read from
//! meanwhile. Operations that do not block are in the batch (`batch.rs`), not here.
//!
//! An entry owns the memory of an operation, its address, and its progress until the caller takes
//! that. The kernel learns of an operation with the next wait, as with batches. An operation whose
//! registration ends before that wait never reaches the kernel. From then on the entry stays until
//! its last completion was fetched, even if its caller has lost interest: cancelling only asks for
//! that completion. A ring may be given up while an operation is under way, because the ring
//! belongs to another thread or the kernel does not answer. Then the memory is leaked, since
//! nothing tells when the kernel is done with it.
//!
//! The kernel may end a repeated operation for reasons of its own, or because it has no buffer;
//! then the operation is submitted again, and the caller does not notice. The kernel may fail to
//! report the end of a stream (`eof.rs`).

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use super::buffers::Buffers;
use super::names::{GENERATION, NOWHERE, SECOND, is_operation};
use crate::operation::{Gain, Operation, Progress, Ticket};
use crate::stats::Calls;
use crate::sys::uring::loan::{CANCEL, File, Request};
use crate::sys::uring::{Completion, Ring};

mod entry;
mod eof;

pub(super) use entry::at_most;
use entry::{End, Entry, request};
use eof::Ends;

/// How often a ring that is given up is asked for the remaining completions, and how long each
/// question may take.
const LAST_ROUNDS: u32 = 100;
const LAST_WAIT: Duration = Duration::from_millis(10);

#[derive(Default)]
struct OpSlot {
    generation: u32,
    entry: Option<Entry>,
}

/// All operations of a ring.
#[derive(Default)]
pub(super) struct InFlight {
    places: Vec<OpSlot>,
    free: Vec<u32>,
    /// The first entry of each registration, by its index.
    heads: Vec<u32>,
    live: usize,
    /// To submit with the next call.
    waiting: Vec<Ticket>,
    /// The number of the last entry in the ring's queue.
    last_submitted: u32,
    /// To submit when there are buffers.
    starved: Vec<Ticket>,
    /// Progress that no wait has delivered, that of nonblocking operations included.
    done: Vec<(Ticket, Progress)>,
    buffers: Option<Buffers>,
    ends: Ends,
    /// The opcodes that the kernel knows, one bit each.
    known: Option<u64>,
}

impl std::fmt::Debug for InFlight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InFlight").field("live", &self.live).finish_non_exhaustive()
    }
}

impl InFlight {
    /// Whether nothing is under way, waits, or is done.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.live == 0 && self.waiting.is_empty() && self.done.is_empty()
    }

    /// Whether an operation waits to be submitted to the kernel.
    pub(super) fn has_unsubmitted(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether there is progress to take.
    pub(super) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// Prepares for this operation and returns whether the ring can do it.
    pub(super) fn prepare(
        &mut self,
        calls: &mut Calls,
        ring: &mut Ring,
        operation: &Operation,
    ) -> io::Result<()> {
        let known = match self.known {
            Some(known) => known,
            None => *self.known.insert(ring.opcodes(calls)?),
        };
        let needed = request(operation).opcodes().iter().chain(&[CANCEL]);
        if needed.into_iter().any(|&code| known & 1 << code == 0) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if matches!(operation, Operation::ReceiveMany) && self.buffers.is_none() {
            self.buffers = Some(Buffers::new(calls, ring)?);
        }
        Ok(())
    }

    /// Takes an operation of the registration with this index.
    pub(super) fn start(
        &mut self,
        owner: u32,
        fd: RawFd,
        operation: Operation,
        token: u64,
    ) -> Ticket {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(OpSlot::default());
            (self.places.len() - 1) as u32
        });
        let index = owner as usize;
        if self.heads.len() <= index {
            self.heads.resize(index + 1, NOWHERE);
        }
        let after = std::mem::replace(&mut self.heads[index], place);
        if let Some(next) = self.entry(after) {
            next.before = place;
        }
        let entry = Entry::new(owner, after, fd, operation, token);
        let home = &mut self.places[place as usize];
        home.entry = Some(entry);
        self.live += 1;
        let ticket = Ticket::new(place, home.generation);
        self.waiting.push(ticket);
        ticket
    }

    fn entry(&mut self, place: u32) -> Option<&mut Entry> {
        self.places.get_mut(place as usize)?.entry.as_mut()
    }

    fn find(&mut self, ticket: Ticket) -> Option<&mut Entry> {
        let place = self.places.get_mut(ticket.place() as usize)?;
        if place.generation == ticket.generation() { place.entry.as_mut() } else { None }
    }

    /// Whether an operation is not over, as far as is known.
    pub(super) fn is_under_way(&mut self, ticket: Ticket) -> bool {
        self.find(ticket).is_some()
    }

    /// Submits the waiting operations to the kernel, which begins them with the next call.
    #[inline]
    pub(super) fn submit_waiting(&mut self, calls: &mut Calls, ring: &mut Ring) -> io::Result<()> {
        if !self.ends.is_certain() {
            self.look_for_ends(calls, ring)?;
        }
        if self.buffers.is_some() {
            self.feed();
        }
        if self.waiting.is_empty() { Ok(()) } else { self.submit_all_waiting(calls, ring) }
    }

    /// Submits the operations that wait for buffers, if there are any buffers.
    fn feed(&mut self) {
        let Some(buffers) = &mut self.buffers else { return };
        buffers.take_back();
        if self.starved.is_empty() {
            return;
        }
        if buffers.available() == 0 {
            buffers.grow();
        }
        if buffers.available() > 0 {
            self.waiting.append(&mut self.starved);
        }
    }

    fn submit_all_waiting(&mut self, calls: &mut Calls, ring: &mut Ring) -> io::Result<()> {
        let mut submitted = 0;
        let mut outcome = Ok(());
        while let Some(&ticket) = self.waiting.get(submitted) {
            outcome = self.submit_one(calls, ring, ticket);
            if outcome.is_err() {
                break;
            }
            submitted += 1;
        }
        self.waiting.drain(..submitted);
        outcome
    }

    fn submit_one(&mut self, calls: &mut Calls, ring: &mut Ring, ticket: Ticket) -> io::Result<()> {
        match self.find(ticket) {
            Some(entry) if !entry.loan.is_due() => {
                let (file, request) = (File::Descriptor(entry.fd), entry.request());
                let names = (ticket.name(), ticket.second());
                let submitted = entry.loan.submit(calls, ring, file, request, names);
                self.last_submitted = ring.last_pushed();
                submitted
            }
            _ => Ok(()),
        }
    }

    /// Takes one completion whose name is an operation's.
    pub(super) fn complete(&mut self, completion: Completion) {
        let (place, low) = ((completion.data >> 32) as u32, completion.data as u32);
        let Some(home) = self.places.get_mut(place as usize) else { return };
        if home.generation & GENERATION != low & GENERATION {
            return;
        }
        let ticket = Ticket::new(place, home.generation);
        let Some(entry) = &mut home.entry else { return };
        entry.loan.answered(completion);
        match entry.kind() {
            Request::AcceptMany => self.complete_accept(ticket, completion),
            Request::ReceiveMany => self.complete_receive(ticket, completion),
            _ => self.complete_once(ticket, completion, low & SECOND != 0),
        }
    }

    fn complete_accept(&mut self, ticket: Ticket, completion: Completion) {
        let outcome = completion.into_socket().map(|socket| Gain::Socket(socket, None));
        self.go_on_or_end(ticket, completion, outcome);
    }

    fn complete_receive(&mut self, ticket: Ticket, completion: Completion) {
        let Some(entry) = self.find(ticket) else { return };
        let answer = completion.answer;
        if answer == -libc::ENOBUFS {
            if entry.cancelled {
                return self.end(ticket, Err(canceled()), true);
            }
            return self.starved.push(ticket);
        }
        if answer == -libc::ECANCELED && entry.end == End::There && !entry.cancelled {
            // So that the end of the stream is found.
            return self.waiting.push(ticket);
        }
        let emptied = answer > 0 && completion.armed && !completion.more;
        if emptied && entry.end == End::Ahead {
            entry.end = End::Doubted;
            self.ends.doubt(ticket);
        }
        let buffers = self.buffers.as_mut().zip(completion.buffer);
        // A buffer without a byte goes back at once.
        let taken = buffers.map(|(buffers, number)| buffers.taken(number, answer.max(0) as usize));
        let outcome = match taken {
            Some(bytes) if answer > 0 => Ok(Gain::Bytes(bytes)),
            _ => gained(answer).map(|_| Gain::Nothing),
        };
        if answer == 0 && !completion.armed {
            return self.end(ticket, outcome, completion.more);
        }
        self.go_on_or_end(ticket, completion, outcome);
    }

    /// Takes the outcome of one repetition of an operation that is done again and again.
    fn go_on_or_end(&mut self, ticket: Ticket, completion: Completion, outcome: io::Result<Gain>) {
        let Some(entry) = self.find(ticket) else { return };
        let (token, cancelled) = (entry.token, entry.cancelled);
        if !completion.armed && (cancelled || outcome.is_err()) {
            return self.end(ticket, outcome, completion.more);
        }
        let more = completion.more;
        self.put(ticket, Progress { token, last: false, outcome, memory: None, more });
        if !completion.armed {
            self.waiting.push(ticket);
        }
    }

    fn complete_once(&mut self, ticket: Ticket, completion: Completion, linked: bool) {
        let Some(entry) = self.find(ticket) else { return };
        let answer = completion.answer;
        if !linked {
            entry.first = Some(answer);
        }
        if entry.loan.is_due() {
            return;
        }
        let all = entry.length();
        let first = entry.first.unwrap_or(answer);
        let outcome = match entry.kind() {
            Request::Accept => {
                let address = entry.loan.address();
                completion.into_socket().map(|socket| Gain::Socket(socket, address))
            }
            Request::Connect => gained(first).map(|_| Gain::Nothing),
            // The second has failed for its own sake only if the first was done to the end.
            Request::SendAllAndShutdown { .. } if linked && first as usize == all => {
                // A connection that is gone has no direction to end.
                let answer = if answer == -libc::ENOTCONN { 0 } else { answer };
                gained(answer).map(|_| Gain::Count(all))
            }
            _ => gained(first).map(|count| Gain::Count(count as usize)),
        };
        self.end(ticket, outcome, completion.more);
    }

    /// Takes out an operation whose memory nothing uses any more, and notes how it ended.
    fn end(&mut self, ticket: Ticket, outcome: io::Result<Gain>, more: bool) {
        let Some(entry) = self.take_out(ticket) else { return };
        let token = entry.token;
        let memory = entry.into_memory(matches!(outcome, Ok(Gain::Count(_))));
        self.put(ticket, Progress { token, last: true, outcome, memory, more });
    }

    fn take_out(&mut self, ticket: Ticket) -> Option<Entry> {
        self.find(ticket)?;
        self.disown(ticket.place());
        let place = self.places.get_mut(ticket.place() as usize)?;
        place.generation = place.generation.wrapping_add(1);
        let entry = place.entry.take();
        self.free.push(ticket.place());
        self.live -= 1;
        entry
    }

    /// Takes an entry from its registration.
    fn disown(&mut self, place: u32) {
        let Some(entry) = self.entry(place) else { return };
        let Some(owner) = entry.owner.take() else { return };
        let (before, after) = (entry.before, entry.after);
        match self.entry(before) {
            Some(before) => before.after = after,
            None => self.heads[owner as usize] = after,
        }
        if let Some(after) = self.entry(after) {
            after.before = before;
        }
    }

    /// Asks the kernel to end an operation. An operation that the kernel has not received yet is
    /// over at once.
    pub(super) fn cancel(
        &mut self,
        calls: &mut Calls,
        ring: &mut Ring,
        ticket: Ticket,
    ) -> io::Result<()> {
        let Some(entry) = self.find(ticket) else { return Ok(()) };
        if !entry.loan.is_due() {
            self.end(ticket, Err(canceled()), true);
            return Ok(());
        }
        entry.cancelled = true;
        ring.cancel(calls, ticket.name())
    }

    /// Operations of a registration whose second part the kernel begins only when the first is
    /// done; it looks up the descriptor's number then.
    pub(super) fn linked(&self, owner: u32) -> Vec<Ticket> {
        let mut found = Vec::new();
        let mut place = self.heads.get(owner as usize).copied().unwrap_or(NOWHERE);
        while let Some(home) = self.places.get(place as usize) {
            let Some(entry) = &home.entry else { break };
            let is_linked = matches!(entry.kind(), Request::SendAllAndShutdown { .. });
            if is_linked && entry.loan.is_due() {
                found.push(Ticket::new(place, home.generation));
            }
            place = entry.after;
        }
        found
    }

    /// Returns whether an operation of a registration is in the ring's queue, and the kernel has
    /// not taken it.
    pub(super) fn is_queued(&mut self, ring: &mut Ring, owner: u32) -> bool {
        let mut place = self.heads.get(owner as usize).copied().unwrap_or(NOWHERE);
        while let Some(entry) = self.entry(place) {
            if entry.loan.is_due() {
                return !ring.has_taken(self.last_submitted);
            }
            place = entry.after;
        }
        false
    }

    /// Ends the operations of a registration that is over. Operations under way have no owner from
    /// then on.
    pub(super) fn withdraw(
        &mut self,
        calls: &mut Calls,
        ring: &mut Ring,
        owner: u32,
    ) -> io::Result<()> {
        let mut outcome = Ok(());
        while let Some(&place) = self.heads.get(owner as usize).filter(|&&head| head != NOWHERE) {
            let ticket = Ticket::new(place, self.places[place as usize].generation);
            self.disown(place);
            outcome = outcome.and(self.cancel(calls, ring, ticket));
        }
        outcome
    }

    /// Notes progress that the next wait delivers.
    pub(super) fn put(&mut self, ticket: Ticket, progress: Progress) {
        self.done.push((ticket, progress));
    }

    /// Takes all progress, in order.
    #[inline]
    pub(super) fn take_done(&mut self, progress: &mut Vec<Progress>) {
        if !self.done.is_empty() {
            progress.extend(self.done.drain(..).map(|(_, progress)| progress));
        }
    }

    /// Takes the progress of one operation.
    pub(super) fn take_done_by(&mut self, ticket: Ticket) -> Vec<Progress> {
        let done = self.done.extract_if(.., |(whose, _)| *whose == ticket);
        done.map(|(_, progress)| progress).collect()
    }

    /// Tickets of all operations that are not over.
    fn all(&self) -> Vec<Ticket> {
        let live = self.places.iter().enumerate().filter(|(_, place)| place.entry.is_some());
        live.map(|(number, place)| Ticket::new(number as u32, place.generation)).collect()
    }

    /// Ends everything, because its ring is about to be given up. Progress that was made is
    /// reported, and for the rest that it has ended with this error.
    pub(super) fn abort_all(&mut self, calls: &mut Calls, ring: &mut Ring, error: i32) {
        let ended = || io::Error::from_raw_os_error(error);
        self.waiting.clear();
        self.starved.clear();
        if self.live > 0 && !ring.is_forked() {
            self.fetch_rest(calls, ring);
        }
        let mut leaks = false;
        for ticket in self.all() {
            let under_way = self.find(ticket).is_some_and(|entry| entry.loan.is_due());
            if !under_way {
                self.end(ticket, Err(ended()), true);
                continue;
            }
            let Some(mut entry) = self.take_out(ticket) else { continue };
            let token = entry.token;
            if ring.is_forked() {
                entry.loan.recall();
            } else {
                // The kernel may still use the memory, and nothing will tell when it is done.
                leaks = true;
            }
            let outcome = Err(ended());
            let progress = Progress { token, last: true, outcome, memory: None, more: true };
            self.put(ticket, progress);
        }
        match self.buffers.take() {
            Some(buffers) if ring.is_forked() => drop(buffers),
            Some(buffers) if leaks => buffers.leak(),
            Some(buffers) => buffers.forget(calls, ring),
            None => {}
        }
        self.known = None;
    }

    /// Asks the kernel to end everything, and fetches the remaining completions, as far as they
    /// arrive.
    fn fetch_rest(&mut self, calls: &mut Calls, ring: &mut Ring) {
        let elsewhere = ring.is_elsewhere();
        let mut rounds = 0;
        loop {
            while let Some(completion) = ring.fetch() {
                if is_operation(completion.data as u32) {
                    // So that it is not submitted again.
                    if let Some(entry) = self.entry((completion.data >> 32) as u32) {
                        entry.cancelled = true;
                    }
                    self.complete(completion);
                    rounds = 0;
                }
            }
            let under_way = self.all();
            let under_way = under_way
                .into_iter()
                .filter(|&ticket| self.find(ticket).is_some_and(|entry| entry.loan.is_due()));
            let under_way: Vec<Ticket> = under_way.collect();
            if elsewhere || under_way.is_empty() || rounds >= LAST_ROUNDS {
                return;
            }
            for ticket in under_way {
                if self.cancel(calls, ring, ticket).is_err() {
                    return;
                }
            }
            rounds += 1;
            match ring.wait_call(calls, 1, Some(LAST_WAIT)) {
                // The call's answer is in the completions, if there are any.
                Ok(call) => drop(call.issue()),
                Err(_) => return,
            }
        }
    }

    /// Frees memory that nothing under way needs, the provided buffers included if all of them have
    /// come back.
    pub(super) fn shrink_to_fit(&mut self, calls: &mut Calls, ring: &mut Ring) {
        for list in [&mut self.waiting, &mut self.starved] {
            list.shrink_to_fit();
        }
        self.done.shrink_to_fit();
        if !self.is_idle() || ring.is_forked() || ring.is_elsewhere() {
            return;
        }
        self.heads = Vec::new();
        let is_whole = |buffers: &mut Buffers| {
            buffers.take_back();
            buffers.is_whole()
        };
        if let Some(buffers) = self.buffers.take_if(is_whole) {
            buffers.forget(calls, ring);
        }
    }

    /// Heap in use, without the memory of operations.
    pub(super) fn memory(&self) -> usize {
        self.places.capacity() * size_of::<OpSlot>()
            + self.heads.capacity() * size_of::<u32>()
            + (self.waiting.capacity() + self.starved.capacity()) * size_of::<Ticket>()
            + self.done.capacity() * size_of::<(Ticket, Progress)>()
            + self.ends.memory()
            + self.buffers.as_ref().map_or(0, Buffers::memory)
    }
}

fn canceled() -> io::Error {
    io::Error::from_raw_os_error(libc::ECANCELED)
}

fn gained(answer: i32) -> io::Result<i32> {
    if answer < 0 { Err(io::Error::from_raw_os_error(-answer)) } else { Ok(answer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_ticket_matches_no_operation_when_the_names_have_wrapped() {
        let mut in_flight = InFlight::default();
        let cancelled =
            |in_flight: &mut InFlight, ticket| in_flight.end(ticket, Err(canceled()), true);
        let first = in_flight.start(0, 0, Operation::Accept, 1);
        cancelled(&mut in_flight, first);
        in_flight.places[0].generation = GENERATION + 1;
        let later = in_flight.start(0, 0, Operation::Accept, 2);
        assert_eq!((first.name(), first.place()), (later.name(), later.place()));
        assert!(in_flight.is_under_way(later) && !in_flight.is_under_way(first));
        in_flight.places[0].generation = u32::MAX;
        let last = Ticket::new(0, u32::MAX);
        // A completion reaches the operation by as much of its number as the name has room for.
        let none = Completion::NONE;
        in_flight.complete(Completion { data: first.name(), answer: -libc::EINVAL, ..none });
        assert!(in_flight.is_under_way(last));
        in_flight.complete(Completion { data: last.name(), answer: -libc::EINVAL, ..none });
        assert!(!in_flight.is_under_way(last));
        let submitted: Vec<_> = in_flight.done.iter().map(|(ticket, _)| *ticket).collect();
        assert_eq!(submitted, [first, last]);
    }
}
