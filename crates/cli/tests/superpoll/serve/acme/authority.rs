//! An authority of ACME that verifies nothing, and can be made to lie. It speaks HTTP/1.1 over TLS,
//! a connection for each request.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256,
    PublicKeyData, SignatureAlgorithm, date_time_ymd,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::serve::acme::pebble::site;
use crate::superpoll;

/// A response: status, content type, further header lines, body.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) kind: &'static str,
    pub(crate) lines: String,
    pub(crate) body: String,
}

/// A request: method, path, and the payload of its signed body.
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) payload: Value,
}

/// Changes the response to a request, or takes the connection.
pub(crate) type Lie = Arc<dyn Fn(&Request, &mut Response) -> Deed + Send + Sync>;

/// The treatment of a connection.
pub(crate) enum Deed {
    Answer,
    /// The body never ends.
    Endless,
    /// Nothing is answered.
    Silence,
    /// The connection ends before the answer.
    Close,
}

/// The authority at work.
pub(crate) struct Authority {
    pub(crate) folder: TempDir,
    port: u16,
    /// The orders, as clients have sent them.
    pub(crate) orders: Arc<Mutex<Vec<Value>>>,
}

/// The public key of a request for a certificate.
struct Key(Vec<u8>);

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// The parts that all connections share.
struct State {
    base: String,
    issuer: Issuer<'static, KeyPair>,
    certificates: Mutex<Vec<String>>,
    orders: Arc<Mutex<Vec<Value>>>,
    nonces: AtomicU32,
    lie: Lie,
}

impl Authority {
    pub(crate) fn start(lie: Lie) -> Authority {
        let folder = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = certificate.self_signed(&key).unwrap();
        std::fs::write(folder.path().join("ca.pem"), certificate.pem()).unwrap();
        let chain = vec![certificate.der().clone()];
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = Arc::new(config.with_single_cert(chain, key).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "an authority of tests");
        let issuer = Issuer::new(params, KeyPair::generate().unwrap());
        let orders: Arc<Mutex<Vec<Value>>> = Arc::default();
        let base = format!("https://localhost:{port}");
        let (certificates, nonces) = (Mutex::default(), AtomicU32::default());
        let state =
            Arc::new(State { base, issuer, certificates, orders: orders.clone(), nonces, lie });
        // The thread and its connections end with the tests.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let (config, state) = (config.clone(), state.clone());
                thread::spawn(move || {
                    let session = ServerConnection::new(config).unwrap();
                    state.converse(StreamOwned::new(session, stream));
                });
            }
        });
        Authority { folder, port, orders }
    }

    /// Returns the command of a server for a name.
    pub(crate) fn command(&self, name: &str) -> std::process::Command {
        let folder = self.folder.path();
        let mut command = superpoll();
        command.args(["serve", "--https", name, "--acme", &self.directory()]);
        command.arg("--acme-ca").arg(folder.join("ca.pem"));
        command.arg("--state").arg(folder.join("state")).arg(site(folder));
        command.args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--stats", "off"]);
        command
    }

    pub(crate) fn directory(&self) -> String {
        format!("https://localhost:{}/dir", self.port)
    }

    /// Returns the folder of the authority's certificates.
    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join(format!("state/acme/localhost-{}-dir", self.port))
    }
}

/// Reads a request; `None` if the client has gone.
fn read(stream: &mut StreamOwned<ServerConnection, TcpStream>) -> Option<Request> {
    let mut bytes = Vec::new();
    let mut room = [0; 4096];
    let (head, start) = loop {
        let count = stream.read(&mut room).ok().filter(|count| *count > 0)?;
        bytes.extend(&room[..count]);
        if let Some(end) = bytes.windows(4).position(|part| part == b"\r\n\r\n") {
            break (String::from_utf8(bytes[..end].to_vec()).ok()?, end + 4);
        }
    };
    let length = head.lines().find_map(|line| {
        line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse::<usize>().ok()
    });
    while bytes.len() < start + length.unwrap_or(0) {
        let count = stream.read(&mut room).ok().filter(|count| *count > 0)?;
        bytes.extend(&room[..count]);
    }
    let signed: Value = serde_json::from_slice(&bytes[start..]).unwrap_or_default();
    let payload = signed["payload"].as_str().unwrap_or("");
    let payload = BASE64URL_NOPAD.decode(payload.as_bytes()).unwrap();
    let mut words = head.split_ascii_whitespace();
    Some(Request {
        method: words.next()?.to_owned(),
        path: words.next()?.to_owned(),
        payload: serde_json::from_slice(&payload).unwrap_or_default(),
    })
}

