//! The conformance tests of h2spec against the server. They are skipped without `go`, and where its
//! modules are neither in the cache nor to be had.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use superpoll_gateway::Config;
use superpoll_gateway::serve::Server;
use superpoll_rt::{Runtime, time};

/// Answers requests of HTTP/1.1 when they are whole. What is wrong with the rest of a request can
/// only be told while it is awaited.
fn answer(stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let (mut length, mut is_chunked, mut line) = (0, false, String::new());
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line)?;
            let field = line.to_ascii_lowercase();
            is_chunked |= field.starts_with("transfer-encoding:");
            if let Some(value) = field.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        loop {
            if is_chunked {
                line.clear();
                reader.read_line(&mut line)?;
                length = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
            }
            let end = if is_chunked { 2 } else { 0 };
            reader.read_exact(&mut vec![0; length + end])?;
            if !is_chunked || length == 0 {
                break;
            }
        }
        writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello\n")?;
    }
}

fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    address
}

#[test]
fn the_server_conforms() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/h2spec/go");
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("h2spec");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).arg("github.com/summerwind/h2spec/cmd/h2spec");
    go.current_dir(&source).env("GOTOOLCHAIN", "local").env("GOWORK", "off");
    match go.stdin(Stdio::null()).output() {
        Err(error) => return eprintln!("skipped, as there is no `go`: {error}"),
        Ok(output) if !output.status.success() => {
            let said = String::from_utf8_lossy(&output.stderr);
            return eprintln!("skipped, as h2spec is not to be had: {said}");
        }
        Ok(_) => {}
    }
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.path().join("cert.pem"), cert.pem()).unwrap();
    std::fs::write(folder.path().join("key.pem"), signing_key.serialize_pem()).unwrap();
    let (at, origin) = (folder.path().display(), origin());
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
         tls = {{ certificate = \"{at}/cert.pem\", key = \"{at}/key.pem\" }}\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\n\
         [[hosts]]\n[[hosts.routes]]\nproxy = {{ upstream = \"app\" }}\n\
         [upstreams.app]\nservers = [{{ address = \"{origin}\" }}]\n"
    );
    let config = Config::parse("h2spec", &text).unwrap_or_else(|error| panic!("{error}"));
    let (tell, told) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let server = thread::spawn(move || {
        let runtime = Runtime::new().unwrap();
        let server = Server::start(&runtime, &config, |event| println!("{event}")).unwrap();
        let addresses: Vec<String> = server.listening().map(ToString::to_string).collect();
        tell.send(addresses).unwrap();
        runtime.block_on(async {
            while ended.try_recv() == Err(mpsc::TryRecvError::Empty) {
                time::sleep(Duration::from_millis(1)).await;
            }
        });
    });
    let addresses = told.recv().unwrap();
    // A listener without TLS speaks HTTP/1 as well, and refuses what is no beginning of HTTP/2 by
    // that.
    let kinds = [
        (&["-t", "-k"][..], "145 tests, 145 passed, 0 skipped, 0 failed", ""),
        (
            &[],
            "145 tests, 144 passed, 0 skipped, 1 failed",
            "× 2: Sends invalid connection preface",
        ),
    ];
    for (address, (more, expected, failed)) in addresses.iter().zip(kinds) {
        let port = address.rsplit(':').next().unwrap();
        let mut h2spec = Command::new(&program);
        // The time that a test waits for what does not come.
        h2spec.args(["-h", "127.0.0.1", "-p", port, "-o", "10"]).args(more);
        let output = h2spec.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let last = said.lines().last().unwrap_or_default();
        assert!(last == expected && said.contains(failed), "{said}");
        println!("{more:?}: {last}");
    }
    drop(end);
    server.join().unwrap();
}
