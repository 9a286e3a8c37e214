//! Descriptors that are closed while their number is in use.

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};

use futures_lite::AsyncReadExt;
use futures_lite::future::poll_once;
use superpoll_rt::{AsyncFd, BackendKind, Direction, Runtime, pipe, yield_now};

use super::{each, sys, would_block};

#[test]
fn a_wait_for_a_closed_descriptor_is_refused() {
    each(async |runtime| {
        let (reader, _writer) = std::io::pipe().unwrap();
        let number = sys::duplicate(reader, 900).into_raw_fd();
        let fd = AsyncFd::new(sys::Number(number)).unwrap();
        sys::close(number);
        assert!(AsyncFd::new(sys::Number(number)).is_err());
        for _ in 0..2 {
            let error = fd.perform(Direction::Read, would_block).await.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EBADF), "{error}");
        }
        let error = fd
            .readable()
            .await
            .unwrap()
            .try_io(|fd| std::fs::File::from(fd.as_fd().try_clone_to_owned()?).read(&mut [0]));
        assert_eq!(error.unwrap().unwrap_err().raw_os_error(), Some(libc::EBADF));
        drop(fd);
        assert_eq!(runtime.stats()[0].sources, 0);
    });
}

#[test]
fn a_descriptor_that_is_closed_under_a_wait_harms_no_other() {
    for kind in BackendKind::available() {
        let runtime = Runtime::builder().backend(kind).build().unwrap();
        runtime.block_on(async {
            let (reader, writer) = std::io::pipe().unwrap();
            let number = sys::duplicate(reader, 950).into_raw_fd();
            let fd = AsyncFd::new(sys::Number(number)).unwrap();
            let mut waiting = Box::pin(fd.perform(Direction::Read, would_block));
            assert!(poll_once(&mut waiting).await.is_none());
            yield_now().await;
            sys::close(number);
            drop(writer);
            for _ in 0..3 {
                yield_now().await;
            }
            // An array reports it; epoll silently forgets it.
            let outcome = poll_once(&mut waiting).await;
            match kind {
                BackendKind::Epoll => assert!(outcome.is_none()),
                BackendKind::Select | BackendKind::Poll => {
                    let error = outcome.unwrap().unwrap_err();
                    assert_eq!(error.raw_os_error(), Some(libc::EBADF), "{kind}");
                }
                _ => assert!(outcome.is_none_or(|outcome| outcome.is_err())),
            }
            drop(waiting);
            drop(fd);
            // The number belongs to another descriptor now.
            let (reader, mut writer) = std::io::pipe().unwrap();
            let next = sys::duplicate(reader, 950);
            assert_eq!(next.as_raw_fd(), number);
            let mut next = pipe::reader_from(next).unwrap();
            let mut byte = [0];
            let mut reading = Box::pin(next.read_exact(&mut byte));
            assert!(poll_once(&mut reading).await.is_none());
            yield_now().await;
            assert!(poll_once(&mut reading).await.is_none(), "{kind}: a stranger's report");
            writer.write_all(b"x").unwrap();
            reading.await.unwrap();
            assert_eq!(&byte, b"x");
        });
    }
}
