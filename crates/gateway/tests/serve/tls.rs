//! Certificates and clients of TLS.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use futures_rustls::rustls::crypto::ring;
use futures_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use futures_rustls::rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned,
    SupportedProtocolVersion,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use superpoll_gateway::Address;

use crate::stage::{PATIENCE, Stage};

/// A certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

/// A certificate that an authority has issued.
pub(crate) struct Issued {
    pub pem: String,
    pub der: CertificateDer<'static>,
    pub key: KeyPair,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// Issues a certificate for some names until the end of a year.
    pub(crate) fn issue(&self, names: &[&str], until: i32) -> Issued {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names.clone()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Example, Inc.");
        params.distinguished_name.push(DnType::CommonName, names[0].as_str());
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 12, 31);
        let key = KeyPair::generate().unwrap();
        let made = params.signed_by(&key, &self.issuer).unwrap();
        Issued { pem: made.pem(), der: made.der().clone(), key }
    }
}

impl Issued {
    /// Writes the certificate and its key, and returns the two files as a table of TOML.
    pub(crate) fn write(&self, folder: &Path, name: &str) -> String {
        let file = |end: &str| -> PathBuf { folder.join(format!("{name}.{end}")) };
        std::fs::write(file("pem"), &self.pem).unwrap();
        std::fs::write(file("key"), self.key.serialize_pem()).unwrap();
        format!("certificate = {:?}, key = {:?}", file("pem"), file("key"))
    }
}

/// Takes every certificate, so that the tests see the one that was chosen.
#[derive(Debug)]
struct TakesAll;

impl ServerCertVerifier for TakesAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A client of TLS.
pub(crate) struct TlsClient<'a> {
    pub name: &'a str,
    pub versions: &'static [&'static SupportedProtocolVersion],
    pub shows: Option<&'a Issued>,
}

impl<'a> TlsClient<'a> {
    pub(crate) fn new(name: &'a str) -> TlsClient<'a> {
        TlsClient { name, versions: futures_rustls::rustls::ALL_VERSIONS, shows: None }
    }

    /// Sends a request, and returns the server's certificate and the response.
    pub(crate) fn ask(&self, to: &Address, request: &str) -> io::Result<(Vec<u8>, String)> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(self.versions)
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(TakesAll));
        let mut config = match self.shows {
            None => builder.with_no_client_auth(),
            Some(shown) => {
                let key = PrivateKeyDer::try_from(shown.key.serialize_der()).unwrap();
                builder.with_client_auth_cert(vec![shown.der.clone()], key).unwrap()
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Without a name: an address has none.
        let name = ServerName::try_from(self.name.to_owned()).unwrap();
        let client = ClientConnection::new(Arc::new(config), name).unwrap();
        let Address::Tcp { host, port } = to else { panic!("it is TCP") };
        let stream = TcpStream::connect((host.as_deref().unwrap(), *port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut stream = StreamOwned::new(client, stream);
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let shown = stream.conn.peer_certificates().unwrap()[0].to_vec();
        Ok((shown, String::from_utf8(answer).unwrap()))
    }

    /// Gets a path.
    pub(crate) fn get(&self, to: &Address, path: &str) -> io::Result<(Vec<u8>, String)> {
        let name = self.name;
        self.ask(to, &format!("GET {path} HTTP/1.1\r\nhost: {name}\r\nconnection: close\r\n\r\n"))
    }
}

/// A server of a folder whose TLS has these settings.
pub(crate) fn stage(folder: &Path, tls: &str) -> Stage {
    std::fs::write(folder.join("hello.txt"), "hello\n").unwrap();
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\ntls = {{ {tls} }}\n[metrics]\npublic = true\n\
         [[hosts]]\n[[hosts.routes]]\nfiles.root = {folder:?}\n"
    );
    Stage::new(superpoll_rt::BackendKind::Adaptive, 1, &text)
}
