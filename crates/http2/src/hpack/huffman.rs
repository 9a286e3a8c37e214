//! The Huffman code of RFC 7541, appendix B, decoded.
//!
//! The code is canonical: codes of one length follow each other in the order of their symbols, and
//! longer codes follow shorter ones. So the lengths say all. Codes of up to 8 bits, those of nearly
//! all text, are found by one look into a table of 512 bytes; a longer one by its length first.

use crate::error::ConnectionError;

/// The symbol of the end, which is never sent. Its first bits are the padding.
const END: u16 = 256;

/// The length of the longest code, and of that of the end.
const LONGEST: usize = 30;

/// The bits of the codes in the short table.
const SHORT_BITS: u32 = 8;

/// The lengths of the codes in bits, by their symbols.
#[rustfmt::skip]
static LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The parts of the decoder, made of the lengths by the compiler.
struct Tables {
    /// The symbols and lengths of short codes, by the first 8 bits of any bits that begin with
    /// them. The length is 0 where no short code fits.
    short: [(u8, u8); 1 << SHORT_BITS],
    /// For each length, the end of its codes: the first bits that are no code of up to that length,
    /// from the highest bit of 32 on.
    ends: [u64; LONGEST + 1],
    /// For each length, the place of its first code among the symbols, and that code.
    first: [(u16, u32); LONGEST + 1],
    /// All symbols by their codes.
    symbols: [u16; 257],
}

static TABLES: Tables = tables();

const fn tables() -> Tables {
    let mut tables = Tables {
        short: [(0, 0); 1 << SHORT_BITS],
        ends: [0; LONGEST + 1],
        first: [(0, 0); LONGEST + 1],
        symbols: [0; 257],
    };
    let (mut code, mut place, mut length) = (0_u32, 0_usize, 1_usize);
    while length <= LONGEST {
        code <<= 1;
        tables.first[length] = (place as u16, code);
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                tables.symbols[place] = symbol as u16;
                place += 1;
                if length <= SHORT_BITS as usize {
                    let free = SHORT_BITS as usize - length;
                    let mut at = (code as usize) << free;
                    while at < (code as usize + 1) << free {
                        tables.short[at] = (symbol as u8, length as u8);
                        at += 1;
                    }
                }
                code += 1;
            }
            symbol += 1;
        }
        tables.ends[length] = (code as u64) << (32 - length);
        length += 1;
    }
    tables
}

/// The bits that were read and not decoded, from the highest bit on.
struct Bits<'b> {
    bits: u64,
    count: u32,
    rest: &'b [u8],
}

impl Bits<'_> {
    /// Reads until there are more bits than the longest code has, or no more bytes.
    #[inline]
    fn fill(&mut self) {
        if let (Some((four, rest)), true) = (self.rest.split_first_chunk::<4>(), self.count <= 32) {
            self.bits |= u64::from(u32::from_be_bytes(*four)) << (32 - self.count);
            (self.count, self.rest) = (self.count + 32, rest);
            return;
        }
        while let ([byte, rest @ ..], true) = (self.rest, self.count <= 56) {
            self.bits |= u64::from(*byte) << (56 - self.count);
            (self.count, self.rest) = (self.count + 8, rest);
        }
    }
}

/// Appends the text of a Huffman code.
///
/// # Errors
///
/// If it has the symbol of the end, or its padding is not the beginning of that symbol, or has 8
/// bits or more (RFC 7541, section 5.2).
pub(crate) fn decode(code: &[u8], to: &mut Vec<u8>) -> Result<(), ConnectionError> {
    let start = to.len();
    // No code is shorter than 5 bits.
    to.resize(start + code.len() * 8 / 5 + 1, 0);
    let text = &mut to[start..];
    let mut length = 0;
    let mut left = Bits { bits: 0, count: 0, rest: code };
    loop {
        left.fill();
        while left.count >= SHORT_BITS {
            let (mut symbol, mut bits) = TABLES.short[(left.bits >> 56) as usize];
            if bits == 0 {
                if left.count < LONGEST as u32 && !left.rest.is_empty() {
                    break;
                }
                (symbol, bits) = long(left.bits)?;
                if u32::from(bits) > left.count {
                    return Err(ConnectionError::Compression);
                }
            }
            left.bits <<= bits;
            left.count -= u32::from(bits);
            text[length] = symbol;
            length += 1;
        }
        if left.rest.is_empty() {
            break;
        }
    }
    // The last code may have fewer bits.
    let (symbol, bits) = TABLES.short[(left.bits >> 56) as usize];
    if bits > 0 && u32::from(bits) <= left.count {
        left.bits <<= bits;
        left.count -= u32::from(bits);
        text[length] = symbol;
        length += 1;
    }
    to.truncate(start + length);
    let is_padding = left.bits.leading_ones() >= left.count;
    if is_padding { Ok(()) } else { Err(ConnectionError::Compression) }
}

/// Returns the symbol of a long code that some bits begin with, and its length.
#[cold]
fn long(bits: u64) -> Result<(u8, u8), ConnectionError> {
    let bits = bits >> 32;
    let is_of = |length: &usize| bits < TABLES.ends[*length];
    let length = (SHORT_BITS as usize + 1..=LONGEST).find(is_of).unwrap_or(LONGEST);
    let (place, first) = TABLES.first[length];
    let code = (bits >> (32 - length)) as usize - first as usize;
    match TABLES.symbols[usize::from(place) + code] {
        END => Err(ConnectionError::Compression),
        symbol => Ok((symbol as u8, length as u8)),
    }
}
