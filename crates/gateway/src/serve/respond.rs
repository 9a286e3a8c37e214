//! A request that a handler answers: its body as the handler asks for it (`upload`), and its
//! response.
//!
//! ```text
//!   request ----> the handler answers ----> RESPONSE ----> written, and the upload is over or
//!      |                                                   given up: the next request, or the end
//!      +----> UPLOAD, until it is over or given up
//! ```
//!
//! Both go on at a time, as a handler may answer before it has read everything. If the rest of a
//! body that was given up has not arrived, the response says that it is the last one, and the
//! connection ends (`linger`).

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE};
use http::{HeaderValue, Response, StatusCode};
use http_body::Body as _;
use superpoll_http::buffer::ReadBuffer;
use superpoll_http::exchange::Plan;
use superpoll_http::fixed::NoAnswer;
use superpoll_http::message::{Message, ReasonPhrase, recycle, write_date};
use superpoll_http::transport::poll_write_all;
use superpoll_http1::{
    After, Asked, FieldValue, Framing, Method as Http1Method, Refusal, RequestHead,
    Version as Http1Version, Writer,
};
use tokio::io::AsyncWrite;

use super::answer::{Answer, ConnectionState, Serving};
use super::arriving::ArrivingBody;
use super::client_stream::ClientStream;
use super::clock::{ExitReason, Phase};

/// The room for the head of a response at first: enough for most.
const HEAD: usize = 1 << 10;

/// The parts of a request that the form of its response depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseForm {
    pub version: Http1Version,
    pub asked: Asked,
    /// The client wants no other response on the connection.
    pub closes: bool,
    pub takes_trailers: bool,
}

impl ResponseForm {
    pub(super) fn of_request(head: &RequestHead<'_>) -> ResponseForm {
        let asked = Asked {
            is_head: head.method == Http1Method::Head,
            is_connect: head.method == Http1Method::Connect,
            has_upgrade: head.wants.upgrade.is_some(),
        };
        ResponseForm {
            version: head.version,
            asked,
            closes: head.after == After::Closes,
            takes_trailers: head.wants.trailers,
        }
    }
}

/// Answers a request by its handler. Returns whether another request may follow, or the reason for
/// which none does.
pub(super) async fn respond(
    state: &Rc<ConnectionState>,
    (io, read): (&mut ClientStream, &mut ReadBuffer),
    mut serving: Serving,
    mut arriving: ArrivingBody,
    form: ResponseForm,
    check: &mut impl FnMut(&mut Context<'_>, Phase) -> Option<ExitReason>,
) -> Result<(), ExitReason> {
    let counters = &state.context.worker.counters;
    let mut response: Option<Message<Answer>> = None;
    // The fate of the connection, once the response was sent.
    let mut written: Option<After> = None;
    let mut switches = false;
    io.expects_body = arriving.continues();
    // Whether the connection ends without an answer, or the reason for which it ends early.
    let ended = poll_fn(|cx| {
        loop {
            if response.is_none()
                && written.is_none()
                && let Poll::Ready(Ok(answered)) = Pin::new(&mut serving).poll(cx)
            {
                if answered.extensions().get::<NoAnswer>().is_some() {
                    return Poll::Ready(Ok(true));
                }
                arriving.drop_rest(cx, io, read);
                switches = answered.status() == StatusCode::SWITCHING_PROTOCOLS;
                let is_cut = !arriving.is_over() && arriving.is_given_up();
                let is_last = form.closes || is_cut || state.is_last(state.requests());
                response = Some(to_message(answered, form, is_last));
            }
            match arriving.poll_begun(cx, io, state) {
                // The handler may have another interim response.
                Poll::Ready(Ok(true)) if response.is_none() => continue,
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Err(ExitReason::Closed)),
                Poll::Pending => break,
            }
            if let Some(sent) = &mut response {
                match sent.poll_send(cx, io) {
                    // The request is over, and the rest of its body is another task's.
                    Poll::Ready(Ok(())) => written = response.take().map(|sent| sent.after()),
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(ExitReason::Closed)),
                    Poll::Pending => {}
                }
            }
            if written.is_some() && !arriving.continues() {
                return Poll::Ready(Ok(false));
            }
            let is_answered = response.is_some() || written.is_some();
            let filled = arriving.poll_fill(cx, io, read, is_answered);
            io.expects_body = arriving.continues();
            match filled {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Err(ExitReason::Closed)),
                Poll::Pending => break,
            }
        }
        // While there is a response, sending it tells whether the client is gone.
        if response.is_none() {
            let waits = || matches!(*state.plan.borrow(), Some(Plan::Wait(_)));
            match Pin::new(&mut *io).poll_flush(cx) {
                Poll::Ready(Err(_)) => return Poll::Ready(Err(ExitReason::Closed)),
                Poll::Ready(Ok(())) if waits() => return Poll::Ready(Err(ExitReason::Waits)),
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
        }
        let phase = if written.is_some() { Phase::Upload } else { Phase::Request };
        check(cx, phase).map_or(Poll::Pending, |reason| Poll::Ready(Err(reason)))
    })
    .await;
    if ended == Ok(true) {
        return Err(ExitReason::Closed);
    }
    if let Err(reason) = ended {
        if let Some(response) = &mut response {
            let unsent = response.unsent();
            response.body_mut().into_iter().for_each(|answer| answer.break_off(unsent));
        }
        if reason == ExitReason::Closed && !state.is_closed_here.get() {
            counters.broken.add(1);
        }
        return Err(reason.while_sending(arriving.is_followed(io, read)));
    }
    arriving.end(io, read).await;
    let is_taken = matches!(*state.plan.borrow(), Some(Plan::TakeOver(_)));
    if switches && is_taken && arriving.is_over() {
        return Err(ExitReason::TakenOver);
    }
    match written == Some(After::Stays) && !switches && arriving.is_over() {
        true => Ok(()),
        false => Err(ExitReason::Closed.while_sending(arriving.is_followed(io, read))),
    }
}

