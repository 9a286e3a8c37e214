//! The errors of the crate. Each names the attempted operation, its object, and the way out.

use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::key::Key;

/// Why an operation of the poller failed.
///
/// Whatever fails, registrations that existed before are unaffected.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// No back-end of this name exists.
    UnknownBackend {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// The text is neither the name of a placement policy nor thresholds.
    UnknownPolicy {
        /// The text.
        text: String,
        /// The reason for which it is not.
        reason: String,
    },
    /// No profile of this name exists.
    UnknownProfile {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// The state that a registration would leave with is too long.
    StateTooLong {
        /// Its length, in bytes.
        length: usize,
        /// The most bytes that a state may have.
        most: usize,
    },
    /// The back-end exists, but cannot be used here.
    BackendUnavailable {
        /// Its name.
        backend: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The descriptor is negative or not open.
    BadDescriptor {
        /// The number given.
        fd: RawFd,
    },
    /// The descriptor is registered already.
    AlreadyRegistered {
        /// Its number.
        fd: RawFd,
        /// The registration that it has.
        key: Key,
    },
    /// The key names no registration: it was deregistered, its owner was dropped, or the kernel
    /// refused it.
    StaleKey {
        /// The key given.
        key: Key,
    },
    /// A wait was asked to deliver at most zero events.
    ZeroLimit,
    /// Waits cannot gather events for so long.
    GatherTooLong {
        /// The time asked for.
        time: Duration,
        /// The longest that is possible.
        longest: Duration,
    },
    /// The number of the descriptor is above the largest that the back-end can watch.
    DescriptorTooLarge {
        /// Its number.
        fd: RawFd,
        /// The first number that is too large.
        limit: RawFd,
        /// The back-end.
        backend: &'static str,
        /// The back-ends that can watch it.
        instead: &'static str,
    },
    /// The back-end does not support the request.
    Unsupported {
        /// The back-end.
        backend: &'static str,
        /// The request.
        what: &'static str,
        /// The alternative.
        instead: &'static str,
    },
    /// The descriptor is no stream that the reader can read together with its other streams.
    NotAStream {
        /// Its number.
        fd: RawFd,
        /// The kind of file that it is.
        what: &'static str,
        /// The alternative.
        instead: &'static str,
    },
    /// The process or the system has no descriptor left (`EMFILE`, `ENFILE`).
    DescriptorLimit {
        /// The operation that needed a descriptor.
        doing: &'static str,
        /// The soft limit of this process (`RLIMIT_NOFILE`), in descriptors.
        soft: u64,
        /// Its hard limit.
        hard: u64,
        /// The kernel's error.
        source: io::Error,
    },
    /// The user's share of epoll watches is used up (`ENOSPC`).
    WatchLimit {
        /// The descriptor that was refused.
        fd: RawFd,
    },
    /// Any other failure of a system call.
    System {
        /// The operation that failed.
        doing: &'static str,
        /// The descriptor that it was for, if any.
        fd: Option<RawFd>,
        /// The kernel's error.
        source: io::Error,
    },
}

/// The result of the poller's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Sorts a failed system call into the error that names its cause.
    pub(crate) fn system(doing: &'static str, fd: Option<RawFd>, source: io::Error) -> Error {
        match (source.raw_os_error(), fd) {
            (Some(libc::EMFILE | libc::ENFILE), _) => {
                let (soft, hard) = crate::sys::limits::nofile();
                Error::DescriptorLimit { doing, soft, hard, source }
            }
            (Some(libc::EBADF), Some(fd)) => Error::BadDescriptor { fd },
            (Some(libc::ENOSPC), Some(fd)) => Error::WatchLimit { fd },
            _ => Error::System { doing, fd, source },
        }
    }

    /// The error of a program that was built without the feature `uring`.
    #[cfg(not(feature = "uring"))]
    pub(crate) fn without_uring() -> Error {
        let kind = io::ErrorKind::Unsupported;
        let source = io::Error::new(kind, "this program was built without the feature uring");
        Error::BackendUnavailable { backend: "uring", source }
    }

    /// Why there is no ring.
    #[cfg(feature = "uring")]
    pub(crate) fn no_io_uring(source: io::Error) -> Error {
        match Error::system("making an io_uring", None, source) {
            Error::System { source, .. } => Error::BackendUnavailable { backend: "uring", source },
            error => error,
        }
    }
}

/// Names the obstacle to io_uring and how to remove it, by the kernel's error.
fn way_to_io_uring(said: &io::Error) -> &'static str {
    match said.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            " (switched off by the sysctl kernel.io_uring_disabled, which should be 0, or refused by a seccomp \
             profile such as a container's, which would have to allow io_uring_setup, io_uring_enter and \
             io_uring_register)"
        }
        Some(libc::ENOSYS) => {
            " (a kernel without it, which takes Linux 5.19 built with CONFIG_IO_URING, or a seccomp profile \
             that hides it)"
        }
        Some(libc::ENOMEM) => {
            " (no memory for its rings: raise the limit of locked memory, ulimit -l, or that of the control \
             group)"
        }
        _ => "",
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::UnknownBackend { name, known } => write!(
                f,
                "no back-end is called {name:?}: choose one of {known} in the builder or in \
                 SUPERPOLL_BACKEND"
            ),
            Error::UnknownPolicy { text, reason } => write!(
                f,
                "no placement policy is {text:?}: {reason}; choose adaptive, idle-server, \
                 media-server or thresholds such as hot_atr=0.6,cold_atr=0.6,hold=32, in the \
                 builder or in SUPERPOLL_POLICY"
            ),
            Error::UnknownProfile { name, known } => {
                write!(f, "no profile is called {name:?}: choose one of {known}")
            }
            Error::StateTooLong { length, most } => write!(
                f,
                "a registration cannot be left with {length} bytes of state: give it at most {most}"
            ),
            Error::BackendUnavailable { backend: backend @ "uring", source } => write!(
                f,
                "back-end {backend} does not work here: {source}{}; choose another one, or auto",
                way_to_io_uring(source),
            ),
            Error::BackendUnavailable { backend, source } => {
                write!(f, "back-end {backend} does not work here: {source}; choose another one")
            }
            Error::BadDescriptor { fd } => write!(
                f,
                "descriptor {fd} is not open: register it before closing it, or let the poller \
                 own it so that it is detached first"
            ),
            Error::AlreadyRegistered { fd, key } => write!(
                f,
                "descriptor {fd} is already registered as {key:?}: modify that registration, or \
                 deregister it first"
            ),
            Error::StaleKey { key } => write!(
                f,
                "{key:?} names no registration any more: it was deregistered, dropped or refused"
            ),
            Error::ZeroLimit => f.write_str(
                "a wait cannot deliver at most 0 events: give Events a limit of 1 or more",
            ),
            Error::GatherTooLong { time, longest } => {
                write!(f, "waits cannot gather events for {time:?}: choose at most {longest:?}")
            }
            Error::DescriptorTooLarge { fd, limit, backend, instead } => write!(
                f,
                "descriptor {fd} is too large for back-end {backend}, which watches 0 to {}: use {instead}",
                limit - 1
            ),
            Error::Unsupported { backend, what, instead } => {
                write!(f, "back-end {backend} cannot do {what}: {instead}")
            }
            Error::NotAStream { fd, what, instead } => {
                write!(
                    f,
                    "descriptor {fd} cannot be read in batches, because it is {what}: {instead}"
                )
            }
            Error::DescriptorLimit { doing, soft, hard, source } => write!(
                f,
                "{doing}: {source}; this process may open {soft} descriptors, at most {hard} \
                 after setrlimit(RLIMIT_NOFILE) or ulimit -n"
            ),
            Error::WatchLimit { fd } => write!(
                f,
                "epoll refused descriptor {fd}: the user's watches are used up; raise \
                 fs.epoll.max_user_watches, or use the poll back-end"
            ),
            Error::System { doing, fd: Some(fd), source } => {
                write!(f, "{doing} failed on descriptor {fd}: {source}")
            }
            Error::System { doing, fd: None, source } => write!(f, "{doing} failed: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::BackendUnavailable { source, .. }
            | Error::DescriptorLimit { source, .. }
            | Error::System { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl Error {
    /// The kernel's error number, where a system call failed (see `errno(3)`).
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Error::BackendUnavailable { source, .. }
            | Error::DescriptorLimit { source, .. }
            | Error::System { source, .. } => source.raw_os_error(),
            Error::BadDescriptor { .. } => Some(libc::EBADF),
            Error::WatchLimit { .. } => Some(libc::ENOSPC),
            _ => None,
        }
    }
}

