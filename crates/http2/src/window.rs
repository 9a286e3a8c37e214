//! Windows of flow control (RFC 9113, section 5.2).

use crate::limits::LARGEST_WINDOW;

/// The bytes that the client allows this side to send. Below 0 after the client has made its
/// initial window smaller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SendWindow(i64);

impl SendWindow {
    pub(crate) const fn new(size: i64) -> SendWindow {
        SendWindow(size)
    }

    pub(crate) const fn left(self) -> i64 {
        self.0
    }

    /// Changes the window. Returns false if it is too large then.
    pub(crate) fn change(&mut self, by: i64) -> bool {
        self.0 += by;
        self.0 <= i64::from(LARGEST_WINDOW)
    }

    #[inline]
    pub(crate) fn take(&mut self, count: usize) {
        self.0 -= i64::try_from(count).unwrap_or(i64::MAX);
    }
}

/// The bytes that this side allows the client to send.
///
/// The bytes left to the client, those that the caller holds, and those released since the last
/// `WINDOW_UPDATE` are the size of the window together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReceiveWindow {
    left: u32,
    size: u32,
    held: u32,
}

impl ReceiveWindow {
    pub(crate) const fn new(size: u32) -> ReceiveWindow {
        ReceiveWindow { left: size, size, held: 0 }
    }

    /// Returns a window with no held bytes and so many left.
    pub(crate) fn with_left(size: u32, left: u32) -> ReceiveWindow {
        ReceiveWindow { left, size: size.max(left), held: 0 }
    }

    pub(crate) const fn left(&self) -> u32 {
        self.left
    }

    pub(crate) const fn held(&self) -> u32 {
        self.held
    }

    /// Takes bytes that have arrived. Returns false if the client had no right to send them.
    #[inline]
    pub(crate) fn receive(&mut self, count: u32) -> bool {
        let Some(left) = self.left.checked_sub(count) else { return false };
        self.left = left;
        self.held += count;
        true
    }

    /// Releases held bytes. Returns the increment that the client is told, once half of the window
    /// can be given back.
    #[inline]
    pub(crate) fn release(&mut self, count: u32) -> Option<u32> {
        self.held -= count.min(self.held);
        let increment = self.size - self.left - self.held;
        if increment == 0 || increment < self.size / 2 {
            return None;
        }
        self.left += increment;
        Some(increment)
    }
}
