//! The streams of a connection that were woken.
//!
//! The connection's task polls the futures of its streams, each with a waker of its own. Such a
//! waker notes its stream and wakes the task. The task takes all that was noted once, when it is
//! run: a stream that wakes itself, to let others run first, is not polled again in the same turn.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use super::session::STREAMS;

/// A bit for each of [`STREAMS`].
const WORDS: usize = 2;
const _: () = assert!(STREAMS as u32 <= u64::BITS * WORDS as u32);

/// The streams that were woken, by their slots.
#[derive(Default)]
pub(super) struct Wakes {
    task: Mutex<Option<Waker>>,
    due: [AtomicU64; WORDS],
}

struct StreamWaker {
    wakes: Arc<Wakes>,
    slot: usize,
}

impl Wake for StreamWaker {
    fn wake(self: Arc<StreamWaker>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<StreamWaker>) {
        // If it was noted before, the task was woken then.
        if self.wakes.note(self.slot) {
            let task = self.wakes.task.lock().unwrap_or_else(PoisonError::into_inner);
            task.iter().for_each(Waker::wake_by_ref);
        }
    }
}

impl Wakes {
    /// Sets the task that is woken.
    pub(super) fn register(&self, cx: &Context<'_>) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(|task| !task.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
    }

    /// Returns the waker of a slot.
    pub(super) fn waker(self: &Arc<Wakes>, slot: usize) -> Waker {
        Waker::from(Arc::new(StreamWaker { wakes: self.clone(), slot }))
    }

    /// Notes a stream; whether it was not noted.
    fn note(&self, slot: usize) -> bool {
        let (word, bit) = (slot / u64::BITS as usize, 1 << (slot % u64::BITS as usize));
        let Some(word) = self.due.get(word) else { return false };
        word.fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    /// Takes all streams that were woken since the last call, a bit for each.
    pub(super) fn take(&self) -> u128 {
        // Mostly there is none, and looking is cheaper.
        let [low, high] = self.due.each_ref().map(|word| match word.load(Ordering::Acquire) {
            0 => 0,
            _ => word.swap(0, Ordering::AcqRel),
        });
        u128::from(high) << u64::BITS | u128::from(low)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    struct Counted(AtomicU32);

    impl Wake for Counted {
        fn wake(self: Arc<Counted>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_woken_stream_is_found_once_and_wakes_the_task_once() {
        let (wakes, task) = (Arc::<Wakes>::default(), Arc::new(Counted(AtomicU32::new(0))));
        let waker = Waker::from(task.clone());
        wakes.register(&Context::from_waker(&waker));
        let last = usize::from(STREAMS) - 1;
        let slots = [0, 63, 64, last];
        let wakers = slots.map(|slot| wakes.waker(slot));
        for _ in 0..2 {
            wakers.iter().chain(&wakers).for_each(Waker::wake_by_ref);
            assert_eq!(wakes.take(), slots.iter().map(|slot| 1 << slot).sum());
            assert_eq!(wakes.take(), 0);
        }
        assert_eq!(task.0.load(Ordering::Relaxed), 8);
    }
}
