//! The file of a recording: which descriptors each set had, and which ones each wait reported.
//!
//! It begins with [`MAGIC`] and a version. Then come records: a byte for the kind of record, and
//! numbers in LEB128, those with a sign in zigzag. Sets are numbered from 0 in the order of their
//! records, and the members of a set from 0, with the numbers of those that have left given again.
//! So a reader needs a byte for each member and 24 for each set, whatever is in the file. There are
//! 262,144 sets at most, as what is kept of a set may be much more than the bytes of its record.
//!
//! | record | content |
//! |---|---|
//! | 1, a set | process, kind, descriptor or bits of the length, thread (0: any) |
//! | 2, a member joins | set, member |
//! | 3, a member leaves | set, member |
//! | 4, a wait returns | set, ns since the record of the wait before, 1 + ns that it took (0: not known), timeout in ns (-1: none, -2: not known), how many members were ready, the first of them, and of each next the distance less 1 |
//! | 0, the end | 1 if the file was full, ns recorded, lost waits, lost changes, cut waits, calls without a slot, processes without one, 32-bit calls, and the kind of the descriptors of each set |
//!
//! In a file without its end, [`RecordingError::Truncated`] follows the last whole record.

use std::io::{self, Read, Write};
use std::{error, fmt};

use superpoll::diagnostics::Kind as CostKind;

use crate::counters::{Key, Kind};

/// The first bytes of a recording.
pub(crate) const MAGIC: &[u8; 16] = b"superpoll-watch\n";

/// The version of the format.
const VERSION: u64 = 1;

const END: u8 = 0;
const SET: u8 = 1;
const JOIN: u8 = 2;
const LEAVE: u8 = 3;
const WAIT: u8 = 4;

/// Bytes that are kept for the end: those of its own numbers, and one for each set.
const RESERVE: u64 = 80;

/// The most sets of a recording.
const SETS: usize = 1 << 18;

/// A record of a recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// A set, an array or several of similar length. Its number is that of the sets before it.
    Set {
        /// The process, and the set's descriptor or the length of the array.
        key: Key,
        /// The thread that waits with these arrays; 0 for an epoll set.
        thread: u32,
    },
    /// A descriptor is registered.
    Join {
        /// The number of the set.
        set: u32,
        /// The number of the descriptor among its members.
        member: u32,
    },
    /// A descriptor is not registered any more.
    Leave {
        /// The number of the set.
        set: u32,
        /// The number of the descriptor among its members.
        member: u32,
    },
    /// A wait has returned.
    Wait(Wait),
    /// The end, which every recording has.
    End(End),
}

/// A wait that has returned without an error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wait {
    /// The number of the set.
    pub set: u32,
    /// When it returned, in nanoseconds since the start of the recording.
    pub at_ns: u64,
    /// How long it took, in nanoseconds; `None` if it had begun before the recording.
    pub took_ns: Option<u64>,
    /// The timeout in nanoseconds; -1 for none, and -2 if it is not known.
    pub timeout_ns: i64,
    /// The members that were ready, in ascending order.
    pub ready: Vec<u32>,
}

/// The end of a recording.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct End {
    /// Whether the recording has ended because the file had the size, or the sets, that it may
    /// have.
    pub is_full: bool,
    /// The time from its start to its end, in nanoseconds.
    pub duration_ns: u64,
    /// Waits that were made in this time and are missing.
    pub lost_waits: u64,
    /// Changes of sets that are missing.
    pub lost_changes: u64,
    /// Waits of which only the first descriptors of the array, or the first events, were seen, or
    /// whose events are of descriptors that share their data.
    pub cut_waits: u64,
    /// Calls that are missing since there were too many processes, sets and kinds of arrays at a
    /// time.
    pub uncounted_calls: u64,
    /// Processes that a watched one has started and that are missing, for the same reason.
    pub unfollowed_processes: u64,
    /// Waits, reads, accepts and `epoll_ctl` of 32-bit programs, which are missing.
    pub compat_calls: u64,
    /// The kind of the descriptors of each set.
    pub kinds: Vec<CostKind>,
}

