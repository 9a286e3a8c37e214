//! The programs in the kernel: at the entry and the exit of every system call, when a process
//! starts another or ends, and when a signal is delivered.
//!
//! **Other processes pay least.** Both tracepoints run for every system call of the machine. The
//! first question is therefore the one that costs least: whether the call's number is one that
//! counts. It needs no map. Only then the process is looked up.
//!
//! **The exit counts.** It has the arguments (see `machine.rs`) and the result, so all counts are
//! of calls that returned while the programs were attached, as the program itself would count. The
//! entry notes only the time and the timeout of calls that can sleep, by thread.
//!
//! **A slot is made by the first call of a key.** The number of the next slot is one word; after
//! the last there is a queue of those that were given back. The map from keys to slots takes the
//! first that is offered, and one that is not taken is given back.
//!
//! **A process that ends is forgotten at once**, so another that gets its number is not taken for
//! it. Its slots are marked, and given back by `watch.rs` once their counts were read.
//!
//! **A wait that a signal interrupts may not be over.** Without a handler for the signal the kernel
//! makes the call again, or continues it by `restart_syscall`, and the program sees one call. So
//! the exit only notes it by thread. A handler makes it a wait that failed; the next entry
//! continues it.
//!
//! **32-bit programs** number their calls differently. Their calls are recognized by the saved
//! registers, before their number is looked at, and are counted in one word instead.

use std::collections::BTreeMap;

use crate::assembler::{
    Assembler, FRAME, Helper, Label, Op, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, Register, When,
    Width,
};
use crate::counters::{
    BITS_LOG2, EXACT, Global, HISTOGRAM, ID_MASK, KIND_SHIFT, Kind, REGISTERED_LOG2, Word,
};
use crate::machine::{Call, Machine};

pub(crate) mod record;

/// The descriptors of the maps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maps {
    /// Watched processes: a [`Watched`] by process.
    pub processes: i32,
    /// The last entry of a wait, by thread: the time, the timeout, 1 + the slot of a full wait, and
    /// of an interrupted one the number of the call in the upper half, 1 + the slot in the lower.
    pub threads: i32,
    /// The slot of each key, which has the slot of its process instead of the process.
    pub slots: i32,
    /// Slots that were given back.
    pub free: i32,
    pub counters: i32,
    pub bitmaps: i32,
    /// Room for the events that one wait returned.
    pub scratch: i32,
    pub globals: i32,
}

/// The value of a process in the map of processes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Watched {
    pub slot: u32,
    pub flags: u32,
}

/// Flags of a process: its calls count; processes that it starts are watched.
pub(crate) const COUNTS: u32 = 1;
pub(crate) const IS_FOLLOWED: u32 = 2;

/// How a set of programs is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Build<'a> {
    pub machine: &'a Machine,
    pub maps: Maps,
    /// How many slots there are.
    pub slots: u32,
    /// Whether every process is watched that is not in the map.
    pub all: bool,
    /// Records are made, too.
    pub record: Option<record::RecordMaps>,
}

/// How many results of a wait count as distinct active ones.
pub(crate) const RESULTS: i32 = 64;

/// Bytes of the scratch room.
pub(crate) const SCRATCH: u32 = RESULTS as u32 * 16;

/// Bytes of an entry by thread.
pub(crate) const THREAD: u32 = 32;

// Places in it.
const ENTERED: i16 = 0;
const ITS_TIMEOUT: i16 = 8;
const FULL: i16 = 16;
const INTERRUPTED: i16 = 24;

/// Results by which the kernel makes a call again, with the same number or by `restart_syscall`,
/// unless a handler of the program runs: then the program gets `EINTR`.
pub(crate) const RESTART_NO_HANDLER: i32 = -514;
pub(crate) const RESTART_BLOCK: i32 = -516;

/// The greatest of all results that no program gets.
pub(crate) const RESTART: i32 = -512;

/// The timeout of calls whose timeout is not known.
const UNKNOWN: i32 = -2;

/// A wait that takes less has not slept.
pub(crate) const SLEEP_NS: i32 = 5_000;
pub(crate) const SHORT_NS: i32 = 10_000_000;
pub(crate) const LATE_NS: i32 = 1_000_000;

// Places on the stack.
const THREAD_KEY: i16 = -8;
const PROCESS_KEY: i16 = -16;
const SLOT_KEY: i16 = -24;
const SLOT: i16 = -32;
const TIMEOUT: i16 = -40;
const TOOK: i16 = -48;
const ZERO: i16 = -56;
/// A new value for a map, of at most [`THREAD`] bytes.
const VALUE: i16 = -88;
/// The slot of the process.
const OWNER: i16 = -96;
/// The key of [`Maps::slots`].
const OWNED_KEY: i16 = -104;
/// The number of the call.
const CALL: i16 = -112;
const TIME: i16 = -128;

struct Writer<'a> {
    code: Assembler,
    build: Build<'a>,
    /// The end of the program.
    out: Label,
    /// Where the window of the saved registers is on the stack, less where it is in `pt_regs`.
    window: i16,
}

