//! A byte in a ring of pipes with a task between neighbouring pipes, as in `superpoll-lab ring`.

use std::io;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_rt::pipe::{self, PipeReader, PipeWriter};
use superpoll_rt::spawn;

use crate::error::{Error, Result};
use crate::gate::paths::work::{Work, in_tasks, runtime, said, wrong};
use crate::sys::descriptor;

/// Pipes in the ring.
const PIPES: u64 = 8;

/// Uses pipes whose two ends are not linked as peers.
pub(super) fn set_up() -> Result<Box<dyn Work>> {
    ring(|| {
        let (reader, writer) = descriptor::pipe()?;
        Ok((pipe::reader_from(reader)?, pipe::writer_from(writer)?))
    })
}

/// Uses the runtime's own pipes.
pub(super) fn set_up_peers() -> Result<Box<dyn Work>> {
    ring(pipe::pipe)
}

fn ring(open: impl Fn() -> io::Result<(PipeReader, PipeWriter)>) -> Result<Box<dyn Work>> {
    let runtime = runtime()?;
    let pipes: io::Result<Vec<_>> = (0..PIPES).map(|_| open()).collect();
    let pipes = pipes.map_err(|e| Error::system("opening a pipe", e))?;
    let (readers, mut writers): (Vec<_>, Vec<_>) = pipes.into_iter().unzip();
    writers.rotate_left(1);
    let mut ends = readers.into_iter().zip(writers);
    let Some(driver) = ends.next() else { return wrong("hop", "the ring is empty") };
    let begin = async {
        for (mut reader, mut writer) in ends {
            let pass = async move {
                let mut byte = [0];
                // If a pipe breaks, the driver fails.
                while reader.read_exact(&mut byte).await.is_ok() {
                    if writer.write_all(&byte).await.is_err() {
                        return;
                    }
                }
            };
            spawn(pass).detach();
        }
    };
    runtime.try_block_on(begin).map_err(said)?;
    in_tasks(
        runtime,
        driver,
        "sending a byte round",
        |(mut reader, mut writer), count| async move {
            let mut byte = [b'o'];
            for _ in 0..count.div_ceil(PIPES) {
                writer.write_all(&byte).await?;
                reader.read_exact(&mut byte).await?;
            }
            Ok((reader, writer))
        },
    )
}
