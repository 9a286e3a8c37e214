//! The client's end of a connection, encrypted or not, and the certificate that servers show.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, NamedGroup, RootCertStore};

use crate::error::{Error, Result};

/// The name in the certificate.
const NAME: &str = "localhost";

/// The protocol of HTTP/2 (ALPN).
const H2: &[u8] = b"h2";

/// The most tickets that are kept, for clients that connect again at the same time.
const MOST_TICKETS: usize = 4096;

/// A certificate in a folder.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    /// The file of the certificate.
    pub certificate: PathBuf,
    /// The file of its key.
    pub key: PathBuf,
    /// The file with both.
    pub both: PathBuf,
    roots: Arc<RootCertStore>,
}

fn failed(error: &dyn std::fmt::Display) -> Error {
    Error::usage(format!("making a certificate: {error}"))
}

impl Certificate {
    /// Makes a certificate for `localhost` and writes it into a folder.
    pub(crate) fn make(folder: &Path) -> Result<Certificate> {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()])
            .map_err(|error| failed(&error))?;
        let [certificate, key, both] =
            ["localhost.pem", "localhost.key", "both.pem"].map(|name| folder.join(name));
        let (public, private) = (made.cert.pem(), made.signing_key.serialize_pem());
        for (path, text) in [(&certificate, &public), (&key, &private)] {
            fs::write(path, text).map_err(|error| failed(&error))?;
        }
        fs::write(&both, public + &private).map_err(|error| failed(&error))?;
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).map_err(|error| failed(&error))?;
        Ok(Certificate { certificate, key, both, roots: Arc::new(roots) })
    }

    /// Returns the settings of clients that trust it. They speak TLS 1.3 alone, as the default
    /// versions of servers differ.
    pub(crate) fn client(&self, offer: Offer) -> Result<Arc<ClientConfig>> {
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| failed(&error))?
            .with_root_certificates(Arc::clone(&self.roots))
            .with_no_client_auth();
        config.resumption = match offer {
            Offer::Resumption => Resumption::store(Arc::new(Tickets::default())),
            _ => Resumption::disabled(),
        };
        if offer == Offer::Http2 {
            config.alpn_protocols = vec![H2.to_vec()];
        }
        Ok(Arc::new(config))
    }

    /// Returns nginx's directives that name it. Versions before 1.23.4 have no TLS 1.3 by default.
    pub(crate) fn directives_of_nginx(&self) -> String {
        format!(
            "ssl_protocols TLSv1.3; ssl_certificate {:?}; ssl_certificate_key {:?};",
            self.certificate, self.key
        )
    }
}

/// The offer of a client in its handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Offer {
    /// HTTP/1.1, and a full handshake each time.
    Http1,
    /// The same, with a ticket of an earlier connection.
    Resumption,
    /// HTTP/2.
    Http2,
}

/// Tickets of one server, each of which is used once, as clients should.
#[derive(Debug, Default)]
struct Tickets(Mutex<Vec<Tls13ClientSessionValue>>);

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < MOST_TICKETS {
            all.push(ticket);
        }
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

/// The client's end of a connection.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

impl Channel {
    /// Takes a connected stream, which is encrypted if there are settings for that. The handshake
    /// begins with the first bytes that are sent.
    pub(crate) fn new(stream: TcpStream, tls: Option<&Arc<ClientConfig>>) -> io::Result<Channel> {
        let begun = tls.map(|config| {
            let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
            ClientConnection::new(Arc::clone(config), name).map(Box::new).map_err(io::Error::other)
        });
        Ok(Channel { stream, tls: begun.transpose()? })
    }

    /// Whether its handshake was a resumed one.
    pub(crate) fn is_resumed(&self) -> bool {
        let kind = self.tls.as_ref().and_then(|tls| tls.handshake_kind());
        kind == Some(HandshakeKind::Resumed)
    }

    /// Sends bytes, all of them at once.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            None => self.stream.write_all(bytes),
            Some(tls) => {
                tls.writer().write_all(bytes)?;
                flush(tls, &mut self.stream)
            }
        }
    }

    /// Reads once what has arrived, up to the length of the room, which has to be 32 KiB if the
    /// connection is encrypted. Returns zero at the end.
    pub(crate) fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.stream.read(room),
            Some(tls) => {
                if tls.read_tls(&mut self.stream)? == 0 {
                    return Ok(0);
                }
                tls.process_new_packets().map_err(io::Error::other)?;
                // The first bytes wait until the handshake is over.
                flush(tls, &mut self.stream)?;
                tls.reader().read(room)
            }
        }
    }
}

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}

fn flush(tls: &mut ClientConnection, stream: &mut TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(stream)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ServerConfig, ServerConnection, StreamOwned};

    use super::*;

    /// A server that echoes the first byte of each of some connections.
    fn served(made: &Certificate, connections: usize) -> u16 {
        let certificate = CertificateDer::from_pem_file(&made.certificate).unwrap();
        let key = PrivateKeyDer::from_pem_file(&made.key).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        config.alpn_protocols = vec![H2.to_vec(), b"http/1.1".to_vec()];
        let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").unwrap());
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for _ in 0..connections {
                let session = ServerConnection::new(Arc::clone(&config)).unwrap();
                let mut stream = StreamOwned::new(session, listener.accept().unwrap().0);
                let mut byte = [0];
                if stream.read(&mut byte).is_ok_and(|count| count > 0) {
                    stream.write_all(&byte).unwrap();
                }
            }
        });
        port
    }

    /// Sends a byte and reads it again; returns whether the handshake was a resumed one.
    fn exchanged(port: u16, config: &Arc<ClientConfig>) -> bool {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut channel = Channel::new(stream, Some(config)).unwrap();
        channel.send(b"x").unwrap();
        let mut room = vec![0; 1 << 15];
        let count = loop {
            match channel.read(&mut room) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => break read.unwrap(),
            }
        };
        assert_eq!(&room[..count], b"x");
        channel.is_resumed()
    }

    #[test]
    fn sessions_are_resumed_where_that_is_offered_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let made = Certificate::make(folder.path()).unwrap();
        let port = served(&made, 8);
        for (offer, expected) in [
            (Offer::Http1, [false; 2]),
            (Offer::Http2, [false; 2]),
            (Offer::Resumption, [false, true]),
        ] {
            let config = made.client(offer).unwrap();
            assert_eq!([(); 2].map(|()| exchanged(port, &config)), expected, "{offer:?}");
        }
        // Another certificate is not trusted.
        let other = Certificate::make(tempfile::tempdir().unwrap().path()).unwrap();
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let config = other.client(Offer::Http1).unwrap();
        let mut channel = Channel::new(stream, Some(&config)).unwrap();
        channel.send(b"x").unwrap();
        let mut room = vec![0; 1 << 15];
        let error = loop {
            match channel.read(&mut room) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => break read.unwrap_err().to_string(),
            }
        };
        assert!(error.contains("certificate"), "{error}");
    }
}
