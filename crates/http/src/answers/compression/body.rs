//! A body that is compressed on its way.
//!
//! Bytes are compressed when the connection has room for more, as everything that a response is
//! made of. After a piece the body lets other tasks run, since compressing takes a hundred times as
//! long as passing on. When the server pauses, the bytes so far are flushed: a client sees a line
//! as soon as its server has written it, at the price of some bytes.
//!
//! A body that breaks off must not look whole: its coding is not ended then.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;

use super::encoder::{Encoder, Permit};
use crate::body::Body;
use crate::body::PollFrame;

/// The bytes that are compressed before other tasks run.
const PIECE: usize = 32 << 10;

/// A body that is compressed on its way.
pub(super) struct Compressed {
    inner: Body,
    /// `None` after the end of the coding.
    encoder: Option<Encoder>,
    /// Bytes that have arrived and are not compressed.
    input: Bytes,
    /// The fields after the body.
    trailers: Option<Frame<Bytes>>,
    /// Whether the encoder has bytes whose output has not arrived.
    holds: bool,
    /// The bytes that were compressed since other tasks ran.
    since_pause: usize,
    _permit: Permit,
}

impl Compressed {
    pub(super) fn new(inner: Body, encoder: Encoder, permit: Permit) -> Compressed {
        Compressed {
            inner,
            encoder: Some(encoder),
            input: Bytes::new(),
            trailers: None,
            holds: false,
            since_pause: 0,
            _permit: permit,
        }
    }

    /// Ends the coding, and returns its last bytes.
    fn finish(&mut self) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.encoder.take().map(Encoder::finish) {
            Some(Ok(out)) => Poll::Ready(Some(Ok(Frame::data(out.into())))),
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => Poll::Ready(None),
        }
    }

    /// Ends the body with an error.
    fn fail(&mut self, error: io::Error) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.encoder = None;
        self.input = Bytes::new();
        Poll::Ready(Some(Err(error)))
    }
}

