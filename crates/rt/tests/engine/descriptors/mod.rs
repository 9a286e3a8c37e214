//! Descriptors: when they are registered, and which system calls are made and which are not.

use superpoll_rt::{BackendKind, Runtime, pipe};

mod closed;
mod lasting;
mod readiness;
mod registration;
mod sys;

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
