//! Freeing the routes of a former configuration, without a pause of the engine that has them.
//!
//! They are the engine's own, so that no other thread can free them. Thousands of them take
//! milliseconds.

use superpoll_rt::{Handle, next_turn, spawn};

/// How many hosts or routes an engine builds or frees in one turn of its event loop: a fraction of
/// a millisecond.
pub(in crate::serve) const SLICE: usize = 64;

/// Frees values, in some turns of this engine's event loop if there are many.
pub(super) fn release<T: 'static>(mut values: Vec<T>) {
    // An engine that ends has no requests that would wait.
    if values.len() <= SLICE || Handle::current().is_err() {
        return;
    }
    let task = async move {
        while !values.is_empty() {
            values.truncate(values.len().saturating_sub(SLICE));
            next_turn().await;
        }
    };
    spawn(task).detach();
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use superpoll_rt::Runtime;

    use super::*;

    /// Counts itself when it is freed.
    struct Counted(Rc<Cell<usize>>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    fn counted(count: usize) -> (Vec<Counted>, Rc<Cell<usize>>) {
        let freed = Rc::new(Cell::new(0));
        ((0..count).map(|_| Counted(freed.clone())).collect(), freed)
    }

    #[test]
    fn many_values_are_freed_in_several_turns_and_a_few_at_once() {
        Runtime::new().unwrap().block_on(async {
            let (few, freed) = counted(SLICE);
            release(few);
            assert_eq!(freed.get(), SLICE);
            let all = 10 * SLICE + 1;
            let (many, freed) = counted(all);
            release(many);
            let mut before = freed.get();
            assert_eq!(before, 0);
            while before < all {
                next_turn().await;
                let now = freed.get();
                // Another task is not kept waiting for more than two slices.
                assert!(now - before <= 2 * SLICE, "{now} after {before}");
                before = now;
            }
        });
        let (many, freed) = counted(3 * SLICE);
        release(many);
        assert_eq!(freed.get(), 3 * SLICE);
    }
}
