//! The client of a request, as its way to a server and back sees it.
//!
//! A connection of HTTP/1 takes the lines of responses. All others are given responses, and learn
//! of nothing but interim ones before: [`Apart`].

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use superpoll_rt::pipe::PipeReader;
use tokio::io::AsyncWrite;

use crate::interim::InterimResponses;

/// The client's side of a request that is forwarded.
pub trait Client {
    /// Whether it takes the lines of final responses.
    const TAKES_LINES: bool;

    /// Returns its stream.
    fn stream(&mut self) -> &mut (impl AsyncWrite + Unpin);

    /// Reads some of the request's body, if that is waited for. Ready when there is more of it. The
    /// client is not invited to send it while or after it `gets` a response, interim ones included.
    ///
    /// # Errors
    ///
    /// The client is gone.
    fn poll_feed(&mut self, cx: &mut Context<'_>, gets: bool) -> Poll<io::Result<()>>;

    /// Writes the rest of an invitation that has begun, before anything else is written.
    ///
    /// # Errors
    ///
    /// The client is gone.
    fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Whether it is gone, as far as is known.
    #[inline]
    fn is_gone(&mut self, cx: &mut Context<'_>) -> bool {
        matches!(Pin::new(self.stream()).poll_flush(cx), Poll::Ready(Err(_)))
    }
}

/// A client that takes lines.
pub trait LinesClient: Client {
    /// Whether bytes may go to its socket as they are.
    fn can_splice(&self) -> bool;

    /// Moves bytes out of a pipe, up to `length`.
    fn poll_splice(
        &mut self,
        cx: &mut Context<'_>,
        from: &PipeReader,
        length: usize,
    ) -> Poll<io::Result<usize>>;

    /// Writes the last bytes of a connection after the position `at`, which it moves. The end of
    /// the sending side goes with the last byte, where one packet can have both.
    fn poll_write_last(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        at: &mut usize,
    ) -> Poll<io::Result<()>>;
}

/// Waits for something as long as the client is there. It sends its body meanwhile.
pub(super) async fn unless_gone<T>(
    client: &mut impl Client,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(outcome) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(outcome));
            }
            match client.poll_feed(cx, false) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(None),
                Poll::Pending => break,
            }
        }
        if client.is_gone(cx) { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}

/// A client that is given its response. The connection ends its requests if it is gone.
#[derive(Default)]
pub(super) struct Apart {
    /// The interim responses, if it understands them.
    pub interim: Option<Rc<InterimResponses>>,
}

/// Interim responses, one after another: flushed once the connection has taken the last one.
impl AsyncWrite for Apart {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.interim.iter().for_each(|interim| interim.push(bytes));
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.interim.as_ref().is_some_and(|interim| interim.is_pending()) {
            true => Poll::Pending,
            false => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Client for Apart {
    const TAKES_LINES: bool = false;

    fn stream(&mut self) -> &mut (impl AsyncWrite + Unpin) {
        self
    }

    fn poll_feed(&mut self, _: &mut Context<'_>, _: bool) -> Poll<io::Result<()>> {
        Poll::Pending
    }

    fn poll_begun(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
