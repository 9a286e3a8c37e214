//! Compression of a whole file in memory.

use std::io::{self, Write};

use brotli::enc::BrotliEncoderParams;
use flate2::write::GzEncoder;

use crate::encoding::Coding;

/// The shortest file that is compressed: below, compression saves less than a packet.
pub(super) const SHORTEST: u64 = 1024;

/// The longest file that is compressed: a longer file takes seconds, and is better compressed once
/// by the operator who puts it there.
pub(super) const LONGEST: u64 = 8 << 20;

/// The compression levels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Levels {
    /// 1 to 9.
    pub(super) gzip: u32,
    /// 0 to 11.
    pub(super) brotli: u32,
    /// 1 to 19.
    pub(super) zstd: u32,
}

/// Returns the compressed bytes; `None` if compression saves less than a twentieth.
pub(super) fn compressed(
    bytes: &[u8],
    coding: Coding,
    levels: Levels,
) -> io::Result<Option<Vec<u8>>> {
    let mut out = Vec::with_capacity(bytes.len() / 3);
    match coding {
        Coding::Gzip => {
            let level = flate2::Compression::new(levels.gzip);
            let mut encoder = GzEncoder::new(&mut out, level);
            encoder.write_all(bytes)?;
            encoder.finish()?;
        }
        Coding::Zstd => {
            let level = i32::try_from(levels.zstd).unwrap_or(19);
            let mut encoder = zstd::stream::write::Encoder::new(&mut out, level)?;
            // Browsers refuse a window of more than 8 MiB (RFC 9659), which no file is longer than.
            encoder.window_log(23)?;
            encoder.set_pledged_src_size(Some(bytes.len() as u64))?;
            encoder.write_all(bytes)?;
            encoder.finish()?;
        }
        Coding::Brotli => {
            let quality = i32::try_from(levels.brotli).unwrap_or(11).min(11);
            let params = BrotliEncoderParams {
                quality,
                size_hint: bytes.len(),
                ..BrotliEncoderParams::default()
            };
            brotli::BrotliCompress(&mut &*bytes, &mut out, &params)?;
        }
    }
    out.shrink_to_fit();
    Ok((out.len() <= bytes.len() - bytes.len() / 20).then_some(out))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;

    pub(super) fn restored(bytes: &[u8], coding: Coding) -> Vec<u8> {
        let mut out = Vec::new();
        match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).unwrap(),
            Coding::Zstd => zstd::Decoder::new(bytes).unwrap().read_to_end(&mut out).unwrap(),
            Coding::Brotli => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut out).unwrap(),
        };
        out
    }

    #[test]
    fn incompressible_data_stays_uncompressed() {
        let noise: Vec<u8> =
            (0..4096_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let hashed: Vec<u8> = noise
            .iter()
            .scan(7_u64, |state, byte| {
                *state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(u64::from(*byte) | 1);
                Some((*state >> 33) as u8)
            })
            .collect();
        for coding in Coding::ALL {
            let levels = Levels { gzip: 6, brotli: 5, zstd: 6 };
            assert!(compressed(&hashed, coding, levels).unwrap().is_none(), "{coding:?}");
        }
    }

    proptest! {
        #[test]
        fn compression_round_trips(
            text in "([a-z]{1,8} ){0,200}", gzip in 1..=9_u32, brotli in 0..=11_u32,
            zstd in 1..=19_u32,
        ) {
            let text = text.repeat(8);
            for coding in Coding::ALL {
                let levels = Levels { gzip, brotli, zstd };
                if let Some(bytes) = compressed(text.as_bytes(), coding, levels).unwrap() {
                    prop_assert_eq!(restored(&bytes, coding), text.as_bytes());
                }
            }
        }
    }
}
