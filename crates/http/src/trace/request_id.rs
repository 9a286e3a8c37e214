//! Ids of requests.
//!
//! A new id is 128 random bits in hexadecimal, as that of nginx. An id of an earlier proxy may have
//! another form: it is a text of letters, digits and a few signs that neither end a field nor a
//! line of a log, and need no escape in JSON, a URL's path or a shell's quotes.

use std::cell::RefCell;

use data_encoding::HEXLOWER;
use http::HeaderValue;
use ring::rand::{SecureRandom, SystemRandom};

/// The longest id that is kept, in bytes.
pub(super) const LONGEST: usize = 128;

/// Returns a new id.
pub(super) fn new() -> Option<HeaderValue> {
    let random = random_bytes::<16>()?;
    HeaderValue::from_str(&HEXLOWER.encode(&random)).ok()
}

const fn is_of_id(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'-' | b'.' | b'_' | b'~' | b':' | b'/' | b'+' | b'=' | b'@')
}

/// Returns the id that some values of a field are, if it is one valid id.
pub(super) fn valid<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Option<HeaderValue> {
    let first = values.next()?;
    let is_id = (1..=LONGEST).contains(&first.len()) && first.iter().all(|byte| is_of_id(*byte));
    if !is_id || values.next().is_some() {
        return None;
    }
    // A copy, as the request may wait for long, and would keep the buffer of its whole head.
    HeaderValue::from_bytes(first).ok()
}

// Random bytes for ids. They come from the kernel, so that no client can guess the id of another
// one's request. An engine fetches them for many requests at once, since a system call for each
// would cost more than the id.

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
pub(super) fn random_bytes<const N: usize>() -> Option<[u8; N]> {
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
