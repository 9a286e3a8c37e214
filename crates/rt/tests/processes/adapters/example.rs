//! Starting the built example programs.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use superpoll_rt::{BackendKind, net};

/// An example that runs, until it is dropped.
pub(crate) struct Example {
    child: Child,
    output: BufReader<ChildStdout>,
    pub address: SocketAddr,
}

/// Returns where cargo has put an example: next to the folder of the test that runs.
pub(crate) fn path(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path =
        test.parent().and_then(|folder| folder.parent()).unwrap().join("examples").join(name);
    assert!(
        path.exists(),
        "{} is missing: build the examples first, as `cargo test -p superpoll-rt` does, or by \
         `cargo build -p superpoll-rt --examples`",
        path.display()
    );
    path
}

impl Example {
    /// Starts an example and waits until it listens.
    pub(crate) fn start(name: &str, backend: BackendKind) -> Example {
        let mut child = Command::new(path(name))
            .args(["--listen", "127.0.0.1:0", "--backend", backend.name()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on ").and_then(|at| at.parse().ok());
        let Some(address) = address else {
            // It is not left behind when this panics.
            let _ = child.kill();
            let _ = child.wait();
            panic!("{name} says {line:?} first, instead of where it listens");
        };
        Example { child, output, address }
    }

    /// Returns its output, up to a line.
    pub(crate) fn output_until(&mut self, last: &str) -> String {
        let mut text = String::new();
        while !text.lines().any(|line| line == last) {
            assert_ne!(self.output.read_line(&mut text).unwrap(), 0, "it ended after {text:?}");
        }
        text
    }

    /// Connects with a blocking socket.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Connects from a task.
    pub(crate) async fn connect_async(&self) -> net::TcpStream {
        let stream = net::TcpStream::connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Returns the URL of a path, in the form that curl expects.
    pub(crate) fn url(&self, scheme: &str, host: &str, path: &str) -> String {
        format!("{scheme}://{host}:{}{path}", self.address.port())
    }

    /// Sends it a signal (`kill(1)`).
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Waits until it has ended by itself.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Asserts that it has not ended.
    pub(crate) fn assert_alive(&mut self) {
        assert_eq!(self.child.try_wait().unwrap(), None, "it must not have ended");
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        // An example that has ended by itself cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let mut rest = String::new();
        let _ = self.output.read_to_string(&mut rest);
    }
}

/// Runs an example that ends by itself and checks its results.
pub(crate) fn run_to_end(name: &str) {
    for backend in BackendKind::available() {
        let output =
            Command::new(path(name)).env("SUPERPOLL_BACKEND", backend.name()).output().unwrap();
        assert!(output.status.success(), "{name} on {backend}: {output:?}");
    }
}

/// Bytes without a pattern, the same for the same seed (xorshift).
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    });
    words.flat_map(u64::to_le_bytes).take(len).collect()
}
