//! The encoders of the codings, and the memory that they may take in all.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::encoding::Coding;

/// The most memory that the encoders of a process take at the same time.
const MOST_BYTES: usize = 64 << 20;

/// The binary logarithm of the bytes that an encoder looks back.
const WINDOW: u32 = 18;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Returns the memory that an encoder takes, rounded up: measured, of 64 encoders at work.
fn cost(coding: Coding) -> usize {
    match coding {
        Coding::Gzip => 384 << 10,
        Coding::Zstd => 1280 << 10,
        Coding::Brotli => 1536 << 10,
    }
}

/// The permit to have an encoder, given back on drop.
pub(super) struct Permit(usize);

impl Permit {
    /// Returns a permit, if there is memory for an encoder.
    pub(super) fn take(coding: Coding) -> Option<Permit> {
        let cost = cost(coding);
        let before = TAKEN.fetch_add(cost, Ordering::Relaxed);
        let permit = Permit(cost);
        (before + cost <= MOST_BYTES).then_some(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// An encoder. Its output is gathered until it is taken.
pub(super) enum Encoder {
    Gzip(Box<GzEncoder<Vec<u8>>>),
    Brotli(Box<CompressorWriter<Vec<u8>>>),
    Zstd(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
}

impl Encoder {
    /// Creates an encoder, whose level is low enough for answers that are compressed each time.
    ///
    /// # Errors
    ///
    /// There is no memory for it.
    pub(super) fn new(coding: Coding) -> io::Result<Encoder> {
        Ok(match coding {
            Coding::Gzip => {
                Encoder::Gzip(Box::new(GzEncoder::new(Vec::new(), Compression::new(4))))
            }
            Coding::Brotli => {
                let params = BrotliEncoderParams {
                    quality: 4,
                    lgwin: WINDOW.cast_signed(),
                    ..BrotliEncoderParams::default()
                };
                let writer = CompressorWriter::with_params(Vec::new(), 4096, &params);
                Encoder::Brotli(Box::new(writer))
            }
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3)?;
                encoder.window_log(WINDOW)?;
                Encoder::Zstd(Box::new(encoder))
            }
        })
    }

    /// Compresses bytes. Their output may come later.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Encoder::Gzip(encoder) => encoder.write_all(bytes),
            Encoder::Brotli(encoder) => encoder.write_all(bytes),
            Encoder::Zstd(encoder) => encoder.write_all(bytes),
        }
    }

    /// Puts everything so far into the output, so that a client can read it.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Encoder::Gzip(encoder) => encoder.flush(),
            Encoder::Brotli(encoder) => encoder.flush(),
            Encoder::Zstd(encoder) => encoder.flush(),
        }
    }

    /// Takes the output so far.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(match self {
            Encoder::Gzip(encoder) => encoder.get_mut(),
            Encoder::Brotli(encoder) => encoder.get_mut(),
            Encoder::Zstd(encoder) => encoder.get_mut(),
        })
    }

    /// Ends the body, and returns the rest of the output.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Encoder::Gzip(encoder) => encoder.finish(),
            Encoder::Brotli(encoder) => Ok(encoder.into_inner()),
            Encoder::Zstd(encoder) => encoder.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_have_a_bound_and_are_given_back() {
        // Tests that run at the same time have some.
        let many = MOST_BYTES / cost(Coding::Brotli);
        for _ in 0..2 {
            let permits: Vec<_> = (0..=many).map_while(|_| Permit::take(Coding::Brotli)).collect();
            assert!(permits.len() <= many && permits.len() > many / 2, "{}", permits.len());
        }
    }
}
