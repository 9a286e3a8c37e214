//! The keys of parked connections, next to each other.
//!
//! Keys that lay where they were made, among the buffers of their handshake, would keep a page of
//! the heap for each connection. So each engine keeps all of them in blocks, which never move: a
//! block that grew would leave a copy of secrets behind. A place is overwritten when it is left.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU32;

use super::parked::ParkedKeys;

/// The keys in a block, which are about two pages.
const BLOCK: usize = 64;

#[derive(Default)]
struct Pool {
    blocks: Vec<Box<[Option<ParkedKeys>]>>,
    free: Vec<u32>,
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

impl Pool {
    fn place(&mut self, index: u32) -> &mut Option<ParkedKeys> {
        let index = index as usize;
        &mut self.blocks[index / BLOCK][index % BLOCK]
    }

    fn insert(&mut self, keys: ParkedKeys) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            // There are fewer descriptors than that.
            let first = (self.blocks.len() * BLOCK) as u32;
            self.blocks.push((0..BLOCK).map(|_| None).collect());
            self.free.extend((first + 1..first + BLOCK as u32).rev());
            first
        });
        *self.place(index) = Some(keys);
        index
    }

    /// Overwrites a place, and gives the memory back with the last of them.
    fn remove(&mut self, index: u32) {
        *self.place(index) = None;
        self.free.push(index);
        if self.free.len() == self.blocks.len() * BLOCK {
            *self = Pool::default();
        }
    }
}

/// The keys of one parked connection, in the blocks of this thread.
pub(crate) struct PooledKeys {
    /// The place, and one.
    number: NonZeroU32,
    /// It stays on its thread.
    here: PhantomData<*const ()>,
}

impl PooledKeys {
    pub(crate) fn new(keys: ParkedKeys) -> PooledKeys {
        let index = POOL.with_borrow_mut(|pool| pool.insert(keys));
        PooledKeys { number: NonZeroU32::MIN.saturating_add(index), here: PhantomData }
    }

    fn index(&self) -> u32 {
        self.number.get() - 1
    }

    /// Passes the keys to a function.
    pub(crate) fn with<R>(&mut self, act: impl FnOnce(&mut ParkedKeys) -> R) -> Option<R> {
        POOL.with_borrow_mut(|pool| pool.place(self.index()).as_mut().map(act))
    }

    /// Takes the keys out.
    pub(crate) fn take(mut self) -> Option<ParkedKeys> {
        self.with(ParkedKeys::moved)
    }
}

impl Drop for PooledKeys {
    fn drop(&mut self) {
        let index = self.index();
        // Behind the end of the thread the pool has been dropped, and has overwritten all keys.
        let _ = POOL.try_with(|pool| pool.borrow_mut().remove(index));
    }
}

impl fmt::Debug for PooledKeys {
    /// Shows no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PooledKeys").field(&self.number).finish()
    }
}

#[cfg(test)]
pub(super) fn blocks() -> usize {
    POOL.with_borrow(|pool| pool.blocks.len())
}
