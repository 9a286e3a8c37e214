//! Conversations of a client and a server on one connection, as a model with two states: that of
//! the client and that of the server. Each event is legal in some pairs of states only.
//!
//! ```text
//!   client: IDLE --request--> BODY --end--> DONE      both DONE and both want to go on: IDLE, IDLE
//!   server: IDLE --request of the client--> HEAD      one of them does not:           CLOSED
//!           HEAD --interim--> HEAD                    the server changes protocols: SWITCHED
//!           HEAD --response--> BODY --end--> DONE
//! ```
//!
//! All that the model lets both sides write is read again, in pieces. The readers must find the
//! same messages, and end the connection where the model does.

use http::StatusCode;
use proptest::prelude::*;
use superpoll_http1::{
    After, Asked, BodyWriter, FieldName, FieldValue, Framing, Method, Target, Version, Writer,
};

use crate::message::{Kind, WIDE, read_body, read_request, read_response};

/// A request and its responses.
#[derive(Clone, Debug)]
struct Exchange {
    method: &'static str,
    upload: Upload,
    client_closes: bool,
    interims: usize,
    status: u16,
    answer: Upload,
    server_closes: bool,
}

/// The data of a body, and its extent as the sender knows it.
#[derive(Clone, Debug)]
struct Upload {
    framing: u8,
    pieces: Vec<Vec<u8>>,
}

impl Upload {
    fn data(&self) -> Vec<u8> {
        self.pieces.concat()
    }

    fn framing(&self) -> Framing {
        match self.framing {
            0 => Framing::Chunked,
            1 => Framing::UntilClose,
            2 if self.data().is_empty() => Framing::None,
            _ => Framing::Length(self.data().len() as u64),
        }
    }

    fn write(&self, mut writer: BodyWriter, to: &mut Vec<u8>) -> After {
        for piece in &self.pieces {
            writer.piece(piece, to).unwrap();
        }
        writer.end(to)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Idle,
    Head,
    Body,
    Done,
    Closed,
    Switched,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Request,
    RequestEnd,
    Interim,
    Response,
    Switch,
    ResponseEnd,
    Next,
    Close,
}

/// Returns the states of the client and the server after an event; `None` if the event is illegal.
fn after(states: (State, State), event: Event) -> Option<(State, State)> {
    use State::{Body, Closed, Done, Head, Idle, Switched};
    Some(match (event, states) {
        (Event::Request, (Idle, Idle)) => (Body, Head),
        (Event::RequestEnd, (Body, server)) => (Done, server),
        (Event::Interim, (client, Head)) => (client, Head),
        (Event::Response, (client, Head)) => (client, Body),
        (Event::Switch, (Done, Head)) => (Switched, Switched),
        (Event::ResponseEnd, (client, Body)) => (client, Done),
        (Event::Next, (Done, Done)) => (Idle, Idle),
        (Event::Close, (Done, Done)) => (Closed, Closed),
        _ => return None,
    })
}

/// Both directions of a connection, with the states of its ends.
struct Conversation {
    states: (State, State),
    version: Version,
    requests: Vec<u8>,
    responses: Vec<u8>,
}

impl Conversation {
    fn happen(&mut self, event: Event) {
        self.states = after(self.states, event).unwrap_or_else(|| {
            panic!("{event:?} is illegal in {:?}", self.states);
        });
    }

    fn asked(exchange: &Exchange) -> Asked {
        Asked {
            is_head: exchange.method == "HEAD",
            is_connect: exchange.method == "CONNECT",
            has_upgrade: false,
        }
    }