impl<'a> Writer<'a> {
    fn new(build: Build<'a>) -> Writer<'a> {
        let mut code = Assembler::default();
        let out = code.label();
        let (from, length) = build.machine.window;
        let window = TIME - (length + from) as i16;
        Writer { code, build, out, window }
    }

    fn finish(mut self) -> Vec<u64> {
        self.code.place(self.out);
        self.code.exit();
        self.code.finish()
    }

    /// `to` = the address of a place on the stack.
    fn address(&mut self, to: Register, place: i16) {
        self.code.alu(Op::Move, to, FRAME);
        self.code.alu_by(Op::Add, to, i32::from(place));
    }

    /// Copies memory, of the kernel or of the program, to the stack. Its address is in `R3`.
    fn read(&mut self, helper: Helper, place: i16, length: i32) {
        self.address(R1, place);
        self.code.alu_by(Op::Move, R2, length);
        self.code.call(helper);
    }

    /// `R0` = the value of the key on the stack, or 0.
    fn lookup(&mut self, map: i32, key: i16) {
        self.code.map(R1, map);
        self.address(R2, key);
        self.code.call(Helper::MapLookup);
    }

    /// Sets a value; both are on the stack. An existing value is replaced only if asked for.
    fn update(&mut self, map: i32, key: i16, value: i16, replaces: bool) {
        self.code.map(R1, map);
        self.address(R2, key);
        self.address(R3, value);
        self.code.alu_by(Op::Move, R4, i32::from(!replaces));
        self.code.call(Helper::MapUpdate);
    }

    /// Adds 1 to a word of the slot at `base`. Changes `R1`.
    fn count(&mut self, base: Register, word: Word) {
        self.code.alu_by(Op::Move, R1, 1);
        self.code.atomic_add(base, 8 * word as i16, R1);
    }

    /// Leaves unless the call's number, in `number`, is one of these. Changes `R1` and `R2`.
    fn only(&mut self, number: Register, wanted: &[u32]) {
        let selected = self.code.label();
        let mut masks = BTreeMap::new();
        for number in wanted {
            *masks.entry(number / 64).or_insert(0) |= 1_u64 << (number % 64);
        }
        self.code.alu(Op::Move, R1, number);
        self.code.alu_by(Op::ShiftRight, R1, 6);
        for (word, mask) in masks {
            let next = self.code.label();
            self.code.go_if(R1, When::NotEqual, word as i32, next);
            self.code.wide(R2, mask);
            self.code.go(selected);
            self.code.place(next);
        }
        self.code.go(self.out);
        self.code.place(selected);
        self.code.alu(Op::Move, R1, number);
        self.code.alu_by(Op::And, R1, 63);
        self.code.alu(Op::ShiftRight, R2, R1);
        self.code.alu_by(Op::And, R2, 1);
        self.code.go_if(R2, When::Equal, 0, self.out);
    }

    /// Notes the thread and its process as keys. `R0` = the process.
    fn current(&mut self) {
        self.code.call(Helper::CurrentPidTgid);
        self.code.store(Width::Eight, FRAME, THREAD_KEY, R0);
        self.code.alu_by(Op::ShiftRight, R0, 32);
        self.code.store(Width::Four, FRAME, PROCESS_KEY, R0);
        self.code.alu_by(Op::Move, R1, 0);
        self.code.store(Width::Four, FRAME, ZERO, R1);
    }

    /// Copies the saved registers, whose address is in `from`, to the stack.
    fn registers(&mut self, from: Register) {
        let (start, length) = self.build.machine.window;
        if self.build.machine.is_read_directly {
            for place in self.build.machine.arguments {
                self.code.load(Width::Eight, R1, from, place as i16);
                self.code.store(Width::Eight, FRAME, self.window + place as i16, R1);
            }
        } else {
            self.code.alu(Op::Move, R3, from);
            self.code.alu_by(Op::Add, R3, start);
            self.read(Helper::ReadKernel, self.window + start as i16, length);
        }
    }

    /// `R8` = the number of the call, from the saved registers, whose address is in `from`. Goes to
    /// `compat` for a 32-bit program.
    fn number(&mut self, from: Register, compat: Label) {
        let (number, is_long) = self.build.machine.number;
        let (state, mask, value) = self.build.machine.compat;
        let width = if is_long { Width::Eight } else { Width::Four };
        if self.build.machine.is_read_directly {
            self.code.load(width, R8, from, number as i16);
            self.code.load(Width::Eight, R1, from, state as i16);
        } else {
            let length = number + 8 - state;
            assert!((9..=24).contains(&length), "both are read at once");
            self.code.alu(Op::Move, R3, from);
            self.code.alu_by(Op::Add, R3, state);
            self.read(Helper::ReadKernel, VALUE, length);
            self.code.load(width, R8, FRAME, VALUE + (number - state) as i16);
            self.code.load(Width::Eight, R1, FRAME, VALUE);
        }
        self.code.alu_by(Op::And, R1, mask);
        self.code.go_if(R1, When::Equal, value, compat);
    }

    /// `to` = an argument of the call, all 64 bits of it.
    fn argument(&mut self, to: Register, number: usize) {
        let place = self.build.machine.arguments[number] as i16;
        self.code.load(Width::Eight, to, FRAME, self.window + place);
    }

    /// `to` = an argument of 32 bits, without its sign.
    fn argument_32(&mut self, to: Register, number: usize) {
        let place = self.build.machine.arguments[number] as i16;
        self.code.load(Width::Four, to, FRAME, self.window + place);
    }

    /// Counts in a word for the whole machine.
    fn count_global(&mut self, word: Global) {
        self.lookup(self.build.maps.globals, ZERO);
        self.code.go_if(R0, When::Equal, 0, self.out);
        self.code.alu_by(Op::Move, R1, 1);
        self.code.atomic_add(R0, 8 * word as i16, R1);
    }

    /// `SLOT` = a new slot; leaves if there is none, and counts that as `lost`.
    fn allocate(&mut self, lost: Global) {
        let (fresh, taken) = (self.code.label(), self.code.label());
        self.lookup(self.build.maps.globals, ZERO);
        self.code.go_if(R0, When::Equal, 0, self.out);
        self.code.alu_by(Op::Move, R1, 1);
        self.code.fetch_add(R0, 8 * Global::Next as i16, R1);
        self.code.go_if(R1, When::Below, self.build.slots as i32, fresh);
        self.code.map(R1, self.build.maps.free);
        self.address(R2, SLOT);
        self.code.call(Helper::MapPop);
        self.code.go_if(R0, When::Equal, 0, taken);
        self.count_global(lost);
        self.code.go(self.out);
        self.code.place(fresh);
        self.code.store(Width::Four, FRAME, SLOT, R1);
        self.code.place(taken);
    }

    /// Gives back the slot on the stack, which nothing has used.
    fn give_back(&mut self) {
        self.code.map(R1, self.build.maps.free);
        self.address(R2, SLOT);
        self.code.alu_by(Op::Move, R3, 0);
        self.code.call(Helper::MapPush);
    }

    /// `to` = the address of the counters of the slot on the stack.
    fn counters(&mut self, to: Register) {
        self.lookup(self.build.maps.counters, SLOT);
        self.code.go_if(R0, When::Equal, 0, self.out);
        self.code.alu(Op::Move, to, R0);
    }

    /// Makes the key of an object of the current process; its descriptor or length is in `R2`.
    /// Changes `R1` and `R2`.
    fn key(&mut self, kind: Kind) {
        self.code.alu_by(Op::And, R2, ID_MASK as i32);
        self.code.alu_by(Op::Or, R2, (kind as i32) << KIND_SHIFT);
        self.code.load(Width::Four, R1, FRAME, PROCESS_KEY);
        self.code.alu_by(Op::ShiftLeft, R1, 32);
        self.code.alu(Op::Or, R1, R2);
        self.code.store(Width::Eight, FRAME, SLOT_KEY, R1);
    }

    /// `R9` = the counters of the key on the stack, with its slot in `SLOT`.
    fn find(&mut self) {
        let (found, ready, made) = (self.code.label(), self.code.label(), self.code.label());
        self.code.load(Width::Four, R1, FRAME, SLOT_KEY);
        self.code.load(Width::Four, R2, FRAME, OWNER);
        self.code.alu_by(Op::ShiftLeft, R2, 32);
        self.code.alu(Op::Or, R1, R2);
        self.code.store(Width::Eight, FRAME, OWNED_KEY, R1);
        self.lookup(self.build.maps.slots, OWNED_KEY);
        self.code.go_if(R0, When::NotEqual, 0, found);
        self.allocate(Global::Overflow);
        self.update(self.build.maps.slots, OWNED_KEY, SLOT, false);
        self.code.go_if(R0, When::Equal, 0, made);
        // Another thread was first.
        self.give_back();
        self.lookup(self.build.maps.slots, OWNED_KEY);
        self.code.go_if(R0, When::NotEqual, 0, found);
        self.count_global(Global::Overflow);
        self.code.go(self.out);
        self.code.place(made);
        self.counters(R9);
        self.code.load(Width::Four, R1, FRAME, OWNER);
        self.code.store(Width::Eight, R9, 8 * Word::Owner as i16, R1);
        self.code.load(Width::Eight, R1, FRAME, SLOT_KEY);
        self.code.store(Width::Eight, R9, 8 * Word::Key as i16, R1);
        self.code.go(ready);
        self.code.place(found);
        self.code.load(Width::Four, R1, R0, 0);
        self.code.store(Width::Four, FRAME, SLOT, R1);
        self.counters(R9);
        self.code.place(ready);
    }

    /// Adds a process to those that are watched: its key is on the stack at `key`. `SLOT` = its
    /// slot. Goes to `failed` if it could not be added; its slot is given back then. Leaves if
    /// there is no slot, and counts that as `lost`.
    fn adopt(&mut self, key: i16, replaces: bool, lost: Global, failed: Label) {
        let made = self.code.label();
        self.allocate(lost);
        self.code.load(Width::Four, R1, FRAME, SLOT);
        self.code.store(Width::Four, FRAME, VALUE, R1);
        self.code.alu_by(Op::Move, R1, (COUNTS | IS_FOLLOWED) as i32);
        self.code.store(Width::Four, FRAME, VALUE + 4, R1);
        self.update(self.build.maps.processes, key, VALUE, replaces);
        self.code.go_if(R0, When::Equal, 0, made);
        self.give_back();
        self.code.go(failed);
        self.code.place(made);
        self.counters(R9);
        self.code.load(Width::Four, R1, FRAME, SLOT);
        self.code.store(Width::Eight, R9, 8 * Word::Owner as i16, R1);
        self.code.load(Width::Four, R1, FRAME, key);
        self.code.alu_by(Op::ShiftLeft, R1, 32);
        self.code.store(Width::Eight, R9, 8 * Word::Key as i16, R1);
    }

    /// `to` = the position of the highest bit of `R2`, which is neither 0 nor above 32 bits.
    /// Changes `R2`.
    fn highest_bit(&mut self, to: Register) {
        self.code.alu_by(Op::Move, to, 0);
        for shift in [16, 8, 4, 2, 1] {
            let below = self.code.label();
            self.code.go_if(R2, When::Below, 1 << shift, below);
            self.code.alu_by(Op::ShiftRight, R2, shift);
            self.code.alu_by(Op::Add, to, shift);
            self.code.place(below);
        }
    }
}

/// The program for `sys_enter`: it notes the time and the timeout of a call that can sleep.
pub(crate) fn enter(build: Build<'_>) -> Vec<u64> {
    let mut w = Writer::new(build);
    w.code.load(Width::Eight, R6, R1, 0);
    w.code.load(Width::Eight, R8, R1, 8);
    let waits = build.machine.calls.iter().filter(|(_, call)| call.waits());
    let mut noted: Vec<u32> = waits.map(|(number, _)| *number).collect();
    noted.push(build.machine.restart);
    w.only(R8, &noted);
    w.number(R6, w.out);
    w.current();
    w.lookup(build.maps.processes, PROCESS_KEY);
    let watched = w.code.label();
    if build.all {
        // It becomes one of those that are watched when the call returns.
        w.code.go_if(R0, When::Equal, 0, watched);
    } else {
        w.code.go_if(R0, When::Equal, 0, w.out);
    }
    w.code.load(Width::Four, R1, R0, 4);
    w.code.alu_by(Op::And, R1, COUNTS as i32);
    w.code.go_if(R1, When::Equal, 0, w.out);
    w.code.place(watched);
    let fresh = w.code.label();
    w.code.go_if(R8, When::NotEqual, build.machine.restart as i32, fresh);
    resume(&mut w);
    w.code.place(fresh);
    w.registers(R6);
    if build.record.is_some() {
        record::before_select(&mut w);
    }
    timeout(&mut w);
    note_entry(&mut w);
    w.finish()
}

/// Notes that the kernel continues the thread's wait, if it was one that is counted. Leaves.
fn resume(w: &mut Writer<'_>) {
    w.lookup(w.build.maps.threads, THREAD_KEY);
    w.code.go_if(R0, When::Equal, 0, w.out);
    // No handler makes it one that failed from now on. The exit needs the call's number.
    w.code.load(Width::Eight, R1, R0, INTERRUPTED);
    w.code.alu_by(Op::ShiftRight, R1, 32);
    w.code.alu_by(Op::ShiftLeft, R1, 32);
    w.code.store(Width::Eight, R0, INTERRUPTED, R1);
    w.code.go(w.out);
}

/// `R7` = the timeout of the call in nanoseconds; -1: none.
fn timeout(w: &mut Writer<'_>) {
    let known = w.code.label();
    // A call in milliseconds has its timeout among the arguments, another points to it.
    let (millis, seconds, micros) = (w.code.label(), w.code.label(), w.code.label());
    for &(number, call) in w.build.machine.calls {
        let next = w.code.label();
        let (argument, then) = match call {
            Call::EpollWait => (3, millis),
            Call::Poll => (2, millis),
            Call::EpollWait2 => (3, seconds),
            Call::Ppoll => (2, seconds),
            Call::Pselect => (4, seconds),
            Call::Select => (4, micros),
            Call::Ring | Call::Control | Call::Read | Call::Accept => continue,
        };
        w.code.go_if(R8, When::NotEqual, number as i32, next);
        w.argument(R7, argument);
        w.code.go(then);
        w.code.place(next);
    }
    // A ring may have its timeout in memory, or as an entry.
    w.code.alu_by(Op::Move, R7, UNKNOWN);
    w.code.go(known);

    w.code.place(millis);
    w.code.alu_by(Op::ShiftLeft, R7, 32);
    w.code.alu_by(Op::ShiftSigned, R7, 32);
    let finite = w.code.label();
    w.code.go_if(R7, When::SignedAtLeast, 0, finite);
    w.code.alu_by(Op::Move, R7, -1);
    w.code.go(known);
    w.code.place(finite);
    w.code.alu_by(Op::Mul, R7, 1_000_000);
    w.code.go(known);

    // The verifier refuses code that nothing leads to.
    let has_micros = w.build.machine.calls.iter().any(|(_, call)| *call == Call::Select);
    w.code.place(micros);
    for (start, unit) in [(micros, 1_000), (seconds, 1)].into_iter().skip(usize::from(!has_micros))
    {
        if start != micros {
            w.code.place(start);
        }
        let finite = w.code.label();
        w.code.go_if(R7, When::NotEqual, 0, finite);
        w.code.alu_by(Op::Move, R7, -1);
        w.code.go(known);
        w.code.place(finite);
        w.code.alu(Op::Move, R3, R7);
        w.code.alu_by(Op::Move, R7, UNKNOWN);
        w.read(Helper::ReadUser, TIME, 16);
        w.code.go_if(R0, When::NotEqual, 0, known);
        w.code.load(Width::Eight, R7, FRAME, TIME);
        w.code.alu_by(Op::Mul, R7, 1_000_000_000);
        w.code.load(Width::Eight, R1, FRAME, TIME + 8);
        w.code.alu_by(Op::Mul, R1, unit);
        w.code.alu(Op::Add, R7, R1);
        w.code.go(known);
    }
    w.code.place(known);
}

/// Notes the time and the timeout, which is in `R7`, by thread.
fn note_entry(w: &mut Writer<'_>) {
    let (known, fresh) = (w.code.label(), w.code.label());
    w.code.call(Helper::Ktime);
    w.code.alu(Op::Move, R8, R0);
    w.lookup(w.build.maps.threads, THREAD_KEY);
    w.code.go_if(R0, When::NotEqual, 0, known);
    w.code.alu_by(Op::Move, R1, 0);
    new_entry(w, R8, R7, R1);
    w.code.go(w.out);
    w.code.place(known);
    w.code.load(Width::Eight, R1, R0, INTERRUPTED);
    w.code.go_if(R1, When::Equal, 0, fresh);
    w.code.alu_by(Op::Move, R2, 0);
    w.code.store(Width::Eight, R0, INTERRUPTED, R2);
    // A wait that is made again has begun before. Its timeout is what was left.
    w.code.alu_by(Op::ShiftLeft, R1, 32);
    w.code.go_if(R1, When::Equal, 0, fresh);
    w.code.load(Width::Eight, R1, R0, ENTERED);
    w.code.go_if(R1, When::Equal, 0, fresh);
    w.code.go_if(R7, When::SignedBelow, 1, w.out);
    w.code.alu(Op::Sub, R8, R1);
    w.code.alu(Op::Add, R7, R8);
    w.code.store(Width::Eight, R0, ITS_TIMEOUT, R7);
    w.code.go(w.out);
    w.code.place(fresh);
    w.code.store(Width::Eight, R0, ENTERED, R8);
    w.code.store(Width::Eight, R0, ITS_TIMEOUT, R7);
}

/// Makes the entry of a thread that has none.
fn new_entry(w: &mut Writer<'_>, time: Register, timeout: Register, interrupted: Register) {
    for (place, register) in [(ENTERED, time), (ITS_TIMEOUT, timeout), (INTERRUPTED, interrupted)] {
        w.code.store(Width::Eight, FRAME, VALUE + place, register);
    }
    w.code.alu_by(Op::Move, R1, 0);
    w.code.store(Width::Eight, FRAME, VALUE + FULL, R1);
    w.update(w.build.maps.threads, THREAD_KEY, VALUE, true);
}

/// The program for `sys_exit`: it counts.
pub(crate) fn exit(build: Build<'_>) -> Vec<u64> {
    let mut w = Writer::new(build);
    w.code.load(Width::Eight, R6, R1, 0);
    w.code.load(Width::Eight, R7, R1, 8);
    let compat = w.code.label();
    w.number(R6, compat);
    let mut counted: Vec<u32> = build.machine.calls.iter().map(|(number, _)| *number).collect();
    counted.push(build.machine.restart);
    if build.record.is_some() {
        counted.extend(build.machine.creations);
    }
    w.only(R8, &counted);
    w.current();
    find_process(&mut w);
    w.registers(R6);
    let first = w.code.label();
    w.code.go_if(R8, When::NotEqual, build.machine.restart as i32, first);
    // The number of the call that was continued.
    w.lookup(build.maps.threads, THREAD_KEY);
    w.code.go_if(R0, When::Equal, 0, w.out);
    w.code.load(Width::Eight, R8, R0, INTERRUPTED);
    w.code.alu_by(Op::ShiftRight, R8, 32);
    w.code.go_if(R8, When::Equal, 0, w.out);
    w.code.alu_by(Op::Move, R1, 0);
    w.code.store(Width::Eight, R0, INTERRUPTED, R1);
    w.code.place(first);
    w.code.store(Width::Eight, FRAME, CALL, R8);
    let targets = [
        (Call::Read, w.code.label()),
        (Call::Accept, w.code.label()),
        (Call::Control, w.code.label()),
        (Call::EpollWait, w.code.label()),
        (Call::Poll, w.code.label()),
        (Call::Select, w.code.label()),
        (Call::Ring, w.code.label()),
    ];
    let target = |call: Call| {
        let same = match call {
            Call::EpollWait2 => Call::EpollWait,
            Call::Ppoll => Call::Poll,
            Call::Pselect => Call::Select,
            call => call,
        };
        targets.iter().find(|(call, _)| *call == same).expect("every call has a target").1
    };
    for &(number, call) in build.machine.calls {
        w.code.go_if(R8, When::Equal, number as i32, target(call));
    }
    if build.record.is_some() {
        // What is left has made a set.
        record::creation(&mut w);
    }
    w.code.go(w.out);

    for (call, found, empty) in [
        (Call::Read, Word::Reads, Word::EmptyReads),
        (Call::Accept, Word::Accepts, Word::EmptyAccepts),
    ] {
        w.code.place(target(call));
        w.code.load(Width::Four, R1, FRAME, OWNER);
        w.code.store(Width::Four, FRAME, SLOT, R1);
        w.counters(R9);
        let again = w.code.label();
        w.code.go_if(R7, When::Equal, -libc::EAGAIN, again);
        w.code.go_if(R7, When::SignedBelow, 0, w.out);
        w.count(R9, found);
        w.code.go(w.out);
        w.code.place(again);
        w.count(R9, empty);
        w.code.go(w.out);
    }

    w.code.place(target(Call::Control));
    control(&mut w);

    let wait = w.code.label();
    w.code.place(target(Call::EpollWait));
    w.argument_32(R6, 2);
    w.code.alu_by(Op::Move, R8, 0);
    w.argument_32(R2, 0);
    w.key(Kind::Epoll);
    w.code.go(wait);
    for (call, kind, length) in [(Call::Poll, Kind::Poll, 1), (Call::Select, Kind::Select, 0)] {
        w.code.place(target(call));
        w.code.alu_by(Op::Move, R6, 0);
        w.argument_32(R8, length);
        // An empty array has 0 bits.
        let empty = w.code.label();
        w.code.alu_by(Op::Move, R3, 0);
        w.code.go_if(R8, When::Equal, 0, empty);
        w.code.alu(Op::Move, R2, R8);
        w.highest_bit(R3);
        w.code.alu_by(Op::Add, R3, 1);
        w.code.place(empty);
        w.code.alu(Op::Move, R2, R3);
        w.key(kind);
        w.code.go(wait);
    }
    let found = w.code.label();
    w.code.place(target(Call::Ring));
    ring(&mut w, found);

    w.code.place(compat);
    count_compat(&mut w);

    w.code.place(wait);
    w.find();
    w.code.place(found);
    finish_wait(&mut w);
    w.finish()
}

/// Counts a call of a 32-bit program, with its number in `R8`, unless it was interrupted. Leaves.
fn count_compat(w: &mut Writer<'_>) {
    w.only(R8, w.build.machine.compat_calls);
    w.code.go_if(R7, When::SignedAtMost, RESTART, w.out);
    w.current();
    w.lookup(w.build.maps.processes, PROCESS_KEY);
    let counts = w.code.label();
    w.code.go_if(R0, When::Equal, 0, if w.build.all { counts } else { w.out });
    w.code.load(Width::Four, R1, R0, 4);
    w.code.alu_by(Op::And, R1, COUNTS as i32);
    w.code.go_if(R1, When::Equal, 0, w.out);
    w.code.place(counts);
    w.count_global(Global::Compat);
    w.code.go(w.out);
}

/// `OWNER` = the slot of the current process, or leaves if it is not watched.
fn find_process(w: &mut Writer<'_>) {
    let (known, counts, first) = (w.code.label(), w.code.label(), w.code.label());
    w.lookup(w.build.maps.processes, PROCESS_KEY);
    if w.build.all {
        w.code.go_if(R0, When::NotEqual, 0, known);
        w.adopt(PROCESS_KEY, false, Global::Overflow, first);
        w.code.load(Width::Four, R1, FRAME, SLOT);
        w.code.go(counts);
        // Another of its threads was first.
        w.code.place(first);
        w.lookup(w.build.maps.processes, PROCESS_KEY);
        w.code.go_if(R0, When::NotEqual, 0, known);
        w.count_global(Global::Overflow);
        w.code.go(w.out);
        w.code.place(known);
    } else {
        w.code.go_if(R0, When::Equal, 0, w.out);
    }
    w.code.load(Width::Four, R1, R0, 4);
    w.code.alu_by(Op::And, R1, COUNTS as i32);
    w.code.go_if(R1, When::Equal, 0, w.out);
    w.code.load(Width::Four, R1, R0, 0);
    w.code.place(counts);
    w.code.store(Width::Eight, FRAME, OWNER, R1);
}

/// Counts an `epoll_ctl`.
fn control(w: &mut Writer<'_>) {
    w.argument_32(R2, 0);
    w.key(Kind::Epoll);
    w.find();
    let done = w.code.label();
    w.code.go_if(R7, When::Equal, 0, done);
    w.count(R9, Word::Refused);
    w.code.go(w.out);
    w.code.place(done);
    if w.build.record.is_some() {
        record::change(w);
    }
    w.argument_32(R2, 1);
    for (operation, word) in [
        (libc::EPOLL_CTL_ADD, Word::Added),
        (libc::EPOLL_CTL_MOD, Word::Changed),
        (libc::EPOLL_CTL_DEL, Word::Removed),
    ] {
        let next = w.code.label();
        w.code.go_if(R2, When::NotEqual, operation, next);
        w.count(R9, word);
        w.code.go(w.out);
        w.code.place(next);
    }
    w.code.go(w.out);
}

/// Counts an `io_uring_enter`; one that waits continues as a wait without events.
fn ring(w: &mut Writer<'_>, wait: Label) {
    const WAITS: i32 = 1;
    const IS_REGISTERED: i32 = 1 << 4;
    let (registered, known) = (w.code.label(), w.code.label());
    w.argument_32(R2, 0);
    w.argument_32(R1, 3);
    w.code.alu_by(Op::And, R1, IS_REGISTERED);
    w.code.go_if(R1, When::NotEqual, 0, registered);
    w.key(Kind::Ring);
    w.code.go(known);
    // Each thread has numbers of its own. The thread is the lower half of its key.
    w.code.place(registered);
    w.code.alu_by(Op::And, R2, (1 << REGISTERED_LOG2) - 1);
    w.code.load(Width::Four, R1, FRAME, THREAD_KEY);
    w.code.alu_by(Op::ShiftLeft, R1, REGISTERED_LOG2 as i32);
    w.code.alu(Op::Or, R2, R1);
    w.key(Kind::RegisteredRing);
    w.code.place(known);
    w.find();
    w.code.alu_by(Op::Move, R6, 0);
    let (submitted, timed_out, only_submits) = (w.code.label(), w.code.label(), w.code.label());
    w.code.alu_by(Op::Move, R8, 0);
    w.code.go_if(R7, When::SignedAtMost, 0, submitted);
    w.code.alu(Op::Move, R8, R7);
    w.code.alu_by(Op::Move, R7, 0);
    w.code.place(submitted);
    w.code.go_if(R7, When::NotEqual, -libc::ETIME, timed_out);
    w.count(R9, Word::TimedOut);
    w.code.alu_by(Op::Move, R7, 0);
    w.code.place(timed_out);
    w.argument_32(R1, 3);
    w.code.alu_by(Op::And, R1, WAITS);
    w.code.go_if(R1, When::Equal, 0, only_submits);
    w.argument_32(R1, 2);
    w.code.go_if(R1, When::NotEqual, 0, wait);
    w.code.place(only_submits);
    w.count(R9, Word::Looks);
    w.code.atomic_add(R9, 8 * Word::Watched as i16, R8);
    w.code.go(w.out);
}

/// Counts a wait. `R6` has the room for events, 0 unless it is an epoll set's; `R7` the result,
/// `R8` the length of the array, `R9` the counters.
fn finish_wait(w: &mut Writer<'_>) {
    let (over, none, short) = (w.code.label(), w.code.label(), w.code.label());
    w.code.go_if(R7, When::SignedAtLeast, RESTART + 1, over);
    interrupted(w);
    w.code.place(over);
    // A call that is refused may have been given any number.
    w.code.go_if(R7, When::SignedBelow, 0, short);
    w.code.go_if(R8, When::Equal, 0, none);
    w.code.atomic_add(R9, 8 * Word::Watched as i16, R8);
    w.code.place(none);
    w.code.go_if(R6, When::Equal, 0, short);
    w.code.store(Width::Eight, R9, 8 * Word::Room as i16, R6);
    w.code.go_when(R7, When::NotEqual, R6, short);
    w.count(R9, Word::Full);
    w.code.place(short);
    duration(w);
    let (counted, waited) = (w.code.label(), w.code.label());
    w.code.load(Width::Eight, R3, FRAME, TIMEOUT);
    w.code.load(Width::Eight, R4, FRAME, TOOK);
    w.code.go_if(R3, When::NotEqual, 0, waited);
    w.count(R9, Word::Looks);
    w.code.go_if(R7, When::NotEqual, 0, counted);
    w.count(R9, Word::EmptyLooks);
    w.code.go(counted);
    w.code.place(waited);
    let awake = w.code.label();
    w.code.go_if(R4, When::SignedBelow, SLEEP_NS, awake);
    w.code.atomic_add(R9, 8 * Word::Asleep as i16, R4);
    w.count(R9, Word::Sleeps);
    w.code.place(awake);
    w.code.go_if(R7, When::NotEqual, 0, counted);
    w.code.go_if(R3, When::SignedBelow, 1, counted);
    timed_out(w, counted);
    w.code.place(counted);
    if w.build.record.is_some() {
        record::wait(w);
    }
    histogram(w);
    tokens(w);
}

/// Notes a wait that may not be over, as its result, in `R7`, is one that no program gets. Leaves.
fn interrupted(w: &mut Writer<'_>) {
    let (noted, known) = (w.code.label(), w.code.label());
    w.code.go_if(R7, When::Equal, RESTART_NO_HANDLER, noted);
    w.code.go_if(R7, When::NotEqual, RESTART_BLOCK, w.out);
    w.code.place(noted);
    w.code.load(Width::Eight, R6, FRAME, CALL);
    w.code.alu_by(Op::ShiftLeft, R6, 32);
    w.code.load(Width::Four, R1, FRAME, SLOT);
    w.code.alu_by(Op::Add, R1, 1);
    w.code.alu(Op::Or, R6, R1);
    w.lookup(w.build.maps.threads, THREAD_KEY);
    w.code.go_if(R0, When::NotEqual, 0, known);
    // It had begun before the programs were attached.
    w.code.alu_by(Op::Move, R1, 0);
    w.code.alu_by(Op::Move, R2, UNKNOWN);
    new_entry(w, R1, R2, R6);
    w.code.go(w.out);
    w.code.place(known);
    w.code.store(Width::Eight, R0, INTERRUPTED, R6);
    w.code.go(w.out);
}

/// Sets `TOOK` to the time that the wait took, or -1, and `TIMEOUT`; counts a cut wait.
fn duration(w: &mut Writer<'_>) {
    let (known, unknown, done) = (w.code.label(), w.code.label(), w.code.label());
    w.code.call(Helper::Ktime);
    w.code.alu(Op::Move, R8, R0);
    w.lookup(w.build.maps.threads, THREAD_KEY);
    w.code.go_if(R0, When::Equal, 0, unknown);
    w.code.load(Width::Eight, R1, R0, ENTERED);
    w.code.go_if(R1, When::NotEqual, 0, known);
    w.code.place(unknown);
    // It had begun before the programs were attached.
    w.code.alu_by(Op::Move, R1, -1);
    w.code.store(Width::Eight, FRAME, TOOK, R1);
    w.code.alu_by(Op::Move, R1, UNKNOWN);
    w.code.store(Width::Eight, FRAME, TIMEOUT, R1);
    w.code.go(done);
    w.code.place(known);
    w.code.alu(Op::Sub, R8, R1);
    w.code.store(Width::Eight, FRAME, TOOK, R8);
    w.code.load(Width::Eight, R1, R0, ITS_TIMEOUT);
    w.code.store(Width::Eight, FRAME, TIMEOUT, R1);
    w.code.alu_by(Op::Move, R1, 0);
    w.code.store(Width::Eight, R0, ENTERED, R1);
    // Whether this thread's last wait was a full one of the same slot.
    w.code.load(Width::Eight, R2, R0, FULL);
    w.code.store(Width::Eight, R0, FULL, R1);
    w.code.load(Width::Four, R3, FRAME, SLOT);
    w.code.alu_by(Op::Add, R3, 1);
    let whole = w.code.label();
    w.code.go_when(R2, When::NotEqual, R3, whole);
    w.code.go_if(R7, When::SignedAtMost, 0, whole);
    w.code.go_if(R8, When::AtLeast, SLEEP_NS, whole);
    w.count(R9, Word::Cut);
    w.code.place(whole);
    w.code.go_if(R6, When::Equal, 0, done);
    w.code.go_when(R7, When::NotEqual, R6, done);
    w.code.store(Width::Eight, R0, FULL, R3);
    w.code.place(done);
}

/// Counts a wait that its timeout has ended: `R3` is the timeout, `R4` the time it took.
fn timed_out(w: &mut Writer<'_>, counted: Label) {
    let long = w.code.label();
    w.count(R9, Word::TimedOut);
    w.code.go_if(R3, When::SignedAtLeast, SHORT_NS, long);
    w.count(R9, Word::ShortTimeouts);
    w.code.place(long);
    w.code.alu(Op::Sub, R4, R3);
    w.code.go_if(R4, When::SignedBelow, LATE_NS, counted);
    w.code.atomic_add(R9, 8 * Word::Lateness as i16, R4);
    w.count(R9, Word::Late);
}

/// Counts the wait by its result, which is in `R7`.
fn histogram(w: &mut Writer<'_>) {
    let (good, add) = (w.code.label(), w.code.label());
    w.code.go_if(R7, When::SignedAtLeast, 0, good);
    w.count(R9, Word::Failed);
    w.code.go(w.out);
    w.code.place(good);
    w.code.alu(Op::Move, R3, R7);
    w.code.go_if(R3, When::Below, EXACT as i32, add);
    w.code.atomic_add(R9, 8 * Word::ManyEvents as i16, R7);
    let small = w.code.label();
    w.code.go_if(R3, When::Below, 0xffff, small);
    w.code.alu_by(Op::Move, R3, 0xffff);
    w.code.place(small);
    w.code.alu(Op::Move, R2, R3);
    w.highest_bit(R4);
    // The two bits below the highest are the quarter.
    w.code.alu(Op::Move, R5, R4);
    w.code.alu_by(Op::Sub, R5, 2);
    w.code.alu(Op::ShiftRight, R3, R5);
    w.code.alu_by(Op::And, R3, 3);
    w.code.alu_by(Op::Sub, R4, 4);
    w.code.alu_by(Op::ShiftLeft, R4, 2);
    w.code.alu(Op::Add, R3, R4);
    w.code.alu_by(Op::Add, R3, EXACT as i32);
    w.code.place(add);
    // The verifier needs to see that it is in the slot.
    w.code.alu_by(Op::And, R3, 63);
    w.code.alu_by(Op::ShiftLeft, R3, 3);
    w.code.alu(Op::Move, R2, R9);
    w.code.alu(Op::Add, R2, R3);
    w.code.alu_by(Op::Move, R1, 1);
    w.code.atomic_add(R2, 8 * HISTOGRAM as i16, R1);
}

/// Sets the bits of the data of the first results of an epoll set.
fn tokens(w: &mut Writer<'_>) {
    let (size, data) = w.build.machine.event;
    let (all, next, skip) = (w.code.label(), w.code.label(), w.code.label());
    w.code.go_if(R6, When::Equal, 0, w.out);
    w.code.go_if(R7, When::SignedBelow, 1, w.out);
    w.code.alu(Op::Move, R8, R7);
    w.code.go_if(R8, When::Below, RESULTS, all);
    w.code.alu_by(Op::Move, R8, RESULTS);
    w.code.place(all);
    w.lookup(w.build.maps.scratch, ZERO);
    w.code.go_if(R0, When::Equal, 0, w.out);
    w.code.alu(Op::Move, R6, R0);
    w.code.alu(Op::Move, R1, R6);
    w.code.alu(Op::Move, R2, R8);
    w.code.alu_by(Op::Mul, R2, size);
    w.argument(R3, 1);
    w.code.call(Helper::ReadUser);
    w.code.go_if(R0, When::NotEqual, 0, w.out);
    w.lookup(w.build.maps.bitmaps, SLOT);
    w.code.go_if(R0, When::Equal, 0, w.out);
    w.code.alu(Op::Move, R9, R0);
    w.code.wide(R5, 0x9e37_79b9_7f4a_7c15);
    w.code.alu_by(Op::Move, R7, 0);
    w.code.place(next);
    w.code.load(Width::Eight, R1, R6, data as i16);
    // Consecutive numbers must not spread evenly, or the estimate would be too high.
    for shift in [29, 32] {
        w.code.alu(Op::Mul, R1, R5);
        w.code.alu(Op::Move, R2, R1);
        w.code.alu_by(Op::ShiftRight, R2, shift);
        w.code.alu(Op::Xor, R1, R2);
    }
    w.code.alu(Op::Mul, R1, R5);
    w.code.alu_by(Op::ShiftRight, R1, 64 - BITS_LOG2 as i32);
    w.code.alu(Op::Move, R2, R1);
    w.code.alu_by(Op::ShiftRight, R2, 6);
    w.code.alu_by(Op::ShiftLeft, R2, 3);
    w.code.alu(Op::Move, R3, R9);
    w.code.alu(Op::Add, R3, R2);
    w.code.alu_by(Op::And, R1, 63);
    w.code.alu_by(Op::Move, R2, 1);
    w.code.alu(Op::ShiftLeft, R2, R1);
    // Most are set already, and reading is cheaper.
    w.code.load(Width::Eight, R1, R3, 0);
    w.code.alu(Op::And, R1, R2);
    w.code.go_if(R1, When::NotEqual, 0, skip);
    w.code.atomic_or(R3, 0, R2);
    w.code.place(skip);
    w.code.alu_by(Op::Add, R6, size);
    w.code.alu_by(Op::Add, R7, 1);
    w.code.go_when(R7, When::Below, R8, next);
}

/// Where fields are in structures of the running kernel, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields {
    /// The number of its process, and what it shares with the process's other threads, in
    /// `task_struct`.
    pub tgid: i32,
    pub signal: i32,
    /// How many threads have not ended yet, in `signal_struct`.
    pub live: i32,
    /// The handler, in `k_sigaction`.
    pub handler: i32,
}

