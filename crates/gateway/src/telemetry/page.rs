//! The live page: the activity of the engines, once a second, by a WebSocket of its own.
//!
//! The page is one document without any other asset. It shows the inside of the server, so that
//! only programs on this machine see it, unless the configuration says otherwise (see
//! [`guard`](superpoll_http::telemetry::guard)). The figures are the plain counters; the page
//! computes rates and ratios from two snapshots.
//!
//! The work for a page must not grow with the connections and channels of the server: it gets a
//! snapshot, and none of the state of each channel that [`Counts`](super::overview::Counts) are
//! made from. A page that shows several processes continues with the last counters of one that does
//! not answer, as long as it exists: otherwise its sums would fall, and come back as a burst.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_tungstenite::WebSocketStream;
use async_tungstenite::tungstenite::handshake::server::create_response_with_body;
use async_tungstenite::tungstenite::protocol::{Message, Role, WebSocketConfig};
use bytes::Bytes;
use futures_lite::{StreamExt, future};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, UPGRADE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use serde::Serialize;
use superpoll_http::body::Body;
use superpoll_http::cors;
use superpoll_http::exchange::Exchange;
use superpoll_http::io_activity::IoActivity;
use superpoll_http::peer::Peer;
use superpoll_http::reply;
use superpoll_http::telemetry::snapshot::{Engine, Snapshot};
use superpoll_http::telemetry::traffic::{ChannelName, Processes, Traffic, exists};
use superpoll_http::telemetry::verdict::{WatchingCost, verdict};
use superpoll_http::transport::Transport;
use superpoll_http::upload::Upload;
use superpoll_rt::time::sleep;

use super::overview::{Overview, PAGE};
use crate::processes;

/// The time between two messages to a page.
const PERIOD: Duration = Duration::from_secs(1);

/// The largest message that a page may send: it has no messages of its own.
const LARGEST: usize = 1024;

const DOCUMENT: &str = include_str!("../../page/index.html");

/// The permissions of the document: it may use only its own content, and talk to this server.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

impl Overview {
    /// Answers a request below [`PAGE`].
    pub(crate) async fn page(
        self: Arc<Self>,
        request: Request<Upload>,
        exchange: &Exchange,
    ) -> Response<Body> {
        match request.uri().path().strip_prefix(PAGE) {
            Some("") if matches!(*request.method(), Method::GET | Method::HEAD) => document(),
            Some("") => reply::not_allowed("GET, HEAD"),
            Some("live") => live(self, request, exchange),
            _ => reply::status(StatusCode::NOT_FOUND),
        }
    }
}

