//! curl as a client of `http_echo` and `tls_echo`.

use std::io::Write;
use std::process::{Command, Stdio};

use superpoll_rt::BackendKind;

use super::example::{Example, noise};

/// Returns curl's output, unless there is no curl, or a curl that lacks a feature.
fn curl(feature: &str, arguments: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let Ok(version) = Command::new("curl").arg("--version").output() else {
        println!("skipped: there is no curl");
        return None;
    };
    if !String::from_utf8_lossy(&version.stdout).contains(feature) {
        println!("skipped: this curl lacks {feature}");
        return None;
    }
    let mut child = Command::new("curl")
        .args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--max-time", "60"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            // It does not read input that it was not told to read.
            let _ = stdin.write_all(input);
        });
        child.wait_with_output().unwrap()
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "curl {arguments:?}: {}: {said}", output.status);
    Some(output.stdout)
}

/// Like [`curl`], for answers that are text.
fn text(feature: &str, arguments: &[&str]) -> Option<String> {
    curl(feature, arguments, b"").map(|answer| String::from_utf8(answer).unwrap())
}

#[test]
fn two_requests_of_http_1_on_one_connection_on_each_back_end() {
    for kind in BackendKind::available() {
        let server = Example::start("http_echo", kind);
        let url = server.url("http", "127.0.0.1", "/");
        let report = "|%{http_version} %{http_code} %{num_connects}\n";
        let Some(answers) = text("http", &["--http1.1", "-w", report, &url, &url]) else { return };
        assert_eq!(answers, "OK|1.1 200 1\nOK|1.1 200 0\n", "{kind}: the second connects no more");
    }
}

/// One request a connection: curl 7.88 fails at the second, whatever the server (curl's issue
/// 10634).
#[test]
fn http_2_without_an_upgrade_on_each_back_end() {
    for kind in BackendKind::available() {
        let server = Example::start("http_echo", kind);
        let url = server.url("http", "127.0.0.1", "/");
        let report = "|%{http_version} %{http_code}";
        let arguments = ["--http2-prior-knowledge", "-w", report, &url];
        let Some(answer) = text("HTTP2", &arguments) else { return };
        assert_eq!(answer, "OK|2 200", "{kind}");
    }
}

#[test]
fn a_mebibyte_comes_back_by_either_version_on_each_back_end() {
    let sent = noise(1, 1 << 20);
    for kind in BackendKind::available() {
        let server = Example::start("http_echo", kind);
        let url = server.url("http", "127.0.0.1", "/");
        for (version, feature) in [("--http1.1", "http"), ("--http2-prior-knowledge", "HTTP2")] {
            let arguments = [version, "--data-binary", "@-", "-H", "Expect:", &url];
            let Some(received) = curl(feature, &arguments, &sent) else { return };
            assert!(received == sent, "{kind} {version}");
        }
    }
}

#[test]
fn an_upload_of_unknown_length_comes_back_in_chunks() {
    let sent = noise(2, 3 << 20);
    let server = Example::start("http_echo", BackendKind::Adaptive);
    let url = server.url("http", "127.0.0.1", "/");
    let arguments = ["--http1.1", "-X", "POST", "-T", "-", "-H", "Expect: 100-continue", &url];
    let Some(received) = curl("http", &arguments, &sent) else { return };
    assert!(received == sent);
}

#[test]
fn the_headers_of_the_request_are_answered() {
    let server = Example::start("http_echo", BackendKind::Adaptive);
    let url = server.url("http", "127.0.0.1", "/echo");
    for (version, feature) in [("--http1.1", "http"), ("--http2-prior-knowledge", "HTTP2")] {
        let arguments = [version, "-H", "X-Seen: by the server", "-A", "tester", &url];
        let Some(answer) = text(feature, &arguments) else { return };
        assert!(answer.contains("x-seen: by the server\n"), "{answer}");
        assert!(answer.contains("user-agent: tester\n"), "{answer}");
    }
}

#[test]
fn missing_pages_and_forbidden_methods_have_their_status() {
    let server = Example::start("http_echo", BackendKind::Adaptive);
    let report = "%{http_code}";
    for (path, method, status) in [("/nothing", "GET", "404"), ("/", "DELETE", "405")] {
        let url = server.url("http", "127.0.0.1", path);
        let arguments = ["--no-fail", "-o", "/dev/null", "-w", report, "-X", method, &url];
        let Some(answer) = text("http", &arguments) else { return };
        assert_eq!(answer, status, "{method} {path}");
    }
}

#[test]
fn https_by_either_version_on_each_back_end() {
    let sent = noise(3, 1 << 20);
    for kind in BackendKind::available() {
        let mut server = Example::start("tls_echo", kind);
        let certificate = server.output_until("-----END CERTIFICATE-----");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("certificate.pem");
        std::fs::write(&file, certificate).unwrap();
        let (file, url) = (file.to_str().unwrap(), server.url("https", "localhost", "/"));
        let resolve = format!("localhost:{}:127.0.0.1", server.address.port());
        let trust = ["--cacert", file, "--resolve", &resolve];
        let report = "%{http_version} %{num_connects}\n";
        for (flag, feature, version) in [("--http1.1", "https", "1.1"), ("--http2", "HTTP2", "2")] {
            let upload = [&trust[..], &[flag, "--data-binary", "@-", &url]].concat();
            let Some(received) = curl(feature, &upload, &sent) else { return };
            assert!(received == sent, "{kind} {version}");

            let twice = [&trust[..], &[flag, "-w", report, "-d", "hi ", &url, &url]].concat();
            let Some(answers) = text(feature, &twice) else { return };
            let expected = format!("hi {version} 1\nhi {version} 0\n");
            assert_eq!(answers, expected, "{kind}: the second connects no more");
        }
    }
}