/// The program for `sched_process_fork`: the child of a process that is followed is watched, too.
/// It runs before the child does.
pub(crate) fn fork(build: Build<'_>, fields: Fields) -> Vec<u64> {
    const CHILD_KEY: i16 = TIME;
    let mut w = Writer::new(build);
    w.code.load(Width::Eight, R6, R1, 8);
    w.current();
    w.code.alu(Op::Move, R7, R0);
    w.lookup(build.maps.processes, PROCESS_KEY);
    w.code.go_if(R0, When::Equal, 0, w.out);
    w.code.load(Width::Four, R1, R0, 4);
    w.code.alu_by(Op::And, R1, IS_FOLLOWED as i32);
    w.code.go_if(R1, When::Equal, 0, w.out);
    w.code.load(Width::Four, R1, R6, fields.tgid as i16);
    // A thread is of the same process.
    w.code.go_when(R1, When::Equal, R7, w.out);
    w.code.store(Width::Four, FRAME, CHILD_KEY, R1);
    let failed = w.code.label();
    w.adopt(CHILD_KEY, true, Global::Unfollowed, failed);
    w.code.go(w.out);
    w.code.place(failed);
    w.count_global(Global::Unfollowed);
    w.finish()
}

/// The program for `sched_process_exit`: with the last thread of a watched process its slots are
/// marked, and its number is free for another.
pub(crate) fn end(build: Build<'_>, fields: Fields) -> Vec<u64> {
    let mut w = Writer::new(build);
    w.code.load(Width::Eight, R6, R1, 0);
    w.current();
    w.lookup(build.maps.processes, PROCESS_KEY);
    w.code.go_if(R0, When::Equal, 0, w.out);
    w.code.load(Width::Four, R1, R0, 0);
    w.code.store(Width::Four, FRAME, SLOT, R1);
    // The number of the thread is free, too.
    w.code.map(R1, build.maps.threads);
    w.address(R2, THREAD_KEY);
    w.code.call(Helper::MapDelete);
    w.code.load(Width::Eight, R1, R6, fields.signal as i16);
    w.code.load(Width::Four, R7, R1, fields.live as i16);
    if build.record.is_some() {
        record::ending(&mut w);
    }
    w.code.go_if(R7, When::NotEqual, 0, w.out);
    // Two threads that end at once may both be the last: the first to remove it is.
    w.code.map(R1, build.maps.processes);
    w.address(R2, PROCESS_KEY);
    w.code.call(Helper::MapDelete);
    w.code.go_if(R0, When::NotEqual, 0, w.out);
    w.counters(R9);
    // With a result it is ordered after what all threads have counted.
    w.code.alu_by(Op::Move, R1, 1);
    w.code.fetch_add(R9, 8 * Word::Ended as i16, R1);
    w.finish()
}

