//! Random bytes for ids. They come from the kernel, so that no client can guess the id of another
//! one's request. An engine fetches them for many requests at once, since a system call for each
//! would cost more than the id.

use std::cell::RefCell;

use ring::rand::{SecureRandom, SystemRandom};

/// The bytes that are fetched at once: those of 32 ids.
const ROOM: usize = 512;

/// Bytes that were fetched, and how many of them are used.
struct Supply {
    bytes: [u8; ROOM],
    used: usize,
}

thread_local! {
    static SUPPLY: RefCell<Supply> = const { RefCell::new(Supply { bytes: [0; ROOM], used: ROOM }) };
}

/// Returns random bytes; `None` if the kernel has none, which it has on every machine that has
/// booted.
pub(super) fn bytes<const N: usize>() -> Option<[u8; N]> {
    const { assert!(N <= ROOM) };
    SUPPLY.with_borrow_mut(|supply| {
        if ROOM - supply.used < N {
            SystemRandom::new().fill(&mut supply.bytes).ok()?;
            supply.used = 0;
        }
        let taken = supply.bytes[supply.used..].first_chunk().copied();
        supply.used += N;
        taken
    })
}
