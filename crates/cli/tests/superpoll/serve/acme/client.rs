//! A client of HTTPS that trusts one authority: it does the handshake and shows the certificate.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

/// The certificate that a server shows for a name, if the handshake succeeds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shown {
    pub(crate) serial: String,
    pub(crate) text: String,
}

/// Asks a server for the certificate of a name; `None` if the handshake fails.
pub(crate) fn shown(at: SocketAddr, name: &str) -> Option<Shown> {
    let mut client = Command::new("openssl")
        .args(["s_client", "-connect", &at.to_string(), "-servername", name])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = Vec::new();
    client.stdout.take().unwrap().read_to_end(&mut output).unwrap();
    client.wait().unwrap();
    let text = String::from_utf8_lossy(&output);
    let start = text.find("-----BEGIN CERTIFICATE-----")?;
    let mut reader = Command::new("openssl")
        .args(["x509", "-noout", "-serial", "-subject", "-ext", "subjectAltName,keyUsage"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    reader.stdin.take().unwrap().write_all(&text.as_bytes()[start..]).unwrap();
    let output = reader.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let serial = text.lines().find_map(|line| line.strip_prefix("serial="));
    Some(Shown { serial: serial?.to_owned(), text: text.clone() })
}

/// Runs curl for a URL of a name that leads to this machine; returns its output and status.
pub(crate) fn curl(root: &Path, at: SocketAddr, name: &str) -> Result<String, i32> {
    let port = at.port();
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "60", "--noproxy", "*", "--cacert"])
        .arg(root)
        .args(["--resolve", &format!("{name}:{port}:{}", at.ip())])
        .arg(format!("https://{name}:{port}/"))
        .output()
        .unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(output.status.code().unwrap_or(-1)),
    }
}
