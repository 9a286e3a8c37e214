//! `serve` and the pooled client of `hyper-util` on this runtime.

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use superpoll_rt::hyper::{Connector, EngineExecutor, EngineTimer};
use superpoll_rt::net::{TcpListener, TcpStream};
use superpoll_rt::{BackendKind, JoinSet, Runtime, serve, serve_until, spawn, time};
use superpoll_test_support::alone;

type Body = Full<Bytes>;

async fn echo(request: Request<Incoming>) -> Result<Response<Body>, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    Ok(Response::new(Full::new(body)))
}

fn each(test: impl AsyncFn()) {
    for backend in BackendKind::available() {
        eprintln!("back-end {backend}");
        Runtime::builder().backend(backend).build().unwrap().block_on(test());
    }
}

#[test]
fn many_requests_share_the_connections_of_a_pool() {
    // It needs a thousand descriptors, which the tests of a process have together.
    alone(|| {
        each(async || {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            spawn(serve(listener, service_fn(echo))).detach();
            let client = Client::builder(EngineExecutor)
                .pool_timer(EngineTimer)
                .pool_idle_timeout(Duration::from_secs(30))
                .build::<_, Body>(Connector);
            for _ in 0..2 {
                let mut tasks = JoinSet::new();
                for number in 0..500 {
                    let client = client.clone();
                    tasks.spawn(async move {
                        let text = format!("request {number}");
                        let request = Request::post(format!("http://{address}/"))
                            .body(Full::from(text.clone()))
                            .unwrap();
                        let answer = client.request(request).await.unwrap();
                        let body = answer.into_body().collect().await.unwrap().to_bytes();
                        assert_eq!(body, text);
                    });
                }
                while let Some(done) = tasks.join_next().await {
                    done.unwrap();
                }
            }
        });
    });
}

#[test]
fn a_connection_is_used_again() {
    each(async || {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Rc::new(Cell::new(0));
        let counted = accepted.clone();
        spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                counted.set(counted.get() + 1);
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(stream, service_fn(echo));
                spawn(connection).detach();
            }
        })
        .detach();
        let client = Client::builder(EngineExecutor).build::<_, Body>(Connector);
        for _ in 0..20 {
            let request = Request::post(format!("http://{address}/")).body(Full::from("x"));
            let answer = client.request(request.unwrap()).await.unwrap();
            assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "x");
            // The connection goes back to the pool in a task of its own.
            time::sleep(Duration::from_millis(1)).await;
        }
        assert!(accepted.get() < 20, "{} connections for 20 requests", accepted.get());
    });
}

#[test]
fn other_schemes_and_refused_connections_are_errors() {
    each(async || {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let client = Client::builder(EngineExecutor).build::<_, Body>(Connector);
        for (uri, cause) in
            [(format!("http://{closed}/"), "refused"), (format!("https://{closed}/"), "http: only")]
        {
            let error = client.get(uri.parse().unwrap()).await.unwrap_err();
            let mut causes = String::new();
            let mut source: Option<&dyn std::error::Error> = Some(&error);
            while let Some(error) = source {
                causes += &format!("{error}; ");
                source = error.source();
            }
            assert!(causes.contains(cause), "{causes}");
        }
    });
}

#[test]
fn a_server_that_ends_answers_what_has_arrived() {
    each(async || {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (arrived, arrives) = async_channel::bounded::<()>(1);
        let (release, released) = async_channel::bounded::<()>(1);
        let slow = service_fn(move |_: Request<Incoming>| {
            let (arrived, released) = (arrived.clone(), released.clone());
            async move {
                arrived.send(()).await.unwrap();
                released.recv().await.unwrap();
                Ok::<_, Infallible>(Response::new(Body::from("late")))
            }
        });
        let end = async move { arrives.recv().await.unwrap() };
        let server = spawn(serve_until(listener, slow, end, Duration::from_secs(30)));
        let client = Client::builder(EngineExecutor).build::<_, Body>(Connector);
        let uri: hyper::Uri = format!("http://{address}/").parse().unwrap();
        let asked = spawn(async move {
            let answer = client.get(uri).await.unwrap();
            answer.into_body().collect().await.unwrap().to_bytes()
        });
        // The listener closes as soon as the request has arrived.
        while TcpStream::connect(address).await.is_ok() {
            time::sleep(Duration::from_millis(1)).await;
        }
        release.send(()).await.unwrap();
        assert_eq!(asked.await.unwrap(), "late");
        assert!(server.await.unwrap().unwrap(), "all connections have ended");
    });
}
