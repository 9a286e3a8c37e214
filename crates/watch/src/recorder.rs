//! From the records of the programs in the kernel to a recording.
//!
//! A thread comes by every few milliseconds and takes out what is in the ring. The kernel tells
//! descriptors and their data (`epoll_event.data`); a recording has the members of each set by
//! number, so events are resolved here.
//!
//! The kernel tells when a set is made, so a set that was not is one of before. Its descriptors are
//! read from `/proc`: at the start if the process is known, and otherwise with its first record.
//! Changes of the same descriptors that were made before that reading are in it, and are passed
//! over. Closing a set is not told: a new one of the same number ends it, or the end of its
//! process.
//!
//! Descriptors may share their data. Then an event is taken for one of the last that was registered
//! with these, and its wait counts as cut.
//!
//! An array of `poll` has the descriptors of the call before and a few others, mostly. Only the
//! difference is written. Arrays belong to the thread that waits with them and to the power of two
//! of their length, as in the report.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, Permissions};
use std::io::{self, BufWriter, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use superpoll::diagnostics::Kind as CostKind;

use crate::counters::{Key, Kind};
use crate::machine::{self, Machine};
use crate::process::{self, Registered, Sockets};
use crate::program::record::{
    CHANGE, CREATION, ENDING, HEADER, KEY, LENGTH, MOST, RESULT, SELECT, SELECT_SET, THREAD, TIME,
    TIMEOUT_OR_DESCRIPTOR, TOOK_OR_OPERATION, WAIT, WHAT,
};
use crate::recording::{End, MAGIC, RecordingWriter, Wait};
use crate::sys;
use crate::watch::Records;

/// How often the ring is looked at: it has room for more than a busy program does in this time.
const PERIOD: Duration = Duration::from_millis(5);

/// Of how many descriptors the kind is looked up, by set.
const KINDS: usize = 16;

/// Only its owner reads a recording, as it tells what a program of another user does.
const MODE: u32 = 0o600;

/// Opens the file of a recording, which replaces another recording, and no other file. Nothing is
/// changed until [`Recorder::start`].
///
/// # Errors
///
/// The file cannot be opened or made; it is no regular file, or another user's, or no recording.
fn open(path: &Path) -> io::Result<File> {
    let refused = |what: &str| Err(io::Error::new(ErrorKind::InvalidInput, what));
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false);
    // Another user may have made the name, in a folder for all, to have this one write elsewhere.
    let mut file = match options.mode(MODE).custom_flags(libc::O_NOFOLLOW).open(path) {
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            return refused("it is a symbolic link; name the file itself");
        }
        opened => opened?,
    };
    let found = file.metadata()?;
    if !found.is_file() {
        return refused("a recording needs a regular file");
    }
    if found.uid() != process::own_user()? {
        return refused("the file belongs to another user; name a new file, or remove it");
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

/// Writes the recording of a watch until it is told to end, or is dropped.
#[derive(Debug)]
pub struct Recorder {
    thread: Option<JoinHandle<io::Result<End>>>,
    /// When the end was asked for; 0 until then.
    until: Arc<AtomicU64>,
}

impl Recorder {
    /// Opens the file of a recording. An older recording in it is replaced once this one starts,
    /// and stays as it is if none does; another kind of file is refused.
    ///
    /// # Errors
    ///
    /// The file cannot be opened or made; it is no regular file, or another user's, or no
    /// recording.
    pub fn open(path: &Path) -> io::Result<File> {
        open(path)
    }

    /// Begins to write to a file that was opened for this, at most that many bytes.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or there can be no thread.
    pub fn start(records: Records, mut file: File, limit: u64) -> io::Result<Recorder> {
        file.set_permissions(Permissions::from_mode(MODE))?;
        file.set_len(0)?;
        file.rewind()?;
        let machine = machine::HERE.expect("a watch was attached here");
        let writer = RecordingWriter::new(BufWriter::new(file), limit)?;
        let mut work = Work::new(writer, machine, records.started);
        if let Some(process) = records.process {
            for id in process::set_descriptors(process) {
                work.new_set((Key { process, kind: Kind::Epoll, id }, 0), true)?;
            }
        }
        let until = Arc::new(AtomicU64::new(0));
        let end = Arc::clone(&until);
        let mut records = records;
        let run = move || {
            loop {
                let until = end.load(Ordering::Acquire);
                if until != 0 {
                    // What was there when the end was asked for is taken out, and no later record.
                    work.until = until;
                    let position = records.ring.produced();
                    records.ring.drain_to(position, |record| work.record(record));
                }
                let count = records.ring.drain(|record| work.record(record));
                if until != 0 || work.is_over() {
                    return work.end(records.lost());
                }
                if count == 0 {
                    // It is in the file also if this process is killed.
                    work.flush();
                    thread::park_timeout(PERIOD);
                }
            }
        };
        let thread = thread::Builder::new().name("recorder".to_owned()).spawn(run)?;
        Ok(Recorder { thread: Some(thread), until })
    }

    /// Whether it has ended by itself: the file is full, or cannot be written.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the recording with the waits that have returned until now, and returns its last record.
    /// What is in the ring is written first, so the watch should have ended.
    ///
    /// # Errors
    ///
    /// The file could not be written.
    pub fn end(mut self) -> io::Result<End> {
        let thread = self.ask().expect("only this and the drop take it");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Asks for the end.
    fn ask(&mut self) -> Option<JoinHandle<io::Result<End>>> {
        let thread = self.thread.take()?;
        self.until.store(sys::monotonic_ns(), Ordering::Release);
        thread.thread().unpark();
        Some(thread)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(thread) = self.ask() {
            let _ = thread.join();
        }
    }
}

/// A set, or arrays.
#[derive(Debug, Default)]
struct Set {
    number: u32,
    /// The descriptors of an epoll set, each with its data and its number.
    descriptors: HashMap<i32, (u64, u32)>,
    /// The last descriptor that was registered with these data, and the others.
    of_data: HashMap<u64, i32>,
    others: HashMap<u64, Vec<i32>>,
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

    /// Gives a member its descriptor and data.
    fn link(&mut self, descriptor: i32, data: u64, number: u32) {
        if let Some(other) = self.of_data.insert(data, descriptor) {
            self.others.entry(data).or_default().push(other);
        }
        self.descriptors.insert(descriptor, (data, number));
    }

    /// Takes a member's descriptor and data, and returns its number.
    fn unlink(&mut self, descriptor: i32) -> Option<u32> {
        let (data, number) = self.descriptors.remove(&descriptor)?;
        let others = self.others.entry(data).or_default();
        if self.of_data.get(&data) != Some(&descriptor) {
            others.retain(|other| *other != descriptor);
        } else if let Some(last) = others.pop() {
            self.of_data.insert(data, last);
        } else {
            self.of_data.remove(&data);
        }
        if others.is_empty() {
            self.others.remove(&data);
        }
        Some(number)
    }
}

/// What a thread has to do: the recording so far.
struct Work<W: Write> {
    writer: RecordingWriter<W>,
    failed: Option<io::Error>,
    event: (usize, usize),
    started: u64,
    last: u64,
    /// Later records are passed over.
    until: u64,
    sets: BTreeMap<(Key, u32), Set>,
    /// The kinds of the descriptors of all sets, by number; known once a set has ended.
    kinds: Vec<CostKind>,
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
            until: u64::MAX,
            sets: BTreeMap::new(),
            kinds: Vec::new(),
            selects: HashMap::new(),
            sockets: HashMap::new(),
            cut_waits: 0,
            lost_waits: 0,
        }
    }

    fn is_over(&self) -> bool {
        self.failed.is_some() || self.writer.is_full()
    }

    fn flush(&mut self) {
        self.failed = self.failed.take().or_else(|| self.writer.flush().err());
    }

    fn record(&mut self, record: &[u8]) {
        if self.is_over() || record.len() < HEADER || word(record, TIME) > self.until {
            return;
        }
        let written = match word(record, WHAT) {
            WAIT => self.wait(record),
            CHANGE => self.change(record),
            CREATION => self.creation(record),
            ENDING => {
                self.ending(record);
                Ok(())
            }
            SELECT => {
                // A thread waits in one call at a time.
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
        if !self.sets.contains_key(&(key, thread)) {
            self.new_set((key, thread), key.kind == Kind::Epoll)?;
        }
        Ok(Some((key, thread)))
    }

    /// A set that was made now. One of the same number was closed, or was of another process.
    fn creation(&mut self, record: &[u8]) -> io::Result<()> {
        let Some(key) = Key::from_word(word(record, KEY)) else { return Ok(()) };
        self.forget((key, 0));
        self.new_set((key, 0), false)
    }

    /// Ends the arrays of a thread, and all sets of a process with its last thread.
    fn ending(&mut self, record: &[u8]) {
        let Some(first) = Key::from_word(word(record, KEY)) else { return };
        let (thread, is_last) = (word(record, THREAD), word(record, RESULT) == 0);
        self.selects.remove(&thread);
        if is_last {
            self.sockets.remove(&first.process);
        }
        let own = self.sets.range((first, 0)..).map(|(id, _)| *id);
        let own = own.take_while(|(key, _)| key.process == first.process);
        let ended: Vec<_> = own.filter(|(_, one)| is_last || *one == thread as u32).collect();
        ended.into_iter().for_each(|id| self.forget(id));
    }

    /// Forgets all of a set but what the end of the recording says.
    fn forget(&mut self, id: (Key, u32)) {
        if let Some(set) = self.sets.remove(&id) {
            self.kinds[set.number as usize] = set.kinds.cost_kind();
        }
    }

    /// Writes a set that is new here, with the descriptors that it has had before if it `is_old`.
    fn new_set(&mut self, id: (Key, u32), is_old: bool) -> io::Result<()> {
        let (key, thread) = id;
        self.writer.set(key, thread)?;
        let mut set = Set { number: self.kinds.len() as u32, ..Set::default() };
        self.kinds.push(CostKind::Unknown);
        if is_old {
            set.read_at = sys::monotonic_ns();
            let mut registrations = process::registrations(key.process, key.id);
            registrations.sort_unstable();
            for (descriptor, data) in registrations {
                set.was_there.push(descriptor);
                self.add(key, &mut set, descriptor, data)?;
            }
        }
        self.sets.insert(id, set);
        Ok(())
    }

    /// Registers a descriptor in an epoll set.
    fn add(&mut self, key: Key, set: &mut Set, descriptor: i32, data: u64) -> io::Result<()> {
        // The kernel adds what it does not have: the last one of this number was closed.
        self.remove(set, descriptor)?;
        self.remove_closed(key, set, data)?;
        let number = set.take_number();
        set.link(descriptor, data, number);
        self.learn(key, set, descriptor);
        self.writer.join(set.number, number)
    }

    /// Removes descriptors whose data are given again, if they were closed meanwhile.
    fn remove_closed(&mut self, key: Key, set: &mut Set, data: u64) -> io::Result<()> {
        while let Some(&other) = set.of_data.get(&data) {
            if other >= 0 && process::has_descriptor(key.process, other) {
                break;
            }
            self.remove(set, other)?;
        }
        Ok(())
    }

    fn remove(&mut self, set: &mut Set, descriptor: i32) -> io::Result<()> {
        let Some(number) = set.unlink(descriptor) else { return Ok(()) };
        set.free.push(number);
        self.writer.leave(set.number, number)
    }

    /// Changes what a descriptor is registered with, so its data may be new.
    fn modify(&mut self, key: Key, set: &mut Set, descriptor: i32, data: u64) -> io::Result<()> {
        if set.descriptors.get(&descriptor).is_some_and(|(earlier, _)| *earlier == data) {
            return Ok(());
        }
        let Some(number) = set.unlink(descriptor) else {
            return self.add(key, set, descriptor, data);
        };
        self.remove_closed(key, set, data)?;
        set.link(descriptor, data, number);
        Ok(())
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
            _ => self.modify(id.0, &mut set, descriptor, data),
        };
        self.sets.insert(id, set);
        written
    }

    fn wait(&mut self, record: &[u8]) -> io::Result<()> {
        let Some(id) = self.set(record)? else { return Ok(()) };
        let mut set = self.sets.remove(&id).expect("it was found or made");
        let body = &record[HEADER..];
        let ready = match id.0.kind {
            Kind::Epoll => self.events(&mut set, body, word(record, RESULT)).map(Some),
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
        self.writer.wait(&Wait {
            set: number,
            at_ns: word(record, TIME).saturating_sub(self.started),
            took_ns: u64::try_from(word(record, TOOK_OR_OPERATION) as i64).ok(),
            timeout_ns: word(record, TIMEOUT_OR_DESCRIPTOR) as i64,
            ready,
        })
    }

    /// The members that the events of an epoll set are of.
    fn events(&mut self, set: &mut Set, body: &[u8], result: u64) -> io::Result<Vec<u32>> {
        let (size, at) = self.event;
        let mut is_shared = false;
        let mut ready = Vec::with_capacity(body.len() / size);
        for event in body.chunks_exact(size) {
            let data = word(event, at);
            is_shared |= set.others.contains_key(&data);
            let number = match set.of_data.get(&data) {
                Some(descriptor) => set.descriptors[descriptor].1,
                // Another process has registered it.
                None => {
                    let (number, unknown) = (set.take_number(), -1 - set.unknown);
                    set.unknown += 1;
                    set.link(unknown, data, number);
                    self.writer.join(set.number, number)?;
                    number
                }
            };
            ready.push(number);
        }
        ready.sort_unstable();
        ready.dedup();
        self.cut_waits += u64::from(is_shared || (ready.len() as u64) < result);
        Ok(ready)
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

    fn end(mut self, lost: End) -> io::Result<End> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let is_full = self.writer.is_full();
        let until = if is_full { self.last } else { self.until.min(sys::monotonic_ns()) };
        for set in self.sets.values() {
            self.kinds[set.number as usize] = set.kinds.cost_kind();
        }
        let end = End {
            is_full,
            duration_ns: until.saturating_sub(self.started),
            lost_waits: lost.lost_waits + self.lost_waits,
            cut_waits: self.cut_waits,
            kinds: self.kinds,
            ..lost
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
        let end = work.end(End::default()).unwrap();
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
    fn descriptors_share_their_data_and_waits_that_have_these_count_as_cut() {
        let (one, other) = UnixStream::pair().unwrap();
        let (one, other) = (one.as_raw_fd(), other.as_raw_fd());
        let key = Key { process: std::process::id(), kind: Kind::Epoll, id: 0xff_ffff };
        let (all, end) = recorded(&[
            change(key, libc::EPOLL_CTL_ADD, one, 7),
            change(key, libc::EPOLL_CTL_ADD, other, 7),
            wait(key, &[7]),
            wait(key, &[7, 7]),
            change(key, libc::EPOLL_CTL_MOD, one, 8),
            wait(key, &[7, 8]),
            change(key, libc::EPOLL_CTL_MOD, one, 7),
            change(key, libc::EPOLL_CTL_DEL, one, 0),
            wait(key, &[7]),
        ]);
        assert_eq!(all, ["Epoll", "+0", "+1", "[1]", "[1]", "[0, 1]", "-0", "[1]"]);
        assert_eq!(end.cut_waits, 2);
    }

    #[test]
    fn a_set_ends_with_a_new_one_of_its_number_and_with_its_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let one = one.as_raw_fd();
        let key = Key { process: std::process::id(), kind: Kind::Epoll, id: 0xff_ffff };
        let poll = Key { kind: Kind::Poll, id: 1, ..key };
        let ending = |thread, left| {
            let key = Key { kind: Kind::Process, id: 0, ..key };
            record(ENDING, key, &[(THREAD, thread), (RESULT, left)], &[])
        };
        let array = |thread| {
            let slot = [&9001_i32.to_ne_bytes()[..], &[1, 0, 0, 0]].concat();
            record(WAIT, poll, &[(THREAD, thread)], &slot)
        };
        let (all, end) = recorded(&[
            change(key, libc::EPOLL_CTL_ADD, one, 1),
            record(CREATION, key, &[], &[]),
            change(key, libc::EPOLL_CTL_ADD, 9002, 1),
            array(5),
            array(6),
            ending(6, 1),
            array(5),
            array(6),
            wait(key, &[1]),
            ending(5, 0),
            wait(key, &[]),
            array(5),
        ]);
        let expected = [
            "Epoll", "+0", "Epoll", "+0", "Poll", "+0", "[]", "Poll", "+0", "[]", "[]", "Poll",
            "+0", "[]", "[0]", "Epoll", "[]", "Poll", "+0", "[]",
        ];
        assert_eq!(all, expected);
        assert_eq!((end.kinds.len(), end.kinds[0]), (7, CostKind::Unix));
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
            records.push(record(random() % 6, Key { kind, ..key }, &words, &body));
        }
        records.push(vec![1; 7]);
        let (all, _) = recorded(&records);
        assert!(all.len() > 3_000, "{}", all.len());
    }
}
