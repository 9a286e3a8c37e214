//! The PROXY protocol, versions 1 and 2: a proxy in front names the client in a header ahead of the
//! stream (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>).
//!
//! The `ppp` crate parses the header. This module reads at most the longest permitted header from a
//! stream, and builds the header that goes ahead of a stream.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

use bytes::{Buf, Bytes, BytesMut};
use futures_io::AsyncRead;
use ppp::{HeaderResult, PartialResult, v1, v2};
use superpoll_config::ProxyVersion;

/// The longest header of version 1, which is text (section 2.1).
const LONGEST_TEXT: usize = 107;

/// The longest header of version 2 that is accepted. It may have 64 KiB of extensions, but senders
/// keep to a few hundred bytes.
const LONGEST: usize = 4096;

/// The first bytes of version 1.
const TEXT: &[u8] = b"PROXY ";

/// The first bytes of version 2.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The content of a header.
#[derive(Debug)]
pub struct ProxyHeader {
    /// The client and the address that it connected to; `None` if the sender speaks for itself.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// The bytes that were read behind the header.
    pub rest: Bytes,
}

type Addresses = Option<(SocketAddr, SocketAddr)>;

/// Parses a header: returns it with its length, or `None` if there are too few bytes. The error
/// says why the bytes are not a header.
fn parse(bytes: &[u8]) -> io::Result<Option<(Addresses, usize)>> {
    let refuse = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    let begins = |with: &[u8]| {
        let count = bytes.len().min(with.len());
        bytes[..count] == with[..count]
    };
    let is_text = begins(TEXT);
    if !is_text && !begins(SIGNATURE) {
        return refuse("it does not begin with a header of the PROXY protocol".to_owned());
    }
    let limit = if is_text { LONGEST_TEXT } else { LONGEST };
    // The parser takes a part of a line of text for a whole line.
    let is_cut = is_text && !bytes.windows(2).any(|pair| pair == b"\r\n");
    let result = HeaderResult::parse(bytes);
    if is_cut || result.is_incomplete() {
        return match bytes.len() {
            length if length >= limit => {
                refuse(format!("the header of the PROXY protocol has more than {limit} bytes"))
            }
            _ => Ok(None),
        };
    }
    match result {
        HeaderResult::V1(Ok(header)) => {
            let addresses = match header.addresses {
                v1::Addresses::Unknown => None,
                v1::Addresses::Tcp4(of) => Some((
                    (of.source_address, of.source_port).into(),
                    (of.destination_address, of.destination_port).into(),
                )),
                v1::Addresses::Tcp6(of) => Some((
                    (of.source_address, of.source_port).into(),
                    (of.destination_address, of.destination_port).into(),
                )),
            };
            Ok(Some((addresses, header.header.len())))
        }
        HeaderResult::V2(Ok(header)) => {
            let addresses = match header.addresses {
                // A proxy's own connection, such as a health check.
                _ if header.command == v2::Command::Local => None,
                v2::Addresses::IPv4(of) => Some((
                    (of.source_address, of.source_port).into(),
                    (of.destination_address, of.destination_port).into(),
                )),
                v2::Addresses::IPv6(of) => Some((
                    (of.source_address, of.source_port).into(),
                    (of.destination_address, of.destination_port).into(),
                )),
                v2::Addresses::Unspecified | v2::Addresses::Unix(_) => None,
            };
            Ok(Some((addresses, header.len())))
        }
        HeaderResult::V1(Err(error)) => refuse(error.to_string()),
        HeaderResult::V2(Err(error)) => refuse(error.to_string()),
    }
}

/// Reads the header at the start of a stream.
///
/// # Errors
///
/// The error of the read; `UnexpectedEof` if the stream ends within the header; `InvalidData` if
/// the stream does not begin with a header.
pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<ProxyHeader> {
    let mut bytes = BytesMut::new();
    loop {
        let mut room = [0; 512];
        match poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, &mut room)).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(&room[..count]),
        }
        if let Some((addresses, length)) = parse(&bytes)? {
            bytes.advance(length);
            return Ok(ProxyHeader { addresses, rest: bytes.freeze() });
        }
    }
}

/// Returns the header that names a client. If its address is not known, or the two addresses are of
/// different families, the header says so.
#[must_use]
pub fn header(
    version: ProxyVersion,
    client: Option<SocketAddr>,
    local: Option<SocketAddr>,
) -> Vec<u8> {
    let pair = client.zip(local).filter(|(client, local)| client.is_ipv4() == local.is_ipv4());
    match version {
        ProxyVersion::V1 => match pair {
            None => b"PROXY UNKNOWN\r\n".to_vec(),
            Some((client, local)) => {
                let kind = if client.is_ipv4() { "TCP4" } else { "TCP6" };
                let (from, to) = (client.ip(), local.ip());
                let (from_port, to_port) = (client.port(), local.port());
                format!("PROXY {kind} {from} {to} {from_port} {to_port}\r\n").into_bytes()
            }
        },
        ProxyVersion::V2 => {
            let addresses = pair.map_or(v2::Addresses::Unspecified, v2::Addresses::from);
            let protocol = match addresses {
                v2::Addresses::Unspecified => v2::Protocol::Unspecified,
                _ => v2::Protocol::Stream,
            };
            let version = v2::Version::Two | v2::Command::Proxy;
            let builder = v2::Builder::with_addresses(version, protocol, addresses);
            // It fails only if the extensions are too long, and there are none.
            builder.build().unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> [(Option<SocketAddr>, Option<SocketAddr>); 3] {
        let parse = |text: &str| Some(text.parse().unwrap());
        [
            (parse("192.0.2.7:4711"), parse("198.51.100.1:443")),
            (parse("[2001:db8::7]:4711"), parse("[2001:db8::1]:443")),
            (None, parse("198.51.100.1:443")),
        ]
    }

    #[test]
    fn headers_round_trip_however_they_are_split() {
        for version in [ProxyVersion::V1, ProxyVersion::V2] {
            for (client, local) in addresses() {
                let bytes = header(version, client, local);
                for cut in 0..bytes.len() {
                    assert!(parse(&bytes[..cut]).unwrap().is_none(), "{version:?} {cut}");
                }
                let mut more = bytes.clone();
                more.extend_from_slice(b"GET /");
                let (found, length) = parse(&more).unwrap().unwrap();
                assert_eq!(length, bytes.len());
                assert_eq!(found, client.zip(local));
            }
        }
    }

    #[test]
    fn invalid_headers_are_refused_as_early_as_possible() {
        let endless = [TEXT, &[b'x'; 200]].concat();
        let long = [SIGNATURE, &[0x21, 0x11, 0xff, 0xff], &[0; LONGEST]].concat();
        for bytes in [b"G".as_slice(), b"PROXX", b"\r\n\r\n\0\r\nQUIX", &endless, &long] {
            assert!(parse(bytes).is_err(), "{bytes:?}");
        }
    }
}
