//! Servers that requests are forwarded to, and clients: plain sockets, each byte known.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use superpoll_test_support::http1::{field, read_body, read_head};

use crate::gateway::LIMIT;

/// A stream of either kind.
pub(crate) trait Socket: Read + Write + Send {
    fn clone_socket(&self) -> Box<dyn Socket>;
    fn end_writing(&self);
    fn reset(&self);
}

impl Socket for TcpStream {
    fn clone_socket(&self) -> Box<dyn Socket> {
        Box::new(self.try_clone().unwrap())
    }
    fn end_writing(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
    fn reset(&self) {
        socket2::SockRef::from(self).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    }
}

impl Socket for UnixStream {
    fn clone_socket(&self) -> Box<dyn Socket> {
        Box::new(self.try_clone().unwrap())
    }
    fn end_writing(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
    fn reset(&self) {}
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The number of its connection.
    pub connection: usize,
    /// Bytes before the request: a header of the PROXY protocol.
    pub before: Vec<u8>,
    pub head: String,
    pub body: Vec<u8>,
    pub trailers: String,
}

impl Seen {
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap()
    }

    /// The values of a field, joined.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        field(&self.head, name)
    }
}

/// A connection of a server.
pub(crate) struct ServerConnection {
    pub number: usize,
    pub reader: BufReader<Box<dyn Socket>>,
    pub stream: Box<dyn Socket>,
    seen: Arc<Mutex<Vec<Seen>>>,
    is_first: bool,
}

impl ServerConnection {
    /// Reads the head of a request.
    pub(crate) fn head(&mut self) -> io::Result<Seen> {
        let mut before = Vec::new();
        if std::mem::take(&mut self.is_first) {
            let start = self.reader.fill_buf()?;
            if start.starts_with(b"PROXY ") {
                self.reader.read_until(b'\n', &mut before)?;
            } else if start.starts_with(b"\r\n\r\n\0\r\nQUIT\n") {
                before.resize(16, 0);
                self.reader.read_exact(&mut before)?;
                let length = usize::from(u16::from_be_bytes([before[14], before[15]]));
                before.resize(16 + length, 0);
                self.reader.read_exact(&mut before[16..])?;
            }
        }
        let head = read_head(&mut self.reader)?;
        let (body, trailers) = (Vec::new(), String::new());
        Ok(Seen { connection: self.number, before, head, body, trailers })
    }

    /// Reads the rest of a request.
    pub(crate) fn body(&mut self, seen: &mut Seen) -> io::Result<()> {
        if let Some(read) = read_body(&mut self.reader, &seen.head)? {
            (seen.body, seen.trailers) = read;
        }
        Ok(())
    }

    /// Reads a request and records it.
    pub(crate) fn request(&mut self) -> io::Result<Seen> {
        let mut seen = self.head()?;
        self.body(&mut seen)?;
        self.note(&seen);
        Ok(seen)
    }

    pub(crate) fn note(&self, seen: &Seen) {
        self.seen.lock().unwrap().push(seen.clone());
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Answers with a text.
    pub(crate) fn answer(&mut self, text: &str) -> io::Result<()> {
        let length = text.len();
        self.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{text}"))
    }
}

enum Accepts {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A server.
pub(crate) struct Origin {
    pub address: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    pub connections: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
}

impl Origin {
    /// A server on a port of its own, with a thread for each connection.
    pub(crate) fn start(
        serve: impl Fn(&mut ServerConnection) -> io::Result<()> + Send + Sync + 'static,
    ) -> Origin {
        Origin::on("127.0.0.1:0", serve)
    }

    pub(crate) fn on(
        address: &str,
        serve: impl Fn(&mut ServerConnection) -> io::Result<()> + Send + Sync + 'static,
    ) -> Origin {
        Origin::try_on(address, serve).unwrap()
    }

