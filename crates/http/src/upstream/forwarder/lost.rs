//! The ends of a response before its last byte, and the time limit that may be one.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use superpoll_rt::time::{Sleep, sleep_until};

/// A timer for one limit after another. It is set again only when it has ended, or would end too
/// late: most limits are over long before.
#[derive(Default)]
pub struct LimitTimer(Option<Sleep>);

impl LimitTimer {
    /// Ready after a time.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, due: Instant) -> Poll<()> {
        let timer = self.0.get_or_insert_with(|| sleep_until(due));
        if timer.deadline() > due {
            timer.reset(due);
        }
        while timer.deadline() <= due {
            ready!(Pin::new(&mut *timer).poll(cx));
            if timer.deadline() == due {
                return Poll::Ready(());
            }
            timer.reset(due);
        }
        Poll::Pending
    }
}

/// The end of an exchange before its time.
pub(super) enum Lost {
    Client,
    Server(io::Error),
}

impl Lost {
    /// The server has ended its side.
    pub(super) fn at_end() -> Lost {
        let what = "end of file before message length reached";
        Lost::Server(io::Error::new(io::ErrorKind::UnexpectedEof, what))
    }
}