/// The program for `signal_deliver`: a wait that the signal has interrupted has failed, if the
/// signal has a handler.
pub(crate) fn signal(build: Build<'_>, fields: Fields) -> Vec<u64> {
    const IGNORED: i32 = 1;
    let mut w = Writer::new(build);
    w.code.load(Width::Eight, R6, R1, 16);
    w.current();
    w.lookup(build.maps.threads, THREAD_KEY);
    w.code.go_if(R0, When::Equal, 0, w.out);
    w.code.load(Width::Eight, R7, R0, INTERRUPTED);
    w.code.alu_by(Op::ShiftLeft, R7, 32);
    w.code.alu_by(Op::ShiftRight, R7, 32);
    w.code.go_if(R7, When::Equal, 0, w.out);
    w.code.load(Width::Eight, R1, R6, fields.handler as i16);
    // 0 is the default.
    w.code.go_if(R1, When::Below, IGNORED + 1, w.out);
    w.code.alu_by(Op::Move, R1, 0);
    w.code.store(Width::Eight, R0, INTERRUPTED, R1);
    w.code.load(Width::Eight, R8, R0, ENTERED);
    w.code.store(Width::Eight, R0, ENTERED, R1);
    w.code.alu_by(Op::Sub, R7, 1);
    w.code.store(Width::Four, FRAME, SLOT, R7);
    w.counters(R9);
    w.count(R9, Word::Failed);
    w.code.go_if(R8, When::Equal, 0, w.out);
    w.code.call(Helper::Ktime);
    w.code.alu(Op::Sub, R0, R8);
    w.code.go_if(R0, When::SignedBelow, SLEEP_NS, w.out);
    w.code.atomic_add(R9, 8 * Word::Asleep as i16, R0);
    w.count(R9, Word::Sleeps);
    w.finish()
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, OwnedFd};

    use super::*;
    use crate::btf::Types;
    use crate::counters::{BITMAP, GLOBALS, WORDS};
    use crate::machine::{AARCH64, X86_64};
    use crate::sys::{self, MapKind};

    /// The verifier does not know which machine's registers a program expects, so the programs for
    /// both are checked on either.
    #[test]
    fn the_verifier_accepts_the_programs_of_both_machines() {
        let map = |kind, key, value| {
            let entries = if kind == MapKind::PerProcessorArray { 1 } else { 4 };
            sys::map(kind, key, value, entries, 0)
        };
        let words = |count: usize| 8 * count as u32;
        let maps = [
            (MapKind::Hash, 4, 8),
            (MapKind::ForgetfulHash, 8, THREAD),
            (MapKind::Hash, 8, 4),
            (MapKind::Queue, 0, 4),
            (MapKind::Array, 4, words(WORDS)),
            (MapKind::Array, 4, words(BITMAP)),
            (MapKind::PerProcessorArray, 4, SCRATCH),
            (MapKind::Array, 4, words(GLOBALS)),
            (MapKind::PerProcessorArray, 4, record::ROOM),
        ];
        let made = maps.map(|(kind, key, value)| map(kind, key, value));
        if let Some(Err(error)) = made.iter().find(|map| map.is_err()) {
            return eprintln!("skipped: making a map for BPF: {error}");
        }
        let made: Vec<OwnedFd> = made.into_iter().flatten().collect();
        let [processes, threads, slots, free, counters, bitmaps, scratch, globals, room] =
            std::array::from_fn(|at| made[at].as_raw_fd());
        let maps = Maps { processes, threads, slots, free, counters, bitmaps, scratch, globals };
        let ring = sys::ring::RingBuffer::new(1 << 16).unwrap();
        let recording = Some(record::RecordMaps { ring: ring.descriptor(), room });
        let types = match Types::read() {
            Ok(types) => types,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let fields = types.fields().unwrap();
        // A direct read is checked against the registers of this machine.
        let x86_64 = Machine { is_read_directly: cfg!(target_arch = "x86_64"), ..X86_64 };
        for (machine, all, record) in [
            (&x86_64, false, None),
            (&x86_64, true, None),
            (&x86_64, false, recording),
            (&x86_64, true, recording),
            (&AARCH64, false, None),
            (&AARCH64, true, None),
            (&AARCH64, false, recording),
            (&AARCH64, true, recording),
        ] {
            let build = Build { machine, maps, slots: 4, all, record };
            for (name, code) in [
                ("sys_enter", enter(build)),
                ("sys_exit", exit(build)),
                ("sched_process_fork", fork(build, fields)),
                ("sched_process_exit", end(build, fields)),
                ("signal_deliver", signal(build, fields)),
            ] {
                eprintln!("{name}: {} instructions", code.len());
                if let Err(error) = sys::load(&code, types.tracepoint(name).unwrap()) {
                    if error.raw_os_error() == Some(libc::EPERM) {
                        return eprintln!("skipped: loading a program: {error}");
                    }
                    panic!("{name} of {machine:?}, all {all}: {error}");
                }
            }
        }
    }
}
