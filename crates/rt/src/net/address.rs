//! Socket addresses from the forms in which users write them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::blocking::unblock;

mod sealed {
    use std::net::SocketAddr;

    /// The input of a name look-up.
    #[derive(Debug)]
    pub enum Resolve {
        Known(Vec<SocketAddr>),
        /// `host:port`.
        Text(String),
        Host(String, u16),
    }

    #[diagnostic::on_unimplemented(
        message = "`{Self}` is not a socket address",
        label = "not an address",
        note = "give an address and a port in one, such as \"127.0.0.1:8080\", or a pair of both: (\"localhost\", 8080)"
    )]
    pub trait Resolvable {
        fn resolvable(&self) -> Resolve;
    }
}

use sealed::{Resolvable, Resolve};

/// A type that can be turned into socket addresses: a socket address itself, an IP address and a
/// port, or a host name and a port as a pair or as `"name:port"`. The types of `std` implement it,
/// and no other types can.
///
/// The system's resolver (`getaddrinfo(3)`) looks a name up on the [blocking](crate::blocking)
/// pool. A numeric address costs nothing.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a socket address",
    label = "not an address",
    note = "give an address and a port in one, such as \"127.0.0.1:8080\", or a pair of both: (\"localhost\", 8080)"
)]
pub trait ToSocketAddrs: Resolvable {}

impl<T: Resolvable + ?Sized> ToSocketAddrs for T {}

macro_rules! known {
    ($($type:ty: |$value:ident| $addresses:expr),* $(,)?) => {$(
        impl Resolvable for $type {
            fn resolvable(&self) -> Resolve {
                let $value = self;
                Resolve::Known($addresses)
            }
        }
    )*};
}

known! {
    SocketAddr: |address| vec![*address],
    SocketAddrV4: |address| vec![(*address).into()],
    SocketAddrV6: |address| vec![(*address).into()],
    (IpAddr, u16): |pair| vec![(*pair).into()],
    (Ipv4Addr, u16): |pair| vec![(*pair).into()],
    (Ipv6Addr, u16): |pair| vec![(*pair).into()],
    [SocketAddr]: |addresses| addresses.to_vec(),
    Vec<SocketAddr>: |addresses| addresses.clone(),
}

impl<const N: usize> Resolvable for [SocketAddr; N] {
    fn resolvable(&self) -> Resolve {
        self[..].resolvable()
    }
}

impl Resolvable for str {
    fn resolvable(&self) -> Resolve {
        match self.parse() {
            Ok(address) => Resolve::Known(vec![address]),
            Err(_) => Resolve::Text(self.to_owned()),
        }
    }
}

impl Resolvable for String {
    fn resolvable(&self) -> Resolve {
        self.as_str().resolvable()
    }
}

impl Resolvable for (&str, u16) {
    fn resolvable(&self) -> Resolve {
        match self.0.parse::<IpAddr>() {
            Ok(address) => Resolve::Known(vec![(address, self.1).into()]),
            Err(_) => Resolve::Host(self.0.to_owned(), self.1),
        }
    }
}

impl Resolvable for (String, u16) {
    fn resolvable(&self) -> Resolve {
        (self.0.as_str(), self.1).resolvable()
    }
}

impl<T: Resolvable + ?Sized> Resolvable for &T {
    fn resolvable(&self) -> Resolve {
        T::resolvable(self)
    }
}

/// Returns the addresses of a host, in the order in which the system's resolver gives them.
///
/// Cancel safe: a look-up that is already running continues without an effect.
///
/// # Errors
///
/// Any error of the resolver, with the name; `NotFound` if the resolver knows the name but has no
/// address for it.
pub async fn lookup_host(host: impl ToSocketAddrs) -> io::Result<Vec<SocketAddr>> {
    resolve(&host).await
}

pub(crate) async fn resolve<A: ToSocketAddrs + ?Sized>(host: &A) -> io::Result<Vec<SocketAddr>> {
    match host.resolvable() {
        Resolve::Known(addresses) if addresses.is_empty() => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "the list of addresses is empty"))
        }
        Resolve::Known(addresses) => Ok(addresses),
        Resolve::Text(text) => {
            look_up(text.clone(), move || std::net::ToSocketAddrs::to_socket_addrs(&text)).await
        }
        Resolve::Host(host, port) => {
            look_up(host.clone(), move || {
                std::net::ToSocketAddrs::to_socket_addrs(&(host.as_str(), port))
            })
            .await
        }
    }
}

async fn look_up(
    name: String,
    call: impl FnOnce() -> io::Result<std::vec::IntoIter<SocketAddr>> + Send + 'static,
) -> io::Result<Vec<SocketAddr>> {
    let outcome = unblock(call).await?;
    let addresses: Vec<SocketAddr> = outcome
        .map_err(|error| io::Error::new(error.kind(), format!("looking up {name:?}: {error}")))?
        .collect();
    if addresses.is_empty() {
        let text = format!("looking up {name:?}: the name has no address");
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    Ok(addresses)
}
