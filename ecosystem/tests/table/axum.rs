//! axum: routes, events with keep-alive, WebSockets and multipart forms.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::{Multipart, Path, State, WebSocketUpgrade, ws};
use axum::http::StatusCode;
use axum::response::Response;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::{SinkExt, StreamExt, stream};
use hyper_util::service::TowerToHyperService;
use superpoll_ecosystem::Row;
use superpoll_rt::net::TcpListener;
use superpoll_rt::serve;
use tokio_tungstenite::tungstenite::Message;

use crate::spawn_apart;

pub(crate) const PAUSE: Duration = Duration::from_millis(30);

pub(crate) fn rows() -> impl Iterator<Item = Row> {
    [
        Row::new("axum", "routes, state and JSON", routes),
        Row::new("axum", "server-sent events with keep-alive", events),
        Row::new("axum", "WebSocket", web_socket),
        Row::new("axum", "multipart form", form),
    ]
    .into_iter()
}

/// Serves a router on an engine of the runtime.
pub(crate) async fn site(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    spawn_apart(|| serve(listener, TowerToHyperService::new(router)));
    address
}

async fn routes() {
    async fn greet(Path(name): Path<String>, State(greeting): State<&'static str>) -> String {
        format!("{greeting}, {name}")
    }
    async fn double(Json(number): Json<u64>) -> Json<u64> {
        Json(2 * number)
    }
    let router = Router::new().route("/hello/{name}", get(greet)).route("/double", post(double));
    let address = site(router.with_state("hello")).await;
    let client = reqwest::Client::new();
    let greeting = client.get(format!("http://{address}/hello/world")).send().await.unwrap();
    assert_eq!(greeting.text().await.unwrap(), "hello, world");
    let doubled = client.post(format!("http://{address}/double")).json(&21).send().await.unwrap();
    assert_eq!(doubled.json::<u64>().await.unwrap(), 42);
    let unknown = client.get(format!("http://{address}/unknown")).send().await.unwrap();
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND);
}

async fn events() {
    async fn one() -> Sse<impl stream::Stream<Item = Result<Event, Infallible>>> {
        // The first event, then silence, in which comments keep the connection alive.
        let events = stream::once(async { Ok(Event::default().data("first")) });
        let events = events.chain(stream::pending());
        Sse::new(events).keep_alive(KeepAlive::new().interval(PAUSE).text("still here"))
    }
    let address = site(Router::new().route("/", get(one))).await;
    let answer = reqwest::get(format!("http://{address}/")).await.unwrap();
    let mut body = answer.bytes_stream();
    let mut text = String::new();
    while text.matches("still here").count() < 3 {
        text += std::str::from_utf8(&body.next().await.unwrap().unwrap()).unwrap();
    }
    assert!(text.starts_with("data: first\n\n"), "{text}");
}

async fn web_socket() {
    async fn echo(upgrade: WebSocketUpgrade) -> Response {
        upgrade.on_upgrade(|mut socket| async move {
            while let Some(Ok(message)) = socket.recv().await {
                if let ws::Message::Text(text) = message {
                    let echoed = ws::Message::Text(format!("echo: {text}").into());
                    if socket.send(echoed).await.is_err() {
                        return;
                    }
                }
            }
        })
    }
    let address = site(Router::new().route("/", get(echo))).await;
    let url = format!("ws://{address}/");
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    for number in 0..5 {
        // The server waits for the message by then.
        tokio::time::sleep(PAUSE).await;
        socket.send(Message::text(format!("message {number}"))).await.unwrap();
        let echoed = socket.next().await.unwrap().unwrap();
        assert_eq!(echoed.to_text().unwrap(), format!("echo: message {number}"));
    }
    socket.close(None).await.unwrap();
    while let Some(message) = socket.next().await {
        assert!(message.unwrap().is_close());
    }
}

async fn form() {
    async fn lengths(mut form: Multipart) -> Result<String, StatusCode> {
        let mut all = Vec::new();
        while let Some(field) = form.next_field().await.map_err(|_| StatusCode::BAD_REQUEST)? {
            let name = field.name().unwrap_or_default().to_owned();
            let bytes = field.bytes().await.map_err(|_| StatusCode::BAD_REQUEST)?;
            all.push(format!("{name}={}", bytes.len()));
        }
        Ok(all.join(" "))
    }
    let address = site(Router::new().route("/", post(lengths))).await;
    let parts = reqwest::multipart::Form::new().text("one", "1").text("two", "x".repeat(1_000_000));
    let request = reqwest::Client::new().post(format!("http://{address}/")).multipart(parts);
    let answer = request.send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "one=1 two=1000000");
}
