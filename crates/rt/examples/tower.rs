//! A tower service behind hyper: a time limit and a limit on concurrent requests, as layers.
//!
//! `/` answers at once. `/never` does not, and the time limit ends it with status 504. `/most`
//! returns how many requests were at work at a time, which is never more than four.
//!
//! tower's own time limit is made for tokio's timer. `TimeLimit` is a time limit for this
//! runtime's.
//!
//! Try it with `cargo run --example tower -- --listen 127.0.0.1:8080` and
//! `curl -i http://127.0.0.1:8080/never`.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use superpoll_rt::hyper::EngineExecutor;
use superpoll_rt::time::timeout;
use superpoll_rt::{spawn, yield_now};
use tower::{Service, ServiceBuilder};

mod options;

/// Requests at work at a time, over all connections.
const AT_A_TIME: usize = 4;

/// How long a request may take.
const LIMIT: Duration = Duration::from_millis(200);

type Answer = Response<Full<Bytes>>;

fn main() -> std::process::ExitCode {
    options::run("Answers HTTP through a stack of tower layers.", async |listener| {
        let load = Rc::new(Load::default());
        let service = ServiceBuilder::new()
            .concurrency_limit(AT_A_TIME)
            .layer_fn(|inner| TimeLimit { inner, limit: LIMIT })
            .service_fn(move |request| answer(load.clone(), request));
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let service = TowerToHyperService::new(service.clone());
            let server = auto::Builder::new(EngineExecutor);
            spawn(async move {
                // hyper has reported the error to the client, if it still listens.
                let _ = server.serve_connection(stream, service).await;
            })
            .detach();
        }
    })
}

/// The number of requests at work, now and at most.
#[derive(Default)]
struct Load {
    now: Cell<usize>,
    most: Cell<usize>,
}

/// A request at work, until it is dropped.
struct AtWork(Rc<Load>);

impl AtWork {
    fn begin(load: Rc<Load>) -> AtWork {
        load.now.set(load.now.get() + 1);
        load.most.set(load.most.get().max(load.now.get()));
        AtWork(load)
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.now.set(self.0.now.get() - 1);
    }
}

async fn answer(load: Rc<Load>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    let at_work = AtWork::begin(load);
    Ok(match request.uri().path() {
        "/" => {
            // Other requests come in meanwhile.
            yield_now().await;
            text(StatusCode::OK, "OK\n".into())
        }
        "/never" => pending().await,
        "/most" => text(StatusCode::OK, at_work.0.most.get().to_string()),
        _ => text(StatusCode::NOT_FOUND, "there are /, /never and /most\n".into()),
    })
}

fn text(status: StatusCode, text: String) -> Answer {
    let mut answer = Response::new(Full::from(text));
    *answer.status_mut() = status;
    answer
}

/// Ends requests that take too long, and answers in their place.
#[derive(Clone)]
struct TimeLimit<S> {
    inner: S,
    limit: Duration,
}

impl<S, R> Service<R> for TimeLimit<S>
where
    S: Service<R, Response = Answer>,
    S::Future: 'static,
    S::Error: 'static,
{
    type Response = Answer;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, S::Error>>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let limited = timeout(self.limit, self.inner.call(request));
        Box::pin(async {
            limited.await.unwrap_or_else(|elapsed| {
                Ok(text(StatusCode::GATEWAY_TIMEOUT, format!("{elapsed}\n")))
            })
        })
    }
}
