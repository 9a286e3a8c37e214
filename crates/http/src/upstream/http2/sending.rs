//! The body of a request on its way to a server of HTTP/2, as far as the windows have room.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body as _;
use tokio::sync::oneshot;

use crate::upstream::outgoing::Outgoing;

/// A body, and the stream that it is sent on.
pub(super) struct Sending {
    body: Outgoing,
    /// A piece of it that waits for a window, and whether it is the last.
    held: Option<(Bytes, bool)>,
    stream: SendStream<Bytes>,
}

impl Sending {
    /// Begins to send a body. If not all of it is sent at once, a task goes on, and what is
    /// returned cancels the request when it is dropped.
    pub(super) async fn begin(
        body: Outgoing,
        stream: SendStream<Bytes>,
    ) -> Option<oneshot::Sender<()>> {
        let mut sending = Sending { body, held: None, stream };
        if let Outgoing::Memory(data) = &mut sending.body {
            // The library keeps it, as this would. An error is that of the response, too.
            let _ = sending.stream.send_data(std::mem::take(data), true);
            return None;
        }
        if poll_fn(|cx| Poll::Ready(sending.poll(cx))).await.is_ready() {
            return None;
        }
        let (cancels, cancelled) = oneshot::channel();
        let mut cancelled = Some(cancelled);
        superpoll_rt::spawn(poll_fn(move |cx| {
            if let Some(watched) = &mut cancelled
                && let Poll::Ready(outcome) = Pin::new(watched).poll(cx)
            {
                if outcome.is_err() {
                    sending.stream.send_reset(Reason::CANCEL);
                    return Poll::Ready(());
                }
                cancelled = None;
            }
            sending.poll(cx)
        }))
        .detach();
        Some(cancels)
    }

    /// Ready when nothing more is sent.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.stream.poll_reset(cx).is_ready() {
                return Poll::Ready(());
            }
            let (data, is_last) = match self.held.take() {
                Some(held) => held,
                None => match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                    None => (Bytes::new(), true),
                    Some(Err(_)) => return self.cancel(),
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => (data, self.body.is_end_stream()),
                        Err(frame) => {
                            let trailers = frame.into_trailers().unwrap_or_default();
                            return match self.stream.send_trailers(trailers) {
                                Ok(()) => Poll::Ready(()),
                                Err(_) => self.cancel(),
                            };
                        }
                    },
                },
            };
            // The end of a body needs no window. Of a window that is asked for without need, others
            // have less. The library asks for the rest, and sends a piece as the window allows.
            if !data.is_empty() {
                self.stream.reserve_capacity(1);
                while self.stream.capacity() == 0 {
                    match self.stream.poll_capacity(cx) {
                        Poll::Ready(Some(Ok(_))) => {}
                        Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(()),
                        Poll::Pending => {
                            self.held = Some((data, is_last));
                            return Poll::Pending;
                        }
                    }
                }
            }
            match self.stream.send_data(data, is_last) {
                Ok(()) if !is_last => {}
                Ok(()) => return Poll::Ready(()),
                Err(_) => return self.cancel(),
            }
        }
    }

    /// Tells the server that the rest does not come. A stream that has ended stays as it is.
    fn cancel(&mut self) -> Poll<()> {
        self.stream.send_reset(Reason::CANCEL);
        Poll::Ready(())
    }
}
