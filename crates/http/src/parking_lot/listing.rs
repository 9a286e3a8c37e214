//! Parked connections, as an operator sees them.

use superpoll::Key;

use super::{ParkingLot, ResumeReason};
use crate::admin::Protocol;
use crate::peer::Peer;

impl ParkingLot {
    /// Looks at parked connections, from a place on and at some places. Returns the place to
    /// continue at, if there are further ones.
    pub fn visit(
        &self,
        from: usize,
        most: usize,
        mut look: impl FnMut(&Peer, Protocol),
    ) -> Option<usize> {
        let entries = self.entries.borrow();
        let end = from.saturating_add(most).min(entries.len());
        for entry in entries.get(from..end).into_iter().flatten().flatten() {
            look(entry.peer(), entry.owner.protocol());
        }
        (end < entries.len()).then_some(end)
    }

    /// Closes the connections that are chosen, among those of some places, as when the server ends:
    /// idle ones are closed, and subscribers of channels are told. Returns how many, and the place
    /// to continue at, if there are further ones.
    pub fn close(
        &self,
        from: usize,
        most: usize,
        choose: impl Fn(&Peer) -> bool,
    ) -> (u64, Option<usize>) {
        let (keys, next) = {
            let entries = self.entries.borrow();
            let end = from.saturating_add(most).min(entries.len());
            let found = entries.get(from..end).into_iter().flatten().flatten();
            let chosen = found.filter(|entry| choose(entry.peer()));
            let keys: Vec<Key> = chosen.map(|entry| entry.key).collect();
            (keys, (end < entries.len()).then_some(end))
        };
        let count = keys.len() as u64;
        keys.into_iter().for_each(|key| self.resume(key, ResumeReason::Draining));
        (count, next)
    }
}
