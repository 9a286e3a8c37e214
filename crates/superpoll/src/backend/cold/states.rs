//! The states of registrations: each goes to the keeper together with its descriptor.
//!
//! A keeper that has no room returns the descriptors that it was given, and a returned
//! descriptor must leave again one day, with its state. So a state that was sent is kept until the
//! keeper has answered a question that was asked after it. Messages on a link arrive in order,
//! so by then the keeper has returned every descriptor that it could not take. A connection
//! that is away for good costs nothing here.

use std::collections::HashMap;

use zeroize::Zeroizing;

/// A state. It may have keys in it, and is overwritten when it is dropped.
type State = Zeroizing<Vec<u8>>;

/// A map with room for more than this is made smaller when most of it is empty.
const SHRINK_ABOVE: usize = 64;

/// By the index of its slot.
#[derive(Debug, Default)]
pub(super) struct States {
    here: HashMap<u32, State>,
    /// The states that have left, each with the number of the question whose answer confirms that
    /// it was taken.
    sent: HashMap<u32, (u64, State)>,
}

/// Frees the memory that a crowd needed which has left, because idle descriptors should cost
/// little.
fn shrink_if_sparse<T>(map: &mut HashMap<u32, T>) {
    if map.capacity() > SHRINK_ABOVE && map.len() < map.capacity() / 4 {
        map.shrink_to(2 * map.len());
    }
}

fn remove<T>(map: &mut HashMap<u32, T>, index: u32) -> Option<T> {
    if map.is_empty() {
        return None;
    }
    let gone = map.remove(&index);
    shrink_if_sparse(map);
    gone
}

impl States {
    /// Sets the state with which a registration leaves next.
    pub(super) fn set(&mut self, index: u32, state: &[u8]) {
        self.here.insert(index, Zeroizing::new(state.to_vec()));
    }

    /// Returns that state, without removing it.
    pub(super) fn get(&self, index: u32) -> Option<&[u8]> {
        self.here.get(&index).map(|state| &state[..])
    }

    /// Notes that a registration has left, with its state if it has one; returns true in that case.
    /// Question `next` is the first that comes after it.
    pub(super) fn mark_sent(&mut self, index: u32, next: u64) -> bool {
        let state = remove(&mut self.here, index);
        state.map(|state| self.sent.insert(index, (next, state))).is_some()
    }

    /// Notes that a registration was returned. It has its state again, unless it was given another
    /// one meanwhile.
    pub(super) fn restore(&mut self, index: u32) {
        if let Some((_, state)) = remove(&mut self.sent, index) {
            self.here.entry(index).or_insert(state);
        }
    }

    /// Notes that a registration was taken, or is called back: the state with which it left is of
    /// no use any more.
    pub(super) fn forget_sent(&mut self, index: u32) {
        remove(&mut self.sent, index);
    }

    /// Notes that a registration has ended.
    pub(super) fn forget(&mut self, index: u32) {
        remove(&mut self.here, index);
        remove(&mut self.sent, index);
    }

    /// Notes that a question is answered: the states that were sent before it were taken.
    pub(super) fn confirm(&mut self, question: u64) {
        if !self.sent.is_empty() {
            self.sent.retain(|_, &mut (next, _)| next > question);
            shrink_if_sparse(&mut self.sent);
        }
    }

    pub(super) fn memory(&self) -> usize {
        let here: usize = self.here.values().map(|state| state.len()).sum();
        let sent: usize = self.sent.values().map(|(_, state)| state.len()).sum();
        here + sent
            + self.here.capacity() * size_of::<(u32, State)>()
            + self.sent.capacity() * size_of::<(u32, (u64, State))>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_leaves_and_is_kept_until_it_was_taken() {
        let mut states = States::default();
        assert!(!states.mark_sent(3, 1), "it has none");
        states.set(3, b"first");
        states.set(4, b"other");
        assert_eq!((states.get(3), states.get(5)), (Some(&b"first"[..]), None));
        assert!(states.mark_sent(3, 7) && states.mark_sent(4, 8));
        assert_eq!(states.get(3), None);
        states.confirm(6);
        states.restore(3);
        assert_eq!(states.get(3), Some(&b"first"[..]));
        states.restore(3);
        assert_eq!(states.get(3), Some(&b"first"[..]), "nothing more comes back");
        states.confirm(8);
        states.restore(4);
        assert_eq!(states.get(4), None, "it was taken");
    }

    #[test]
    fn a_state_set_during_a_stay_is_newer_and_an_end_drops_both() {
        let mut states = States::default();
        for (index, state) in [(1, b"a"), (2, b"b"), (3, b"c")] {
            states.set(index, state);
            states.mark_sent(index, 1);
            states.set(index, b"newer");
        }
        states.restore(1);
        assert_eq!(states.get(1), Some(&b"newer"[..]));
        states.forget(2);
        states.restore(2);
        assert_eq!(states.get(2), None);
        states.forget_sent(3);
        assert!(states.mark_sent(3, 2));
        states.restore(3);
        assert_eq!(states.get(3), Some(&b"newer"[..]));
    }

    #[test]
    fn a_crowd_that_has_left_costs_nothing() {
        let mut states = States::default();
        for index in 0..10_000 {
            states.set(index, &[0; 40]);
        }
        let full = states.memory();
        assert!(full >= 10_000 * (40 + 24));
        for index in 0..10_000 {
            states.mark_sent(index, 1);
        }
        assert!(states.memory() >= 10_000 * 40);
        states.confirm(1);
        assert!(states.memory() <= 4 * SHRINK_ABOVE * 32, "{}", states.memory());
    }
}
