//! Clients of TLS of other projects: curl, OpenSSL, Python, Go, Java. Each makes several requests
//! on one connection, sends and gets a large body, goes on after the connection was parked, resumes
//! its session, and takes an end that is not announced for an error.
//!
//! The programs of the languages are in the folder of this module. Each writes `idle` and waits for
//! a line, which it gets when its connection is parked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::stage::{Running, Server, Site, connect, get, noise, run, tool, until};

const TEXT: &str = "
    [server]
    workers = 1
    [[listeners]]
    address = \"127.0.0.1:0\"
    tls = { certificate = \"cert.pem\", key = \"cert.key\" }
    [[listeners]]
    address = \"127.0.0.1:0\"
    [[hosts]]
    [[hosts.routes]]
    files = { root = \"www\" }
    [[hosts.routes]]
    path = \"/c\"
    channel = { message_bytes = \"2MiB\", publish = \"anyone\" }
    [metrics]
    [timeouts]
    park = \"50ms\"
    # A program may take long to start, and the connection to the counters is silent meanwhile.
    header = \"10m\"
    idle = \"10m\"";

const VERSIONS: [&str; 2] = ["TLSv1.2", "TLSv1.3"];

/// A server with a certificate and a large file, and a connection to its counters.
struct Front {
    site: Site,
    server: Server,
    metrics: TcpStream,
    large: PathBuf,
}

impl Front {
    fn new() -> Front {
        let site = Site::new();
        site.certificate();
        let large = site.path("www/large");
        std::fs::write(&large, noise(3 << 20)).unwrap();
        let server = Server::configured(&site.write("clients.toml", TEXT), 2);
        let metrics = connect(server.at(1));
        Front { site, server, metrics, large }
    }

    fn port(&self) -> String {
        self.server.at(0).port().to_string()
    }

    fn certificate(&self) -> PathBuf {
        self.site.path("cert.pem")
    }

    /// Waits until one connection is parked: that of the counters is at work when they are read.
    fn until_parked(&mut self) {
        let metrics = &mut self.metrics;
        until("the connection is parked", || {
            get(metrics, "/metrics").contains("superpoll_connections_parked{engine=\"0\"} 1.0\n")
        });
    }

    /// Runs a program with each version of TLS, and lets it go on when its connection is parked.
    fn drive(mut self, command: impl Fn() -> Command) {
        for version in VERSIONS {
            let mut command = command();
            command.arg(self.port()).arg(self.certificate()).args([version]).arg(&self.large);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = Running(command.spawn().unwrap());
            let mut input = child.0.stdin.take().unwrap();
            let mut pauses = 0;
            let mut lines = Vec::new();
            for line in BufReader::new(child.0.stdout.take().unwrap()).lines() {
                let line = line.unwrap();
                if line == "idle" {
                    self.until_parked();
                    pauses += 1;
                    input.write_all(b"\n").unwrap();
                }
                lines.push(line);
            }
            let told = ended(&mut child.0);
            assert!(lines.ends_with(&["done".to_owned()]), "{version}: {lines:?} {told}");
            assert!(pauses >= 2, "{version}: {lines:?}");
        }
        self.server.finish();
    }
}

/// Returns the standard error of a program that has ended.
fn ended(child: &mut Child) -> String {
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    told
}

/// Returns the path of a program's source.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/superpoll/serve/tls_clients").join(name)
}

#[test]
fn python() {
    let Some(python) = tool("python3") else { return };
    Front::new().drive(|| {
        let mut command = Command::new(&python);
        command.arg(source("client.py"));
        command
    });
}

#[test]
fn java() {
    let Some(java) = tool("java") else { return };
    // The program is compiled as it starts, so a JDK is needed.
    let modules = run(Command::new(&java).arg("--list-modules"));
    if !modules.contains("jdk.compiler") || !modules.contains("java.net.http") {
        println!("skipped: {} is no JDK of version 11 or later", java.display());
        return;
    }
    Front::new().drive(|| {
        let mut command = Command::new(&java);
        command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]).arg(source("Client.java"));
        command
    });
}

#[test]
#[ignore = "compiles Go's libraries, which takes 25 seconds the first time"]
fn go() {
    let Some(go) = tool("go") else { return };
    let front = Front::new();
    let program = front.site.path("client");
    let mut command = Command::new(&go);
    command.env("GO111MODULE", "off").env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0");
    run(command.args(["build", "-o"]).arg(&program).arg(source("client.go")));
    front.drive(|| Command::new(&program));
}