impl From<Error> for io::Error {
    /// Keeps the kernel's error number where there is [one](Error::raw_os_error), for callers that
    /// use `io::Result`. An `io::Error` has either a number or a text of ours: one with a number
    /// shows the kernel's message, without the descriptor and the way out that this error names.
    /// Without a number, the error is inside the `io::Error` ([`io::Error::get_ref`]).
    fn from(error: Error) -> io::Error {
        if let Some(number) = error.raw_os_error() {
            return io::Error::from_raw_os_error(number);
        }
        let kind = match &error {
            Error::BackendUnavailable { source, .. }
            | Error::DescriptorLimit { source, .. }
            | Error::System { source, .. } => source.kind(),
            Error::Unsupported { .. } => io::ErrorKind::Unsupported,
            Error::AlreadyRegistered { .. } => io::ErrorKind::AlreadyExists,
            Error::StaleKey { .. } => io::ErrorKind::NotFound,
            _ => io::ErrorKind::InvalidInput,
        };
        io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    fn system(number: i32, fd: Option<RawFd>) -> Error {
        Error::system("trying", fd, io::Error::from_raw_os_error(number))
    }

    #[test]
    fn a_failed_call_is_sorted_by_its_cause() {
        let (soft, hard) = crate::limits::nofile();
        for number in [libc::EMFILE, libc::ENFILE] {
            let error = system(number, Some(7));
            assert!(
                matches!(error, Error::DescriptorLimit { soft: s, hard: h, .. } if s == soft && h == hard)
            );
        }
        assert!(matches!(system(libc::EBADF, Some(7)), Error::BadDescriptor { fd: 7 }));
        assert!(matches!(system(libc::ENOSPC, Some(7)), Error::WatchLimit { fd: 7 }));
        for (number, fd) in [(libc::EBADF, None), (libc::ENOSPC, None), (libc::EIO, Some(7))] {
            assert!(matches!(system(number, fd), Error::System { fd: f, .. } if f == fd));
        }
    }

    /// One of each kind, with words that its message must have.
    fn each() -> Vec<(Error, &'static [&'static str], io::ErrorKind)> {
        let source = || io::Error::from_raw_os_error(libc::EACCES);
        let invalid = io::ErrorKind::InvalidInput;
        let denied = io::ErrorKind::PermissionDenied;
        let key = Key::new(3, 4);
        vec![
            (
                Error::UnknownBackend { name: "kqueue".into(), known: "poll, epoll".into() },
                &["kqueue", "one of poll, epoll", "SUPERPOLL_BACKEND"],
                invalid,
            ),
            (
                Error::GatherTooLong {
                    time: Duration::from_secs(3),
                    longest: Duration::from_secs(1),
                },
                &["gather events for 3s", "at most 1s"],
                invalid,
            ),
            (
                Error::UnknownPolicy { text: "warm".into(), reason: "it is no name".into() },
                &["\"warm\": it is no name", "idle-server", "SUPERPOLL_POLICY"],
                invalid,
            ),
            (
                Error::UnknownProfile { name: "opera".into(), known: "chat, media".into() },
                &["opera", "chat, media"],
                invalid,
            ),
            (Error::StateTooLong { length: 9, most: 7 }, &["9 bytes", "at most 7"], invalid),
            (
                Error::BackendUnavailable { backend: "epoll", source: source() },
                &["epoll", "denied", "choose another"],
                denied,
            ),
            (
                Error::BackendUnavailable { backend: "uring", source: source() },
                &["uring", "denied", "kernel.io_uring_disabled", "seccomp", "or auto"],
                denied,
            ),
            (
                Error::BadDescriptor { fd: -1 },
                &["-1", "not open"],
                io::Error::from_raw_os_error(libc::EBADF).kind(),
            ),
            (
                Error::AlreadyRegistered { fd: 9, key },
                &["9", "Key(3#4)", "modify"],
                io::ErrorKind::AlreadyExists,
            ),
            (Error::StaleKey { key }, &["Key(3#4)"], io::ErrorKind::NotFound),
            (Error::ZeroLimit, &["0 events", "1 or more"], invalid),
            (
                Error::DescriptorTooLarge {
                    fd: 1500,
                    limit: 1024,
                    backend: "select",
                    instead: "poll",
                },
                &["1500", "select", "0 to 1023: use poll"],
                invalid,
            ),
            (
                Error::Unsupported { backend: "poll", what: "that", instead: "do this" },
                &["poll", "that", "do this"],
                io::ErrorKind::Unsupported,
            ),
            (
                Error::DescriptorLimit { doing: "trying", soft: 5, hard: 6, source: source() },
                &["trying", "5", "6", "ulimit -n"],
                denied,
            ),
            (Error::WatchLimit { fd: 8 }, &["8", "max_user_watches"], io::ErrorKind::StorageFull),
            (
                Error::System { doing: "trying", fd: Some(8), source: source() },
                &["trying", "descriptor 8", "denied"],
                denied,
            ),
            (
                Error::System { doing: "trying", fd: None, source: source() },
                &["trying failed", "denied"],
                denied,
            ),
        ]
    }

