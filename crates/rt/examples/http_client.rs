//! An HTTP client that keeps its connections: 500 concurrent requests, over HTTP/1.1 with a limit
//! and over HTTP/2 on one connection. The server of this program counts the connections.

use std::cell::Cell;
use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::rc::Rc;

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::Response;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::client::legacy::{self, Client};
use hyper_util::server::conn::auto;
use superpoll_rt::hyper::{Connector, EngineExecutor, EngineTimer};
use superpoll_rt::net::TcpListener;
use superpoll_rt::{JoinSet, Runtime, spawn};

const REQUESTS: usize = 500;

/// The number of HTTP/1.1 requests that are under way at a time. A client without such a limit
/// opens a connection for each.
const LIMIT: usize = 20;

type Body = Full<Bytes>;

fn main() -> Result<(), Box<dyn Error>> {
    Runtime::new()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let accepted = Rc::<Cell<usize>>::default();
        spawn(serve(listener, accepted.clone())).detach();

        let client = builder().build(Connector);
        ask_all(&client, address, LIMIT).await?;
        let connections = accepted.replace(0);
        println!("HTTP/1.1: {REQUESTS} requests, {connections} connections");
        assert!(connections < REQUESTS / 2, "the connections are used again");

        let client = builder().http2_only(true).build(Connector);
        ask_all(&client, address, REQUESTS).await?;
        let connections = accepted.replace(0);
        println!("HTTP/2: {REQUESTS} requests, {connections} connection");
        assert_eq!(connections, 1, "the requests share a connection");
        Ok(())
    })
}

fn builder() -> legacy::Builder {
    let mut builder = Client::builder(EngineExecutor);
    builder.pool_timer(EngineTimer).timer(EngineTimer);
    builder
}

/// Sends the requests, at most `limit` at a time, and checks each answer.
async fn ask_all(
    client: &Client<Connector, Body>,
    address: SocketAddr,
    limit: usize,
) -> Result<(), Box<dyn Error>> {
    // Each task holds a permit while its request is under way.
    let (give_back, permits) = async_channel::bounded(limit);
    for _ in 0..limit {
        give_back.send(()).await?;
    }
    let mut tasks = JoinSet::new();
    for number in 0..REQUESTS {
        let (client, permits, give_back) = (client.clone(), permits.clone(), give_back.clone());
        tasks.spawn(async move {
            permits.recv().await.expect("this task can give it back");
            let echoed = ask(&client, address, format!("request {number}")).await;
            give_back.send(()).await.expect("this task can take it");
            echoed.map(|body| body == format!("request {number}"))
        });
    }
    while let Some(is_right) = tasks.join_next().await {
        assert!(is_right??, "the server sends back what it got");
    }
    Ok(())
}

async fn ask(
    client: &Client<Connector, Body>,
    address: SocketAddr,
    text: String,
) -> Result<Bytes, Box<dyn Error>> {
    let request = Request::post(format!("http://{address}/")).body(Full::from(text))?;
    let answer = client.request(request).await?;
    Ok(answer.into_body().collect().await?.to_bytes())
}

/// Sends back the body of each request, and counts the connections.
async fn serve(listener: TcpListener, accepted: Rc<Cell<usize>>) -> std::io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        accepted.set(accepted.get() + 1);
        let echo = async |request: Request<Incoming>| {
            Ok::<_, Infallible>(Response::new(request.into_body()))
        };
        spawn(async move {
            let server = auto::Builder::new(EngineExecutor);
            // The client ends its connections with the program.
            let _ = server.serve_connection(stream, service_fn(echo)).await;
        })
        .detach();
    }
}
