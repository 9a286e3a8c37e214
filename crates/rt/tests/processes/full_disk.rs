//! Files that cannot grow: `/dev/full`, and a limit of the process (`RLIMIT_FSIZE`) that is met in
//! the middle of a write. A refused write is an error, and nothing is lost without an error.

use std::fs::File;
use std::future::Future;
use std::io::{self, ErrorKind, Write};
use std::process::{Command, Stdio};

use futures_lite::future::poll_once;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_rt::blocking::unblock;
use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::pipe::pipe;
use superpoll_rt::signal::{Signal, SignalKind, signal};
use superpoll_rt::transfer::{sendfile, splice};
use superpoll_rt::{AsyncFd, BackendKind, Runtime, process, spawn};
use superpoll_test_support::alone;

mod sys {
    /// The length that a file of this process may grow to.
    pub(crate) fn limit_files(length: usize) {
        let limit = libc::rlimit { rlim_cur: length as u64, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the kernel reads one rlimit structure, which outlives the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
    }
}

fn each<F: Future<Output = io::Result<()>>>(test: impl Fn() -> F) {
    for backend in BackendKind::available() {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        runtime.block_on(test()).unwrap_or_else(|error| panic!("{backend}: {error}"));
    }
}

fn full() -> io::Result<File> {
    File::options().write(true).open("/dev/full")
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

const ROOM: usize = 10_000;

/// Limits the size of files, and catches the signal that would end the process.
fn limit() -> io::Result<Signal> {
    let exceeded = signal(SignalKind::from_raw(libc::SIGXFSZ))?;
    sys::limit_files(ROOM);
    Ok(exceeded)
}

#[test]
fn a_full_disk_is_the_result_of_the_call() {
    each(|| async {
        for _ in 0..3 {
            let mut file = full()?;
            let error = unblock(move || file.write_all(b"text")).await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StorageFull);
        }
        // The thread goes on.
        assert_eq!(unblock(|| 1).await.unwrap(), 1);
        Ok(())
    });
}

#[test]
fn a_write_to_a_full_device_fails_at_once_each_time() {
    each(|| async {
        let mut device = AsyncFd::new(full()?)?;
        for _ in 0..3 {
            let written = poll_once(device.write_all(b"text")).await;
            assert_eq!(written.unwrap().unwrap_err().kind(), ErrorKind::StorageFull);
            let written = poll_once(
                device.perform(superpoll_rt::Direction::Write, |mut device| device.write(b"text")),
            );
            assert_eq!(written.await.unwrap().unwrap_err().kind(), ErrorKind::StorageFull);
        }
        Ok(())
    });
}

#[test]
fn a_file_is_filled_up_before_it_fails() {
    alone(|| {
        let mut exceeded = limit().unwrap();
        each(async || {
            let file = tempfile::tempfile()?;
            let mut same = file.try_clone()?;
            let text = pattern(3 * ROOM);
            let error = unblock(move || same.write_all(&text)).await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::FileTooLarge);
            assert_eq!(file.metadata()?.len(), ROOM as u64);
            Ok(())
        });
        Runtime::new().unwrap().block_on(exceeded.recv()).unwrap();
    });
}

#[test]
fn bytes_that_find_no_room_stay_in_the_source() {
    alone(|| {
        let _exceeded = limit().unwrap();
        each(|| async {
            let (mut reader, mut writer) = pipe()?;
            let sent = pattern(3 * ROOM);
            writer.write_all(&sent).await?;
            drop(writer);
            let file = AsyncFd::nonblocking(tempfile::tempfile()?);
            let mut moved = 0;
            let error = loop {
                match splice(&reader, &file, usize::MAX).await {
                    Ok(more) => moved += more,
                    Err(error) => break error,
                }
                assert!(moved < sent.len(), "the limit is in force");
            };
            assert_eq!((error.kind(), moved), (ErrorKind::FileTooLarge, ROOM));
            let again = splice(&reader, &file, usize::MAX).await;
            assert_eq!(again.unwrap_err().kind(), ErrorKind::FileTooLarge);
            let mut rest = Vec::new();
            reader.read_to_end(&mut rest).await?;
            assert!(rest == sent[moved..], "{} bytes are left of {}", rest.len(), sent.len());
            assert!(read(&file)? == sent[..moved]);
            Ok(())
        });
    });
}

fn read(file: &File) -> io::Result<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

#[test]
fn bytes_sent_to_a_file_are_counted() {
    alone(|| {
        let source = tempfile::NamedTempFile::new().unwrap();
        let text = pattern(3 * ROOM);
        std::fs::write(source.path(), &text).unwrap();
        let _exceeded = limit().unwrap();
        each(|| async {
            let from = File::open(source.path())?;
            let to = AsyncFd::nonblocking(tempfile::tempfile()?);
            let mut sent = 0;
            let error = loop {
                match sendfile(&from, sent, &to, usize::MAX).await {
                    Ok(more) => sent += more as u64,
                    Err(error) => break error,
                }
                assert!(sent < text.len() as u64, "the limit is in force");
            };
            assert_eq!((error.kind(), sent), (ErrorKind::FileTooLarge, ROOM as u64));
            assert!(read(&to)? == text[..ROOM]);
            // The rest may go elsewhere.
            let (one, mut other) = UnixStream::pair()?;
            let rest = spawn(async move {
                let mut rest = vec![0; 2 * ROOM];
                other.read_exact(&mut rest).await.map(|()| rest)
            });
            while sent < text.len() as u64 {
                sent += sendfile(&from, sent, &one, usize::MAX).await? as u64;
            }
            assert!(rest.await.unwrap()? == text[ROOM..]);
            Ok(())
        });
    });
}

#[test]
fn a_child_whose_output_is_full_is_waited_for() {
    each(|| async {
        let mut command = Command::new("sh");
        command.args(["-c", "echo text || exit 9"]).stdin(Stdio::null());
        let child = process::spawn(command.stdout(full()?).stderr(Stdio::piped()))?;
        let output = child.wait_with_output().await?;
        assert_eq!((output.status.code(), output.stdout.len()), (Some(9), 0));
        assert!(!output.stderr.is_empty(), "the shell says why");
        Ok(())
    });
}

#[test]
fn a_child_that_does_not_read_is_a_broken_pipe() {
    each(|| async {
        let mut child = process::spawn(Command::new("true").stdin(Stdio::piped()))?;
        let mut stdin = child.stdin.take().unwrap();
        let error = stdin.write_all(&vec![0; 1 << 20]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        assert!(child.wait().await?.success());
        Ok(())
    });
}
