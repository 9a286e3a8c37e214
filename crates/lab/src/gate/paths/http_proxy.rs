//! A small answer through the reverse proxy, over keep-alive connections on both sides.
//!
//! The origin is a process of its own, so that only the proxy and the client are counted. It runs
//! on the processor of the counted process and does not preempt it. So the answer is hardly ever
//! there before the proxy has begun to wait for it, and requests take the same way.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener};

use superpoll_gateway::Config;

use super::http::{self, BODY, REQUEST};
use crate::error::{Error, Result};
use crate::gate::counted::Counted;
use crate::gate::paths::work::{Work, in_tasks, said};
use crate::sys::process;

/// Longer than any request.
const ROOM: usize = 4096;

/// Requests to the proxy, and the origin's process.
struct Proxied {
    work: Box<dyn Work>,
    origin: process::Child,
}

impl Work for Proxied {
    fn operate(&mut self, count: u64) -> Result<()> {
        self.work.operate(count)
    }

    fn counted(&self) -> Counted {
        self.work.counted()
    }

    fn uncounted(&self) -> Option<i32> {
        Some(self.origin.pid())
    }
}

pub(super) fn set_up() -> Result<Box<dyn Work>> {
    let failed = |e| Error::system("setting an origin up", e);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let origin = start(&listener).map_err(failed)?;
    let config = configuration(port)?;
    let (runtime, server, connection) = http::start(&config)?;
    let work = in_tasks(runtime, connection, "asking a proxy", move |mut connection, count| {
        let _ = &server;
        async move {
            for _ in 0..count {
                connection.ask(REQUEST).await?;
                connection.hear(BODY).await?;
            }
            Ok(connection)
        }
    })?;
    Ok(Box::new(Proxied { work, origin }))
}

/// Starts the origin in a process of its own, on one processor with this thread.
fn start(listener: &TcpListener) -> io::Result<process::Child> {
    let processors = process::processors();
    process::pin(&processors[..processors.len().min(1)])?;
    let answer = answer();
    // The child allocates nothing: in the tests, this process has other threads.
    process::fork(|| {
        if process::lower_preemption().is_ok() {
            serve(listener, &answer);
        }
    })
}

/// Answers each request of each connection, one connection after the other.
fn serve(listener: &TcpListener, answer: &[u8]) {
    while let Ok((mut stream, _)) = listener.accept() {
        let (mut room, mut filled) = ([0; ROOM], 0);
        // If a connection breaks, the proxy fails, and the client with it.
        while let Ok(count @ 1..) = stream.read(&mut room[filled..]) {
            filled += count;
            if room[..filled].ends_with(b"\r\n\r\n") {
                filled = 0;
                if stream.write_all(answer).is_err() {
                    break;
                }
            }
        }
    }
}

fn answer() -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nserver: origin\r\ndate: Mon, 02 Nov 2026 08:00:00 GMT\r\n\
         content-type: text/plain\r\ncontent-length: {}\r\n\r\n",
        BODY.len()
    );
    [head.as_bytes(), BODY].concat()
}

fn configuration(origin: u16) -> Result<Config> {
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
         [[hosts]]\n[[hosts.routes]]\nproxy = {{ upstream = \"origin\" }}\n\
         [upstreams.origin]\nservers = [{{ address = \"127.0.0.1:{origin}\" }}]\n"
    );
    Config::parse("proxy", &text).map_err(said)
}
