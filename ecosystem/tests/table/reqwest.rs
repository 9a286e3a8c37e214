//! reqwest: many requests at a time, and many over one connection.

use std::cell::Cell;
use std::rc::Rc;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::server::conn::auto;
use superpoll_ecosystem::Row;
use superpoll_rt::hyper::EngineExecutor;
use superpoll_rt::net::TcpListener;
use superpoll_rt::{JoinSet, spawn};

pub(crate) fn rows() -> impl Iterator<Item = Row> {
    [
        Row::new("reqwest", "100 concurrent requests", concurrent),
        Row::new("reqwest", "connection reuse", reuse),
    ]
    .into_iter()
}

/// Sends each request's body back, and counts the connections.
async fn echo(listener: TcpListener, accepted: Rc<Cell<usize>>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        accepted.set(accepted.get() + 1);
        spawn(async move {
            let answer = async |request: Request<Incoming>| {
                Ok::<_, hyper::Error>(Response::new(request.into_body()))
            };
            let server = auto::Builder::new(EngineExecutor);
            // A client that leaves is an error that hyper has handled.
            let _ = server.serve_connection(stream, service_fn(answer)).await;
        })
        .detach();
    }
}

async fn server() -> (String, Rc<Cell<usize>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let accepted = Rc::<Cell<usize>>::default();
    spawn(echo(listener, accepted.clone())).detach();
    (url, accepted)
}

async fn concurrent() {
    let (url, accepted) = server().await;
    let client = reqwest::Client::new();
    let mut tasks = JoinSet::new();
    for number in 0..100 {
        let request = client.post(&url).body(format!("body {number}"));
        tasks.spawn(async move {
            let answer = request.send().await.unwrap().text().await.unwrap();
            assert_eq!(answer, format!("body {number}"));
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert!(accepted.get() <= 100, "{} connections", accepted.get());
}

async fn reuse() {
    let (url, accepted) = server().await;
    let client = reqwest::Client::new();
    for number in 0..50 {
        let request = client.post(&url).body(format!("body {number}"));
        let answer = request.send().await.unwrap().text().await.unwrap();
        assert_eq!(answer, format!("body {number}"));
    }
    assert!(accepted.get() < 50, "{} connections for 50 requests", accepted.get());
}
