//! Closing a connection so that the last response arrives.
//!
//! A request may be answered before its body has arrived: it is too large, or its path is not
//! served. A client of HTTP/2 sends frames at any time, and is told of a broken protocol in the
//! middle of them. If the connection were closed then, with bytes unread or still on their way, the
//! kernel would reset it. The client's kernel would then throw away the response, which most
//! clients read only after their request. So the server ends only its sending side, and reads and
//! throws away the bytes that the client continues to send, until the client ends its side too,
//! which it does when it has read the response. nginx does the same (`lingering_close`), with the
//! same limits of time.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_io::{AsyncRead, AsyncWrite};
use superpoll_http::io_activity::SHARE;
use superpoll_http::transport::Transport;
use superpoll_http2::Config;
use superpoll_rt::time::{self, sleep, timeout};

use super::listener_context::ListenerContext;
use super::worker::ActiveConnection;

/// The most bytes of a body that are thrown away.
pub(super) const MOST_OF_A_BODY: u64 = 1 << 30;

/// The most bytes of frames: what the window of HTTP/2 lets a client send unasked, and some heads.
pub(super) const MOST_OF_FRAMES: u64 = 2 * Config::DEFAULT.connection_window as u64;

/// The longest time in all.
const LONGEST: Duration = Duration::from_secs(30);

/// The longest time without a byte, and the longest in all once the server is about to end.
const PAUSE: Duration = Duration::from_secs(5);
const ENDING: Duration = Duration::from_secs(2);

/// How long an encrypted connection may take to send its end.
const GOODBYE: Duration = Duration::from_secs(2);

/// The most bytes that are read at a time; they are not kept.
const ROOM: usize = 16 << 10;

/// Closes a connection whose client is not sending.
pub(super) async fn close(mut transport: Transport) {
    if let Transport::Tls(_) = transport {
        let closed = poll_fn(|cx| Pin::new(&mut transport).poll_close(cx));
        let _ = timeout(GOODBYE, closed).await;
    }
}

/// Ends the sending side, and throws bytes away until the client has ended its side or a limit is
/// reached: that of time, or the given one of bytes.
pub(super) async fn linger(
    mut transport: Transport,
    most: u64,
    context: &ListenerContext,
    active: &ActiveConnection,
) {
    let begun = time::now();
    let (mut moved, mut ending) = (begun, None);
    let (mut is_closed, mut left) = (false, most);
    let mut timer = pin!(sleep(PAUSE));
    poll_fn(|cx| {
        if active.remember(cx.waker()) {
            return Poll::Ready(());
        }
        if !is_closed {
            match Pin::new(&mut transport).poll_close(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => is_closed = true,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
            }
        }
        // Bytes that have arrived take precedence over the time, which may be over because the
        // process was stopped.
        let before = left;
        loop {
            if before - left >= SHARE as u64 {
                cx.waker().wake_by_ref();
                break;
            }
            match drop_some(cx, &mut transport) {
                Poll::Pending => break,
                Poll::Ready(0) => return Poll::Ready(()),
                Poll::Ready(count) => left = left.saturating_sub(count as u64),
            }
            if left == 0 {
                return Poll::Ready(());
            }
            moved = time::now();
        }
        let mut end = (moved + PAUSE).min(begun + LONGEST);
        if context.worker.is_draining() {
            end = end.min(*ending.get_or_insert_with(time::now) + ENDING);
        }
        if timer.deadline() != end {
            timer.as_mut().get_mut().reset(end);
        }
        timer.as_mut().poll(cx)
    })
    .await;
}

/// Reads, into memory that is not the task's; no bytes mean the end, or a failure.
fn drop_some(cx: &mut Context<'_>, transport: &mut Transport) -> Poll<usize> {
    let mut room = [0; ROOM];
    Pin::new(transport).poll_read(cx, &mut room).map(|outcome| outcome.unwrap_or(0))
}
