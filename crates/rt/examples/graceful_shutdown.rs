//! A server that ends in order: `SIGTERM` comes while a request is being answered. The answer still
//! arrives, new connections are refused, and `serve_until` returns.

use std::convert::Infallible;
use std::error::Error;
use std::process::{Command, id};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use superpoll_rt::blocking::unblock;
use superpoll_rt::hyper::{Connector, EngineExecutor};
use superpoll_rt::net::{TcpListener, TcpStream};
use superpoll_rt::signal::{SignalKind, signal};
use superpoll_rt::{Runtime, serve_until, spawn, time};

/// The time that clients get to take their answers.
const PATIENCE: Duration = Duration::from_secs(10);

type Body = Full<Bytes>;

/// Sends this process `SIGTERM`, as a service manager would, and answers later.
async fn answer(_: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let kill = format!("kill -TERM {}", id());
    let sent = unblock(move || Command::new("sh").args(["-c", &kill]).status()).await;
    let status = sent.expect("the call does not panic").expect("there is a shell");
    assert!(status.success(), "the signal is sent");
    time::sleep(Duration::from_millis(100)).await;
    Ok(Response::new(Full::from("answered in spite of SIGTERM")))
}

fn main() -> Result<(), Box<dyn Error>> {
    Runtime::new()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mut terminate = signal(SignalKind::terminate())?;
        let end = async move {
            // A signal that cannot be received ends the server as well.
            let _ = terminate.recv().await;
            println!("SIGTERM: no new connections, requests are still answered");
        };
        let server = spawn(serve_until(listener, service_fn(answer), end, PATIENCE));

        let client = Client::builder(EngineExecutor).build::<_, Body>(Connector);
        let answer = client.get(format!("http://{address}/").parse()?).await?;
        let body = answer.into_body().collect().await?.to_bytes();
        println!("the client got: {}", String::from_utf8_lossy(&body));
        assert_eq!(body, "answered in spite of SIGTERM");

        assert!(server.await??, "all connections end in time");
        assert!(TcpStream::connect(address).await.is_err(), "nothing listens any more");
        println!("the server has ended");
        Ok(())
    })
}
