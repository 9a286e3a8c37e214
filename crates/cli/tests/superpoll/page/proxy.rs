//! A network between the browser and the server that a test can cut.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Passes connections on to a server, byte by byte.
pub(crate) struct Network {
    pub port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    server: SocketAddr,
    /// Both ends of each connection that was passed on.
    streams: Mutex<Vec<TcpStream>>,
    /// Heads of requests that are not passed on have one of these texts in them.
    blocked: Mutex<Vec<&'static str>>,
    /// The heads of all requests.
    heads: Mutex<Vec<String>>,
    breaks: Mutex<Option<Breaks>>,
}

/// How connections break by themselves.
struct Breaks {
    /// The state of a generator of random numbers.
    state: u64,
    /// The most bytes that a connection passes on beyond the fewest.
    longest: u64,
    /// The connections so far.
    connections: u64,
}

/// The fewest bytes that a connection passes on: with the head of an answer alone no client would
/// get ahead.
const LEAST: u64 = 1000;

/// After so many connections each one passes on more bytes than the one before. A browser drops
/// bytes that it reads together with the break, and on a busy machine it reads late each time: at
/// some point a connection has to last until all has got through.
const MANY: u64 = 20;

/// The additional bytes of each further connection.
const MORE: u64 = 200;

impl Network {
    /// Creates one in front of a server.
    pub(crate) fn new(server: SocketAddr) -> Network {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            server,
            streams: Mutex::default(),
            blocked: Mutex::default(),
            heads: Mutex::default(),
            breaks: Mutex::default(),
        });
        let accepting = shared.clone();
        // It ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = accepting.clone();
                thread::spawn(move || shared.pass_on(stream));
            }
        });
        Network { port, shared }
    }

    /// Closes every connection, as a network that breaks does.
    pub(crate) fn cut(&self) {
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Lets each connection from now on break after a random number of bytes of the server, in the
    /// middle of a message as a rule. `Some` has a seed and the most bytes; `None` lets connections
    /// last.
    pub(crate) fn break_by_itself(&self, breaks: Option<(u64, u64)>) {
        let breaks = breaks.map(|(state, longest)| Breaks { state, longest, connections: 0 });
        *self.shared.breaks.lock().unwrap() = breaks;
    }

    /// Passes on no more requests in whose heads one of these texts is.
    pub(crate) fn block(&self, texts: &[&'static str]) {
        *self.shared.blocked.lock().unwrap() = texts.to_vec();
    }

    /// Returns the heads of requests so far in which this text is.
    pub(crate) fn heads(&self, text: &str) -> Vec<String> {
        let heads = self.shared.heads.lock().unwrap();
        heads.iter().filter(|head| head.contains(text)).cloned().collect()
    }
}

impl Shared {
    /// Returns how many bytes of the server the next connection passes on.
    fn most(&self) -> u64 {
        match &mut *self.breaks.lock().unwrap() {
            None => u64::MAX,
            Some(Breaks { state, longest, connections }) => {
                // Knuth's MMIX generator; its high bits are the random ones.
                *state = state.wrapping_mul(6_364_136_223_846_793_005);
                *state = state.wrapping_add(1_442_695_040_888_963_407);
                *connections += 1;
                let more = MORE * connections.saturating_sub(MANY);
                LEAST + (*state >> 33) % *longest + more
            }
        }
    }

    fn pass_on(&self, mut client: TcpStream) {
        // The server may be away, as in a crash.
        let Ok(server) = TcpStream::connect(self.server) else { return };
        let copies = [client.try_clone().unwrap(), server.try_clone().unwrap()];
        self.streams.lock().unwrap().extend(copies);
        let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let most = self.most();
        thread::spawn(move || {
            let _ = std::io::copy(&mut (&mut from).take(most), &mut to);
            for stream in [from, to] {
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
        let (mut room, mut server) = ([0; 1 << 16], server);
        while let Ok(count @ 1..) = client.read(&mut room) {
            // Requests of a browser come in one piece, one after another.
            let head = String::from_utf8_lossy(&room[..count]).to_lowercase();
            let is_blocked = self.blocked.lock().unwrap().iter().any(|text| head.contains(text));
            self.heads.lock().unwrap().push(head);
            if is_blocked || server.write_all(&room[..count]).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    }
}
