//! From the records of the programs in the kernel to a recording.
//!
//! A thread comes by every few milliseconds and takes out what is in the ring. The kernel tells
//! descriptors and their data (`epoll_event.data`); a recording has the members of each set by
//! number, so events are resolved here.
//!
//! Descriptors that were registered before are read from `/proc`: at the start if the process is
//! known, and otherwise with the first record of a set, unless that adds a descriptor, as the first
//! change of a new set does. Changes of the same descriptors that were made before that reading are
//! in it, and are passed over.
//!
//! An array of `poll` has the descriptors of the call before and a few others, mostly. Only the
//! difference is written. Arrays belong to the thread that waits with them and to the power of two
//! of their length, as in the report.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use superpoll::diagnostics::Kind as CostKind;

use crate::counters::{Key, Kind};
use crate::machine::{self, Machine};
use crate::process::{self, Registered, Sockets};
use crate::program::record::{
    CHANGE, HEADER, KEY, LENGTH, MOST, RESULT, SELECT, SELECT_SET, THREAD, TIME,
    TIMEOUT_OR_DESCRIPTOR, TOOK_OR_OPERATION, WAIT, WHAT,
};
use crate::recording::{End, MAGIC, RecordingWriter, Wait};
use crate::sys;
use crate::watch::Records;

/// How often the ring is looked at: it has room for more than a busy program does in this time.
const PERIOD: Duration = Duration::from_millis(5);

/// Of how many descriptors the kind is looked up, by set.
const KINDS: usize = 16;

/// Opens the file of a recording, which replaces another recording, and no other file. Nothing is
/// changed until [`Recorder::start`].
///
/// # Errors
///
/// The file cannot be opened or made; it is no regular file, or one that is no recording.
fn open(path: &Path) -> io::Result<File> {
    // A recording tells what a program of another user does.
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "a recording needs a regular file"));
    }
    let mut head = Vec::new();
    Read::by_ref(&mut file).take(MAGIC.len() as u64).read_to_end(&mut head)?;
    if !head.is_empty() && head != MAGIC {
        return Err(io::Error::new(
            ErrorKind::AlreadyExists,
            "there is another kind of file, which is kept; name a new file, or remove it",
        ));
    }
    Ok(file)
}

/// Writes the recording of a watch until it is told to end.
#[derive(Debug)]
pub struct Recorder {
    thread: JoinHandle<io::Result<End>>,
    is_over: Arc<AtomicBool>,
}

impl Recorder {
    /// Opens the file of a recording. An older recording in it is replaced once this one starts;
    /// another kind of file is refused.
    ///
    /// # Errors
    ///
    /// The file cannot be opened or made; it is no regular file, or one that is no recording.
    pub fn open(path: &Path) -> io::Result<File> {
        open(path)
    }

    /// Begins to write to a file that was opened for this, at most that many bytes.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or there can be no thread.
    pub fn start(records: Records, mut file: File, limit: u64) -> io::Result<Recorder> {
        file.set_len(0)?;
        file.rewind()?;
        let machine = machine::HERE.expect("a watch was attached here");
        let writer = RecordingWriter::new(BufWriter::new(file), limit)?;
        let mut work = Work::new(writer, machine, sys::monotonic_ns());
        if let Some(process) = records.process {
            for id in process::set_descriptors(process) {
                work.new_set(Key { process, kind: Kind::Epoll, id }, 0, true)?;
            }
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&is_over);
        let mut records = records;
        let run = move || {
            loop {
                // What was there when the end was asked for is taken out, too.
                let is_last = end.load(Ordering::Acquire);
                let count = records.ring.drain(|record| work.record(record));
                if is_last || work.is_over() {
                    let (waits, changes) = records.lost();
                    return work.end(waits, changes);
                }
                if count == 0 {
                    thread::park_timeout(PERIOD);
                }
            }
        };
        let thread = thread::Builder::new().name("recorder".to_owned()).spawn(run)?;
        Ok(Recorder { thread, is_over })
    }

