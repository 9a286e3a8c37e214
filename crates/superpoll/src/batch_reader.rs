//! A reader of many streams that delivers events together with their bytes.
//!
//! The most expensive part of an event is the one that a readiness poller leaves to its user: one
//! read per ready descriptor. Here the reader does the reads: it owns the descriptors, reads from
//! the ready ones into memory from a pool, and hands out the bytes. On `uring` the reads of a wait
//! are one call, together with the wait ([`BatchReads`]), where that is cheaper
//! than a call each ([`prices`]), and descriptors that have something in most waits are not even
//! watched ([`speculation`]). On the other back-ends the same interface does plain reads, after the
//! events of the back-end.
//!
//! A source that was reported is *due* until a read of it finds less than there was room for; so
//! each report leads to one read, of a stream, and a report is never forgotten for want of room.
//! Some reads end early and leave bytes all the same: at an urgent byte, at passed descriptors, or
//! at the end of a packet. Such a read does not count as the last one (`Ends`). Due sources are
//! read in the order of their reports, hot ones in turn; with both, each get half the limit at
//! least. A source owns memory only while it is read: an idle one costs its entry here and a
//! registration.
//!
//! The reader must own its descriptors: if other code closed one, a speculative read would take a
//! stranger's bytes. So the descriptor goes in with [`register`](BatchReader::register) and comes
//! out with [`deregister`](BatchReader::deregister), and in between the caller can write to it.
//!
//! [`BatchReads`]: crate::backend::BatchReads

use std::collections::VecDeque;
use std::os::fd::AsFd;

use crate::backend::{BackendKind, ReadCall};
use crate::costs::{Costs, Kind};
use crate::error::{Error, Result};
use crate::event::Events;
use crate::interest::{Mode, Watch};
use crate::key::Key;
use crate::policy::Account;
use crate::poller::{Builder, Poller};
use crate::stats::Stats;
use crate::sys::forks;
use crate::sys::poll::Slot;
use crate::waker::Waker;

mod arrivals;
mod prices;
mod source;
mod speculation;
mod stream;
mod wait;

pub use arrivals::{Arrival, Arrivals, Outcome};
use prices::Prices;
use source::{Ends, NOWHERE, Source, reads};
use speculation::Speculation;

/// The size of a buffer, unless another is asked for.
const BUFFER: usize = 4096;

/// Reads from many streams and hands out the bytes.
///
/// ```
/// use std::io::Write;
/// use std::os::unix::net::UnixStream;
/// use superpoll::batch::{Arrivals, BatchReader};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut reader = BatchReader::new()?;
/// let (ours, mut theirs) = UnixStream::pair()?;
/// let key = reader.register(ours).map_err(|rejected| rejected.error)?;
/// theirs.write_all(b"hello")?;
///
/// let mut arrivals = Arrivals::with_limit(64);
/// reader.wait(&mut arrivals, None)?;
/// let arrival = arrivals.iter().next().unwrap();
/// assert_eq!((arrival.key(), arrival.bytes()), (key, Some(&b"hello"[..])));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BatchReader<T: AsFd> {
    // The poller's registrations end before their descriptors are closed.
    poller: Poller,
    sources: Vec<Option<Source<T>>>,
    len: usize,
    events: Events,
    /// The descriptors that the kernel would not watch, until they are given back.
    refused: Vec<(Key, T)>,
    /// How often the process had been forked when the poller was made.
    forks: u32,
    /// Indices of sources to be read, each once.
    due: VecDeque<u32>,
    /// Sources that can be written to again, which the next wait delivers.
    roomy: Vec<Key>,
    /// `None` where reads are not handed over together.
    speculation: Option<Speculation>,
    /// Emptied, kept for its room.
    found: Vec<u32>,
    /// Sources whose last read may have left something, and the question to the kernel.
    doubted: Vec<u32>,
    probe: Vec<Slot>,
    /// The costs of the ways to read, where reads can be handed over together.
    prices: Option<&'static Prices>,
    /// Whether reads are handed over together, whatever that costs.
    together: Option<bool>,
    pool: Vec<Vec<u8>>,
    size: usize,
    /// Counts the passes of waits; each pass reads a source at most once.
    passes: u32,
    /// Whether the hot ones get the odd place in the next wait.
    turn: bool,
}

