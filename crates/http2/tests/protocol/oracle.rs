//! h2 as the client: random requests, bodies, trailers, resets, windows and settings, in both
//! directions. The server parks its connection whenever it can, in half of the cases.

use std::collections::HashMap;
use std::sync::LazyLock;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use proptest::prelude::*;
use superpoll_http1::{FieldName, FieldValue};
use superpoll_http2::{
    Config, Connection, ErrorCode, Event, Limits, PreparedFields, Scratch, StreamKey,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::client::{Kept, Pairs, keep};

/// One side's part of an exchange.
#[derive(Clone, Debug)]
struct Part {
    fields: Pairs,
    body: usize,
    trailers: Option<Pairs>,
}

/// An exchange, as both sides have agreed on it.
#[derive(Clone, Debug)]
struct Exchange {
    method: Method,
    path: String,
    request: Part,
    response: Part,
    status: u16,
    interims: u8,
    /// The server resets the stream after so many bytes of its response.
    reset: Option<usize>,
    /// The server answers without waiting for the request's end.
    is_eager: bool,
    priority: Option<&'static str>,
}

/// The settings of both sides.
#[derive(Clone, Debug)]
struct Setup {
    client_window: u32,
    client_connection_window: u32,
    client_frame: u32,
    client_table: u32,
    table: u16,
    new_table: Option<u16>,
    piece: usize,
    parks: bool,
    at_a_time: usize,
}

fn byte(at: usize) -> u8 {
    b'a' + (at % 23) as u8
}

/// The data of all bodies.
static BODY: LazyLock<Vec<u8>> = LazyLock::new(|| (0..LONGEST).map(byte).collect());

/// The longest body.
const LONGEST: usize = 200_000;

fn map(fields: &Pairs) -> HeaderMap {
    let name = |text: &str| HeaderName::from_bytes(text.as_bytes()).unwrap();
    let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).unwrap();
    let mut map = HeaderMap::new();
    for (key, text) in fields {
        map.append(name(key), value(text));
    }
    map
}

/// The fields of a map, sorted, with all cookies as one.
fn sorted(map: &HeaderMap) -> Pairs {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let is_cookie = |pair: &(String, String)| pair.0 == "cookie";
    let all = map.iter().map(|(name, value)| (name.to_string(), text(value.as_bytes())));
    let (cookies, mut rest): (Pairs, Pairs) = all.partition(is_cookie);
    if !cookies.is_empty() {
        let values: Vec<String> = cookies.into_iter().map(|pair| pair.1).collect();
        rest.push(("cookie".to_owned(), values.join("; ")));
    }
    rest.sort();
    rest
}

/// A stream of the server.
struct Serving {
    number: usize,
    received: usize,
    sent: usize,
    has_head: bool,
    is_over: bool,
}

/// The server: it answers each request by its exchange, and checks the request.
struct Server<'e> {
    exchanges: &'e [Exchange],
    setup: &'e Setup,
    config: Config,
    connection: Connection,
    scratch: Scratch,
    out: Vec<u8>,
    serving: HashMap<u32, Serving>,
    parked: usize,
}

