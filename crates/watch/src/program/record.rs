//! Records of waits and changes for a recording. Programs that only count have none of this code.
//!
//! A record is made in a room of its own for each processor, and is copied to the ring: a header,
//! and the memory of the program that the call was about, as it is. So there is no loop here,
//! whatever a wait returns. Nobody is woken: the reader comes by.

use super::{SLOT_KEY, THREAD_KEY, TIMEOUT, TOOK, VALUE, Writer, ZERO};
use crate::assembler::{
    FRAME, Helper, Label, Op, R0, R1, R2, R3, R4, R6, R7, R8, R9, Register, When, Width,
};
use crate::counters::{Global, KIND_SHIFT, Kind};
use crate::machine::Call;

/// The maps of a recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordMaps {
    /// The ring.
    pub ring: i32,
    /// Room for one record.
    pub room: i32,
}

/// The words of a header, in bytes from its start.
pub(crate) const KEY: usize = 0;
pub(crate) const THREAD: usize = 8;
pub(crate) const TIME: usize = 16;
/// The time that a wait took, or the operation of a change.
pub(crate) const TOOK_OR_OPERATION: usize = 24;
/// The timeout of a wait, or the descriptor of a change.
pub(crate) const TIMEOUT_OR_DESCRIPTOR: usize = 32;
/// The result of a wait, or how many threads of its process are left when one has ended.
pub(crate) const RESULT: usize = 40;
/// The length of an array.
pub(crate) const LENGTH: usize = 48;
/// What is recorded: one of the kinds below.
pub(crate) const WHAT: usize = 56;
pub(crate) const HEADER: usize = 64;

pub(crate) const WAIT: u64 = 0;
pub(crate) const CHANGE: u64 = 1;
/// The sets that a `select` is called with, as it overwrites them.
pub(crate) const SELECT: u64 = 2;
/// A new epoll set: no earlier one has its number any more.
pub(crate) const CREATION: u64 = 3;
/// The end of a thread.
pub(crate) const ENDING: u64 = 4;

/// Bytes of an array or of events that are recorded at most. A room for each processor has at most
/// 32 KiB.
pub(crate) const MOST: i32 = 24_576;

/// Bytes of the room.
pub(crate) const ROOM: u32 = HEADER as u32 + MOST as u32;

/// Bytes of one set of `select`, of 1,024 descriptors. The C library's type has no more.
pub(crate) const SELECT_SET: i32 = 128;

/// The ring gives it to the reader without a wake of the reader (`BPF_RB_NO_WAKEUP`).
const NO_WAKE: i32 = 1;

/// Where a register is kept that a wait's record needs for itself.
const KEPT: i16 = VALUE;

impl Writer<'_> {
    /// `base` = the room, with the words of the header that every record has, or goes to `skip`.
    fn begin_record(&mut self, base: Register, what: u64, skip: Label) {
        let maps = self.build.record.expect("records are made for a recording");
        self.lookup(maps.room, ZERO);
        self.code.go_if(R0, When::Equal, 0, skip);
        self.code.alu(Op::Move, base, R0);
        for (from, to) in [(SLOT_KEY, KEY), (THREAD_KEY, THREAD)] {
            self.code.load(Width::Eight, R1, FRAME, from);
            self.code.store(Width::Eight, base, to as i16, R1);
        }
        self.code.call(Helper::Ktime);
        self.code.store(Width::Eight, base, TIME as i16, R0);
        self.code.alu_by(Op::Move, R1, what as i32);
        self.code.store(Width::Eight, base, WHAT as i16, R1);
    }

    /// Copies memory of the program, whose address is in `R3`, to the room. `R2` has the length.
    fn copy_to_record(&mut self, base: Register, at: usize) {
        self.code.alu(Op::Move, R1, base);
        self.code.alu_by(Op::Add, R1, at as i32);
        self.code.call(Helper::ReadUser);
    }

    /// Gives the record to the ring, with so many bytes after the header as `length` has, and
    /// counts it as lost if there is no room.
    fn end_record(&mut self, base: Register, length: Register, lost: Global) {
        let maps = self.build.record.expect("records are made for a recording");
        let given = self.code.label();
        self.code.map(R1, maps.ring);
        self.code.alu(Op::Move, R2, base);
        self.code.alu(Op::Move, R3, length);
        self.code.alu_by(Op::Add, R3, HEADER as i32);
        self.code.alu_by(Op::Move, R4, NO_WAKE);
        self.code.call(Helper::RingOutput);
        self.code.go_if(R0, When::Equal, 0, given);
        self.lookup(self.build.maps.globals, ZERO);
        self.code.go_if(R0, When::Equal, 0, given);
        self.code.alu_by(Op::Move, R1, 1);
        self.code.atomic_add(R0, 8 * lost as i16, R1);
        self.code.place(given);
    }

    /// Copies the three sets of `select` to the room. One that is not there leaves zeros.
    fn copy_select_sets(&mut self, base: Register) {
        self.argument_32(R1, 0);
        self.code.store(Width::Eight, base, LENGTH as i16, R1);
        for set in 0..3 {
            self.code.alu_by(Op::Move, R2, SELECT_SET);
            self.argument(R3, 1 + set);
            self.copy_to_record(base, HEADER + set * SELECT_SET as usize);
        }
    }
}