    #[test]
    fn the_obstacle_to_io_uring_follows_from_the_error_of_the_kernel() {
        let said = |source| Error::BackendUnavailable { backend: "uring", source }.to_string();
        let cases = [
            (libc::EPERM, "kernel.io_uring_disabled"),
            (libc::EACCES, "seccomp"),
            (libc::ENOSYS, "Linux 5.19"),
            (libc::ENOMEM, "ulimit -l"),
        ];
        for (number, word) in cases {
            let said = said(io::Error::from_raw_os_error(number));
            assert!(said.contains(word) && said.contains("choose another one, or auto"), "{said}");
        }
        assert!(!said(io::ErrorKind::Unsupported.into()).contains('('));
    }

    #[test]
    fn each_message_is_one_line_that_names_the_cause() {
        for (error, words, _) in each() {
            let message = error.to_string();
            assert!(!message.contains('\n'), "{message}");
            for word in words {
                assert!(message.contains(word), "{message:?} does not say {word:?}");
            }
        }
    }

    #[test]
    fn conversion_keeps_the_number_or_else_the_message() {
        for (error, _, kind) in each() {
            let has_source = matches!(
                error,
                Error::BackendUnavailable { .. }
                    | Error::DescriptorLimit { .. }
                    | Error::System { .. }
            );
            assert_eq!(error.source().is_some(), has_source, "{error}");
            let (message, number) = (error.to_string(), error.raw_os_error());
            assert!(number.is_some() || !has_source);
            let converted = io::Error::from(error);
            assert_eq!((converted.kind(), converted.raw_os_error()), (kind, number), "{message}");
            if number.is_none() {
                assert_eq!(converted.to_string(), message);
            }
        }
    }

    #[test]
    fn each_number_of_the_kernel_survives_the_conversion() {
        for number in [libc::EMFILE, libc::EBADF, libc::ENOSPC, libc::EPERM, libc::EIO] {
            for fd in [None, Some(7)] {
                let converted = io::Error::from(system(number, fd));
                assert_eq!(converted.raw_os_error(), Some(number), "{converted}");
            }
        }
        let without = Error::BackendUnavailable {
            backend: "uring",
            source: io::Error::new(io::ErrorKind::Unsupported, "too old"),
        };
        let converted = io::Error::from(without);
        assert_eq!(converted.kind(), io::ErrorKind::Unsupported);
        assert!(converted.to_string().contains("too old"));
    }
}