impl Server<'_> {
    fn exchange(&self, stream: StreamKey) -> &Exchange {
        &self.exchanges[self.serving[&stream.id()].number]
    }

    fn receive(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let step = self.connection.receive(rest, 0, &mut self.scratch, &mut self.out).unwrap();
            let (used, kept) = (step.used, keep(&step.event, rest));
            let key = match step.event {
                Event::Request { stream, .. }
                | Event::Data { stream, .. }
                | Event::Trailers { stream, .. }
                | Event::Reset { stream, .. }
                | Event::Failed { stream, .. } => Some(stream),
                _ => None,
            };
            self.happen(key, kept);
            rest = &rest[used..];
        }
    }

    fn happen(&mut self, key: Option<StreamKey>, kept: Option<Kept>) {
        let Some(kept) = kept else { return };
        match kept {
            Kept::Request(request) => {
                let stream = key.unwrap();
                let number: usize = request.target[2..].split('/').next().unwrap().parse().unwrap();
                let exchange = &self.exchanges[number];
                assert_eq!(request.method, exchange.method.as_str());
                assert_eq!(request.target, exchange.path);
                assert_eq!((&*request.host, request.scheme.as_deref()), ("a.test", Some("https")));
                let mut fields = request.fields.clone();
                fields.sort();
                let mut expected = map(&exchange.request.fields);
                if let Some(priority) = exchange.priority {
                    expected.append("priority", HeaderValue::from_static(priority));
                }
                assert_eq!(fields, sorted(&expected));
                let is_over = request.is_over;
                let serving = Serving { number, received: 0, sent: 0, has_head: false, is_over };
                self.serving.insert(stream.id(), serving);
            }
            Kept::Data(id, data, is_over) => {
                let stream = key.unwrap();
                let serving = self.serving.get_mut(&id).unwrap();
                assert_eq!(data, BODY[serving.received..][..data.len()]);
                serving.received += data.len();
                serving.is_over = is_over;
                self.connection.release(stream, data.len(), &mut self.out);
            }
            Kept::Trailers(id, mut fields) => {
                fields.sort();
                let expected = self.exchange(key.unwrap()).request.trailers.as_ref().unwrap();
                assert_eq!(fields, sorted(&map(expected)));
                self.serving.get_mut(&id).unwrap().is_over = true;
            }
            Kept::Reset(id, _) => drop(self.serving.remove(&id)),
            Kept::Opened(_) | Kept::GoAway(_) => {}
            other => panic!("{other:?}"),
        }
        let Some(stream) = key else { return };
        let Some(serving) = self.serving.get_mut(&stream.id()) else { return };
        let exchange = &self.exchanges[serving.number];
        if serving.is_over {
            assert_eq!(serving.received, exchange.request.body);
        }
        if (serving.is_over || exchange.is_eager) && !serving.has_head {
            serving.has_head = true;
            self.respond(stream);
        }
    }

    fn respond(&mut self, stream: StreamKey) {
        let exchange = self.exchange(stream).clone();
        for _ in 0..exchange.interims {
            let hints = StatusCode::from_u16(103).unwrap();
            self.connection.interim(stream, hints, &mut self.out).unwrap().finish();
        }
        let (fields, is_over) = (
            &exchange.response.fields,
            exchange.response.body == 0 && exchange.response.trailers.is_none(),
        );
        let status = StatusCode::from_u16(exchange.status).unwrap();
        let is_over = is_over && exchange.reset.is_none();
        let mut head = self.connection.respond(stream, status, is_over, &mut self.out).unwrap();
        let checked = |(name, value): &(String, String)| {
            (
                FieldName::new(name.as_bytes()).unwrap().as_bytes().to_vec(),
                FieldValue::new(value.as_bytes()).unwrap().as_bytes().to_vec(),
            )
        };
        for (at, pair) in fields.iter().enumerate() {
            let (name, value) = checked(pair);
            let (name, value) = (FieldName::new(&name).unwrap(), FieldValue::new(&value).unwrap());
            if at % 2 == 0 {
                head.field(name, value);
            } else {
                let mut prepared = PreparedFields::new();
                prepared.push(name, value);
                head.prepared(&prepared);
            }
        }
        head.finish();
        self.connection.set_ready(stream, !is_over);
    }

    /// Writes as much as the windows allow.
    fn write(&mut self) {
        // Those without a window for data may still end.
        let keys: Vec<StreamKey> = self.connection.keys().collect();
        for key in keys {
            self.write_end(key);
        }
        while let Some((key, capacity)) = self.connection.next_writable() {
            let exchange = self.exchange(key).clone();
            let sent = self.serving[&key.id()].sent;
            let end = exchange.reset.unwrap_or(usize::MAX).min(exchange.response.body);
            let count = capacity.min(end - sent);
            let data = &BODY[sent..sent + count];
            let is_over = sent + count == exchange.response.body
                && exchange.response.trailers.is_none()
                && exchange.reset.is_none();
            let written = self.connection.data(key, data, is_over, &mut self.out).unwrap();
            assert_eq!(written, count);
            self.serving.get_mut(&key.id()).unwrap().sent += count;
            self.write_end(key);
        }
    }

    fn write_end(&mut self, key: StreamKey) {
        let Some(serving) = self.serving.get(&key.id()) else { return };
        let exchange = &self.exchanges[serving.number];
        if !serving.has_head {
            return;
        }
        if exchange.reset.is_some_and(|at| serving.sent >= at.min(exchange.response.body)) {
            let _ = self.connection.reset(key, ErrorCode::INTERNAL_ERROR, &mut self.out);
        } else if serving.sent == exchange.response.body
            && let Some(trailers) = &exchange.response.trailers
            && let Ok(mut head) = self.connection.trailers(key, &mut self.out)
        {
            for (name, value) in trailers {
                let name = FieldName::new(name.as_bytes()).unwrap();
                head.field(name, FieldValue::new(value.as_bytes()).unwrap());
            }
            head.finish();
        } else {
            return;
        }
        self.connection.set_ready(key, false);
    }

    /// Replaces the connection by one that is made of its record.
    fn park(&mut self) {
        let keys: Vec<StreamKey> = self.connection.keys().collect();
        for key in keys {
            self.connection.set_held(key, true);
        }
        if self.setup.parks && self.connection.is_quiet() {
            let mut record = Vec::new();
            self.connection.to_record(&mut record);
            self.connection = Connection::from_record(self.config, &record).unwrap();
            self.parked += 1;
        }
    }

    async fn serve(mut self, mut io: DuplexStream) -> usize {
        let mut bytes = vec![0; self.setup.piece];
        let mut new_table = self.setup.new_table;
        loop {
            self.write();
            io.write_all(&std::mem::take(&mut self.out)).await.unwrap();
            self.park();
            let count = io.read(&mut bytes).await.unwrap();
            if count == 0 {
                return self.parked;
            }
            self.receive(&bytes[..count]);
            if let Some(size) = new_table
                && self.connection.requests() > 1
                && self.connection.set_table(size, &mut self.out)
            {
                new_table = None;
            }
        }
    }
}

