//! The parts of a connection that outlive its protocol: its peer, and the form of a request that
//! waits for its response.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use crate::admin_connections::{AdminPermit, AdmittedRequest};
use crate::certificates::ClientCertificate;
use crate::connection_limits::{ConnectionPermit, LimitReached};
use crate::log::ClientEnd;
use crate::telemetry::ratio::RatioMeter;

/// The facts about a peer that few peers have.
#[derive(Debug, Default)]
pub struct ShownByClient {
    /// The peer of the connection, if that is a trusted proxy and this is the peer of a request.
    pub proxy: Option<Rc<Peer>>,
    /// The verified certificate that the client has shown, if it was asked for one.
    pub certificate: Option<ClientCertificate>,
    /// The server name that the client has asked for, if the access log has it.
    pub server_name: Option<Box<str>>,
}

/// The peer of a connection, or of a request that a trusted proxy has passed on.
#[derive(Debug, Default)]
pub struct Peer {
    /// The client's address, from a trusted proxy, the PROXY protocol or the socket; none in the
    /// Unix domain. The port is 0 if a proxy has not named it.
    pub client: Option<SocketAddr>,
    /// The address that the client has connected to; none in the Unix domain.
    pub local: Option<SocketAddr>,
    /// Whether the connection is encrypted.
    pub is_encrypted: bool,
    /// Whether a proxy connects for the client and names the client, by the PROXY protocol or, as a
    /// trusted proxy, by a field.
    pub is_proxied: bool,
    /// When the connection was accepted, in [seconds](seconds_now); zero if another server has
    /// accepted it.
    pub since: u32,
    /// The number of the cipher suite of an encrypted connection; 0 if it is not known, as another
    /// server has done the handshake.
    pub cipher: u16,
    /// The number of the second in which the connection was last counted as active; zero: never.
    pub active_in: Cell<u32>,
    /// The rarer facts, if there are any.
    pub shown: Option<Box<ShownByClient>>,
    /// The connection's place among the connections that there may be.
    pub permit: Permit,
}

/// A connection's place among the connections that there may be.
#[derive(Debug, Default)]
pub enum Permit {
    /// There is no limit.
    #[default]
    Unlimited,
    /// The permit of a client's connection.
    Client(ConnectionPermit),
    /// The permit of a connection to the admin listener.
    Admin(AdminPermit),
}

impl Permit {
    /// Counts the permit as a permit of a client, as soon as the client is known.
    pub fn count(&mut self, address: Option<IpAddr>) -> Result<(), LimitReached> {
        match self {
            Permit::Client(permit) => permit.count(address),
            Permit::Unlimited | Permit::Admin(_) => Ok(()),
        }
    }

    /// Begins a request to the admin listener that was admitted. `None`: it has another listener.
    pub fn begin_request(&self) -> Option<AdmittedRequest> {
        match self {
            Permit::Admin(permit) => Some(permit.begin_request()),
            Permit::Unlimited | Permit::Client(_) => None,
        }
    }
}

impl Peer {
    /// Creates the peer of a request on the connection with a trusted proxy. `client` is the client
    /// that the proxy has named; `None` if that is the proxy itself. `is_listed` says whether there
    /// is a field that names clients.
    pub(crate) fn of_request(
        connection: &Rc<Peer>,
        client: Option<SocketAddr>,
        is_listed: bool,
    ) -> Peer {
        let shown = ShownByClient { proxy: Some(connection.clone()), ..ShownByClient::default() };
        Peer {
            client: client.or(connection.client),
            local: connection.local,
            is_encrypted: connection.is_encrypted,
            is_proxied: connection.is_proxied || is_listed,
            since: connection.since,
            cipher: connection.cipher,
            // The connection counts, not its requests.
            active_in: Cell::default(),
            shown: Some(Box::new(shown)),
            // The connection has it.
            permit: Permit::Unlimited,
        }
    }

    fn proxy(&self) -> Option<&Rc<Peer>> {
        self.shown.as_ref()?.proxy.as_ref()
    }

    /// Whether this is the peer of a request that a trusted proxy has sent.
    #[inline]
    pub fn is_of_trusted_proxy(&self) -> bool {
        self.proxy().is_some()
    }

    /// Notes that bytes have moved on the connection. A connection to the admin listener is not
    /// counted.
    #[inline]
    pub fn note_active(&self, meter: &RatioMeter) {
        let connection = self.connection();
        if !matches!(connection.permit, Permit::Admin(_)) {
            meter.note(&connection.active_in);
        }
    }

    /// Returns the peer of the connection, also for the peer of a request.
    pub(crate) fn connection(&self) -> &Peer {
        self.proxy().map_or(self, |proxy| proxy)
    }

    /// Returns the verified certificate that the peer of the connection has shown, if it was asked
    /// for one.
    pub(crate) fn certificate(&self) -> Option<&ClientCertificate> {
        self.connection().shown.as_ref()?.certificate.as_ref()
    }

    /// Returns the client's end of the connection for the access log.
    pub fn client_end(&self) -> ClientEnd {
        let connection = self.connection();
        let shown = connection.shown.as_ref();
        let is_other = connection.client != self.client;
        ClientEnd {
            address: self.client,
            proxy: connection.client.filter(|_| is_other).map(Box::new),
            cipher: self.cipher,
            server_name: shown.and_then(|shown| shown.server_name.clone()),
        }
    }
}

/// Returns the time in seconds of a clock that never goes back; it is read without a system call.
#[inline]
pub fn seconds_now() -> u32 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    u32::try_from(now.tv_sec).unwrap_or(0)
}

/// The parts of a request that its response depends on, when nothing else of the request is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(from = "StoredForm", into = "StoredForm")]
pub struct RequestForm {
    /// HTTP/1.0 rather than 1.1.
    pub is_1_0: bool,
    /// The connection is closed after the response.
    pub closes: bool,
    /// The request has arrived encrypted, for a host that may have `Strict-Transport-Security`.
    pub may_have_hsts: bool,
}

/// A form as it is left with a keeper: in two bytes, as before there was the third part, so that a
/// server continues with the connections of one of before. The other way round, those that may have
/// the field are lost.
type StoredForm = (bool, u8);

const CLOSES: u8 = 1;
const MAY_HAVE_HSTS: u8 = 2;

impl From<StoredForm> for RequestForm {
    fn from((is_1_0, rest): StoredForm) -> RequestForm {
        let (closes, may_have_hsts) = (rest & CLOSES != 0, rest & MAY_HAVE_HSTS != 0);
        RequestForm { is_1_0, closes, may_have_hsts }
    }
}

impl From<RequestForm> for StoredForm {
    fn from(form: RequestForm) -> StoredForm {
        let hsts = if form.may_have_hsts { MAY_HAVE_HSTS } else { 0 };
        (form.is_1_0, u8::from(form.closes) | hsts)
    }
}
