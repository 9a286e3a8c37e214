//! The state that a poller shares with its wakers, registrars and owners.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::interest::{Interest, Watch};
use crate::key::Key;
use crate::sleep::Sleep;
use crate::table;

/// A list of commands longer than this is not kept for the next ones.
const KEPT_COMMANDS: usize = 1024;

/// A command to the poller, from another thread or a dropped owner.
#[derive(Debug)]
pub(crate) enum Command {
    Register { key: Key, fd: RawFd, watch: Watch },
    Modify { key: Key, interest: Interest },
    ModifyWatch { key: Key, watch: Watch },
    Deregister { key: Key },
    Closed { key: Key },
}

#[derive(Debug, Default)]
struct Queue {
    commands: Vec<Command>,
    vacant: Vec<Key>,
}

/// The state that the poller shares with its wakers, registrars and owners.
#[derive(Debug)]
pub(crate) struct Shared {
    pub sleep: Sleep,
    /// The counter from which `table::name` takes names.
    pub names: Arc<AtomicU64>,
    pending: AtomicBool,
    queue: Mutex<Queue>,
}

impl Shared {
    pub(crate) fn new() -> Shared {
        Shared {
            sleep: Sleep::new(),
            names: Arc::default(),
            pending: AtomicBool::new(false),
            queue: Mutex::new(Queue::default()),
        }
    }

    /// The queue. A thread that panicked while holding the lock left it whole: each critical
    /// section is one push or one swap.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there are commands; costs a load.
    #[inline]
    pub(crate) fn has_commands(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// Swaps the commands into the emptied list, and gives vacant keys back.
    pub(crate) fn take(&self, commands: &mut Vec<Command>, vacant: impl Iterator<Item = Key>) {
        let mut queue = self.queue();
        self.pending.store(false, Ordering::Release);
        std::mem::swap(&mut queue.commands, commands);
        if queue.commands.capacity() > KEPT_COMMANDS {
            // The list of a burst, emptied in the time before.
            queue.commands = Vec::new();
        }
        queue.vacant.extend(vacant);
    }

    pub(crate) fn push(&self, command: Command) {
        let mut queue = self.queue();
        queue.commands.push(command);
        self.pending.store(true, Ordering::Release);
    }

    /// Registers a descriptor under a key that it has from now on.
    pub(crate) fn push_registration(&self, fd: RawFd, watch: Watch) -> Key {
        let mut queue = self.queue();
        let key = match queue.vacant.pop() {
            Some(key) => key,
            None => table::name(&self.names),
        };
        queue.commands.push(Command::Register { key, fd, watch });
        self.pending.store(true, Ordering::Release);
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_taken_once_and_vacant_keys_given_back() {
        let shared = Shared::new();
        assert!(!shared.has_commands());
        let [first, second] = [0, 1].map(|index| Key::new(index, 0));
        shared.push(Command::Deregister { key: first });
        shared.push(Command::Closed { key: second });
        assert!(shared.has_commands());
        let mut commands = Vec::new();
        shared.take(&mut commands, [second].into_iter());
        assert!(matches!(commands[..], [Command::Deregister { .. }, Command::Closed { .. }]));
        assert!(!shared.has_commands());
        assert_eq!(shared.queue().vacant, [second]);
        commands.clear();
        shared.take(&mut commands, std::iter::empty());
        assert!(commands.is_empty());
    }
}
