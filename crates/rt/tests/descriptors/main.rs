//! Descriptors: when they are registered, and which system calls are made and which are not.

use superpoll_rt::{BackendKind, Runtime, pipe};

mod closed;
#[path = "../epoll_watches/mod.rs"]
mod epoll_watches;
mod lasting;
mod readiness;
mod registration;
mod sys;
#[path = "../without_io_uring/mod.rs"]
mod without_io_uring;

fn each(test: impl AsyncFn(&Runtime)) {
    for kind in BackendKind::available() {
        eprintln!("back-end {kind}");
        let runtime = Runtime::builder().backend(kind).build().unwrap();
        runtime.block_on(test(&runtime));
    }
}

/// A pipe whose ends do not know of each other.
fn unrelated_ends() -> (pipe::PipeReader, pipe::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    (pipe::reader_from(reader).unwrap(), pipe::writer_from(writer).unwrap())
}

fn would_block<T>(_: &T) -> std::io::Result<()> {
    Err(std::io::ErrorKind::WouldBlock.into())
}

#[test]
fn all_of_this_holds_where_io_uring_is_refused() {
    without_io_uring::run_all();
}