    fn exchange(&mut self, exchange: &Exchange) {
        let method = Method::new(exchange.method).unwrap();
        let target = if method == Method::Connect { "a:443" } else { "/a" };
        let target = Target::new(method, target).unwrap();
        let fate = |closes: bool| if closes { After::Closes } else { After::Stays };
        self.happen(Event::Request);
        let host = FieldValue::from_static("a");
        let writer = Writer::request(&mut self.requests, method, target, host)
            .body(exchange.upload.framing(), fate(exchange.client_closes));
        let client = exchange.upload.write(writer, &mut self.requests);
        self.happen(Event::RequestEnd);
        let asked = Conversation::asked(exchange);
        for _ in 0..exchange.interims {
            self.happen(Event::Interim);
            let hints = StatusCode::from_u16(103).unwrap();
            let mut writer =
                Writer::response(&mut self.responses, self.version, hints, None, asked);
            writer.field(FieldName::from_static("link"), FieldValue::from_static("b"));
            writer.interim();
        }
        let status = StatusCode::from_u16(exchange.status).unwrap();
        let switches = asked.is_connect && status.is_success();
        self.happen(if switches { Event::Switch } else { Event::Response });
        let writer = Writer::response(&mut self.responses, self.version, status, None, asked);
        if switches {
            writer.interim();
            return;
        }
        let server = fate(exchange.server_closes || client == After::Closes);
        let writer = writer.body(exchange.answer.framing(), server);
        let server = exchange.answer.write(writer, &mut self.responses);
        self.happen(Event::ResponseEnd);
        self.happen(match (client, server) {
            (After::Stays, After::Stays) => Event::Next,
            _ => Event::Close,
        });
    }
}

fn uploads() -> impl Strategy<Value = Upload> {
    let piece = prop::collection::vec(prop::sample::select(&b"0\r\na:HTP"[..]), 0..5);
    (0..4_u8, prop::collection::vec(piece, 0..4))
        .prop_map(|(framing, pieces)| Upload { framing, pieces })
}

fn exchanges() -> impl Strategy<Value = Exchange> {
    let parts = (
        prop::sample::select(vec!["GET", "HEAD", "POST", "PUT", "POST", "CONNECT", "purge"]),
        uploads(),
        prop::bool::weighted(0.1),
        0..3_usize,
        prop::sample::select(vec![200_u16, 200, 201, 204, 304, 404, 500]),
        uploads(),
        prop::bool::weighted(0.1),
    );
    parts.prop_map(|(method, upload, client_closes, interims, status, answer, server_closes)| {
        Exchange { method, upload, client_closes, interims, status, answer, server_closes }
    })
}

proptest! {
    #![proptest_config(crate::property::cases())]

    #[test]
    fn a_conversation_is_read_as_it_was_written(
        exchanges in prop::collection::vec(exchanges(), 1..6),
        is_old in any::<bool>(),
        piece in 1..20_usize,
    ) {
        let version = if is_old { Version::Http10 } else { Version::Http11 };
        let states = (State::Idle, State::Idle);
        let mut model = Conversation { states, version, requests: Vec::new(), responses: Vec::new() };
        let mut held = 0;
        for exchange in &exchanges {
            if model.states != (State::Idle, State::Idle) {
                break;
            }
            model.exchange(exchange);
            held += 1;
        }
        let (mut request_at, mut response_at) = (0, 0);
        for (number, exchange) in exchanges[..held].iter().enumerate() {
            let rest = &model.requests[request_at..];
            let head = read_request(rest, &WIDE).unwrap().unwrap();
            let body = read_body(head.framing, &rest[head.len..], piece, false).unwrap();
            prop_assert_eq!(&head.method, exchange.method);
            prop_assert_eq!(&body.data, &exchange.upload.data());
            request_at += head.len + body.end.unwrap();
            let asked = Conversation::asked(exchange);
            let mut interims = 0;
            let answer = loop {
                let rest = &model.responses[response_at..];
                let answer = read_response(rest, asked, &WIDE).unwrap().unwrap();
                response_at += answer.len;
                if answer.kind != Kind::Interim {
                    break answer;
                }
                interims += 1;
            };
            prop_assert_eq!((interims, answer.status), (exchange.interims, exchange.status));
            let is_last = number + 1 == held;
            if answer.kind == Kind::Switches {
                prop_assert!(is_last && model.states == (State::Switched, State::Switched));
                break;
            }
            let rest = &model.responses[response_at..];
            let body = read_body(answer.framing, rest, piece, true).unwrap();
            let has_none = asked.is_head || matches!(exchange.status, 204 | 304);
            let expected = if has_none { Vec::new() } else { exchange.answer.data() };
            prop_assert_eq!(body.data, expected);
            response_at += body.end.unwrap();
            let goes_on = (head.after, answer.after) == (After::Stays, After::Stays);
            let is_closed = model.states == (State::Closed, State::Closed);
            prop_assert_eq!(goes_on, !(is_last && is_closed), "{:?}", exchange);
        }
        prop_assert_eq!(request_at, model.requests.len());
        prop_assert_eq!(response_at, model.responses.len());
    }
}
