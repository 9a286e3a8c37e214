//! Errors of a runtime itself. Operations on descriptors fail with [`std::io::Error`].

use std::fmt;
use std::io;

/// The reason why a runtime could not do something.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Blocking on a runtime from inside one.
    Nested,
    /// No runtime runs on this thread.
    NoRuntime,
    /// There is no engine with this number.
    NoSuchEngine {
        /// The number asked for.
        engine: usize,
        /// The number of engines, numbered from zero.
        engines: usize,
    },
    /// A paused clock is that of one engine, and more were asked for.
    PausedEngines {
        /// The number of engines.
        engines: usize,
    },
    /// The runtime has ended.
    Ended,
    /// A thread could not be started.
    Thread(io::Error),
    /// The tokio runtime that [`Builder::tokio`](crate::Builder::tokio) asks for could not be made.
    #[cfg(feature = "tokio-context")]
    Tokio(io::Error),
    /// The poller could not be made, or failed to wait.
    Poller(superpoll::Error),
}

/// A result whose error is [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Nested => f.write_str(
                "blocking on a runtime inside a runtime would block the engine that has to do the work; \
                 await the future instead, or spawn it",
            ),
            Error::NoRuntime => {
                f.write_str("no runtime runs on this thread; call it inside Runtime::block_on")
            }
            Error::NoSuchEngine { engine, engines } => {
                write!(f, "there is no engine {engine}: the runtime has {engines}, numbered from 0")
            }
            Error::PausedEngines { engines } => write!(
                f,
                "starting {engines} engines with a paused clock: it is the clock of one engine; leave out \
                 Builder::start_paused or Builder::workers"
            ),
            Error::Ended => f.write_str("the runtime has ended; nothing more can run on it"),
            Error::Thread(source) => write!(
                f,
                "starting a thread of the runtime: {source}; lower the number of workers or raise the limit of \
                 threads (ulimit -u)"
            ),
            #[cfg(feature = "tokio-context")]
            Error::Tokio(source) => write!(f, "making the tokio runtime of Builder::tokio: {source}"),
            Error::Poller(source) => source.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Thread(source) => Some(source),
            #[cfg(feature = "tokio-context")]
            Error::Tokio(source) => Some(source),
            Error::Poller(source) => std::error::Error::source(source),
            _ => None,
        }
    }
}

/// Adds to the error of a call that found no descriptor left (`EMFILE`, `ENFILE`) which operation
/// needed one and how many there may be. Any other failure stays as the kernel put it.
#[cold]
pub(crate) fn limit(doing: &'static str, error: io::Error) -> io::Error {
    if !matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) {
        return error;
    }
    let (soft, hard) = superpoll::limits::nofile();
    let kind = error.kind();
    // The error has the text with the way out rather than the number alone, which is its source.
    io::Error::new(kind, superpoll::Error::DescriptorLimit { doing, soft, hard, source: error })
}

impl From<superpoll::Error> for Error {
    fn from(error: superpoll::Error) -> Error {
        Error::Poller(error)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        match error {
            Error::Thread(source) => source,
            // People read the error that keeps a runtime from starting: it has the text with the
            // way out, and the kernel's error as its source.
            Error::Poller(
                error @ (superpoll::Error::DescriptorLimit { .. }
                | superpoll::Error::BackendUnavailable { .. }),
            ) => {
                let kind = io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(0)).kind();
                io::Error::new(kind, error)
            }
            Error::Poller(source) => source.into(),
            other => io::Error::other(other.to_string()),
        }
    }
}
