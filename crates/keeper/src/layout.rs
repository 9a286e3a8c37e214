//! The byte layout of the parts of a message.
//!
//! | part | layout |
//! |---|---|
//! | number | its bytes in little-endian order |
//! | flag | one byte, 0 or 1 |
//! | bytes, text | the length as a `u32`, then the bytes; text is UTF-8 |
//! | list | the number of entries as a `u32`, then the entries |
//! | pair, structure | its parts in order, without padding |
//!
//! Each value has exactly one encoding, so a decoded message encodes to the same bytes again. A
//! length or a number of entries that exceeds the rest of the packet is refused before any memory
//! is reserved for it. Decoded bytes and text are borrowed from the packet.

/// A part of a message.
pub(crate) trait Part<'a>: Sized {
    /// The fewest bytes that the part takes.
    const LEAST: usize;

    /// Appends the part to a packet.
    fn put(&self, to: &mut Writer<'_>);

    /// Decodes the part; `None` if the packet has something else there.
    fn take(from: &mut Reader<'a>) -> Option<Self>;
}

/// Appends parts to a packet.
pub(crate) struct Writer<'p>(pub &'p mut Vec<u8>);

impl Writer<'_> {
    pub(crate) fn put<'a>(&mut self, part: &impl Part<'a>) -> &mut Self {
        part.put(self);
        self
    }
}

/// Takes parts from the rest of a packet.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take<T: Part<'a>>(&mut self) -> Option<T> {
        T::take(self)
    }

    /// Takes the number of entries, or bytes, that follow; each takes at least `least` bytes.
    fn take_count(&mut self, least: usize) -> Option<usize> {
        let count = usize::try_from(self.take::<u32>()?).ok()?;
        (count <= self.0.len() / least).then_some(count)
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Part<'_> for $number {
            const LEAST: usize = size_of::<$number>();

            fn put(&self, to: &mut Writer<'_>) {
                to.0.extend_from_slice(&self.to_le_bytes());
            }

            fn take(from: &mut Reader<'_>) -> Option<$number> {
                let (bytes, rest) = from.0.split_first_chunk()?;
                from.0 = rest;
                Some(<$number>::from_le_bytes(*bytes))
            }
        }
    )*};
}

numbers!(u8, u32, i32, u64);

impl Part<'_> for bool {
    const LEAST: usize = 1;

    fn put(&self, to: &mut Writer<'_>) {
        to.put(&u8::from(*self));
    }

    fn take(from: &mut Reader<'_>) -> Option<bool> {
        match from.take::<u8>()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

/// Appends the number of entries, or bytes, that follow. A packet that is too long for the number
/// is too long for the socket as well.
fn put_count(to: &mut Writer<'_>, count: usize) {
    to.put(&u32::try_from(count).unwrap_or(u32::MAX));
}

impl<'a> Part<'a> for &'a [u8] {
    const LEAST: usize = 4;

    fn put(&self, to: &mut Writer<'_>) {
        put_count(to, self.len());
        to.0.extend_from_slice(self);
    }

    fn take(from: &mut Reader<'a>) -> Option<&'a [u8]> {
        let length = from.take_count(1)?;
        let (bytes, rest) = from.0.split_at_checked(length)?;
        from.0 = rest;
        Some(bytes)
    }
}

impl<'a> Part<'a> for &'a str {
    const LEAST: usize = 4;

    fn put(&self, to: &mut Writer<'_>) {
        to.put(&self.as_bytes());
    }

    fn take(from: &mut Reader<'a>) -> Option<&'a str> {
        str::from_utf8(from.take()?).ok()
    }
}

impl<'a, A: Part<'a>, B: Part<'a>> Part<'a> for (A, B) {
    const LEAST: usize = A::LEAST + B::LEAST;

    fn put(&self, to: &mut Writer<'_>) {
        to.put(&self.0).put(&self.1);
    }

    fn take(from: &mut Reader<'a>) -> Option<(A, B)> {
        Some((from.take()?, from.take()?))
    }
}

impl<'a, T: Part<'a>> Part<'a> for Vec<T> {
    const LEAST: usize = 4;

    fn put(&self, to: &mut Writer<'_>) {
        put_count(to, self.len());
        to.0.reserve(self.len() * T::LEAST);
        self.iter().for_each(|entry| entry.put(to));
    }

    fn take(from: &mut Reader<'a>) -> Option<Vec<T>> {
        let count = from.take_count(T::LEAST)?;
        let mut all = Vec::with_capacity(count);
        for _ in 0..count {
            all.push(from.take()?);
        }
        Some(all)
    }
}
