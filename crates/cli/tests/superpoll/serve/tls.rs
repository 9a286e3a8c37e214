//! TLS as OpenSSL sees it.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::stage::{Server, Site, connect, tool, until};

const TEXT: &str = "
    [[listeners]]
    address = \"127.0.0.1:0\"
    tls = { certificate = \"cert.pem\", key = \"cert.key\" }
    [[hosts]]
    [[hosts.routes]]
    files = { root = \"www\" }
";

fn serve(site: &Site, more: &str) -> Server {
    site.certificate();
    Server::configured(&site.write("tls.toml", &format!("{TEXT}{more}")), 1)
}

/// Connects with OpenSSL's client, which sends `request` when the handshake is done. It ends with
/// the connection, and after the handshake if there is no request.
fn client(openssl: &Path, to: SocketAddr, arguments: &[&str], request: &str) -> Output {
    let mut command = Command::new(openssl);
    command.args(["s_client", "-connect", &to.to_string()]);
    if !request.is_empty() {
        command.arg("-ign_eof");
    }
    command.args(["-servername", "localhost"]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // The client may have ended already, because it was refused.
    let _ = input.write_all(request.as_bytes());
    drop(input);
    child.wait_with_output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into_owned()
}

const GET: &str = "GET /small HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

#[test]
fn both_versions_of_tls_carry_a_request() {
    let Some(openssl) = tool("openssl") else { return };
    let site = Site::new();
    let server = serve(&site, "");
    let pem = site.path("cert.pem");
    let trust = ["-CAfile", pem.to_str().unwrap(), "-verify_return_error"];
    for (version, name) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let arguments = [&[version, "-alpn", "http/1.1"], &trust[..]].concat();
        let told = text(&client(&openssl, server.at(0), &arguments, GET));
        for part in [name, "ALPN protocol: http/1.1", "HTTP/1.1 200 OK", "0123456789"] {
            assert!(told.contains(part), "{version}: {part:?} is missing in {told}");
        }
    }
    let told = text(&client(&openssl, server.at(0), &["-alpn", "h2,http/1.1"], ""));
    assert!(told.contains("ALPN protocol: h2"), "{told}");
    // A client that names no protocols gets the older one.
    let told = text(&client(&openssl, server.at(0), &[], GET));
    assert!(told.contains("No ALPN negotiated") && told.contains("HTTP/1.1 200 OK"), "{told}");
    server.finish();
}

#[test]
fn clients_without_common_parameters_are_refused_and_compatible_ones_served() {
    let Some(openssl) = tool("openssl") else { return };
    let site = Site::new();
    let server = serve(&site, "");
    let cases: [&[&str]; 4] = [
        &["-tls1_2", "-cipher", "AES128-SHA"],
        &["-tls1_3", "-ciphersuites", "TLS_AES_128_CCM_SHA256"],
        &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
        &["-alpn", "spdy/3"],
    ];
    for arguments in cases {
        let output = client(&openssl, server.at(0), arguments, GET);
        let told = text(&output);
        assert!(!told.contains("HTTP/1.1 200"), "{arguments:?}: {told}");
        assert!(told.contains("alert"), "{arguments:?}: {told}");
    }
    let told = text(&client(&openssl, server.at(0), &[], GET));
    assert!(told.contains("HTTP/1.1 200 OK"), "{told}");
    server.finish();
}

#[test]
fn connections_without_tls_end_with_an_alert_or_a_timeout() {
    let Some(openssl) = tool("openssl") else { return };
    let site = Site::new();
    let server = serve(&site, "[timeouts]\nheader = \"2s\"");
    let mut silent = connect(server.at(0));
    let mut half = connect(server.at(0));
    // The beginning of a record that never ends.
    half.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
    for garbage in [GET.as_bytes(), &[0; 64], &[0xff; 4096], &[0x16, 3, 1, 0, 1, 0, 0, 0]] {
        let mut stream = connect(server.at(0));
        stream.write_all(garbage).unwrap();
        let mut answer = Vec::new();
        // The connection may be reset, as the server has not read all of it.
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP"), "it answers garbage");
        assert!(answer.is_empty() || answer[0] == 0x15, "{answer:?} is no alert");
    }
    // A client that needs more than those two seconds is not served.
    until("another client is served", || {
        text(&client(&openssl, server.at(0), &[], GET)).contains("HTTP/1.1 200 OK")
    });
    for stream in [&mut silent, &mut half] {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer[0] == 0x15, "{answer:?}");
    }
    server.finish();
}
