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
    stream: SendStream<Bytes>,
}

impl Sending {
    /// Begins to send a body. If not all of it is sent at once, a task goes on, and what is
    /// returned cancels the request when it is dropped.
    pub(super) async fn begin(
        body: Outgoing,
        stream: SendStream<Bytes>,
    ) -> Option<oneshot::Sender<()>> {
        let mut sending = Sending { body, stream };
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
            // Some room is waited for before more of the body is read. The library asks for the
            // rest, and sends a piece as the window allows.
            self.stream.reserve_capacity(1);
            while self.stream.capacity() == 0 {
                match ready!(self.stream.poll_capacity(cx)) {
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return Poll::Ready(()),
                }
            }
            if self.stream.poll_reset(cx).is_ready() {
                return Poll::Ready(());
            }
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(_)) => {
                    self.stream.send_reset(Reason::CANCEL);
                    return Poll::Ready(());
                }
                None => {
                    let _ = self.stream.send_data(Bytes::new(), true);
                    return Poll::Ready(());
                }
            };
            let is_last = self.body.is_end_stream();
            let sent = match frame.into_data() {
                Ok(data) => self.stream.send_data(data, is_last).map(|()| is_last),
                Err(frame) => match frame.into_trailers() {
                    Ok(trailers) => {
                        self.stream.reserve_capacity(0);
                        self.stream.send_trailers(trailers).map(|()| true)
                    }
                    Err(_) => Ok(false),
                },
            };
            // After an error the response has it.
            if sent.unwrap_or(true) {
                return Poll::Ready(());
            }
        }
    }
}