impl State {
    fn converse(&self, mut stream: StreamOwned<ServerConnection, TcpStream>) {
        let Some(request) = read(&mut stream) else { return };
        let mut response = self.respond(&request);
        let deed = (self.lie)(&request, &mut response);
        let nonce = self.nonces.fetch_add(1, Ordering::Relaxed);
        let Response { status, kind, lines, body } = response;
        let length = match deed {
            Deed::Silence => return thread::sleep(Duration::from_secs(600)),
            Deed::Close => return,
            Deed::Endless => String::new(),
            Deed::Answer => format!("Content-Length: {}\r\n", body.len()),
        };
        let body = if request.method == "HEAD" { "" } else { &body };
        let text = format!(
            "HTTP/1.1 {status} Status\r\nConnection: close\r\nContent-Type: {kind}\r\n\
             Replay-Nonce: nonce{nonce}\r\n{lines}{length}\r\n{body}"
        );
        let _ = stream.write_all(text.as_bytes());
        while matches!(deed, Deed::Endless) && stream.write_all(&[b' '; 4096]).is_ok() {}
        stream.conn.send_close_notify();
        let _ = stream.flush();
    }

    fn respond(&self, request: &Request) -> Response {
        let base = &self.base;
        let answer = |status, lines: String, body: Value| {
            let kind = "application/json";
            Response { status, kind, lines, body: body.to_string() }
        };
        let order = |number: usize, status: &str, replaces: &Value| {
            let mut body = json!({
                "status": status,
                "identifiers": [],
                "authorizations": [],
                "finalize": format!("{base}/finalize/{number}"),
            });
            if status == "valid" {
                body["certificate"] = json!(format!("{base}/certificate/{number}"));
            }
            if !replaces.is_null() {
                body["replaces"] = replaces.clone();
            }
            body
        };
        let mut parts = request.path.trim_start_matches('/').split('/');
        let (what, number) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let index = number.parse::<usize>().unwrap_or(0);
        match what {
            "dir" => answer(
                200,
                String::new(),
                json!({
                    "newNonce": format!("{base}/nonce"),
                    "newAccount": format!("{base}/account"),
                    "newOrder": format!("{base}/new"),
                    "renewalInfo": format!("{base}/renewal"),
                }),
            ),
            "account" => {
                let body = json!({ "status": "valid" });
                answer(201, format!("Location: {base}/account/1\r\n"), body)
            }
            "new" => {
                let mut orders = self.orders.lock().unwrap();
                orders.push(request.payload.clone());
                let number = orders.len() - 1;
                let body = order(number, "ready", &request.payload["replaces"]);
                answer(201, format!("Location: {base}/order/{number}\r\n"), body)
            }
            "finalize" => {
                let csr = request.payload["csr"].as_str().unwrap();
                let csr = BASE64URL_NOPAD.decode(csr.as_bytes()).unwrap();
                // The only point on the curve in it: 4, and twice 32 bytes.
                let start = csr.windows(3).position(|part| part == [0x42, 0, 4]).unwrap() + 2;
                let key = Key(csr[start..start + 65].to_vec());
                let orders = self.orders.lock().unwrap();
                let name = orders[index]["identifiers"][0]["value"].as_str().unwrap().to_owned();
                // Two names for certificates that are of no use.
                let issued = name.replace("wrong.", "other.");
                let mut params = CertificateParams::new([issued]).unwrap();
                if name.starts_with("ended.") {
                    params.not_after = date_time_ymd(2020, 1, 1);
                }
                params.use_authority_key_identifier_extension = true;
                let certificate = params.signed_by(&key, &self.issuer).unwrap();
                let mut certificates = self.certificates.lock().unwrap();
                certificates.resize(orders.len(), String::new());
                certificates[index] = certificate.pem();
                answer(200, String::new(), order(index, "valid", &Value::Null))
            }
            "order" => {
                let made = self.certificates.lock().unwrap();
                let is_made = made.get(index).is_some_and(|made| !made.is_empty());
                let status = if is_made { "valid" } else { "ready" };
                answer(200, String::new(), order(index, status, &Value::Null))
            }
            "certificate" => Response {
                status: 200,
                kind: "application/pem-certificate-chain",
                lines: String::new(),
                body: self.certificates.lock().unwrap()[index].clone(),
            },
            "renewal" => {
                let window = json!({
                    "start": "2050-01-01T00:00:00Z",
                    "end": "2050-01-02T00:00:00Z",
                });
                let lines = "Retry-After: 21600\r\n".to_owned();
                answer(200, lines, json!({ "suggestedWindow": window }))
            }
            _ => answer(200, String::new(), json!({})),
        }
    }
}
