//! The layers of tower-http that need timers, threads or spans.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::get;
use flate2::read::GzDecoder;
use superpoll_ecosystem::Row;
use tower_http::compression::CompressionLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;
use tracing::Span;

use crate::axum::{PAUSE, site};

pub(crate) fn rows() -> impl Iterator<Item = Row> {
    [
        Row::new("tower-http", "`TimeoutLayer`", time_limit),
        Row::new("tower-http", "`CompressionLayer`", compression),
        Row::new("tower-http", "`TraceLayer`", trace),
    ]
    .into_iter()
}

async fn time_limit() {
    async fn slow() -> &'static str {
        tokio::time::sleep(Duration::from_secs(1000)).await;
        "late"
    }
    let layer = TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, PAUSE);
    let router = Router::new().route("/slow", get(slow)).route("/", get(async || "in time"));
    let address = site(router.layer(layer)).await;
    let slow = reqwest::get(format!("http://{address}/slow")).await.unwrap();
    assert_eq!(slow.status(), StatusCode::REQUEST_TIMEOUT);
    let fast = reqwest::get(format!("http://{address}/")).await.unwrap();
    assert_eq!(fast.text().await.unwrap(), "in time");
}

async fn compression() {
    let router = Router::new().route("/", get(async || "compress me ".repeat(10_000)));
    let address = site(router.layer(CompressionLayer::new())).await;
    let request = reqwest::Client::new().get(format!("http://{address}/"));
    let answer = request.header("accept-encoding", "gzip").send().await.unwrap();
    assert_eq!(answer.headers()["content-encoding"], "gzip");
    let bytes = answer.bytes().await.unwrap();
    let text = std::io::read_to_string(GzDecoder::new(&bytes[..])).unwrap();
    assert!(bytes.len() < 10_000, "{} bytes", bytes.len());
    assert_eq!(text, "compress me ".repeat(10_000));
}

async fn trace() {
    let seen = Arc::new(AtomicUsize::new(0));
    let (requests, answers) = (seen.clone(), seen.clone());
    let layer = TraceLayer::new_for_http()
        .on_request(move |_: &Request<Body>, _: &Span| {
            requests.fetch_add(1, Ordering::SeqCst);
        })
        .on_response(move |_: &axum::http::Response<_>, _: Duration, _: &Span| {
            answers.fetch_add(100, Ordering::SeqCst);
        });
    let address = site(Router::new().route("/", get(async || "traced")).layer(layer)).await;
    for _ in 0..3 {
        let answer = reqwest::get(format!("http://{address}/")).await.unwrap();
        assert_eq!(answer.text().await.unwrap(), "traced");
    }
    assert_eq!(seen.load(Ordering::SeqCst), 303);
}
