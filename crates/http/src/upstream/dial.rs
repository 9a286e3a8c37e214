//! Opening a connection to a server: its addresses are tried in turn, then come the header of the
//! PROXY protocol and TLS. A name of a server has become addresses before (`names`), except for
//! names of this machine, as `localhost`.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use futures_io::AsyncWrite;
use futures_rustls::TlsConnector;
use futures_rustls::client::TlsStream;
use futures_rustls::rustls::pki_types::ServerName;
use superpoll_config::Address;
use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::net::{TcpStream, lookup_host};
use superpoll_rt::time::timeout;

use super::client_tls::Tls;
use super::group::Group;
use super::local_shortage::{self, LocalShortage};
use super::server::GroupServer;
use crate::proxy_protocol;
use crate::transport::{Plain, Upstream};

/// A client's address and the address that it has connected to, as connections tell servers. A
/// connection that tells them is for requests of that client only.
pub(super) type ClientAddresses = Option<(SocketAddr, SocketAddr)>;

/// A new connection, and whether HTTP/2 is spoken on it.
pub(super) struct Dialled {
    pub stream: Upstream,
    pub is_h2: bool,
}

/// Connects to a server. Each address has `limit` to answer, and so has the server for TLS.
pub(super) async fn dial(
    group: &Group,
    server: &GroupServer,
    addresses: ClientAddresses,
    limit: Duration,
) -> io::Result<Dialled> {
    let config = group.config();
    let header = config.proxy_protocol.map_or_else(Vec::new, |version| {
        let (client, local) = addresses.unzip();
        proxy_protocol::header(version, client, local)
    });
    let plain = introduced(group, server, &header, limit).await?;
    let Some(tls) = &group.tls else {
        return Ok(Dialled { stream: Upstream::Plain(plain), is_h2: config.h2 });
    };
    let stream = encrypted(server, tls, &tls.connector, plain, limit).await?;
    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    Ok(Dialled { stream: Upstream::from(stream), is_h2 })
}

/// Connects to a server for a connection that is relayed, and sends these bytes ahead of
/// everything, of TLS as well. Each address has `limit` to answer, and so has the server for TLS.
///
/// # Errors
///
/// The error of the last address that was tried, or of TLS.
///
/// # Cancel safety
///
/// A cancelled call closes the connection.
pub async fn dial_for_relay(
    group: &Group,
    server: &GroupServer,
    header: &[u8],
    limit: Duration,
) -> io::Result<Upstream> {
    let plain = introduced(group, server, header, limit).await?;
    let Some(tls) = &group.tls else { return Ok(Upstream::Plain(plain)) };
    let stream = encrypted(server, tls, &tls.relayed, plain, limit).await?;
    Ok(Upstream::from(stream))
}

/// Connects to a server, and sends the header of the PROXY protocol if there is one.
async fn introduced(
    group: &Group,
    server: &GroupServer,
    header: &[u8],
    limit: Duration,
) -> io::Result<Plain> {
    let mut plain = connect_unless_short(group, server, limit).await?;
    let mut rest = header;
    let written = async {
        while !rest.is_empty() {
            match poll_fn(|cx| Pin::new(&mut plain).poll_write(cx, rest)).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => rest = &rest[count..],
            }
        }
        Ok(())
    };
    within(limit, written).await?;
    Ok(plain)
}

/// Connects to a server, unless it is known that no local port is left for it.
async fn connect_unless_short(
    group: &Group,
    server: &GroupServer,
    limit: Duration,
) -> io::Result<Plain> {
    admit(group, server)?;
    let connected = connect(&server.address, limit).await;
    attempted(group, server, connected.as_ref().err());
    connected
}

fn admit(group: &Group, server: &GroupServer) -> io::Result<()> {
    match server.port_shortage.admits(group.clock.now()) {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL)),
    }
}