/// Why a recording cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum RecordingError {
    /// It is another kind of file.
    Foreign,
    /// A later version of the program has made it.
    Newer(u64),
    /// The file ends before the recording does.
    Truncated,
    /// It says what cannot be.
    Damaged {
        /// How many bytes were read until then.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// It cannot be read.
    Read(io::Error),
}

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordingError::Foreign => {
                write!(f, "it is no recording of superpoll watch --record")
            }
            RecordingError::Newer(version) => write!(
                f,
                "it has version {version} of the format, and this program knows version {VERSION}: \
                 use the superpoll-lab of the superpoll that has made it"
            ),
            RecordingError::Truncated => write!(
                f,
                "it has no end: superpoll watch was killed while it recorded, or the file was not \
                 copied as a whole; record it again"
            ),
            RecordingError::Damaged { at, what } => {
                write!(f, "it is damaged before byte {at}: {what}; record it again")
            }
            RecordingError::Read(error) => error.fmt(f),
        }
    }
}

impl error::Error for RecordingError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            RecordingError::Read(error) => Some(error),
            _ => None,
        }
    }
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

const KINDS: [CostKind; 4] = [CostKind::Unknown, CostKind::Pipe, CostKind::Unix, CostKind::Tcp];

/// Writes a recording, to a size at most.
#[derive(Debug)]
pub struct RecordingWriter<W> {
    output: W,
    /// The record that is written, kept for its memory.
    record: Vec<u8>,
    written: u64,
    limit: u64,
    sets: u64,
    last_ns: u64,
    is_full: bool,
}

impl<W: Write> RecordingWriter<W> {
    /// Begins a recording of at most that many bytes, which should be 1,000 or more.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn new(mut output: W, limit: u64) -> io::Result<RecordingWriter<W>> {
        let mut record = MAGIC.to_vec();
        put(&mut record, VERSION);
        output.write_all(&record)?;
        let written = record.len() as u64;
        let (sets, last_ns, is_full) = (0, 0, false);
        Ok(RecordingWriter { output, record, written, limit, sets, last_ns, is_full })
    }

    /// Whether a record had no room. From then on none is written but the end.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Gives the output what it holds back.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    /// How many bytes were written.
    pub fn written(&self) -> u64 {
        self.written
    }

    fn write(&mut self) -> io::Result<()> {
        let length = self.record.len() as u64;
        if self.written + length + RESERVE + self.sets + 1 > self.limit {
            self.is_full = true;
        }
        if self.is_full {
            return Ok(());
        }
        self.written += length;
        self.output.write_all(&self.record)
    }

    /// Writes a set, an array or arrays. After 262,144 of them the recording is full.
    ///
    /// # Errors
    ///
    /// Those of the output, here and below.
    pub fn set(&mut self, key: Key, thread: u32) -> io::Result<()> {
        self.record.clear();
        self.record.push(SET);
        for number in [key.process, key.kind as u32, key.id, thread] {
            put(&mut self.record, number.into());
        }
        self.is_full |= self.sets == SETS as u64;
        self.write()?;
        self.sets += u64::from(!self.is_full);
        Ok(())
    }

    /// Writes that a member joins. Its number is at most the number of members of the set.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn join(&mut self, set: u32, member: u32) -> io::Result<()> {
        self.change(JOIN, set, member)
    }

    /// Writes that a member leaves.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn leave(&mut self, set: u32, member: u32) -> io::Result<()> {
        self.change(LEAVE, set, member)
    }

    fn change(&mut self, record: u8, set: u32, member: u32) -> io::Result<()> {
        self.record.clear();
        self.record.push(record);
        put(&mut self.record, set.into());
        put(&mut self.record, member.into());
        self.write()
    }

    /// Writes a wait.
    ///
    /// # Errors
    ///
    /// As above.
    ///
    /// # Panics
    ///
    /// If its members are not in ascending order.
    pub fn wait(&mut self, wait: &Wait) -> io::Result<()> {
        let record = &mut self.record;
        record.clear();
        record.push(WAIT);
        put(record, wait.set.into());
        // Processors take turns, so a wait may have returned before the one that was told before.
        put(record, zigzag(wait.at_ns.wrapping_sub(self.last_ns) as i64));
        put(record, wait.took_ns.map_or(0, |took| took.saturating_add(1)));
        put(record, zigzag(wait.timeout_ns));
        put(record, wait.ready.len() as u64);
        let mut least = 0;
        for &member in &wait.ready {
            let distance = u64::from(member).checked_sub(least);
            put(record, distance.expect("the members of a wait ascend"));
            least = u64::from(member) + 1;
        }
        self.last_ns = wait.at_ns;
        self.write()
    }

    /// Writes the end, and returns the output.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn end(mut self, end: &End) -> io::Result<W> {
        let mut record = vec![END];
        for number in [
            u64::from(end.is_full),
            end.duration_ns,
            end.lost_waits,
            end.lost_changes,
            end.cut_waits,
            end.uncounted_calls,
            end.unfollowed_processes,
            end.compat_calls,
        ] {
            put(&mut record, number);
        }
        for set in 0..self.sets as usize {
            let kind = end.kinds.get(set).copied().unwrap_or_default();
            let number = KINDS.iter().position(|one| *one == kind).unwrap_or_default();
            put(&mut record, number as u64);
        }
        self.output.write_all(&record)?;
        self.output.flush()?;
        Ok(self.output)
    }
}

