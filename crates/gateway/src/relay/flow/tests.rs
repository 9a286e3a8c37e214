//! A direction between ends that accept, return, refuse and break as their scripts say.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::task::Waker;

use proptest::prelude::*;
use rustix::io::{ioctl_fionread, read, write};

use super::*;

/// The next moves of an end: nothing yet, or up to this many bytes.
type Moves = Vec<Option<usize>>;

/// An end that follows a script, again and again.
struct Model {
    moves: Moves,
    at: Cell<usize>,
    /// The bytes of a source, and how many of them were taken.
    bytes: Vec<u8>,
    given: Cell<usize>,
    /// The bytes that a target has got.
    got: RefCell<Vec<u8>>,
    refuses_splice: bool,
    breaks_after: Option<usize>,
    nodelay: Cell<u32>,
    /// A source has ended, and its reads give all there is.
    has_all: bool,
    reads: Cell<u32>,
    /// The number of bytes that a target gets in all, if no end breaks.
    last_at: usize,
}

impl Model {
    fn new(moves: Moves, bytes: Vec<u8>) -> Model {
        Model {
            moves,
            at: Cell::new(0),
            bytes,
            given: Cell::new(0),
            got: RefCell::default(),
            refuses_splice: false,
            breaks_after: None,
            nodelay: Cell::new(0),
            has_all: false,
            reads: Cell::new(0),
            last_at: 0,
        }
    }

    /// Returns how many of at most this many bytes are moved now.
    fn next(&self, moved: usize, most: usize) -> Poll<io::Result<usize>> {
        if self.breaks_after.is_some_and(|after| moved >= after) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let most = self.breaks_after.map_or(most, |after| most.min(after - moved));
        let at = self.at.replace(self.at.get() + 1);
        match self.moves[at % self.moves.len()] {
            None => Poll::Pending,
            Some(count) => Poll::Ready(Ok(count.clamp(1, most.max(1)).min(most))),
        }
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.given.get()
    }
}

fn empty(pipe: &OwnedFd) -> bool {
    ioctl_fionread(pipe).unwrap() == 0
}

impl End for Model {
    fn poll_read(&self, _: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        self.reads.set(self.reads.get() + 1);
        let most = room.len().min(self.left());
        let count = match self.has_all {
            true => most,
            false => ready!(self.next(self.given.get(), most))?,
        };
        let start = self.given.get();
        room[..count].copy_from_slice(&self.bytes[start..start + count]);
        self.given.set(start + count);
        Poll::Ready(Ok(count))
    }

