//! The reason why io_uring does not take part.

use superpoll::{BackendKind, Poller};

/// Returns the reason why io_uring does not work on this machine; "is not used" if it does.
pub(crate) fn why_no_uring() -> String {
    match Poller::builder().backend(BackendKind::Uring).build() {
        Err(error) => error.to_string(),
        Ok(_) => "io_uring is not used".to_owned(),
    }
}
