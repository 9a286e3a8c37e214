//! The facts that a line of the access log is made of.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderValue, Method, Uri, Version};

use crate::trace::RequestTrace;

superpoll::named! {
    /// The side that has broken a response, a tunnel or a relayed connection off.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum BrokenBy {
        /// The client has gone, or was too slow.
        Client = "client",
        /// The server behind has gone, was too slow, or has sent bytes that cannot be passed on.
        Upstream = "upstream",
        /// This server: a file could not be read, or it has ended.
        Server = "server",
        /// No byte has moved for too long.
        Timeout = "timeout",
    }
}

/// The client's end of a connection.
#[derive(Clone, Debug, Default)]
pub struct ClientEnd {
    /// None in the Unix domain.
    pub address: Option<SocketAddr>,
    /// The trusted proxy that the request came through, if it has an address. In a box, since
    /// records are kept for as long as requests wait.
    pub(crate) proxy: Option<Box<SocketAddr>>,
    /// The number of the cipher suite of TLS; 0 for a connection without encryption, or one that
    /// another server has handed over.
    pub cipher: u16,
    /// The server name that the client has asked for, if it is logged.
    pub server_name: Option<Box<str>>,
}

impl ClientEnd {
    /// Returns the address; an address of IPv4 that came by a socket of IPv6 as one of IPv4.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.address.map(canonical)
    }

    /// Returns the address of the trusted proxy, in the same form.
    pub(super) fn proxy(&self) -> Option<SocketAddr> {
        self.proxy.as_deref().copied().map(canonical)
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

/// The way of a request, or of a relayed connection, to a server behind.
#[derive(Clone, Debug)]
pub struct UpstreamEnd {
    /// The name of the group of servers, if it has one.
    pub(crate) name: Option<Arc<str>>,
    /// The server that was tried last, which is the one that has answered.
    pub(crate) server: Option<Arc<str>>,
    /// A number that no other server has, to tell a try of another server.
    id: u64,
    /// The servers that were tried.
    pub(crate) tries: u32,
    /// No connection was opened for the request.
    pub(crate) is_reused: bool,
    /// The status of its response.
    pub(crate) status: Option<u16>,
    /// From the try of the server until it was connected, with TLS.
    pub connect: Option<Duration>,
    /// From the try of the server until the head of its response was there.
    pub(crate) first_byte: Option<Duration>,
    /// From the try of the server until its response, or the connection with it, was over.
    pub(crate) total: Option<Duration>,
}

impl UpstreamEnd {
    /// Creates the way to a group, before a server of it is tried.
    pub(crate) fn new(name: Option<Arc<str>>) -> UpstreamEnd {
        UpstreamEnd {
            name,
            server: None,
            id: u64::MAX,
            tries: 0,
            is_reused: false,
            status: None,
            connect: None,
            first_byte: None,
            total: None,
        }
    }

    /// Notes that a server is tried. Another connection to the same server is no other try.
    pub fn tries(&mut self, id: u64, server: &Arc<str>) {
        let before = UpstreamEnd::new(self.name.take());
        let tries = self.tries + u32::from(self.id != id);
        *self = UpstreamEnd { id, tries, server: Some(server.clone()), is_reused: true, ..before };
    }
}

/// A request and its result. It is kept as long as a request waits, so it is small.
#[derive(Clone, Debug)]
pub struct RequestRecord {
    pub(crate) at: SystemTime,
    pub(crate) client: ClientEnd,
    /// The method.
    pub method: Method,
    pub(crate) uri: Uri,
    pub(crate) version: Version,
    /// The field `Host`, or the authority of HTTP/2.
    pub host: Option<HeaderValue>,
    /// The field `Referer`.
    pub referer: Option<HeaderValue>,
    /// The field `User-Agent`.
    pub agent: Option<HeaderValue>,
    /// The status of the answer.
    pub status: u16,
    /// Bytes of the body that were sent.
    pub bytes: u64,
    /// Bytes of the body that have arrived.
    pub bytes_in: u64,
    /// Bytes of the head that has arrived, as HTTP/1.1 writes it.
    pub head_bytes_in: u32,
    /// Whether all of the body was sent.
    pub is_whole: bool,
    /// The side that broke the exchange off, if it did not end in order.
    pub broken_by: Option<BrokenBy>,
    /// Until the head of the response was there.
    pub(crate) first_byte: Option<Duration>,
    /// The number of the request on its connection, from 1; 0 if it is not known.
    pub number: u32,
    /// The connection was parked before the request, or while the request waited.
    pub was_parked: bool,
    /// The path of the route in the configuration; empty if there was none.
    pub route: Arc<str>,
    /// The user whose password or token was verified.
    pub user: Option<Box<str>>,
    pub(crate) upstream: Option<Box<UpstreamEnd>>,
    /// The id of the request and its trace, if requests are followed. Which id counts is known when
    /// the route is.
    pub trace: Option<Rc<RequestTrace>>,
    /// The first line as it came, for a request that was refused before it was understood. Method,
    /// target and version mean nothing then.
    pub raw: Option<Box<Bytes>>,
}

impl RequestRecord {
    /// Creates the record of a request that has arrived now. Everything else about it is still to
    /// be noted.
    pub fn new(client: ClientEnd, method: Method, uri: Uri, version: Version) -> RequestRecord {
        RequestRecord {
            at: SystemTime::now(),
            client,
            method,
            uri,
            version,
            host: None,
            referer: None,
            agent: None,
            status: 0,
            bytes: 0,
            bytes_in: 0,
            head_bytes_in: 0,
            is_whole: false,
            broken_by: None,
            first_byte: None,
            number: 0,
            was_parked: false,
            route: Arc::default(),
            user: None,
            upstream: None,
            trace: None,
            raw: None,
        }
    }

    /// Returns the way to a server behind. The name is that of the group.
    pub(crate) fn upstream(&mut self, name: &Arc<str>) -> &mut UpstreamEnd {
        self.upstream.get_or_insert_with(|| Box::new(UpstreamEnd::new(Some(name.clone()))))
    }

    /// Notes the side that has broken the response off, unless it is known.
    pub fn broken_by(&mut self, who: BrokenBy) {
        self.broken_by.get_or_insert(who);
    }
}

/// A relayed connection and its end.
#[derive(Clone, Debug)]
pub struct RelayRecord {
    pub(crate) at: SystemTime,
    /// The client's end: its address, cipher suite and server name.
    pub client: ClientEnd,
    /// The address that the relay listens on.
    pub(crate) relay: Arc<str>,
    /// The server, once one is chosen.
    pub upstream: Option<Box<UpstreamEnd>>,
    /// The server has accepted the connection.
    pub is_connected: bool,
    /// Bytes that the server was sent.
    pub up: u64,
    /// Bytes that the client was sent.
    pub down: u64,
    /// The side that ended the connection, if it did not end in order.
    pub broken_by: Option<BrokenBy>,
}

impl RelayRecord {
    /// Creates the record of a connection that was accepted now. `otherwise` has ended it unless
    /// another side, or an end in order, is noted.
    pub fn new(address: Option<SocketAddr>, relay: Arc<str>, otherwise: BrokenBy) -> RelayRecord {
        RelayRecord {
            at: SystemTime::now(),
            client: ClientEnd { address, ..ClientEnd::default() },
            relay,
            upstream: None,
            is_connected: false,
            up: 0,
            down: 0,
            broken_by: Some(otherwise),
        }
    }

    /// Returns the way to the server behind, which may be one of a group with a name.
    pub fn upstream(&mut self, name: Option<&Arc<str>>) -> &mut UpstreamEnd {
        self.upstream.get_or_insert_with(|| Box::new(UpstreamEnd::new(name.cloned())))
    }
}