#[test]
fn curl() {
    let Some(curl) = tool("curl") else { return };
    let front = Front::new();
    let (pem, received) = (front.certificate(), front.site.path("received"));
    let body = front.site.path("body");
    std::fs::write(&body, noise(1 << 20)).unwrap();
    let url = |path: &str| format!("https://localhost:{}/{path}", front.port());
    for version in ["--http1.1", "--http2"] {
        for oldest in [&["--tlsv1.3"][..], &["--tls-max", "1.2"]] {
            let mut command = Command::new(&curl);
            command.args(["-sS", "--max-time", "60", version]).args(oldest);
            command.arg("--cacert").arg(&pem).args(["-w", "%{http_code} %{num_connects};"]);
            command.args(["-o", "/dev/null", &url("small")]);
            command.args(["-o", "/dev/null", &url("small")]);
            command.arg("-o").arg(&received).arg(url("large"));
            assert_eq!(run(&mut command), "200 1;200 0;200 0;", "{version} {oldest:?}");
            assert!(std::fs::read(&received).unwrap() == noise(3 << 20), "another file");
            let mut command = Command::new(&curl);
            command.args(["-sS", "--max-time", "60", version]).args(oldest);
            command.arg("--cacert").arg(&pem).args(["-o", "/dev/null", "-w", "%{http_code}"]);
            command.arg("--data-binary").arg(format!("@{}", body.display())).arg(url("c"));
            assert_eq!(run(&mut command), "201", "{version} {oldest:?}");
        }
    }
    front.server.finish();
}

/// OpenSSL's client. It sends the lines of its input; single letters are commands.
struct OpenSsl {
    child: Running,
    /// Its standard output and standard error.
    output: BufReader<std::io::PipeReader>,
}

impl OpenSsl {
    fn start(openssl: &Path, front: &Front, arguments: &[&str]) -> OpenSsl {
        let mut command = Command::new(openssl);
        command.args(["s_client", "-connect", &format!("127.0.0.1:{}", front.port())]);
        command.args(["-servername", "localhost", "-verify_return_error", "-CAfile"]);
        command.arg(front.certificate()).args(arguments);
        let (output, ours) = std::io::pipe().unwrap();
        command.stdin(Stdio::piped()).stdout(ours.try_clone().unwrap()).stderr(ours);
        OpenSsl { child: Running(command.spawn().unwrap()), output: BufReader::new(output) }
    }

    fn send(&mut self, text: &str) {
        self.child.0.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Reads until its output has this text, and returns everything up to its end.
    fn until(&mut self, text: &str) -> String {
        let mut read = Vec::new();
        while !read.ends_with(text.as_bytes()) {
            let mut byte = [0];
            if self.output.read_exact(&mut byte).is_err() {
                panic!("it ends without {text:?}: {}", String::from_utf8_lossy(&read));
            }
            read.push(byte[0]);
        }
        String::from_utf8_lossy(&read).into_owned()
    }

    fn get(&mut self) {
        self.send("GET /small HTTP/1.1\nHost: localhost\n\n");
        self.until("HTTP/1.1 200 OK");
        self.until("0123456789");
    }
}

#[test]
fn openssl() {
    let Some(openssl) = tool("openssl") else { return };
    let mut front = Front::new();
    let session = front.site.path("session");
    let session = session.to_str().unwrap();
    // Line ends of HTTP, and no letter of a request is a command.
    for version in ["-tls1_2", "-tls1_3"] {
        let mut client =
            OpenSsl::start(&openssl, &front, &["-crlf", version, "-sess_out", session]);
        client.get();
        for command in ["K", "k"] {
            front.until_parked();
            if version == "-tls1_3" {
                // Both sides change their keys, or the client alone. Each wakes the connection.
                client.send(&format!("{command}\n"));
                client.until("KEYUPDATE");
            }
            client.get();
        }
        front.until_parked();
        client.send("Q\n");
        client.until("DONE");
        assert!(client.child.0.wait().unwrap().success());

        let mut client = OpenSsl::start(&openssl, &front, &["-crlf", version, "-sess_in", session]);
        client.until("Reused");
        client.get();
        if version == "-tls1_2" {
            // A new handshake on the same connection is refused; OpenSSL then ends the connection.
            client.send("R\n");
            client.until("RENEGOTIATING");
            assert!(!client.child.0.wait().unwrap().success());
        }
    }
    front.server.finish();
}
