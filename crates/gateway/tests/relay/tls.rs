//! Certificates, and ends of relayed connections that speak TLS or not.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_rustls::rustls::crypto::ring;
use futures_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
use futures_rustls::rustls::{
    self, ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig,
    ServerConnection, SupportedProtocolVersion,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::LIMIT;

/// An authority, and a certificate of it.
pub(super) struct Issued {
    root: rustls::pki_types::CertificateDer<'static>,
    chain: rustls::pki_types::CertificateDer<'static>,
    key: KeyPair,
    authority_pem: String,
    pem: String,
}

impl Issued {
    pub(super) fn new(names: &[&str]) -> Issued {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let made = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        Issued {
            root: authority.der().clone(),
            chain: made.der().clone(),
            key,
            authority_pem: authority.pem(),
            pem: made.pem(),
        }
    }

    /// Writes the files, and returns the keys of TOML for a listener, and the one for an upstream.
    pub(super) fn write(&self, folder: &Path) -> (String, String) {
        let path = |name: &str| folder.join(name);
        std::fs::write(path("ca.pem"), &self.authority_pem).unwrap();
        std::fs::write(path("own.pem"), &self.pem).unwrap();
        std::fs::write(path("own.key"), self.key.serialize_pem()).unwrap();
        let own = format!("certificate = {:?}, key = {:?}", path("own.pem"), path("own.key"));
        (own, format!("ca = {:?}", path("ca.pem")))
    }

    pub(super) fn client(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        name: &str,
        protocols: &[&str],
    ) -> Connection {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_protocol_versions(versions).unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|one| one.as_bytes().to_vec()).collect();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        ClientConnection::new(Arc::new(config), name).unwrap().into()
    }

    pub(super) fn server(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        protocols: &[&str],
    ) -> Connection {
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).unwrap();
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_protocol_versions(versions).unwrap();
        let builder = builder.with_no_client_auth();
        let mut config = builder.with_single_cert(vec![self.chain.clone()], key).unwrap();
        config.alpn_protocols = protocols.iter().map(|one| one.as_bytes().to_vec()).collect();
        ServerConnection::new(Arc::new(config)).unwrap().into()
    }
}

/// How an end stops sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// In order.
    Clean,
    /// The socket's sending side ends without `close_notify`; for a plain end, in order.
    Truncated,
    /// The connection is reset.
    Reset,
}

/// Everything that an end has seen.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Seen {
    pub bytes: Vec<u8>,
    /// The other end has stopped in order.
    pub is_clean: bool,
}

/// One end of a relayed connection.
pub(super) struct Peer {
    socket: TcpStream,
    tls: Option<Connection>,
}

fn is_wait(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

impl Peer {
    pub(super) fn new(socket: TcpStream, tls: Option<Connection>) -> Peer {
        socket.set_nonblocking(true).unwrap();
        socket.set_nodelay(true).unwrap();
        Peer { socket, tls }
    }

    /// Writes the sealed bytes that there is room for. Returns whether none are left.
    fn flush(&mut self) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return Ok(true) };
        while tls.wants_write() {
            match tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if is_wait(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.write(bytes) };
        if tls.is_handshaking() {
            self.flush()?;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if !self.flush()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = self.tls.as_mut().unwrap().writer().write(bytes)?;
        self.flush()?;
        Ok(count)
    }

    /// Reads; 0 is an end in order.
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.tls.is_none() {
            return self.socket.read(room);
        }
        loop {
            self.flush()?;
            let tls = self.tls.as_mut().unwrap();
            match tls.reader().read(room) {
                Err(error) if is_wait(&error) => {}
                outcome => return outcome,
            }
            // At the end of the socket the next turn says whether it came in order.
            tls.read_tls(&mut self.socket)?;
            tls.process_new_packets().map_err(io::Error::other)?;
        }
    }

    /// Stops sending. Returns whether that is done.
    fn end(&mut self, ending: Ending) -> io::Result<bool> {
        match ending {
            Ending::Reset => {
                socket2::SockRef::from(&self.socket).set_linger(Some(Duration::ZERO)).unwrap();
                return Ok(true);
            }
            Ending::Clean => {
                if let Some(tls) = &mut self.tls {
                    tls.send_close_notify();
                }
            }
            Ending::Truncated => {}
        }
        if !self.flush()? {
            return Ok(false);
        }
        self.socket.shutdown(Shutdown::Write)?;
        Ok(true)
    }

    /// Sends these bytes in pieces of these lengths, stops as it is told, and reads until the other
    /// end stops.
    pub(super) fn run(mut self, mut bytes: &[u8], pieces: &[usize], ending: Ending) -> Seen {
        let until = Instant::now() + LIMIT;
        let mut seen = Vec::new();
        let (mut room, mut pieces) = ([0; 5000], pieces.iter().cycle());
        let (mut has_ended, mut is_over, mut has_failed) = (false, None, false);
        while !(has_ended && is_over.is_some()) {
            assert!(Instant::now() < until, "after {} bytes", seen.len());
            let mut has_moved = false;
            if !bytes.is_empty() {
                let length = (*pieces.next().unwrap()).min(bytes.len());
                match self.write(&bytes[..length]) {
                    Ok(count) => (bytes, has_moved) = (&bytes[count..], true),
                    Err(error) if is_wait(&error) => {}
                    // The kernel reports a reset once: to a read after this it is an end.
                    Err(_) => (bytes, has_failed) = (&[], true),
                }
            } else if !has_ended && !self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
                has_ended = self.end(ending).unwrap_or(true);
                if has_ended && ending == Ending::Reset {
                    return Seen { bytes: seen, is_clean: false };
                }
            }
            if is_over.is_none() {
                match self.read(&mut room) {
                    Ok(0) => is_over = Some(true),
                    Ok(count) => {
                        seen.extend_from_slice(&room[..count]);
                        has_moved = true;
                    }
                    Err(error) if is_wait(&error) => {}
                    Err(_) => {
                        is_over = Some(false);
                        (bytes, has_ended) = (&[], true);
                    }
                }
            }
            if !has_moved {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        Seen { bytes: seen, is_clean: is_over == Some(true) && !has_failed }
    }

    /// Completes the handshake, and returns the protocol that was agreed on.
    pub(super) fn protocol(&mut self) -> io::Result<Option<Vec<u8>>> {
        let until = Instant::now() + LIMIT;
        loop {
            assert!(Instant::now() < until);
            self.flush()?;
            let tls = self.tls.as_mut().unwrap();
            if !tls.is_handshaking() {
                return Ok(tls.alpn_protocol().map(<[u8]>::to_vec));
            }
            match tls.read_tls(&mut self.socket) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {
                    let outcome = tls.process_new_packets();
                    outcome.map_err(io::Error::other)?;
                }
                Err(error) if is_wait(&error) => std::thread::sleep(Duration::from_micros(200)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads until the other end stops, without stopping itself.
    pub(super) fn wait(mut self) -> Seen {
        let until = Instant::now() + LIMIT;
        let (mut seen, mut room) = (Vec::new(), [0; 100]);
        loop {
            assert!(Instant::now() < until);
            match self.read(&mut room) {
                Ok(0) => return Seen { bytes: seen, is_clean: true },
                Ok(count) => seen.extend_from_slice(&room[..count]),
                Err(error) if is_wait(&error) => std::thread::sleep(Duration::from_micros(200)),
                Err(_) => return Seen { bytes: seen, is_clean: false },
            }
        }
    }
}