impl http_body::Body for Compressed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PollFrame {
        let this = self.get_mut();
        loop {
            let Some(encoder) = &mut this.encoder else {
                return Poll::Ready(this.trailers.take().map(Ok));
            };
            if this.since_pause >= PIECE {
                this.since_pause = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if this.input.is_empty() {
                match Pin::new(&mut this.inner).poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                        Ok(data) => this.input = data,
                        Err(other) => {
                            this.trailers = Some(other);
                            return this.finish();
                        }
                    },
                    Poll::Ready(Some(Err(error))) => return this.fail(error),
                    Poll::Ready(None) => return this.finish(),
                    Poll::Pending if this.holds => {
                        this.holds = false;
                        match encoder.flush() {
                            Ok(()) => {}
                            Err(error) => return this.fail(error),
                        }
                        let out = encoder.take();
                        if !out.is_empty() {
                            return Poll::Ready(Some(Ok(Frame::data(out.into()))));
                        }
                        return Poll::Pending;
                    }
                    Poll::Pending => return Poll::Pending,
                }
            }
            let length = this.input.len().min(PIECE - this.since_pause);
            let piece = this.input.split_to(length);
            if let Err(error) = encoder.write(&piece) {
                return this.fail(error);
            }
            this.holds |= length > 0;
            this.since_pause += length;
            let out = encoder.take();
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(out.into()))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.encoder.is_none() && self.trailers.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::VecDeque;
    use std::io::{Read, Write};
    use std::rc::Rc;
    use std::task::Waker;

    use http::{HeaderMap, HeaderValue};
    use http_body::Body as _;
    use proptest::prelude::*;

    use super::*;
    use crate::encoding::Coding;

    /// A step of a server.
    #[derive(Clone, Debug)]
    enum Step {
        Data(Vec<u8>),
        Pause,
    }

    /// The last step of a server.
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Last {
        End,
        Trailers,
        Broken,
    }

    #[derive(Default)]
    struct Observed {
        /// The bytes that the server has sent.
        sent: Cell<usize>,
        is_paused: Cell<bool>,
    }

    struct Script(VecDeque<Step>, Option<Last>, Rc<Observed>);

    impl http_body::Body for Script {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> PollFrame {
            let Script(steps, last, observed) = self.get_mut();
            match steps.pop_front() {
                Some(Step::Data(data)) => {
                    observed.sent.set(observed.sent.get() + data.len());
                    return Poll::Ready(Some(Ok(Frame::data(data.into()))));
                }
                Some(Step::Pause) => {
                    observed.is_paused.set(true);
                    return Poll::Pending;
                }
                None => {}
            }
            match last.take() {
                Some(Last::Trailers) => {
                    let value = HeaderValue::from_static("1");
                    let trailers = HeaderMap::from_iter([(http::header::ETAG, value)]);
                    Poll::Ready(Some(Ok(Frame::trailers(trailers))))
                }
                Some(Last::Broken) => Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into()))),
                Some(Last::End) | None => Poll::Ready(None),
            }
        }
    }

    /// Restores as much as there is; the error tells that the coding was not ended.
    fn restored(bytes: &[u8], coding: Coding) -> (Vec<u8>, bool) {
        let mut out = Vec::new();
        let mut room = [0; 4096];
        let mut reader: Box<dyn Read + '_> = match coding {
            Coding::Gzip => Box::new(flate2::bufread::GzDecoder::new(bytes)),
            Coding::Brotli => Box::new(brotli::Decompressor::new(bytes, 4096)),
            Coding::Zstd => Box::new(zstd::Decoder::new(bytes).unwrap().single_frame()),
        };
        loop {
            match reader.read(&mut room) {
                Ok(0) => return (out, true),
                Ok(count) => out.write_all(&room[..count]).unwrap(),
                Err(_) => return (out, false),
            }
        }
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let text = "[a-f]{0,9}".prop_map(String::into_bytes);
        let long = ("[a-z ]{1,40}", 1..1500_usize)
            .prop_map(|(text, count)| text.repeat(count).into_bytes());
        let noise = prop::collection::vec(any::<u8>(), 0..3000);
        let data = prop_oneof![4 => text, 1 => long, 1 => noise].prop_map(Step::Data);
        prop::collection::vec(prop_oneof![3 => data, 1 => Just(Step::Pause)], 0..30)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        /// Whatever a server sends, its client can read all of that at each pause, and the end only
        /// if there is one.
        #[test]
        fn a_client_reads_what_the_server_has_sent(
            steps in steps(),
            last in prop::sample::select(vec![Last::End, Last::Trailers, Last::Broken]),
            coding in prop::sample::select(Coding::ALL.to_vec()),
        ) {
            let whole: Vec<u8> = steps
                .iter()
                .flat_map(|step| match step {
                    Step::Data(data) => data.clone(),
                    Step::Pause => Vec::new(),
                })
                .collect();
            let observed = Rc::new(Observed::default());
            let script = Script(steps.into(), Some(last), observed.clone());
            let permit = Permit::take(coding).unwrap();
            let encoder = Encoder::new(coding).unwrap();
            let mut body = Compressed::new(Body::stream(script), encoder, permit);
            let cx = &mut Context::from_waker(Waker::noop());
            let (mut out, mut has_trailers, mut is_broken) = (Vec::new(), false, false);
            loop {
                match Pin::new(&mut body).poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                        Ok(data) => {
                            prop_assert!(!has_trailers);
                            out.extend_from_slice(&data);
                        }
                        Err(_) => has_trailers = true,
                    },
                    Poll::Ready(Some(Err(_))) => {
                        is_broken = true;
                        break;
                    }
                    Poll::Ready(None) => break,
                    Poll::Pending => {}
                }
                if observed.is_paused.take() {
                    let (now, is_ended) = restored(&out, coding);
                    prop_assert!(now == whole[..observed.sent.get()], "bytes are held back at a pause");
                    prop_assert!(!is_ended || out.is_empty());
                }
            }
            let (all, is_ended) = restored(&out, coding);
            prop_assert!(Poll::is_ready(&Pin::new(&mut body).poll_frame(cx)));
            prop_assert!(body.is_end_stream());
            prop_assert_eq!(has_trailers, last == Last::Trailers);
            prop_assert_eq!(is_broken, last == Last::Broken);
            match is_broken {
                true => prop_assert!(whole.starts_with(&all) && (!is_ended || out.is_empty())),
                false => prop_assert!(is_ended && all == whole),
            }
        }
    }

    #[test]
    fn other_tasks_run_between_pieces() {
        let noise: Vec<u8> = (0..20 * PIECE as u64)
            .scan(7_u64, |state, _| {
                *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                Some((*state >> 33) as u8)
            })
            .collect();
        for data in [vec![b'x'; 20 * PIECE], noise] {
            for coding in Coding::ALL {
                let steps = [Step::Data(data.clone())].into();
                let script = Script(steps, Some(Last::End), Rc::default());
                let permit = Permit::take(coding).unwrap();
                let encoder = Encoder::new(coding).unwrap();
                let mut body = Compressed::new(Body::stream(script), encoder, permit);
                let cx = &mut Context::from_waker(Waker::noop());
                let mut pauses = 0;
                while !body.is_end_stream() {
                    pauses += u32::from(Pin::new(&mut body).poll_frame(cx).is_pending());
                }
                assert!((19..=20).contains(&pauses), "{coding:?} {pauses}");
            }
        }
    }
}
