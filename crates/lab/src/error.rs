//! The errors of an experiment, each in one line that names the cause and the way out.

use std::fmt;
use std::io;

/// Why an experiment ended without a result.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The request makes no sense or its feature is not built in; the text suggests a remedy.
    Usage(String),
    /// A system call failed.
    System {
        /// The operation that failed.
        doing: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A subject did not do the work: a byte too few, one too many, a descriptor read twice.
    Work {
        /// The subject.
        subject: &'static str,
        /// The observed behaviour.
        found: String,
    },
    /// A signal ended the experiment.
    Interrupted {
        /// The signal.
        signal: i32,
        /// The results until then.
        result: String,
    },
    /// The poller under test refused something.
    Poller(superpoll::Error),
}

/// The result of everything in the laboratory.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Creates the error for a mistake of the caller's.
    pub fn usage(text: impl Into<String>) -> Error {
        Error::Usage(text.into())
    }

    /// Creates the error for a failed system call.
    pub fn system(doing: impl Into<String>, source: io::Error) -> Error {
        Error::System { doing: doing.into(), source }
    }

    /// Creates the error for the system call that failed last on this thread.
    pub fn last(doing: impl Into<String>) -> Error {
        Error::system(doing, io::Error::last_os_error())
    }
}

/// Names the operation of a failed system call.
pub(crate) trait Doing<T> {
    /// Creates the laboratory's error where there is one. The text is made only then.
    fn doing(self, what: impl fmt::Display) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|source| Error::system(what.to_string(), source))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(text) => f.write_str(text),
            Error::Interrupted { signal, result } => {
                write!(f, "interrupted by signal {signal}: {result}")
            }
            Error::System { doing, source }
                if matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) =>
            {
                let (soft, hard) = superpoll::limits::nofile();
                write!(
                    f,
                    "{doing}: {source}; this process may open {soft} descriptors, at most {hard} \
                     after ulimit -n: ask for a smaller --total or raise the limit"
                )
            }
            Error::System { doing, source } => write!(f, "{doing}: {source}"),
            Error::Work { subject, found } => {
                write!(f, "subject {subject} did not do the work of a round: {found}")
            }
            Error::Poller(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::System { source, .. } => Some(source),
            Error::Poller(error) => Some(error),
            _ => None,
        }
    }
}

impl From<superpoll_rt::Error> for Error {
    fn from(error: superpoll_rt::Error) -> Error {
        Error::Usage(error.to_string())
    }
}

impl From<superpoll::Error> for Error {
    fn from(error: superpoll::Error) -> Error {
        Error::Poller(error)
    }
}