async fn send_body(mut stream: SendStream<Bytes>, part: &Part) {
    let data = &BODY[..part.body];
    let mut at = 0;
    while at < data.len() {
        stream.reserve_capacity((data.len() - at).min(40_000));
        let capacity = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
        // The server may have reset it.
        let Some(Ok(capacity)) = capacity else { return };
        let end = (at + capacity).min(data.len());
        let is_over = end == data.len() && part.trailers.is_none();
        if stream.send_data(Bytes::copy_from_slice(&data[at..end]), is_over).is_err() {
            return;
        }
        at = end;
    }
    if let Some(trailers) = &part.trailers {
        let _ = stream.send_trailers(map(trailers));
    }
}

async fn receive_body(mut stream: RecvStream, exchange: &Exchange) {
    let mut received = 0;
    while let Some(data) = stream.data().await {
        let Ok(data) = data else {
            assert!(exchange.reset.is_some(), "{data:?}");
            return;
        };
        assert!(data == BODY[received..][..data.len()]);
        received += data.len();
        stream.flow_control().release_capacity(data.len()).unwrap();
    }
    match stream.trailers().await {
        Err(_) => assert!(exchange.reset.is_some()),
        Ok(trailers) => {
            assert_eq!(received, exchange.response.body);
            let expected = exchange.response.trailers.as_ref().map(|it| sorted(&map(it)));
            assert_eq!(trailers.as_ref().map(sorted), expected);
        }
    }
}