/// Records a wait. `R7` has its result, and `R6` and `R9` keep their values.
pub(super) fn wait(w: &mut Writer<'_>) {
    let (skip, end) = (w.code.label(), w.code.label());
    w.code.go_if(R7, When::SignedBelow, 0, skip);
    w.code.store(Width::Eight, FRAME, KEPT, R6);
    w.code.load(Width::Eight, R6, FRAME, SLOT_KEY);
    w.code.alu_by(Op::ShiftRight, R6, KIND_SHIFT as i32);
    w.code.alu_by(Op::And, R6, 0xf);
    // Rings have no events in their calls.
    let (ring, has_events) = (w.code.label(), w.code.label());
    for kind in [Kind::Epoll, Kind::Poll, Kind::Select] {
        w.code.go_if(R6, When::Equal, kind as i32, has_events);
    }
    w.code.go(ring);
    w.code.place(has_events);
    w.begin_record(R8, WAIT, ring);
    for (from, to) in [(TOOK, TOOK_OR_OPERATION), (TIMEOUT, TIMEOUT_OR_DESCRIPTOR)] {
        w.code.load(Width::Eight, R1, FRAME, from);
        w.code.store(Width::Eight, R8, to as i16, R1);
    }
    w.code.store(Width::Eight, R8, RESULT as i16, R7);
    let (poll, select) = (w.code.label(), w.code.label());
    w.code.go_if(R6, When::Equal, Kind::Poll as i32, poll);
    w.code.go_if(R6, When::Equal, Kind::Select as i32, select);

    let copied = |w: &mut Writer<'_>, number: Register, size: i32, address: usize| {
        let all = w.code.label();
        w.code.store(Width::Eight, R8, LENGTH as i16, number);
        w.code.alu(Op::Move, R6, number);
        w.code.go_if(R6, When::Below, MOST / size, all);
        w.code.alu_by(Op::Move, R6, MOST / size);
        w.code.place(all);
        w.code.alu_by(Op::Mul, R6, size);
        w.code.alu(Op::Move, R2, R6);
        w.argument(R3, address);
        w.copy_to_record(R8, HEADER);
        w.code.go(end);
    };
    let (event, _) = w.build.machine.event;
    copied(w, R7, event, 1);
    w.code.place(poll);
    w.argument_32(R4, 1);
    copied(w, R4, size_of::<libc::pollfd>() as i32, 0);
    w.code.place(select);
    w.copy_select_sets(R8);
    w.code.alu_by(Op::Move, R6, 3 * SELECT_SET);
    w.code.place(end);
    w.end_record(R8, R6, Global::LostWaits);
    w.code.place(ring);
    w.code.load(Width::Eight, R6, FRAME, KEPT);
    w.code.place(skip);
}

/// Records a change of an epoll set that succeeded. `R9` keeps its value.
pub(super) fn change(w: &mut Writer<'_>) {
    let skip = w.code.label();
    w.begin_record(R8, CHANGE, skip);
    for (argument, to) in [(1, TOOK_OR_OPERATION), (2, TIMEOUT_OR_DESCRIPTOR)] {
        w.argument_32(R1, argument);
        w.code.store(Width::Eight, R8, to as i16, R1);
    }
    let (event, _) = w.build.machine.event;
    w.code.alu_by(Op::Move, R2, event);
    w.argument(R3, 3);
    w.copy_to_record(R8, HEADER);
    w.code.alu_by(Op::Move, R6, event);
    w.end_record(R8, R6, Global::LostChanges);
    w.code.place(skip);
}

/// Records that an epoll set was made, whose descriptor or error is in `R7`.
pub(super) fn creation(w: &mut Writer<'_>) {
    let out = w.out;
    w.code.go_if(R7, When::SignedBelow, 0, out);
    w.code.alu(Op::Move, R2, R7);
    w.key(Kind::Epoll);
    w.begin_record(R8, CREATION, out);
    w.code.alu_by(Op::Move, R6, 0);
    w.end_record(R8, R6, Global::LostChanges);
}

/// Records that this thread ends. `R7` has the number of those that are left; `R6` and `R7` keep
/// their values.
pub(super) fn ending(w: &mut Writer<'_>) {
    let skip = w.code.label();
    w.code.alu_by(Op::Move, R2, 0);
    w.key(Kind::Process);
    w.begin_record(R8, ENDING, skip);
    w.code.store(Width::Eight, R8, RESULT as i16, R7);
    w.code.alu_by(Op::Move, R9, 0);
    w.end_record(R8, R9, Global::LostChanges);
    w.code.place(skip);
}

/// Records the sets that a `select` is called with. `R8` has the number of the call and keeps it;
/// `R6` and `R9` are free.
pub(super) fn before_select(w: &mut Writer<'_>) {
    let (select, skip) = (w.code.label(), w.code.label());
    for &(number, call) in w.build.machine.calls {
        if matches!(call, Call::Select | Call::Pselect) {
            w.code.go_if(R8, When::Equal, number as i32, select);
        }
    }
    w.code.go(skip);
    w.code.place(select);
    w.code.alu_by(Op::Move, R2, 0);
    w.key(Kind::Select);
    w.begin_record(R9, SELECT, skip);
    w.copy_select_sets(R9);
    w.code.alu_by(Op::Move, R6, 3 * SELECT_SET);
    w.end_record(R9, R6, Global::LostChanges);
    w.code.place(skip);
}
