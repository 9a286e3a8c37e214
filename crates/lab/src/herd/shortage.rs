//! The kernel's errors when there are too many of something, and the limit that was probably
//! reached.

use std::error::Error;
use std::io::{self, ErrorKind};

use crate::environment;

/// Returns the kernel's number of an error, also if other errors wrap it.
pub(super) fn code_of(error: &io::Error) -> i32 {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(code) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return code;
        }
        cause = error.source();
    }
    match error.kind() {
        ErrorKind::StorageFull => libc::ENOSPC,
        ErrorKind::OutOfMemory => libc::ENOMEM,
        _ => libc::EIO,
    }
}

/// Whether the kernel returns this error when there are too many of something.
pub(super) fn is_a_limit(code: i32) -> bool {
    use libc::{EAGAIN, EMFILE, ENFILE, ENOBUFS, ENOMEM, ENOSPC};
    [EAGAIN, EMFILE, ENFILE, ENOBUFS, ENOMEM, ENOSPC].contains(&code)
}

/// Describes what the kernel refused to processes that wait for `dups` duplicates each, and by
/// which limit, for readers who can raise it.
pub(super) fn why(code: i32, dups: usize) -> String {
    let error = io::Error::from_raw_os_error(code);
    let (path, name) = match code {
        libc::ENOSPC => ("/proc/sys/fs/epoll/max_user_watches", "fs.epoll.max_user_watches"),
        libc::ENFILE => ("/proc/sys/fs/file-max", "fs.file-max"),
        libc::EMFILE => return format!("{error} (ulimit -n, with {dups} duplicates in each)"),
        _ => return error.to_string(),
    };
    match environment::line(path) {
        Some(value) => format!("{error} ({name} is {value})"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_distinguished_from_failures_and_named_if_known() {
        assert!(is_a_limit(libc::EAGAIN) && is_a_limit(libc::ENOSPC) && !is_a_limit(libc::EBADF));
        assert!(why(libc::EMFILE, 1019).contains("1019 duplicates"));
        assert!(why(libc::ENFILE, 0).contains(" (fs.file-max is "));
        assert!(!why(libc::EAGAIN, 0).contains(" is "));
    }

    #[test]
    fn an_error_has_its_number_however_it_was_wrapped() {
        let of_system = io::Error::from_raw_os_error(libc::ENFILE);
        assert_eq!(code_of(&of_system), libc::ENFILE);
        let wrapped = crate::error::Error::system("opening", of_system);
        assert_eq!(code_of(&io::Error::other(wrapped)), libc::ENFILE);
        assert_eq!(code_of(&ErrorKind::StorageFull.into()), libc::ENOSPC);
        assert_eq!(code_of(&io::Error::other("anything")), libc::EIO);
    }
}