    /// As [`on`](Origin::on), where another program may have the address.
    pub(crate) fn try_on(
        address: &str,
        serve: impl Fn(&mut ServerConnection) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<Origin> {
        Ok(Origin::at(TcpListener::bind(address)?, serve))
    }

    pub(crate) fn at(
        listener: TcpListener,
        serve: impl Fn(&mut ServerConnection) -> io::Result<()> + Send + Sync + 'static,
    ) -> Origin {
        let address = listener.local_addr().unwrap().to_string();
        Origin::serve(address, Accepts::Tcp(listener), serve)
    }

    pub(crate) fn unix(
        path: &Path,
        serve: impl Fn(&mut ServerConnection) -> io::Result<()> + Send + Sync + 'static,
    ) -> Origin {
        let address = format!("unix:{}", path.display());
        Origin::serve(address, Accepts::Unix(UnixListener::bind(path).unwrap()), serve)
    }

    fn serve(
        address: String,
        listener: Accepts,
        serve: impl Fn(&mut ServerConnection) -> io::Result<()> + Send + Sync + 'static,
    ) -> Origin {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let ended = Arc::new(AtomicBool::new(false));
        let origin = Origin {
            address,
            seen: seen.clone(),
            connections: connections.clone(),
            ended: ended.clone(),
        };
        let serve = Arc::new(serve);
        thread::spawn(move || {
            loop {
                let stream: Box<dyn Socket> = match &listener {
                    Accepts::Tcp(listener) => {
                        let Ok((stream, _)) = listener.accept() else { return };
                        stream.set_read_timeout(Some(LIMIT)).unwrap();
                        stream.set_nodelay(true).unwrap();
                        Box::new(stream)
                    }
                    Accepts::Unix(listener) => {
                        let Ok((stream, _)) = listener.accept() else { return };
                        stream.set_read_timeout(Some(LIMIT)).unwrap();
                        Box::new(stream)
                    }
                };
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let number = connections.fetch_add(1, Ordering::SeqCst);
                let (serve, seen) = (serve.clone(), seen.clone());
                thread::spawn(move || {
                    let reader = BufReader::new(stream.clone_socket());
                    let mut line =
                        ServerConnection { number, reader, stream, seen, is_first: true };
                    // The gateway under test may close a connection at any time.
                    let _ = serve(&mut line);
                });
            }
        });
        origin
    }

    /// A server that answers each request with its name.
    pub(crate) fn named(name: &'static str) -> Origin {
        Origin::start(move |line| {
            loop {
                line.request()?;
                line.answer(name)?;
            }
        })
    }

    /// A server that returns the request that it has got.
    pub(crate) fn echo() -> Origin {
        Origin::start(echo)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Sends the bodies of requests back.
pub(crate) fn echo(line: &mut ServerConnection) -> io::Result<()> {
    loop {
        let seen = line.request()?;
        let length = seen.body.len();
        line.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nX-Server: echo\r\n\r\n"
        ))?;
        if !seen.line().starts_with("HEAD") {
            line.send(&seen.body)?;
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // Makes the listener's thread check.
        match self.address.strip_prefix("unix:") {
            Some(path) => drop(UnixStream::connect(path)),
            None => drop(TcpStream::connect(&self.address)),
        }
    }
}

/// The response that a client has got.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    pub trailers: String,
}

impl Reply {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn field(&self, name: &str) -> Option<String> {
        field(&self.head, name)
    }
}

/// A client.
pub(crate) struct Client {
    pub stream: TcpStream,
    pub reader: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(address: &str) -> Client {
        Client::of(TcpStream::connect(address).unwrap())
    }

    pub(crate) fn of(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Client { stream, reader }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    pub(crate) fn head(&mut self) -> io::Result<Reply> {
        let head = read_head(&mut self.reader)?;
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Ok(Reply { status, head, body: Vec::new(), trailers: String::new() })
    }

    pub(crate) fn reply_to(&mut self, method: &str) -> io::Result<Reply> {
        let mut reply = self.head()?;
        if method == "HEAD" || matches!(reply.status, 100..200 | 204 | 304) {
            return Ok(reply);
        }
        match read_body(&mut self.reader, &reply.head)? {
            Some(read) => (reply.body, reply.trailers) = read,
            None => {
                self.reader.read_to_end(&mut reply.body)?;
            }
        }
        Ok(reply)
    }

    pub(crate) fn reply(&mut self) -> Reply {
        self.reply_to("GET").unwrap()
    }

    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
        self.reply()
    }

    /// Whether the other end closes, with or without a fault.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

/// One request on a connection of its own.
pub(crate) fn get(address: &str, path: &str) -> Reply {
    Client::connect(address).get(path)
}

/// An address that refuses connections as long as the socket exists, which keeps other processes
/// from it.
pub(crate) fn refuses() -> (socket2::Socket, String) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any.into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap().to_string();
    (socket, address)
}

/// An address that does not answer at all as long as this exists: its queue of connections is full.
pub(crate) struct Mute {
    pub address: String,
    _listener: socket2::Socket,
    _queued: Vec<TcpStream>,
}

impl Mute {
    pub(crate) fn new() -> Mute {
        let (listener, address) = refuses();
        listener.listen(0).unwrap();
        let at = address.parse().unwrap();
        let mut queued = Vec::new();
        while let Ok(stream) =
            TcpStream::connect_timeout(&at, std::time::Duration::from_millis(200))
        {
            queued.push(stream);
        }
        Mute { address, _listener: listener, _queued: queued }
    }
}