/// A descriptor that the reader did not take, and why.
#[derive(Debug)]
pub struct Refused<T> {
    /// The descriptor.
    pub io: T,
    /// The reason.
    pub error: Error,
}

impl<T> From<Refused<T>> for Error {
    fn from(refused: Refused<T>) -> Error {
        refused.error
    }
}

impl<T: AsFd> BatchReader<T> {
    /// A reader with the poller that [`Poller::new`] makes.
    ///
    /// # Errors
    ///
    /// As [`Builder::build`].
    pub fn new() -> Result<BatchReader<T>> {
        BatchReader::with(Poller::builder())
    }

    /// A reader with a back-end of the caller's choice.
    ///
    /// # Errors
    ///
    /// As [`Builder::build`].
    pub fn with_backend(kind: BackendKind) -> Result<BatchReader<T>> {
        BatchReader::with(Poller::builder().backend(kind))
    }

    /// A reader with the poller that this builder makes.
    ///
    /// # Errors
    ///
    /// As [`Builder::build`].
    pub fn with(builder: Builder) -> Result<BatchReader<T>> {
        let mut poller = builder.build()?;
        let prices = poller.batch_reads().is_some().then(Prices::calibrated);
        Ok(BatchReader {
            poller,
            sources: Vec::new(),
            len: 0,
            events: Events::with_limit(1),
            refused: Vec::new(),
            forks: forks::count(),
            due: VecDeque::new(),
            roomy: Vec::new(),
            speculation: prices.map(|prices| {
                Speculation::new(prices.terms(None), prices.terms_of_looking(Costs::calibrated()))
            }),
            found: Vec::new(),
            doubted: Vec::new(),
            probe: Vec::new(),
            prices,
            together: None,
            pool: Vec::new(),
            size: BUFFER,
            passes: 0,
            turn: false,
        })
    }

    /// Reads at most this many bytes of a descriptor at a time (4,096 unless set; at least 1).
    #[must_use]
    pub fn buffer_size(self, bytes: usize) -> BatchReader<T> {
        BatchReader { size: bytes.max(1), pool: Vec::new(), ..self }
    }

    /// Watches every descriptor, busy or not.
    #[must_use]
    pub fn without_speculation(self) -> BatchReader<T> {
        BatchReader { speculation: None, ..self }
    }

    /// Makes `uring` read all ready descriptors with one call, or each with a call of its own.
    /// Without this setting it chooses the way that is cheaper here for that kind of descriptor.
    /// The setting applies to descriptors that are registered from now on. The choice of
    /// descriptors to read without watching depends on the costs of such reads; if descriptors are
    /// registered already, that choice is made as before.
    #[must_use]
    pub fn reads_together(self, together: bool) -> BatchReader<T> {
        let mut reader = BatchReader { together: Some(together), ..self };
        if let (Some(prices), Some(speculation)) = (reader.prices, &mut reader.speculation)
            && reader.len == 0
        {
            speculation.begin_anew(prices.terms(Some(together)));
        }
        reader
    }