/// Returns a response as the message that the client gets.
fn to_message(response: Response<Answer>, form: ResponseForm, is_last: bool) -> Message<Answer> {
    let (parts, body) = response.into_parts();
    let mut lines = Vec::with_capacity(HEAD);
    let reason = parts.extensions.get::<ReasonPhrase>();
    let reason = reason.and_then(|reason| FieldValue::new(&reason.0));
    let mut writer = Writer::response(&mut lines, form.version, parts.status, reason, form.asked);
    let switches = parts.status == StatusCode::SWITCHING_PROTOCOLS;
    let (mut closes, mut has_date) = (is_last, false);
    for (name, value) in &parts.headers {
        let mut elements = FieldValue::from(value).elements();
        if name == CONNECTION && elements.any(|it| it.eq_ignore_ascii_case(b"close")) {
            closes = true;
            continue;
        }
        has_date |= name == DATE;
        writer.field(name.into(), value.into());
    }
    if !has_date && !switches {
        write_date(&mut writer);
    }
    let announced = parts.headers.get(CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse().ok());
    let framing = match (announced, body.size_hint().exact()) {
        // It need not be told, and nothing can be wrong about it then.
        _ if parts.status == StatusCode::NOT_MODIFIED => Framing::None,
        (Some(length), _) => Framing::Length(length),
        (None, Some(0)) => Framing::None,
        (None, Some(length)) => Framing::Length(length),
        (None, None) => Framing::Chunked,
    };
    // A change of protocols is about the connection already.
    let closes = closes && !switches;
    recycle(parts.headers);
    let writer = writer.body(framing, if closes { After::Closes } else { After::Stays });
    Message::new(lines, writer, body, form.takes_trailers)
}

/// Answers a request that is refused, and logs it. No other request can follow.
pub(super) async fn refuse(
    state: &ConnectionState,
    (io, read): (&mut ClientStream, &ReadBuffer),
    why: Refusal,
    check: &mut impl FnMut(&mut Context<'_>, Phase) -> Option<ExitReason>,
) -> ExitReason {
    let status = why.status();
    let text =
        format!("{} {}: {why}\n", status.as_u16(), status.canonical_reason().unwrap_or_default());
    state.refused(status.as_u16(), text.len(), &Bytes::copy_from_slice(read.bytes()));
    let mut bytes = Vec::with_capacity(HEAD);
    let asked = Asked::default();
    let mut writer = Writer::response(&mut bytes, Http1Version::Http11, status, None, asked);
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    writer.field((&http::header::CONTENT_TYPE).into(), (&plain).into());
    write_date(&mut writer);
    let mut body = writer.body(Framing::Length(text.len() as u64), After::Closes);
    let _ = body.piece(text.as_bytes(), &mut bytes);
    body.end(&mut bytes);
    let mut at = 0;
    poll_fn(|cx| match poll_write_all(io, cx, &bytes, &mut at) {
        Poll::Ready(_) => Poll::Ready(ExitReason::Closed),
        Poll::Pending => check(cx, Phase::Head).map_or(Poll::Pending, Poll::Ready),
    })
    .await
    .while_sending(true)
}