fn document() -> Response<Body> {
    let mut response = Response::new(Body::from(Bytes::from_static(DOCUMENT.as_bytes())));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

fn live(overview: Arc<Overview>, request: Request<Upload>, exchange: &Exchange) -> Response<Body> {
    if !exchange.can_take_over() || !request.headers().contains_key(UPGRADE) {
        let mut response = reply::status(StatusCode::UPGRADE_REQUIRED);
        response.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
        return response;
    }
    match cors::of_another_site(request.headers(), request.uri()) {
        Ok(None) => {}
        Ok(Some(_)) => return reply::status(StatusCode::FORBIDDEN),
        Err(status) => return reply::status(status),
    }
    let Ok(response) = create_response_with_body(&request, Body::empty) else {
        return reply::status(StatusCode::BAD_REQUEST);
    };
    let peer: Rc<Peer> = exchange.peer().clone();
    let admitted = peer.permit.begin_request();
    let io_activity = exchange.io_activity.clone();
    exchange.take_over(move |transport, before| {
        Box::pin(async move {
            // The peer holds its permit as long as the page continues.
            let _peer = (peer, admitted);
            // A page that is closed is no failure.
            let _ = send_snapshots(overview, transport, before, &io_activity).await;
        })
    });
    response
}

async fn send_snapshots(
    overview: Arc<Overview>,
    transport: Transport,
    before: Bytes,
    io_activity: &IoActivity,
) -> Result<(), async_tungstenite::tungstenite::Error> {
    let config = WebSocketConfig::default()
        .read_buffer_size(LARGEST)
        .write_buffer_size(0)
        .max_message_size(Some(LARGEST))
        .max_frame_size(Some(LARGEST));
    let mut socket = WebSocketStream::from_partially_read(
        transport,
        before.to_vec(),
        Role::Server,
        Some(config),
    )
    .await;
    let mut page = PageProcesses::default();
    loop {
        let Some(text) = overview.page_text(&mut page).await else { return Ok(()) };
        socket.send(Message::text(text)).await?;
        io_activity.note_active();
        let mut rest = Box::pin(sleep(PERIOD));
        loop {
            let reads = async { Some(socket.next().await) };
            let rests = async {
                rest.as_mut().await;
                None
            };
            match future::or(reads, rests).await {
                None => break,
                // The library answers pings; a page sends nothing else.
                Some(Some(Ok(_))) => {}
                Some(Some(Err(error))) => return Err(error),
                Some(None) => return Ok(()),
            }
        }
        if overview.is_ending() {
            return socket.close(None).await;
        }
    }
}

// The messages.

/// The processes of a server as a page has seen them.
#[derive(Debug, Default)]
struct PageProcesses {
    traffic: Processes,
    /// The engines by the place and the number of their process.
    engines: BTreeMap<(u32, u32), Snapshot>,
    /// The engines of the last message.
    last: Vec<Engine>,
}

impl PageProcesses {
    /// Takes the answers of processes, and returns the sum over all that exist. `None`: there is
    /// none.
    fn sum(
        &mut self,
        answers: impl IntoIterator<Item = ((u32, u32), Snapshot)>,
        exists: impl Fn(u32) -> bool,
    ) -> Option<Snapshot> {
        let mut last = std::mem::take(&mut self.engines);
        self.engines.extend(answers);
        last.retain(|at, _| !self.engines.contains_key(at) && exists(at.1));
        self.engines.append(&mut last);
        let mut all = self.engines.values();
        let mut sum = all.next()?.clone();
        all.for_each(|engines| sum.add(engines.clone()));
        Some(sum)
    }

    /// Returns the ratio and what watching has cost since the last message, in one line.
    fn verdict(&mut self, now: &Snapshot) -> Option<String> {
        let last = std::mem::replace(&mut self.last, now.engines.clone());
        let ratio = now.active_ratio?;
        let cost = WatchingCost::between(&last, &now.engines, ratio.last_second.connections);
        Some(verdict(&ratio, cost.as_ref()))
    }
}

/// The figures at one moment, as the live page gets them.
#[derive(Debug, Serialize)]
struct PageStatus {
    /// With the last figures of processes that have not answered.
    #[serde(flatten)]
    snapshot: Snapshot,
    /// The ratio, the cost of watching since the last message, and the cost of `poll`.
    verdict: Option<String>,
}

impl Overview {
    /// Returns the engines of this process for the other ones, in bytes.
    pub(crate) async fn encoded_engines(&self) -> Option<Vec<u8>> {
        let slot = self.link().map(|link| link.slot())?;
        postcard::to_allocvec(&((slot, std::process::id()), self.snapshot().await)).ok()
    }

    /// Returns the traffic of this process for the other ones, in bytes.
    pub(crate) async fn encoded_traffic(&self, channels: &[ChannelName]) -> Option<Vec<u8>> {
        postcard::to_allocvec(&(std::process::id(), self.traffic(channels).await)).ok()
    }

    /// Returns the traffic of all processes of the server.
    async fn traffic_of_all(&self, processes: &mut Processes) -> Traffic {
        let mut traffic = match self.link() {
            None => self.traffic(&[]).await,
            Some(link) => {
                let asked = processes::Question::Traffic(processes.wanted());
                let (all, _) = link.collect(asked).await.unwrap_or_default();
                processes.sum(all.iter().filter_map(|bytes| postcard::from_bytes(bytes).ok()))
            }
        };
        traffic.limit();
        traffic
    }

    /// Returns the status for the live page, in JSON.
    async fn page_text(&self, page: &mut PageProcesses) -> Option<String> {
        let mut snapshot = self.snapshot().await;
        if let Some(link) = self.link() {
            let asked = link.collect(processes::Question::Engines).await;
            let (all, missing) = asked.unwrap_or_default();
            let answers = all.iter().filter_map(|bytes| postcard::from_bytes(bytes).ok());
            snapshot = page.sum(answers, exists).unwrap_or(snapshot);
            snapshot.missing_processes = missing;
        }
        let verdict = page.verdict(&snapshot);
        snapshot.traffic = Some(self.traffic_of_all(&mut page.traffic).await);
        serde_json::to_string(&PageStatus { snapshot, verdict }).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use superpoll_hub::broker::Brokers;
    use superpoll_hub::channel::{Registry, VISITED};
    use superpoll_rt::Runtime;

    use super::*;
    use crate::Config;

    fn of(started_seconds: u64, connections: u64) -> Snapshot {
        Snapshot { started_seconds, connections, ..Snapshot::default() }
    }

    #[test]
    fn a_silent_process_keeps_its_place_and_the_start_of_the_server_until_it_has_ended() {
        let mut page = PageProcesses::default();
        let mut sum = |answers: &[((u32, u32), Snapshot)], ended: u32| {
            let sum = page.sum(answers.iter().cloned(), |process| process != ended).unwrap();
            (sum.started_seconds, sum.connections)
        };
        let (oldest, other) = (((0, 41), of(100, 5)), ((1, 42), of(200, 7)));
        assert_eq!(sum(&[oldest.clone(), other.clone()], 0), (100, 12));
        // The oldest one does not answer: the page would begin again with another start.
        assert_eq!(sum(&[((1, 42), of(200, 8))], 0), (100, 13));
        assert_eq!(sum(&[], 0), (100, 13));
        assert_eq!(sum(&[oldest, other], 0), (100, 12));
        assert_eq!(sum(&[((0, 43), of(300, 1)), ((1, 42), of(200, 7))], 41), (200, 8));
        assert!(PageProcesses::default().sum([], |_| true).is_none());
    }

    /// A page is open for a while on a server of many channels: they are looked at once, and for
    /// metrics each time.
    #[test]
    fn the_work_for_a_page_does_not_grow_with_the_channels() {
        const CHANNELS: usize = 5000;
        const MESSAGES: usize = 20;
        let runtime = Runtime::new().unwrap();
        let text = "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\n\
                    path = \"/c/{name}\"\nchannel = { max_channels = 9000 }\n";
        let config = Config::parse("test.toml", text).unwrap();
        let registry = Registry::default().next_with(&config, Brokers::default());
        for number in 0..CHANNELS {
            registry.routes()[0].channel(&format!("/c/{number}").into()).unwrap();
        }
        let (handle, limits) = (runtime.handle(), Arc::default());
        let overview = Overview::new(handle, "", vec![Arc::default()], limits, Arc::default());
        let overview = Arc::new(overview);
        overview.describe(
            registry,
            Vec::new(),
            Overview::requests_of(&config, 1, &overview.requests()),
            Vec::new(),
        );
        runtime.block_on(async move {
            let begun = std::time::Instant::now();
            VISITED.set(0);
            let mut page = PageProcesses::default();
            let mut text = String::new();
            for _ in 0..MESSAGES {
                text = overview.page_text(&mut page).await.unwrap();
                // The look continues meanwhile.
                while overview.is_looking() {
                    superpoll_rt::time::sleep(std::time::Duration::from_millis(1)).await;
                }
            }
            assert!(text.contains(&format!("\"count\":{CHANNELS}")), "{text}");
            // There is one look a second at most.
            let (visited, seconds) = (VISITED.get(), begun.elapsed().as_secs() as usize);
            assert!((CHANNELS..=CHANNELS * (seconds + 1)).contains(&visited), "{visited}");
            VISITED.set(0);
            assert!(overview.collect().await.channels.len() == 1 && VISITED.get() >= CHANNELS);
        });
    }
}
