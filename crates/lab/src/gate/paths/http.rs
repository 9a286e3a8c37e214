//! The common parts of the paths through the web server: a server and a client on one engine, and
//! the request for a small answer.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_gateway::config::Listener;
use superpoll_gateway::serve::Server;
use superpoll_gateway::{Address, Config};
use superpoll_rt::net::TcpStream;
use superpoll_rt::{Runtime, yield_now};

use crate::error::{Error, Result};
use crate::gate::measure::Counted;
use crate::gate::paths::{Work, in_tasks, runtime, said, wrong};
use crate::sys::process;

/// Longer than any answer.
const ROOM: usize = 4096;

/// The body of a small answer.
pub(super) const BODY: &[u8] = &[b'o'; 1024];

/// A request with the fields of a program that asks often.
pub(super) const REQUEST: &[u8] = b"GET /small.txt HTTP/1.1\r\n\
    host: localhost\r\n\
    user-agent: superpoll-lab\r\n\
    accept: text/plain, */*\r\n\
    referer: http://localhost/\r\n\
    accept-language: en, de;q=0.5\r\n\
    cookie: session=0123456789abcdef\r\n\
    cache-control: max-age=0\r\n\r\n";

/// A connection to the server.
pub(super) struct Connection {
    stream: TcpStream,
    room: Box<[u8; ROOM]>,
}

/// Starts a server and connects to it.
pub(super) fn start(config: &Config) -> Result<(Runtime, Server, Connection)> {
    let runtime = runtime()?;
    // If a request fails, the client fails.
    let server = Server::start(&runtime, config, |_| {}).map_err(said)?;
    let Some(address) = server.listening().next().map(ToString::to_string) else {
        return Err(Error::usage("a web server listens nowhere"));
    };
    let stream = runtime.try_block_on(TcpStream::connect(address)).map_err(said)?;
    let stream = stream.map_err(|e| Error::system("connecting to the web server", e))?;
    Ok((runtime, server, Connection { stream, room: Box::new([0; ROOM]) }))
}

impl Connection {
    pub(super) async fn ask(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request).await
    }

    /// Reads an answer of status 200, up to the last bytes of its body.
    pub(super) async fn hear(&mut self, end: &[u8]) -> io::Result<()> {
        let mut filled = 0;
        while !self.room[..filled].ends_with(end) {
            match self.stream.read(&mut self.room[filled..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
        }
        match self.room.starts_with(b"HTTP/1.1 200 OK\r\n") {
            true => Ok(()),
            false => Err(io::Error::other("the web server refuses")),
        }
    }
}

// A file of 1 KiB from the web server, over a keep-alive connection.

/// The age of the file at the first request, in nanoseconds.
const AGE: u64 = 2_100_000_000;

pub(super) fn set_up_http_file() -> Result<Box<dyn Work>> {
    let failed = |e| Error::system("making a folder to be served", e);
    let folder = tempfile::tempdir().map_err(failed)?;
    std::fs::write(folder.path().join("small.txt"), BODY).map_err(failed)?;
    // A file that has just changed may change again within the resolution of its time stamp, so the
    // server reads it anew each second.
    process::sleep(AGE);
    let config = configuration(folder.path());
    let (runtime, server, connection) = start(&config)?;
    in_tasks(runtime, connection, "asking for a file", move |mut connection, count| {
        let _ = (&server, &folder);
        async move {
            for _ in 0..count {
                connection.ask(REQUEST).await?;
                connection.hear(BODY).await?;
            }
            Ok(connection)
        }
    })
}

fn configuration(folder: &Path) -> Config {
    let mut config = Config::folder(folder);
    let address = Address::Tcp { host: Some("127.0.0.1".to_owned()), port: 0 };
    config.listeners = vec![Listener::plain(address)];
    config
}

// A request that waits for a message in the parking lot, without a task, and is answered when a
// message arrives.

const CHANNEL: &str = "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
     [[hosts]]\n[[hosts.routes]]\npath = \"/news\"\n[hosts.routes.channel]\nhistory = 1\n";

const POLL: &[u8] = b"GET /news HTTP/1.1\r\nhost: localhost\r\n\r\n";

pub(super) fn set_up_http_long_poll() -> Result<Box<dyn Work>> {
    let config = Config::parse("long-poll", CHANNEL).map_err(said)?;
    let (runtime, server, connection) = start(&config)?;
    let Some(hub) = server.channel("", "/news") else {
        return wrong("http-long-poll", "there is no channel");
    };
    in_tasks(runtime, connection, "waiting for a message", move |mut connection, count| {
        let _ = &server;
        let hub = hub.clone();
        async move {
            for _ in 0..count {
                connection.ask(POLL).await?;
                while hub.subscribers() == 0 {
                    yield_now().await;
                }
                hub.publish(&b"tick"[..]);
                connection.hear(b"\"}\n").await?;
            }
            Ok(connection)
        }
    })
}

// A small answer through the reverse proxy, over keep-alive connections on both sides.
//
// The origin is a process of its own, so that only the proxy and the client are counted. It runs
// on the processor of the counted process and does not preempt it. So the answer is hardly ever
// there before the proxy has begun to wait for it, and requests take the same way.

/// Longer than any request.
const ORIGIN_ROOM: usize = 4096;

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

pub(super) fn set_up_http_proxy() -> Result<Box<dyn Work>> {
    let failed = |e| Error::system("setting an origin up", e);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let origin = start_origin(&listener).map_err(failed)?;
    let config = proxy_configuration(port)?;
    let (runtime, server, connection) = start(&config)?;
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
fn start_origin(listener: &TcpListener) -> io::Result<process::Child> {
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
        let (mut room, mut filled) = ([0; ORIGIN_ROOM], 0);
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

fn proxy_configuration(origin: u16) -> Result<Config> {
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
         [[hosts]]\n[[hosts.routes]]\nproxy = {{ upstream = \"origin\" }}\n\
         [upstreams.origin]\nservers = [{{ address = \"127.0.0.1:{origin}\" }}]\n"
    );
    Config::parse("proxy", &text).map_err(said)
}