    /// The back-end's name.
    pub fn backend(&self) -> &'static str {
        self.poller.backend()
    }

    /// How many descriptors are registered. Those that were [refused](Arrivals::refusals) are not.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The counters of the poller. Its hot set is the descriptors that are read without being
    /// watched.
    pub fn stats(&self) -> Stats {
        let mut stats = self.poller.stats();
        if let Some(speculation) = &self.speculation {
            stats.hot = speculation.stats();
            (stats.moves_to_hot, stats.moves_to_cold) = speculation.moves();
        }
        stats
    }

    /// Heap in use for registrations, without the pool.
    pub fn memory(&self) -> usize {
        self.poller.memory().own
            + self.sources.capacity() * size_of::<Option<Source<T>>>()
            + (self.due.capacity() + self.doubted.capacity()) * size_of::<u32>()
            + self.probe.capacity() * size_of::<Slot>()
            + self.speculation.as_ref().map_or(0, Speculation::memory)
    }

    /// Takes a stream over and reads it from the next wait on: a pipe, a FIFO or a connected stream
    /// socket (`SOCK_STREAM`, `SOCK_SEQPACKET`). Sockets are read without waiting whatever their
    /// flags say; anything else must be non-blocking.
    ///
    /// With records (`SOCK_SEQPACKET`), empty ones are left out, and the part beyond the [size of a
    /// buffer](BatchReader::buffer_size) is lost. A stream is for bytes alone: out-of-band bytes
    /// (`MSG_OOB`) and passed descriptors (`SCM_RIGHTS`) are not delivered. The kernel ends a read
    /// there, and the next read takes the bytes that follow.
    ///
    /// # Errors
    ///
    /// [`Error::NotAStream`] for a descriptor that cannot be read this way, and as
    /// [`Poller::register`]; with the descriptor.
    pub fn register(&mut self, io: T) -> Result<Key, Refused<T>> {
        let admitted = stream::of(io.as_fd()).and_then(|stream| {
            let is_tcp = stream.kind == Kind::Tcp;
            let ends = Ends::of(&self.poller, is_tcp);
            let mode = if ends == Ends::ToldAgain { Mode::Level } else { Mode::Auto };
            let watch = Watch::new(reads(ends)).mode(mode);
            Ok((stream, ends, self.poller.register(&io, watch)?))
        });
        let (stream, ends, key) = match admitted {
            Ok(admitted) => admitted,
            Err(error) => return Err(Refused { io, error }),
        };
        let account = match &mut self.speculation {
            Some(speculation) => speculation.account(stream.kind),
            None => Account::default(),
        };
        let (by_call, few) = self.prices.map_or((true, 0), |prices| {
            (prices.by_call(stream.kind, self.together), prices.few(stream.kind, self.together))
        });
        let source = Source {
            io,
            key,
            account,
            call: match stream.kind {
                Kind::Pipe => ReadCall::Read,
                _ => ReadCall::Receive,
            },
            by_call,
            few: few as u8,
            hits: 0,
            place: NOWHERE,
            heated_in: self.passes.wrapping_sub(1),
            is_due: false,
            read_in: self.passes.wrapping_sub(1),
            in_records: stream.in_records,
            ends,
            has_mark: false,
            is_paused: false,
            is_ending: false,
            is_over: false,
            wants_room: false,
        };
        let index = key.index() as usize;
        if index >= self.sources.len() {
            self.sources.resize_with(index + 1, || None);
        }
        self.sources[index] = Some(source);
        self.len += 1;
        Ok(key)
    }

    /// Gives a descriptor back, open. Bytes that were not delivered stay in it.
    ///
    /// # Errors
    ///
    /// [`Error::StaleKey`].
    pub fn deregister(&mut self, key: Key) -> Result<T> {
        if let Some(source) = self.take(key) {
            // The poller has it for as long as it was not refused.
            let _ = self.poller.deregister(key);
            return Ok(source.io);
        }
        match self.refused.iter().position(|(refused, _)| *refused == key) {
            Some(place) => Ok(self.refused.swap_remove(place).1),
            None => Err(Error::StaleKey { key }),
        }
    }

    /// Ends everything about a source except the poller's registration.
    fn take(&mut self, key: Key) -> Option<Source<T>> {
        self.source(key).ok()?;
        self.cool(key.index(), false);
        let source = self.sources[key.index() as usize].take()?;
        self.len -= 1;
        if source.is_due {
            self.due.retain(|&index| index != key.index());
        }
        self.roomy.retain(|&roomy| roomy != key);
        Some(source)
    }

    fn source(&self, key: Key) -> Result<&Source<T>> {
        let source = self.sources.get(key.index() as usize).and_then(Option::as_ref);
        source.filter(|source| source.key == key).ok_or(Error::StaleKey { key })
    }

    fn source_mut(&mut self, key: Key) -> Result<&mut Source<T>> {
        let source = self.sources.get_mut(key.index() as usize).and_then(Option::as_mut);
        source.filter(|source| source.key == key).ok_or(Error::StaleKey { key })
    }

    /// The descriptor of a source, for writing to it.
    pub fn get(&self, key: Key) -> Option<&T> {
        let refused = || self.refused.iter().find(|(refused, _)| *refused == key);
        self.source(key).ok().map(|source| &source.io).or_else(|| Some(&refused()?.1))
    }

    /// The descriptor of a source, to change it: to write through `&mut`. It must stay the same
    /// open file. If it is exchanged for another one, the old file is closed without the knowledge
    /// of the poller. The poller may then report any file that gets its number, under this key.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.sources.get_mut(key.index() as usize) {
            Some(Some(source)) if source.key == key => {
                // The file may be taken out. A read that comes back is made again.
                self.poller.disengage(key.index());
                source.hits = 0;
                Some(&mut source.io)
            }
            _ => {
                let refused = self.refused.iter_mut().find(|(refused, _)| *refused == key);
                refused.map(|(_, io)| io)
            }
        }
    }

    /// Stops reading a source until it is [resumed](BatchReader::resume): its peer must wait.
    ///
    /// # Errors
    ///
    /// [`Error::StaleKey`].
    pub fn pause(&mut self, key: Key) -> Result<()> {
        let source = self.source_mut(key)?;
        source.is_paused = true;
        if std::mem::take(&mut source.is_due) {
            self.due.retain(|&due| due != key.index());
        }
        self.cool(key.index(), false);
        self.watch(key.index());
        Ok(())
    }

    /// Reads the source again.
    ///
    /// # Errors
    ///
    /// [`Error::StaleKey`].
    pub fn resume(&mut self, key: Key) -> Result<()> {
        let source = self.source_mut(key)?;
        source.is_paused = false;
        // The source may have been due before, and the kernel may not have learnt of the pause.
        let due = source.becomes_due();
        self.due.extend(due);
        self.watch(key.index());
        Ok(())
    }

    /// Delivers [`Outcome::Writable`] once, as soon as there is room to write.
    ///
    /// # Errors
    ///
    /// [`Error::StaleKey`].
    pub fn notify_writable(&mut self, key: Key) -> Result<()> {
        self.source_mut(key)?.wants_room = true;
        self.watch(key.index());
        Ok(())
    }

    /// Applies all changes to the kernel now instead of with the next wait ([`Poller::flush`]).
    pub fn flush(&mut self) {
        self.poller.flush();
    }

    /// Call this in a child process before anything else, if the reader was made before the fork
    /// and the child continues with it ([`Poller::after_fork`]). The parent still has the
    /// descriptors as well: bytes that one of the two reads are lost to the other.
    ///
    /// # Errors
    ///
    /// As [`Poller::after_fork`].
    pub fn after_fork(&mut self) -> Result<()> {
        self.poller.after_fork()?;
        self.forks = forks::count();
        Ok(())
    }

    /// Promises that the reader is used and dropped on this thread alone
    /// ([`Poller::stay_on_thread`]).
    pub fn stay_on_thread(&mut self) {
        self.poller.stay_on_thread();
    }

    /// A handle that makes a wait return, from any thread.
    ///
    /// # Errors
    ///
    /// As [`Poller::waker`].
    pub fn waker(&mut self) -> Result<Waker> {
        self.poller.waker()
    }
}

#[cfg(test)]
mod tests;