fn attempted(group: &Group, server: &GroupServer, error: Option<&io::Error>) {
    let lack = error.and_then(|error| LocalShortage::from_error(error));
    server.port_shortage.attempted(lack != Some(LocalShortage::Ports), group.clock.now());
}

/// Begins to connect to a server by its address, with a function that does not wait, unless it is
/// known that no local port is left for it.
///
/// # Errors
///
/// That of the function; or `EADDRNOTAVAIL`, if no port is left or the server has no address.
pub fn begin<T>(
    group: &Group,
    server: &GroupServer,
    connect: impl FnOnce(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    admit(group, server)?;
    let address = server.socket_address.ok_or(io::ErrorKind::AddrNotAvailable)?;
    let begun =
        connect(address).map_err(|error| local_shortage::classify_connect_error(error, address));
    attempted(group, server, begun.as_ref().err());
    begun
}

/// Does the handshake of TLS with a server.
async fn encrypted(
    server: &GroupServer,
    tls: &Tls,
    connector: &TlsConnector,
    plain: Plain,
    limit: Duration,
) -> io::Result<TlsStream<Plain>> {
    let name = match &tls.name {
        Some(name) => name.clone(),
        None => server_name(server.named_address())?,
    };
    within(limit, connector.connect(name, plain)).await
}

fn server_name(address: &Address) -> io::Result<ServerName<'static>> {
    let host = match address {
        Address::Tcp { host, .. } => {
            let host = host.as_deref().unwrap_or("localhost");
            host.strip_suffix('.').unwrap_or(host).to_owned()
        }
        Address::Unix(path) => path.display().to_string(),
    };
    ServerName::try_from(host).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

async fn within<T>(limit: Duration, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match timeout(limit, future).await {
        Ok(outcome) => outcome,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Connects to an address, without TLS. Each of the addresses of a name has `limit` to answer.
pub async fn connect(address: &Address, limit: Duration) -> io::Result<Plain> {
    let (host, port) = match address {
        Address::Unix(path) => {
            return within(limit, UnixStream::connect(path)).await.map(Plain::Unix);
        }
        Address::Tcp { host, port } => (host.as_deref().unwrap_or("localhost"), *port),
    };
    let addresses = within(limit, lookup_host((host, port))).await;
    connect_any(addresses.map_err(local_shortage::behind_lookup)?, limit).await
}

/// Connects to the first of a server's addresses that accepts the connection. A shortage of this
/// machine at one of them is the error of all: the server may accept connections there.
pub async fn connect_any(addresses: Vec<SocketAddr>, limit: Duration) -> io::Result<Plain> {
    let mut last: Option<io::Error> = None;
    for address in addresses {
        match within(limit, TcpStream::connect_addr(address)).await {
            Ok(stream) => {
                // A connection that is gone fails at the next write.
                let _ = stream.set_nodelay(true);
                return Ok(Plain::Tcp(stream));
            }
            Err(_)
                if last.as_ref().is_some_and(|last| LocalShortage::from_error(last).is_some()) => {}
            Err(error) => last = Some(local_shortage::classify_connect_error(error, address)),
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use superpoll_rt::Runtime;

    use super::*;

    #[test]
    fn the_next_address_is_tried_where_one_refuses() {
        let open = TcpListener::bind("127.0.0.1:0").unwrap();
        let good = open.local_addr().unwrap();
        let closed = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let closed = closed.unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        closed.bind(&any.into()).unwrap();
        let refuses = closed.local_addr().unwrap().as_socket().unwrap();
        let limit = Duration::from_secs(30);
        let connects = |addresses: Vec<SocketAddr>| {
            let runtime = Runtime::new().unwrap();
            let connected = async move { connect_any(addresses, limit).await.map(drop) };
            runtime.block_on(connected)
        };
        connects(vec![refuses, good]).unwrap();
        assert_eq!(open.accept().unwrap().1.ip(), good.ip());
        let refused = connects(vec![refuses, refuses]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let none = connects(Vec::new()).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::AddrNotAvailable);
    }
}