async fn exchange(client: SendRequest<Bytes>, exchange: &Exchange) {
    let mut request = Request::new(());
    *request.method_mut() = exchange.method.clone();
    *request.uri_mut() = format!("https://a.test{}", exchange.path).parse().unwrap();
    *request.headers_mut() = map(&exchange.request.fields);
    if let Some(priority) = exchange.priority {
        request.headers_mut().append("priority", HeaderValue::from_static(priority));
    }
    let is_over = exchange.request.body == 0 && exchange.request.trailers.is_none();
    let mut client = client.ready().await.unwrap();
    let (response, stream) = client.send_request(request, is_over).unwrap();
    let receive = async {
        match response.await {
            Err(error) => assert!(exchange.reset.is_some(), "{error}"),
            Ok(response) => {
                assert_eq!(response.status().as_u16(), exchange.status);
                let expected = sorted(&map(&exchange.response.fields));
                assert_eq!(sorted(response.headers()), expected);
                receive_body(response.into_body(), exchange).await;
            }
        }
    };
    let send = async {
        if !is_over {
            send_body(stream, &exchange.request).await;
        }
    };
    tokio::join!(receive, send);
}

/// Runs all exchanges over one connection. Returns how often it was parked.
fn run(setup: &Setup, exchanges: &[Exchange]) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        // No side reads while it waits to write, so there is room for all windows.
        let (near, far) = tokio::io::duplex(8 << 20);
        let limits = Limits { head: 64 << 10, ..Limits::DEFAULT };
        let config = Config { limits, table: setup.table, ..Config::DEFAULT };
        let mut out = Vec::new();
        let connection = Connection::new(config, &mut out);
        let server = Server {
            exchanges,
            setup,
            config,
            connection,
            scratch: Scratch::new(),
            out,
            serving: HashMap::new(),
            parked: 0,
        };
        let client = async move {
            let (client, connection) = Builder::new()
                .initial_window_size(setup.client_window)
                .initial_connection_window_size(setup.client_connection_window)
                .max_frame_size(setup.client_frame)
                .header_table_size(setup.client_table)
                .handshake::<_, Bytes>(near)
                .await
                .unwrap();
            let requests = async move {
                for group in exchanges.chunks(setup.at_a_time) {
                    let group = group.iter().map(|one| exchange(client.clone(), one));
                    join_all(group).await;
                }
                drop(client);
            };
            let (outcome, ()) = tokio::join!(connection, requests);
            outcome.unwrap();
        };
        let (parked, ()) = tokio::join!(server.serve(far), client);
        parked
    })
}

