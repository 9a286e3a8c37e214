//! The forms of calls, with Go's grpc on both sides. The test is skipped without `go`, and where
//! its modules are neither in the cache nor to be had.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::gateway::Gateway;

/// A process that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Its input ends.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn calls_of_go_pass() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/grpc/go");
    let go = |arguments: &[&str]| {
        let mut go = Command::new("go");
        go.args(arguments).current_dir(&source).env("GOTOOLCHAIN", "local").env("GOWORK", "off");
        go.stdin(Stdio::null()).output()
    };
    match go(&["mod", "download", "google.golang.org/grpc"]) {
        Err(error) => return eprintln!("skipped, as there is no `go`: {error}"),
        Ok(output) if !output.status.success() => {
            let said = String::from_utf8_lossy(&output.stderr);
            return eprintln!("skipped, as the modules are not to be had: {said}");
        }
        Ok(_) => {}
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("notes");
    let built = go(&["build", "-o", program.to_str().unwrap(), "."]).unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));

    let mut server = Command::new(&program);
    server.arg("server").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = Server(server.spawn().unwrap());
    let mut address = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let gateway = Gateway::start(address.trim().parse().unwrap());
    let mut client = Command::new(&program);
    client.args(["client", &gateway.address.to_string()]).arg(gateway.certificate());
    let output = client.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let forms = [
        "unary",
        "client streaming",
        "server streaming",
        "bidirectional streaming",
        "deadline",
        "cancel",
    ];
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).lines().collect::<Vec<_>>(),
        forms,
        "{said}"
    );
}
