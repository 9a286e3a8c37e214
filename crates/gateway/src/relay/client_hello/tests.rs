use std::sync::Arc;

use futures_rustls::rustls::crypto::ring;
use futures_rustls::rustls::pki_types::ServerName;
use futures_rustls::rustls::server::Acceptor;
use futures_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore};
use proptest::prelude::*;

use super::*;

/// Returns the first bytes of a client of rustls.
fn hello(name: &str, protocols: usize) -> Vec<u8> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    config.alpn_protocols = (0..protocols).map(|number| vec![b'a'; number % 200 + 1]).collect();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// Splits the message of the first bytes into records of other lengths.
fn split(bytes: &[u8], lengths: &[usize]) -> Vec<u8> {
    let mut message = Vec::new();
    let mut rest = bytes;
    while let [_, _, _, high, low, after @ ..] = rest {
        let (fragment, others) = after.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        message.extend_from_slice(fragment);
        rest = others;
    }
    let (mut records, mut rest, mut lengths) = (Vec::new(), &message[..], lengths.iter().cycle());
    while !rest.is_empty() {
        let (fragment, others) = rest.split_at((*lengths.next().unwrap()).min(rest.len()));
        records.extend_from_slice(&[HANDSHAKE, 3, 1]);
        records.extend_from_slice(&u16::try_from(fragment.len()).unwrap().to_be_bytes());
        records.extend_from_slice(fragment);
        rest = others;
    }
    records
}

/// Returns the name that rustls reads, if it takes the bytes for a whole message.
fn by_rustls(bytes: &[u8]) -> Option<Option<String>> {
    let (mut acceptor, mut rest) = (Acceptor::default(), bytes);
    loop {
        if let Some(accepted) = acceptor.accept().ok()? {
            return Some(accepted.client_hello().server_name().map(str::to_ascii_lowercase));
        }
        if acceptor.read_tls(&mut rest).ok()? == 0 {
            return None;
        }
    }
}

#[test]
fn names_are_read_however_the_message_is_split() {
    for (name, expected) in [
        ("db.example.org", Some("db.example.org")),
        ("A.EXAMPLE", Some("a.example")),
        // An address is no server name.
        ("192.0.2.1", None),
    ] {
        for protocols in [0, 60] {
            let whole = hello(name, protocols);
            for lengths in [&[1][..], &[3], &[7, 1, 200], &[16_384]] {
                let bytes = split(&whole, lengths);
                for cut in 0..bytes.len() {
                    assert_eq!(parse(&bytes[..cut]), Greeting::Incomplete, "{name} {cut}");
                }
                let found = Greeting::Hello(expected.map(str::to_owned));
                assert_eq!(parse(&bytes), found, "{name}");
                let followed = [&bytes[..], b"\x17\x03\x03\x00\x01x and early data"].concat();
                assert_eq!(parse(&followed), found, "{name}");
            }
        }
    }
}

#[test]
fn other_protocols_are_known_by_their_first_bytes() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"\0\0\0\x08\x04\xd2\x16\x2f",
        b"SSH-2.0-x",
        b"\x16\x02",
        b"\x16GET",
        b"\x16\x03\x01\0\0",
        b"\x16\x03\x01\x40\x01",
        b"\x16\x03\x01\0\x01\x02",
        b"\x15\x03\x01\0\x02\x01\0",
        // A record of another type in the middle of the message.
        b"\x16\x03\x01\0\x02\x01\0\x17\x03\x03\0\x01x",
    ] {
        assert_eq!(parse(bytes), Greeting::Other, "{bytes:?}");
    }
    for bytes in [&b""[..], b"\x16", b"\x16\x03", b"\x16\x03\x01\0", b"\x16\x03\x01\0\x01\x01"] {
        assert_eq!(parse(bytes), Greeting::Incomplete, "{bytes:?}");
    }
}

proptest! {
    /// Whatever rustls takes for a message has the same name here, and no bytes make the reader
    /// panic.
    #[test]
    fn the_name_is_that_of_rustls(
        name in "[a-z]{1,8}\\.[A-Za-z]{2,6}",
        lengths in prop::collection::vec(1_usize..400, 1..6),
        changes in prop::collection::vec((0_usize..4000, any::<u8>()), 0..3),
        cut in 0_usize..4000,
    ) {
        let mut bytes = split(&hello(&name, 2), &lengths);
        for (at, byte) in &changes {
            let at = at % bytes.len();
            bytes[at] = *byte;
        }
        if cut < bytes.len() / 4 {
            bytes.truncate(cut);
        }
        let found = parse(&bytes);
        if let Some(expected) = by_rustls(&bytes) {
            prop_assert_eq!(found, Greeting::Hello(expected));
        } else if changes.is_empty() {
            prop_assert_eq!(found, Greeting::Incomplete);
        }
    }
}