/// Waits for all futures.
async fn join_all(futures: impl Iterator<Item = impl Future<Output = ()>>) {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    std::future::poll_fn(|cx| {
        futures.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        match futures.is_empty() {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
}

fn fields() -> impl Strategy<Value = Pairs> {
    let name = prop::sample::select(vec![
        "accept",
        "x-a",
        "x-b",
        "user-agent",
        "authorization",
        "etag",
        "content-type",
        "x_y",
        "a-rather-long-name-that-no-table-has",
        "vary",
        "set-cookie",
    ]);
    let value = prop_oneof![
        6 => "[a-zA-Z0-9/;=,.*+-]{0,20}",
        2 => "[!-~]([ -~]{0,60}[!-~])?",
        2 => Just("text/html,application/xhtml+xml;q=0.9".to_owned()),
        1 => "[\u{a1}-\u{ff}]{1,10}",
        1 => (100..5000_usize).prop_map(|length| "v".repeat(length)),
    ];
    let pair = (name.prop_map(str::to_owned), value);
    prop::collection::vec(pair, 0..8)
}

fn part(is_request: bool) -> impl Strategy<Value = Part> {
    let length =
        prop_oneof![3 => Just(0), 3 => 1..500_usize, 2 => 1..40_000_usize, 1 => 1..LONGEST];
    let trailers = prop::option::weighted(0.2, fields());
    let cookies = prop::collection::vec("[a-z]{1,5}=[A-Z0-9]{0,9}", 0..4);
    (fields(), length, trailers, cookies).prop_map(move |(mut fields, body, trailers, cookies)| {
        if is_request {
            fields.retain(|pair| pair.0 != "set-cookie");
            fields.extend(cookies.into_iter().map(|value| ("cookie".to_owned(), value)));
        }
        Part { fields, body, trailers }
    })
}

fn exchanges() -> impl Strategy<Value = Vec<Exchange>> {
    let one = (
        prop::sample::select(vec![Method::GET, Method::POST, Method::PUT, Method::DELETE]),
        "[a-zA-Z0-9/?=&%.~]{0,30}",
        (part(true), part(false)),
        prop::sample::select(vec![200_u16, 200, 204, 206, 301, 304, 400, 404, 500, 503]),
        0..3_u8,
        prop::option::weighted(0.1, 0..30_000_usize),
        any::<bool>(),
        prop::sample::select(vec![None, None, Some("u=1"), Some("u=3, i"), Some("u=7")]),
    );
    let one = one.prop_map(
        |(method, path, (request, mut response), status, interims, reset, is_eager, priority)| {
            // h2 lets these have no body.
            if matches!(status, 204 | 304) {
                response.body = 0;
            }
            Exchange {
                method,
                path,
                request,
                response,
                status,
                interims,
                reset,
                is_eager,
                priority,
            }
        },
    );
    prop::collection::vec(one, 1..12).prop_map(|mut all| {
        for (number, exchange) in all.iter_mut().enumerate() {
            exchange.path = format!("/n{number}/{}", exchange.path).replacen("/n", "/", 1);
            exchange.path.insert(1, 'n');
        }
        all
    })
}

fn setups() -> impl Strategy<Value = Setup> {
    let window = prop_oneof![1 => 1..100_u32, 6 => 100..70_000_u32, 2 => Just(1 << 20)];
    let parts = (
        window,
        65_535..300_000_u32,
        16_384..100_000_u32,
        prop::sample::select(vec![0_u32, 100, 4096, 65_536]),
        prop::sample::select(vec![0_u16, 100, 4096]),
        prop::option::of(prop::sample::select(vec![0_u16, 64, 4096])),
        prop_oneof![1 => 1..20_usize, 3 => Just(16_384)],
        any::<bool>(),
        1..12_usize,
    );
    parts.prop_map(
        |(window, connection, frame, client_table, table, new_table, piece, parks, at_a_time)| {
            Setup {
                client_window: window,
                client_connection_window: connection,
                client_frame: frame,
                client_table,
                table,
                new_table,
                piece,
                parks,
                at_a_time,
            }
        },
    )
}

proptest! {
    #![proptest_config(crate::model::cases(200))]

    #[test]
    fn the_client_of_h2_and_our_server_understand_each_other(
        setup in setups(),
        exchanges in exchanges(),
    ) {
        run(&setup, &exchanges);
    }
}

#[test]
fn a_connection_is_parked_between_requests_and_within_them() {
    let part =
        |body| Part { fields: vec![("x-a".to_owned(), "b".to_owned())], body, trailers: None };
    let exchanges: Vec<Exchange> = (0..20)
        .map(|number| Exchange {
            method: Method::POST,
            path: format!("/n{number}/"),
            request: part(number * 30),
            response: part(number * 30),
            status: 200,
            interims: 0,
            reset: None,
            is_eager: number % 2 == 0,
            priority: None,
        })
        .collect();
    let setup = Setup {
        client_window: 65_535,
        client_connection_window: 65_535,
        client_frame: 16_384,
        client_table: 4096,
        table: 4096,
        new_table: Some(0),
        piece: 4096,
        parks: true,
        at_a_time: 1,
    };
    let parked = run(&setup, &exchanges);
    assert!(parked >= 20, "{parked}");
}
