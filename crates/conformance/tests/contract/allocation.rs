//! The steady state allocates nothing.

use std::io::{Read, Write, pipe};
use std::time::Duration;

use superpoll::{Events, Hint, Interest, Mode, Watch};
use superpoll_conformance::bench;

use crate::numbers;

/// An allocator that counts, for each thread.
mod sys {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    thread_local! {
        static COUNT: Cell<usize> = const { Cell::new(0) };
    }

    pub(crate) struct Counting;

    // SAFETY: every call is passed to the system's allocator as it is; the counter is a
    // thread-local without a destructor, which needs no allocation itself.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            COUNT.with(|count| count.set(count.get() + 1));
            // SAFETY: the caller keeps GlobalAlloc's contract.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
            // SAFETY: the caller keeps GlobalAlloc's contract.
            unsafe { System.dealloc(pointer, layout) }
        }

        unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            COUNT.with(|count| count.set(count.get() + 1));
            // SAFETY: the caller keeps GlobalAlloc's contract.
            unsafe { System.realloc(pointer, layout, size) }
        }
    }

    /// Returns the allocations of the calling thread so far.
    pub(crate) fn allocations() -> usize {
        COUNT.with(Cell::get)
    }
}

#[global_allocator]
static ALLOCATOR: sys::Counting = sys::Counting;

#[test]
fn the_steady_state_allocates_nothing() {
    judge(0, usize::MAX);
}

#[test]
fn moving_descriptors_allocates_nothing() {
    judge(0, 40);
}

#[test]
fn waits_that_are_cut_off_allocate_nothing() {
    judge(2, usize::MAX);
}

/// Counts allocations over many rounds. The limit cuts off this many waits in each round, and the
/// set of active descriptors moves on after this many rounds.
fn judge(cut_off: usize, shift: usize) {
    for bench in bench::all().iter().filter(|bench| !bench.capabilities().moves_at_random) {
        let _small = numbers::small(bench);
        let mut rig = bench.rig();
        let waker = rig.waker().unwrap();
        let hints = [Hint::None, Hint::Busy, Hint::Idle];
        let modes = [Mode::Level, Mode::OneShot, Mode::Auto];
        let mut pipes: Vec<_> = (0..30)
            .map(|place| {
                let (reader, writer) = pipe().unwrap();
                let watch = Watch::new(Interest::READABLE).mode(modes[place % 3]);
                let key = rig.register(&reader, watch.hint(hints[place / 3 % 3])).unwrap();
                (key, reader, writer)
            })
            .collect();
        let mut poller = rig;
        let poller = poller.poller();
        let mut ample = Events::with_limit(64);
        let mut tight = Events::with_limit(2);
        let mut round = |number: usize| {
            for place in 0..6 {
                pipes[(number / shift + place) % 30].2.write_all(b"x").unwrap();
            }
            if number.is_multiple_of(5) {
                waker.wake().unwrap();
            }
            for _ in 0..cut_off {
                poller.wait(&mut tight, Some(Duration::ZERO)).unwrap();
            }
            poller.wait(&mut ample, Some(Duration::from_micros(1))).unwrap();
            for place in 0..6 {
                let (key, reader, _) = &mut pipes[(number / shift + place) % 30];
                reader.read_exact(&mut [0]).unwrap();
                poller.modify(*key, Interest::NONE).unwrap();
                poller.modify(*key, Interest::READABLE).unwrap();
            }
        };
        // Runs until buffers have their size and descriptors their place.
        (0..2400).for_each(&mut round);
        let before = sys::allocations();
        (2400..3600).for_each(&mut round);
        let allocations = sys::allocations() - before;
        assert_eq!(allocations, 0, "{}, {cut_off} waits cut off: in 1200 rounds", bench.name());
    }
}