    /// Whether it has ended by itself: the file is full, or cannot be written.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the recording with the records that are there now, and returns its last record.
    ///
    /// # Errors
    ///
    /// The file could not be written.
    pub fn end(self) -> io::Result<End> {
        self.is_over.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// A set, or arrays.
#[derive(Debug, Default)]
struct Set {
    number: u32,
    /// Members of an epoll set by their data, each with its descriptor.
    members: HashMap<u64, (u32, i32)>,
    /// The data of each descriptor of an epoll set.
    data: HashMap<i32, u64>,
    /// Members of arrays by their descriptor.
    slots: HashMap<i32, u32>,
    /// Numbers that were given back, and the next one.
    free: Vec<u32>,
    next: u32,
    /// When the descriptors were read from `/proc`, and whether each was there.
    read_at: u64,
    was_there: Vec<i32>,
    /// The array of the last wait, and the number of each of its members.
    array: Vec<i32>,
    numbers: Vec<u32>,
    kinds: Registered,
    /// How many members were not known before an event of theirs.
    unknown: i32,
}

impl Set {
    fn take_number(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

/// What a thread has to do: the recording so far.
struct Work<W: Write> {
    writer: RecordingWriter<W>,
    failed: Option<io::Error>,
    event: (usize, usize),
    started: u64,
    last: u64,
    sets: HashMap<(Key, u32), Set>,
    /// The sets that each thread has called `select` with.
    selects: HashMap<u64, Vec<u8>>,
    /// The sockets of each process, as known by the last lookup.
    sockets: HashMap<u32, (u64, Option<Sockets>)>,
    cut_waits: u64,
    lost_waits: u64,
}

fn word(record: &[u8], at: usize) -> u64 {
    record.get(at..at + 8).map_or(0, |word| u64::from_ne_bytes(word.try_into().expect("8 bytes")))
}

/// Sockets are looked up again after this time, if one is not known.
const LOOKUP_NS: u64 = 1_000_000_000;

impl<W: Write> Work<W> {
    fn new(writer: RecordingWriter<W>, machine: &Machine, started: u64) -> Work<W> {
        let (size, data) = machine.event;
        Work {
            writer,
            failed: None,
            event: (size as usize, data as usize),
            started,
            last: started,
            sets: HashMap::new(),
            selects: HashMap::new(),
            sockets: HashMap::new(),
            cut_waits: 0,
            lost_waits: 0,
        }
    }

    fn is_over(&self) -> bool {
        self.failed.is_some() || self.writer.is_full()
    }

    fn record(&mut self, record: &[u8]) {
        if self.is_over() || record.len() < HEADER {
            return;
        }
        let written = match word(record, WHAT) {
            WAIT => self.wait(record),
            CHANGE => self.change(record),
            SELECT => {
                // A thread waits in one call at a time; those that have ended are forgotten.
                if self.selects.len() > 10_000 {
                    self.selects.clear();
                }
                self.selects.insert(word(record, THREAD), record[HEADER..].to_vec());
                Ok(())
            }
            _ => Ok(()),
        };
        if !self.writer.is_full() {
            self.last = self.last.max(word(record, TIME));
        }
        self.failed = written.err();
    }

    /// Returns the set of a record, and writes it if it is new.
    fn set(&mut self, record: &[u8]) -> io::Result<Option<(Key, u32)>> {
        let Some(key) = Key::from_word(word(record, KEY)) else { return Ok(None) };
        let thread = if key.kind == Kind::Epoll { 0 } else { word(record, THREAD) as u32 };
        if self.sets.contains_key(&(key, thread)) {
            return Ok(Some((key, thread)));
        }
        let adds = word(record, WHAT) == CHANGE
            && word(record, TOOK_OR_OPERATION) as i32 == libc::EPOLL_CTL_ADD;
        self.new_set(key, thread, key.kind == Kind::Epoll && !adds)?;
        Ok(Some((key, thread)))
    }

    /// Writes a set that is new here, with the descriptors that it has had before if it `is_old`.
    fn new_set(&mut self, key: Key, thread: u32, is_old: bool) -> io::Result<()> {
        self.writer.set(key, thread)?;
        let mut set = Set { number: self.sets.len() as u32, ..Set::default() };
        if is_old {
            set.read_at = sys::monotonic_ns();
            let mut registrations = process::registrations(key.process, key.id);
            registrations.sort_unstable();
            for (descriptor, data) in registrations {
                set.was_there.push(descriptor);
                self.add(key, &mut set, descriptor, data)?;
            }
        }
        self.sets.insert((key, thread), set);
        Ok(())
    }

    /// Registers a descriptor in an epoll set.
    fn add(&mut self, key: Key, set: &mut Set, descriptor: i32, data: u64) -> io::Result<()> {
        // The kernel adds what it does not have: the last one of this number was closed.
        self.remove(set, descriptor)?;
        // So was one whose data are given again.
        if let Some((_, other)) = set.members.get(&data) {
            self.remove(set, *other)?;
        }
        let number = set.take_number();
        set.members.insert(data, (number, descriptor));
        set.data.insert(descriptor, data);
        self.learn(key, set, descriptor);
        self.writer.join(set.number, number)
    }

    fn remove(&mut self, set: &mut Set, descriptor: i32) -> io::Result<()> {
        let Some(data) = set.data.remove(&descriptor) else { return Ok(()) };
        let Some((number, _)) = set.members.remove(&data) else { return Ok(()) };
        set.free.push(number);
        self.writer.leave(set.number, number)
    }

    /// Learns the kind of one of the first descriptors.
    fn learn(&mut self, key: Key, set: &mut Set, descriptor: i32) {
        if set.kinds.total() >= KINDS as u64 {
            return;
        }
        let (looked_up, sockets) = self.sockets.entry(key.process).or_default();
        let mut kind = process::descriptor_kind(key.process, descriptor, sockets);
        let now = sys::monotonic_ns();
        if kind == "socket" && now - *looked_up > LOOKUP_NS {
            (*looked_up, *sockets) = (now, None);
            kind = process::descriptor_kind(key.process, descriptor, sockets);
        }
        if kind != "gone" {
            *set.kinds.kinds.entry(kind).or_default() += 1;
        }
    }

    fn change(&mut self, record: &[u8]) -> io::Result<()> {
        let Some(id) = self.set(record)? else { return Ok(()) };
        let mut set = self.sets.remove(&id).expect("it was found or made");
        let descriptor = word(record, TIMEOUT_OR_DESCRIPTOR) as u32 as i32;
        let data = word(record, HEADER + self.event.1);
        let is_known =
            word(record, TIME) < set.read_at && set.was_there.binary_search(&descriptor).is_ok();
        let written = match word(record, TOOK_OR_OPERATION) as i32 {
            _ if is_known => Ok(()),
            libc::EPOLL_CTL_ADD => self.add(id.0, &mut set, descriptor, data),
            libc::EPOLL_CTL_DEL => self.remove(&mut set, descriptor),
            // Its data may be new.
            _ => match set.data.get(&descriptor).copied() {
                Some(earlier) if earlier == data => Ok(()),
                _ => self.add(id.0, &mut set, descriptor, data),
            },
        };
        self.sets.insert(id, set);
        written
    }

    fn wait(&mut self, record: &[u8]) -> io::Result<()> {
        let Some(id) = self.set(record)? else { return Ok(()) };
        let mut set = self.sets.remove(&id).expect("it was found or made");
        let body = &record[HEADER..];
        let ready = match id.0.kind {
            Kind::Epoll => self.events(&mut set, body),
            Kind::Poll => {
                let (mut array, mut ready) = (Vec::new(), Vec::new());
                for slot in body.chunks_exact(size_of::<libc::pollfd>()) {
                    let descriptor = i32::from_ne_bytes(slot[..4].try_into().expect("4 bytes"));
                    let returned = i16::from_ne_bytes(slot[6..8].try_into().expect("2 bytes"));
                    if descriptor >= 0 {
                        array.push(descriptor);
                        ready.push(returned != 0);
                    }
                }
                if word(record, LENGTH) > MOST as u64 / size_of::<libc::pollfd>() as u64 {
                    self.cut_waits += 1;
                }
                self.array(id.0, &mut set, array, &ready).map(Some)
            }
            _ => self.select(id.0, &mut set, record),
        };
        let number = set.number;
        self.sets.insert(id, set);
        let Some(ready) = ready? else { return Ok(()) };
        if id.0.kind == Kind::Epoll && (ready.len() as u64) < word(record, RESULT) {
            self.cut_waits += 1;
        }
        self.writer.wait(&Wait {
            set: number,
            at_ns: word(record, TIME).saturating_sub(self.started),
            took_ns: u64::try_from(word(record, TOOK_OR_OPERATION) as i64).ok(),
            timeout_ns: word(record, TIMEOUT_OR_DESCRIPTOR) as i64,
            ready,
        })
    }

    /// The members that the events of an epoll set are of.
    fn events(&mut self, set: &mut Set, body: &[u8]) -> io::Result<Option<Vec<u32>>> {
        let (size, at) = self.event;
        let mut ready = Vec::with_capacity(body.len() / size);
        for event in body.chunks_exact(size) {
            let data = word(event, at);
            let number = match set.members.get(&data) {
                Some((number, _)) => *number,
                // Another process has registered it.
                None => {
                    let (number, unknown) = (set.take_number(), -1 - set.unknown);
                    set.unknown += 1;
                    set.members.insert(data, (number, unknown));
                    set.data.insert(unknown, data);
                    self.writer.join(set.number, number)?;
                    number
                }
            };
            ready.push(number);
        }
        ready.sort_unstable();
        ready.dedup();
        Ok(Some(ready))
    }

    /// Writes how an array differs from the one before, and returns the ready members.
    fn array(
        &mut self,
        key: Key,
        set: &mut Set,
        array: Vec<i32>,
        is_ready: &[bool],
    ) -> io::Result<Vec<u32>> {
        if array != set.array {
            let mut left = std::mem::take(&mut set.slots);
            set.numbers.clear();
            let mut new = Vec::new();
            for &descriptor in &array {
                let kept = left.remove(&descriptor);
                match kept.or_else(|| set.slots.get(&descriptor).copied()) {
                    Some(number) => {
                        set.slots.insert(descriptor, number);
                        set.numbers.push(number);
                    }
                    None => {
                        new.push((set.numbers.len(), descriptor));
                        set.numbers.push(u32::MAX);
                    }
                }
            }
            let mut left: Vec<u32> = left.into_values().collect();
            left.sort_unstable();
            for number in left {
                set.free.push(number);
                self.writer.leave(set.number, number)?;
            }
            for (at, descriptor) in new {
                // The same one may be in the array twice.
                set.numbers[at] = match set.slots.get(&descriptor) {
                    Some(number) => *number,
                    None => {
                        let number = set.take_number();
                        set.slots.insert(descriptor, number);
                        self.learn(key, set, descriptor);
                        self.writer.join(set.number, number)?;
                        number
                    }
                };
            }
            set.array = array;
        }
        let ready = set.numbers.iter().zip(is_ready).filter(|(_, is_ready)| **is_ready);
        let mut ready: Vec<u32> = ready.map(|(number, _)| *number).collect();
        ready.sort_unstable();
        ready.dedup();
        Ok(ready)
    }

    /// The ready members of a `select`, whose sets were recorded before the call.
    fn select(&mut self, key: Key, set: &mut Set, record: &[u8]) -> io::Result<Option<Vec<u32>>> {
        let Some(before) = self.selects.remove(&word(record, THREAD)) else {
            self.lost_waits += 1;
            return Ok(None);
        };
        let length = word(record, LENGTH) as usize;
        if length > SELECT_SET as usize * 8 {
            self.cut_waits += 1;
        }
        let is_in = |sets: &[u8], descriptor: usize| {
            let of = |set: usize| sets.get(set * SELECT_SET as usize + descriptor / 8);
            (0..3).any(|set| of(set).is_some_and(|byte| byte >> (descriptor % 8) & 1 == 1))
        };
        let known = 0..length.min(SELECT_SET as usize * 8);
        let array: Vec<i32> =
            known.filter(|at| is_in(&before, *at)).map(|descriptor| descriptor as i32).collect();
        // After a timeout the sets are empty.
        let ready: Vec<bool> =
            array.iter().map(|at| is_in(&record[HEADER..], *at as usize)).collect();
        self.array(key, set, array, &ready).map(Some)
    }

    fn end(mut self, lost_waits: u64, lost_changes: u64) -> io::Result<End> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let is_full = self.writer.is_full();
        let until = if is_full { self.last } else { sys::monotonic_ns() };
        let kinds: BTreeMap<u32, CostKind> =
            self.sets.values().map(|set| (set.number, set.kinds.cost_kind())).collect();
        let end = End {
            is_full,
            duration_ns: until.saturating_sub(self.started),
            lost_waits: lost_waits + self.lost_waits,
            lost_changes,
            cut_waits: self.cut_waits,
            kinds: kinds.into_values().collect(),
        };
        self.writer.end(&end)?;
        Ok(end)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::machine::X86_64;
    use crate::recording::{Entry, RecordingReader};

    fn record(what: u64, key: Key, words: &[(usize, u64)], body: &[u8]) -> Vec<u8> {
        let mut record = vec![0; HEADER];
        let head = [(WHAT, what), (KEY, key.word()), (TIME, sys::monotonic_ns())];
        for (at, word) in head.iter().chain(words) {
            record[*at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        record.extend(body);
        record
    }

    /// An event of this data as x86-64 has it.
    fn event(data: u64) -> Vec<u8> {
        [&[1, 0, 0, 0][..], &data.to_ne_bytes()].concat()
    }

    fn change(key: Key, operation: i32, descriptor: i32, data: u64) -> Vec<u8> {
        let words = [
            (TOOK_OR_OPERATION, operation as u64),
            (TIMEOUT_OR_DESCRIPTOR, u64::from(descriptor as u32)),
        ];
        record(CHANGE, key, &words, &event(data))
    }

    fn wait(key: Key, data: &[u64]) -> Vec<u8> {
        let body: Vec<u8> = data.iter().flat_map(|data| event(*data)).collect();
        record(WAIT, key, &[(RESULT, data.len() as u64)], &body)
    }

    /// Returns the records that the recording has, without the times of waits, and its end.
    fn recorded(records: &[Vec<u8>]) -> (Vec<String>, End) {
        let mut output = Vec::new();
        let writer = RecordingWriter::new(&mut output, 1 << 20).unwrap();
        let mut work = Work::new(writer, &X86_64, 0);
        records.iter().for_each(|record| work.record(record));
        let end = work.end(0, 0).unwrap();
        let mut reader = RecordingReader::new(&output[..]).unwrap();
        let mut all = Vec::new();
        while let Some(entry) = reader.entry().unwrap() {
            match entry {
                Entry::Set { key, .. } => all.push(format!("{:?}", key.kind)),
                Entry::Join { member, .. } => all.push(format!("+{member}")),
                Entry::Leave { member, .. } => all.push(format!("-{member}")),
                Entry::Wait(wait) => all.push(format!("{:?}", wait.ready)),
                Entry::End(_) => {}
            }
        }
        (all, end)
    }

    #[test]
    fn events_are_resolved_though_descriptors_are_closed_and_data_are_given_again() {
        let (one, _other) = UnixStream::pair().unwrap();
        let one = one.as_raw_fd();
        // A set that is none, so nothing is read from /proc.
        let key = Key { process: std::process::id(), kind: Kind::Epoll, id: 0xff_ffff };
        let (all, end) = recorded(&[
            change(key, libc::EPOLL_CTL_ADD, one, 100),
            change(key, libc::EPOLL_CTL_ADD, 9001, 200),
            wait(key, &[200, 100]),
            // The kernel adds none that it has, so this one was closed.
            change(key, libc::EPOLL_CTL_ADD, 9001, 300),
            wait(key, &[300]),
            // Another one has the data of one that was closed.
            change(key, libc::EPOLL_CTL_ADD, 9002, 300),
            change(key, libc::EPOLL_CTL_ADD, 9001, 400),
            change(key, libc::EPOLL_CTL_MOD, 9001, 400),
            wait(key, &[300, 400, 999]),
            change(key, libc::EPOLL_CTL_DEL, one, 0),
            change(key, libc::EPOLL_CTL_DEL, one, 0),
        ]);
        let expected = [
            "Epoll",
            "+0",
            "+1",
            "[0, 1]",
            "-1",
            "+1",
            "[1]",
            "-1",
            "+1",
            "+2",
            "+3",
            "[1, 2, 3]",
            "-0",
        ];
        assert_eq!(all, expected);
        assert_eq!(end.kinds, [CostKind::Unix]);
        assert_eq!(end.cut_waits, 0);
    }

    #[test]
    fn the_difference_of_arrays_is_written() {
        let key = Key { process: std::process::id(), kind: Kind::Poll, id: 2 };
        let wait = |slots: &[(i32, i16)]| {
            let slots = slots.iter().flat_map(|(descriptor, returned)| {
                [&descriptor.to_ne_bytes()[..], &[1, 0], &returned.to_ne_bytes()].concat()
            });
            record(WAIT, key, &[], &slots.collect::<Vec<u8>>())
        };
        let (all, _) = recorded(&[
            wait(&[(9001, 0), (9002, 1)]),
            wait(&[(9001, 0), (9002, 1)]),
            wait(&[(9002, 0), (-1, 0), (9003, 1), (9003, 1)]),
            wait(&[(9003, 1), (9001, 1), (9002, 1)]),
        ]);
        let expected = ["Poll", "+0", "+1", "[1]", "[1]", "-0", "+0", "[0]", "+2", "[0, 1, 2]"];
        assert_eq!(all, expected);
    }

    #[test]
    fn a_select_needs_the_sets_that_it_was_called_with() {
        let key = Key { process: std::process::id(), kind: Kind::Select, id: 4 };
        let sets = |read: u8, write: u8| {
            let mut sets = vec![0; 3 * SELECT_SET as usize];
            (sets[0], sets[SELECT_SET as usize]) = (read, write);
            sets
        };
        let wait = |read, write| record(WAIT, key, &[(LENGTH, 8)], &sets(read, write));
        let before = record(SELECT, key, &[], &sets(0b0010_0001, 0b1000_0000));
        let (all, end) =
            recorded(&[wait(1, 0), before.clone(), wait(0b0010_0000, 0), before, wait(0, 0)]);
        assert_eq!(all, ["Select", "+0", "+1", "+2", "[1]", "[]"]);
        assert_eq!(end.lost_waits, 1);
    }

    #[test]
    fn records_of_any_bytes_do_no_harm() {
        let mut state: u64 = 7;
        let mut random = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            state >> 33
        };
        let key = Key { process: 1 << 23, kind: Kind::Epoll, id: 5 };
        let mut records = Vec::new();
        for _ in 0..5_000 {
            let kind = [Kind::Epoll, Kind::Poll, Kind::Select][random() as usize % 3];
            let body: Vec<u8> = (0..random() % 500).map(|_| (random() % 3) as u8).collect();
            let words = [
                (RESULT, random()),
                (LENGTH, random() % 2_000),
                (TOOK_OR_OPERATION, random() % 5),
                (TIMEOUT_OR_DESCRIPTOR, random() % 9),
            ];
            records.push(record(random() % 4, Key { kind, ..key }, &words, &body));
        }
        records.push(vec![1; 7]);
        let (all, _) = recorded(&records);
        assert!(all.len() > 3_000, "{}", all.len());
    }
}