    fn poll_write(&self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let got = &mut *self.got.borrow_mut();
        let count = ready!(self.next(got.len(), bytes.len()))?;
        got.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_fill(
        &self,
        _: &mut Context<'_>,
        pipe: &OwnedFd,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        assert!(empty(pipe), "a pipe that holds something was to be filled");
        if self.refuses_splice {
            return Poll::Ready(Err(io::ErrorKind::InvalidInput.into()));
        }
        let most = ready!(self.next(self.given.get(), length.min(self.left())))?;
        let start = self.given.get();
        let count = write(pipe, &self.bytes[start..start + most]).unwrap();
        self.given.set(start + count);
        Poll::Ready(Ok(count))
    }

    fn poll_empty(
        &self,
        _: &mut Context<'_>,
        pipe: &OwnedFd,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        if self.refuses_splice {
            return Poll::Ready(Err(io::ErrorKind::InvalidInput.into()));
        }
        let got = &mut *self.got.borrow_mut();
        let mut room = vec![0; ready!(self.next(got.len(), length))?];
        let count = read(pipe, &mut *room).unwrap();
        got.extend_from_slice(&room[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_write_last(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // Only with the last ones in hand.
        assert!(self.got.borrow().len() + bytes.len() >= self.last_at);
        self.poll_write(cx, bytes)
    }

    fn has_all(&self) -> bool {
        self.has_all
    }

    fn set_nodelay(&self) {
        self.nodelay.set(self.nodelay.get() + 1);
    }
}

/// Polls until the direction is over; whenever it waits it is polled again, as if the awaited event
/// had come.
fn run(source: &Model, target: &Model) -> (Result<(), Broken>, Moved) {
    let mut flow = Flow::new(false);
    let mut cx = Context::from_waker(Waker::noop());
    let mut all = Moved::default();
    for _ in 0..1_000_000 {
        let mut moved = Moved::default();
        let polled = flow.poll(&mut cx, source, target, &mut moved);
        all.read += moved.read;
        all.written += moved.written;
        all.spliced += moved.spliced;
        assert!(moved.read <= SHARE + PIPE as u64, "one turn moved {} bytes", moved.read);
        let kept =
            flow.unsent.as_ref().map_or(0, |unsent| unsent.used().len()) + flow.in_pipe as usize;
        assert_eq!(all.read, all.written + kept as u64);
        if let Poll::Ready(outcome) = polled {
            if outcome.is_ok() {
                assert!(flow.unsent.is_none() && flow.pipe.is_none() && flow.in_pipe == 0);
            }
            return (outcome, all);
        }
    }
    panic!("the flow does not end");
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length as u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Mostly full reads, so that bulk is reached; a script that only waits would never end.
fn moves() -> impl Strategy<Value = Moves> {
    let one = prop_oneof![
        4 => Just(Some(usize::MAX)),
        2 => (1_usize..40_000).prop_map(Some),
        2 => Just(None),
    ];
    prop::collection::vec(one, 1..12).prop_map(|mut moves| {
        moves.push(Some(usize::MAX));
        moves
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn all_bytes_come_out_in_order(
        length in prop_oneof![0_usize..100, 0_usize..4_000_000],
        gives in moves(),
        takes in moves(),
        refusals in 0_u8..8,
    ) {
        let mut source = Model::new(gives, bytes(length));
        let mut target = Model::new(takes, Vec::new());
        target.last_at = length;
        source.refuses_splice = refusals == 1;
        target.refuses_splice = refusals == 2;
        let (outcome, moved) = run(&source, &target);
        prop_assert!(outcome.is_ok());
        prop_assert!(*target.got.borrow() == source.bytes);
        prop_assert_eq!((moved.read, moved.written), (length as u64, length as u64));
        prop_assert!(moved.spliced == 0 || !(source.refuses_splice || target.refuses_splice));
        prop_assert!(target.nodelay.get() <= 1);
    }

    #[test]
    fn the_broken_end_is_named_and_no_bytes_are_invented(
        length in 1_usize..2_000_000,
        gives in moves(),
        takes in moves(),
        at in 0_usize..2_000_000,
        source_breaks: bool,
    ) {
        let mut source = Model::new(gives, bytes(length));
        let mut target = Model::new(takes, Vec::new());
        let at = at % length;
        match source_breaks {
            true => source.breaks_after = Some(at),
            false => target.breaks_after = Some(at),
        }
        let (outcome, _) = run(&source, &target);
        prop_assert!(matches!(
            (outcome, source_breaks),
            (Err(Broken::Source(_)), true) | (Err(Broken::Target(_)), false)
        ));
        let got = target.got.borrow();
        prop_assert!(got.len() <= length && *got == source.bytes[..got.len()]);
    }
}

#[test]
fn only_bulk_is_spliced_and_small_messages_are_copied_again() {
    let all = |length| {
        let source = Model::new(vec![Some(usize::MAX)], bytes(length));
        run(&source, &Model::new(vec![Some(usize::MAX)], Vec::new())).1
    };
    let bulk = usize::from(FULL_READS) * BUFFER;
    assert_eq!(all(bulk).spliced, 0);
    assert_eq!(all(bulk + 1_000_000).spliced, 1_000_000);
    // Full reads up to bulk, then messages of 100 bytes.
    let mut moves = vec![Some(usize::MAX); usize::from(FULL_READS)];
    moves.resize(1000, Some(100));
    let source = Model::new(moves, bytes(bulk + 50_000));
    let target = Model::new(vec![Some(usize::MAX)], Vec::new());
    let (outcome, moved) = run(&source, &target);
    assert!(outcome.is_ok());
    assert_eq!(moved.spliced, u64::from(SMALL_FILLS) * 100);
    assert!(*target.got.borrow() == source.bytes);
}

#[test]
fn nagle_is_off_from_the_second_write_and_not_asked_for_before() {
    let written = |messages: usize| {
        let source = Model::new(vec![Some(10)], bytes(10 * messages));
        let target = Model::new(vec![Some(usize::MAX)], Vec::new());
        assert!(run(&source, &target).0.is_ok());
        target.nodelay.get()
    };
    // Two are read at a time, and the last ones are written with the end.
    let times: Vec<u32> = (0..7).map(written).collect();
    assert_eq!(times, [0, 0, 0, 0, 1, 1, 1]);
}

#[test]
fn an_end_that_is_known_is_not_looked_for_behind_the_last_bytes() {
    for (length, known, otherwise) in
        [(1, 1, 2), (BUFFER - 1, 1, 2), (BUFFER, 2, 2), (BUFFER + 1, 2, 3), (3 * BUFFER + 5, 4, 5)]
    {
        for has_all in [true, false] {
            let mut source = Model::new(vec![Some(usize::MAX)], bytes(length));
            source.has_all = has_all;
            let mut target = Model::new(vec![Some(1000), None, Some(usize::MAX)], Vec::new());
            target.last_at = length;
            assert!(run(&source, &target).0.is_ok());
            assert!(*target.got.borrow() == source.bytes);
            assert_eq!(source.reads.get(), if has_all { known } else { otherwise }, "{length}");
        }
    }
}

#[test]
fn a_small_remainder_takes_a_small_buffer() {
    let polled = |length: usize, writes: Vec<Option<usize>>| {
        let source = Model::new(vec![Some(length), None, None, None], bytes(length));
        let (target, mut flow) = (Model::new(writes, Vec::new()), Flow::new(false));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(flow.poll(&mut cx, &source, &target, &mut Moved::default()).is_pending());
        let is_small = matches!(flow.unsent, Some(Unsent::Small(..)));
        let unsent = flow.unsent.as_ref().map(|unsent| unsent.used().to_vec());
        (is_small, unsent, target.got.take())
    };
    let all = bytes(10_000);
    assert_eq!(polled(100, vec![None]), (true, Some(all[..100].to_vec()), vec![]));
    assert!(!polled(10_000, vec![None]).0);
    // A small rest of a large transfer.
    let (is_small, unsent, got) = polled(10_000, vec![Some(9_990), None]);
    assert!(is_small && unsent.unwrap() == all[9_990..] && got == all[..9_990]);
    let (is_small, unsent, _) = polled(100, vec![Some(100)]);
    assert!(!is_small && unsent.is_none());
}