/// Reads a recording, record by record. Whatever the bytes are, it ends with an error or with the
/// record of the end.
#[derive(Debug)]
pub struct RecordingReader<R> {
    input: R,
    read: u64,
    /// Whether each member of each set is there.
    members: Vec<Vec<bool>>,
    last_ns: u64,
    has_ended: bool,
}

impl<R: Read> RecordingReader<R> {
    /// Begins to read; the input should have a buffer.
    ///
    /// # Errors
    ///
    /// It is no recording, or one of a later version.
    pub fn new(mut input: R) -> Result<RecordingReader<R>, RecordingError> {
        let mut magic = [0; MAGIC.len()];
        match input.read_exact(&mut magic) {
            Ok(()) if magic == *MAGIC => {}
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                return Err(RecordingError::Read(error));
            }
            _ => return Err(RecordingError::Foreign),
        }
        let read = MAGIC.len() as u64;
        let mut reader =
            RecordingReader { input, read, members: Vec::new(), last_ns: 0, has_ended: false };
        match reader.number()? {
            VERSION => Ok(reader),
            version @ VERSION.. => Err(RecordingError::Newer(version)),
            _ => Err(reader.damaged("there is no version 0")),
        }
    }

    fn damaged(&self, what: &'static str) -> RecordingError {
        RecordingError::Damaged { at: self.read, what }
    }

    fn byte(&mut self) -> Result<u8, RecordingError> {
        let mut byte = [0];
        self.input.read_exact(&mut byte).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => RecordingError::Truncated,
            _ => RecordingError::Read(error),
        })?;
        self.read += 1;
        Ok(byte[0])
    }

    fn number(&mut self) -> Result<u64, RecordingError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(self.damaged("a number has more than 64 bits"))
    }

    fn small(&mut self) -> Result<u32, RecordingError> {
        let number = self.number()?;
        u32::try_from(number).map_err(|_| self.damaged("a number has more than 32 bits"))
    }

    /// Reads the number of a set.
    fn set(&mut self) -> Result<u32, RecordingError> {
        let set = self.small()?;
        if (set as usize) < self.members.len() {
            return Ok(set);
        }
        Err(self.damaged("a record is of a set that has no record"))
    }

    /// Returns the next record; `None` after the end.
    ///
    /// # Errors
    ///
    /// The file ends too early, is damaged, or cannot be read. In the first case all whole records
    /// were returned.
    pub fn entry(&mut self) -> Result<Option<Entry>, RecordingError> {
        if self.has_ended {
            return Ok(None);
        }
        Ok(Some(match self.byte()? {
            END => Entry::End(self.end()?),
            SET => self.new_set()?,
            JOIN => {
                let (set, member) = (self.set()?, self.small()?);
                let members = &mut self.members[set as usize];
                let next = members.len();
                match members.get_mut(member as usize) {
                    Some(is_there @ false) => *is_there = true,
                    None if member as usize == next => members.push(true),
                    _ => return Err(self.damaged("a member joins twice, or out of turn")),
                }
                Entry::Join { set, member }
            }
            LEAVE => {
                let (set, member) = (self.set()?, self.small()?);
                match self.members[set as usize].get_mut(member as usize) {
                    Some(is_there @ true) => *is_there = false,
                    _ => return Err(self.damaged("a descriptor leaves that is no member")),
                }
                Entry::Leave { set, member }
            }
            WAIT => Entry::Wait(self.wait()?),
            _ => return Err(self.damaged("there is no such kind of record")),
        }))
    }

    fn new_set(&mut self) -> Result<Entry, RecordingError> {
        if self.members.len() == SETS {
            return Err(self.damaged("there are too many sets"));
        }
        let (process, kind) = (self.small()?, self.small()?);
        let (id, thread) = (self.small()?, self.small()?);
        let kind =
            match [Kind::Epoll, Kind::Poll, Kind::Select].iter().find(|one| **one as u32 == kind) {
                Some(kind) => *kind,
                None => return Err(self.damaged("there is no such kind of set")),
            };
        self.members.push(Vec::new());
        Ok(Entry::Set { key: Key { process, kind, id }, thread })
    }

    fn wait(&mut self) -> Result<Wait, RecordingError> {
        let set = self.set()?;
        let at_ns = self.last_ns.wrapping_add(unzigzag(self.number()?) as u64);
        self.last_ns = at_ns;
        let took_ns = self.number()?.checked_sub(1);
        let timeout_ns = unzigzag(self.number()?);
        let count = self.number()?;
        if count > self.members[set as usize].len() as u64 {
            return Err(self.damaged("a wait reports more than there are"));
        }
        let mut ready = Vec::with_capacity(count as usize);
        let mut least: u64 = 0;
        for _ in 0..count {
            let member = least.saturating_add(self.number()?);
            let is_there = usize::try_from(member)
                .ok()
                .and_then(|member| self.members[set as usize].get(member));
            if is_there != Some(&true) {
                return Err(self.damaged("a wait reports a descriptor that is no member"));
            }
            ready.push(member as u32);
            least = member + 1;
        }
        Ok(Wait { set, at_ns, took_ns, timeout_ns, ready })
    }

    fn end(&mut self) -> Result<End, RecordingError> {
        let mut end = End {
            is_full: self.number()? != 0,
            duration_ns: self.number()?,
            lost_waits: self.number()?,
            lost_changes: self.number()?,
            cut_waits: self.number()?,
            uncounted_calls: self.number()?,
            unfollowed_processes: self.number()?,
            compat_calls: self.number()?,
            kinds: Vec::new(),
        };
        for _ in 0..self.members.len() {
            match KINDS.get(self.number()? as usize) {
                Some(kind) => end.kinds.push(*kind),
                None => return Err(self.damaged("there is no such kind of descriptor")),
            }
        }
        let mut more = [0];
        match self.input.read(&mut more) {
            Ok(0) => {}
            Ok(_) => return Err(self.damaged("there is more after the end")),
            Err(error) => return Err(RecordingError::Read(error)),
        }
        self.has_ended = true;
        Ok(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(bytes: &[u8]) -> Result<Vec<Entry>, RecordingError> {
        let mut reader = RecordingReader::new(bytes)?;
        let mut all = Vec::new();
        while let Some(entry) = reader.entry()? {
            all.push(entry);
        }
        Ok(all)
    }

    const KEY: Key = Key { process: 4242, kind: Kind::Epoll, id: 5 };

    fn wait(at_ns: u64, ready: &[u32]) -> Wait {
        Wait { set: 0, at_ns, took_ns: Some(900), timeout_ns: -1, ready: ready.to_vec() }
    }

    /// A recording with a record of each kind, and its content.
    fn sample() -> (Vec<u8>, Vec<Entry>) {
        let mut writer = RecordingWriter::new(Vec::new(), 1 << 20).unwrap();
        writer.set(KEY, 0).unwrap();
        let mut expected = vec![Entry::Set { key: KEY, thread: 0 }];
        for member in 0..300 {
            writer.join(0, member).unwrap();
            expected.push(Entry::Join { set: 0, member });
        }
        let poll = Key { kind: Kind::Poll, id: 9, ..KEY };
        writer.set(poll, 4243).unwrap();
        expected.push(Entry::Set { key: poll, thread: 4243 });
        for wait in [
            wait(1_000, &[0, 1, 299]),
            wait(400, &[]),
            Wait { took_ns: None, timeout_ns: 0, ..wait(u64::MAX, &[7]) },
        ] {
            writer.wait(&wait).unwrap();
            expected.push(Entry::Wait(wait));
        }
        writer.leave(0, 7).unwrap();
        writer.join(0, 7).unwrap();
        let end = End {
            is_full: false,
            duration_ns: 1 << 40,
            lost_waits: 3,
            lost_changes: 2,
            cut_waits: 1,
            uncounted_calls: 7,
            unfollowed_processes: 8,
            compat_calls: u64::MAX,
            kinds: vec![CostKind::Tcp, CostKind::Unknown],
        };
        expected.extend([
            Entry::Leave { set: 0, member: 7 },
            Entry::Join { set: 0, member: 7 },
            Entry::End(end.clone()),
        ]);
        (writer.end(&end).unwrap(), expected)
    }

    #[test]
    fn what_was_written_is_read() {
        let (bytes, expected) = sample();
        assert_eq!(entries(&bytes).unwrap(), expected);
        for number in [0, 1, -1, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(number)), number);
        }
    }

    #[test]
    fn other_files_and_parts_are_refused() {
        let (bytes, _) = sample();
        for length in 0..bytes.len() {
            let error = entries(&bytes[..length]).unwrap_err();
            match length {
                0..16 => assert!(matches!(error, RecordingError::Foreign), "{error}"),
                _ => assert!(matches!(error, RecordingError::Truncated), "{length}: {error}"),
            }
        }
        let mut more = bytes.clone();
        more.push(0);
        assert!(entries(&more).unwrap_err().to_string().contains("more after the end"));
        let mut newer = bytes;
        newer[16] = 2;
        assert!(matches!(entries(&newer), Err(RecordingError::Newer(2))));
        assert!(matches!(entries(b"\x7fELF\x02\x01\x01 a program"), Err(RecordingError::Foreign)));
    }

    /// Recordings in which some bytes were changed, and bytes at random after the head.
    #[test]
    fn no_bytes_make_the_reader_fail_otherwise_than_with_an_error() {
        let (sample, _) = sample();
        let mut state: u64 = 1;
        let mut random = |bound: usize| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) as usize % bound
        };
        let (mut read, mut refused) = (0, 0);
        for round in 0..20_000 {
            let mut bytes = sample.clone();
            if round % 4 == 0 {
                bytes.truncate(MAGIC.len() + 1);
                bytes.extend(
                    (0..random(200)).map(|_| random(if round % 8 == 0 { 6 } else { 256 }) as u8),
                );
            }
            for _ in 0..random(4) {
                let at = random(bytes.len());
                bytes[at] = random(256) as u8;
            }
            match entries(&bytes) {
                Ok(entries) => {
                    read += 1;
                    assert!(matches!(entries.last(), Some(Entry::End(_))));
                }
                Err(error) => {
                    refused += 1;
                    assert!(!error.to_string().is_empty());
                }
            }
        }
        assert!(read > 100 && refused > 10_000, "{read} {refused}");
    }

    #[test]
    fn the_number_of_sets_has_a_bound() {
        let mut writer = RecordingWriter::new(Vec::new(), 1 << 30).unwrap();
        for _ in 0..SETS {
            writer.set(KEY, 0).unwrap();
        }
        assert!(!writer.is_full());
        writer.set(KEY, 0).unwrap();
        assert!(writer.is_full());
        let bytes = writer.end(&End::default()).unwrap();
        assert_eq!(entries(&bytes).unwrap().len(), SETS + 1);
        let mut more = bytes[..17].to_vec();
        (0..=SETS).for_each(|_| more.extend([SET, 1, Kind::Poll as u8, 1, 1]));
        assert!(entries(&more).unwrap_err().to_string().contains("too many sets"));
    }

    #[test]
    fn a_recording_keeps_its_size_and_its_end() {
        let mut writer = RecordingWriter::new(Vec::new(), 1_000).unwrap();
        writer.set(KEY, 0).unwrap();
        for member in 0..1_000 {
            writer.join(0, member).unwrap();
        }
        assert!(writer.is_full());
        writer.wait(&wait(5, &[999])).unwrap();
        writer.set(KEY, 0).unwrap();
        let most = u64::MAX;
        let end = End {
            is_full: true,
            duration_ns: most,
            lost_waits: most,
            lost_changes: most,
            cut_waits: most,
            uncounted_calls: most,
            unfollowed_processes: most,
            compat_calls: most,
            kinds: Vec::new(),
        };
        let bytes = writer.end(&end).unwrap();
        assert!(bytes.len() <= 1_000 && bytes.len() > 900, "{}", bytes.len());
        let entries = entries(&bytes).unwrap();
        assert_eq!(
            entries.last(),
            Some(&Entry::End(End { kinds: vec![CostKind::Unknown], ..end }))
        );
    }
}
