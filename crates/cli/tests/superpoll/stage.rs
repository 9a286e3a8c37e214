//! Common parts of the tests: the command at work, the programs that drive it, and a folder with
//! files.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use superpoll::BackendKind;
use superpoll_test_support::http1::{read_body, read_head};
pub(crate) use superpoll_test_support::{PATIENCE, Running, free_port, until};
use tempfile::TempDir;

use crate::superpoll;

/// Returns the path of a program, administrators' folders included; prints a note if it is not
/// there.
pub(crate) fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = folders.map(|folder| folder.join(name)).find(|path| path.is_file());
    if found.is_none() {
        eprintln!("skipped: {name} is not installed");
    }
    found
}

/// Waits until there is something to read or to accept.
pub(crate) fn until_readable(source: &impl AsFd, what: &str) {
    let limit = Timespec::try_from(PATIENCE).unwrap();
    let mut asked = [PollFd::new(source, PollFlags::IN)];
    let count = rustix::event::poll(&mut asked, Some(&limit)).unwrap();
    assert_eq!(count, 1, "never: {what}");
}

/// Accepts a connection, which must come in time.
pub(crate) fn accept(listener: &TcpListener) -> TcpStream {
    until_readable(listener, "a connection comes");
    let stream = listener.accept().unwrap().0;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Returns the lines that a program writes, each of which must come in time, as must the end.
pub(crate) fn lines(
    output: impl Read + AsFd + Send + Sync,
) -> impl Iterator<Item = String> + Send + Sync {
    let mut reader = BufReader::new(output);
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            if reader.buffer().is_empty() {
                until_readable(reader.get_ref(), "the program writes a line or ends");
            }
            let more = reader.fill_buf().unwrap();
            let end = more.iter().position(|byte| *byte == b'\n').map_or(more.len(), |at| at + 1);
            line.extend_from_slice(&more[..end]);
            reader.consume(end);
            if end == 0 {
                break;
            }
        }
        let text = String::from_utf8(line).unwrap();
        (!text.is_empty()).then(|| text.trim_end_matches('\n').to_owned())
    })
}

/// Waits until a program has ended, and returns its status; `None` if it does not end in time.
pub(crate) fn wait(child: &mut Child) -> Option<ExitStatus> {
    let end = Instant::now() + PATIENCE;
    loop {
        match child.try_wait().unwrap() {
            None if Instant::now() < end => thread::sleep(Duration::from_millis(5)),
            status => return status,
        }
    }
}

pub(crate) fn signal(child: &Child, name: &str) {
    let number = child.id().to_string();
    let status = Command::new("kill").args([&format!("-{name}"), &number]).status();
    assert!(status.unwrap().success());
}

/// Returns the state of a process and the number of its parent; `None`: there is no such process.
fn state(process: u32) -> Option<(String, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

/// Whether a process has ended, awaited or not.
pub(crate) fn has_ended(process: u32) -> bool {
    state(process).is_none_or(|(state, _)| state == "Z" || state == "X")
}

/// Stops a process, all of whose threads are stopped afterwards.
pub(crate) fn stop(process: u32) {
    kill(process, "STOP");
    until("the process is stopped", || is_stopped(process));
}

fn is_stopped(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    threads.into_iter().all(|thread| {
        let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    })
}

/// Returns the numbers of the processes that a process has started and that have not ended.
pub(crate) fn children(process: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |number: &u32| {
        !has_ended(*number) && state(*number).is_some_and(|(_, parent)| parent == process)
    };
    let mut found: Vec<u32> = numbers.filter(is_child).collect();
    found.sort_unstable();
    found
}

pub(crate) fn kill(process: u32, name: &str) {
    run(Command::new("kill").args([&format!("-{name}"), &process.to_string()]));
}

/// Runs a program that must succeed, and returns its output.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    String::from_utf8_lossy(&succeeded(command, &output).stdout).into_owned()
}

pub(crate) fn succeeded<'a>(command: &Command, output: &'a Output) -> &'a Output {
    let (told, errors) = (&output.stdout, &output.stderr);
    let [told, errors] = [told, errors].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success(), "{command:?}: {}\n{told}\n{errors}", output.status);
    output
}

/// Returns the back-ends that can hold many connections and are available.
pub(crate) fn backends() -> impl Iterator<Item = BackendKind> {
    let all = [BackendKind::Epoll, BackendKind::Adaptive, BackendKind::Uring];
    all.into_iter().filter(|backend| backend.is_available())
}

/// The command `superpoll serve` at work.
pub(crate) struct Server {
    child: Running,
    /// It must stay open.
    _stdout: Box<dyn Iterator<Item = String> + Send + Sync>,
    /// The addresses at which it serves, from its output, a line for each.
    pub fronts: Vec<String>,
    errors: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts it with arguments that configure one listener.
    pub(crate) fn start(arguments: &[&str]) -> Server {
        let mut command = superpoll();
        command.arg("serve").args(arguments);
        Server::of(command, 1)
    }

    /// Serves a folder on a port of the kernel's choice.
    pub(crate) fn folder(path: &Path, arguments: &[&str]) -> Server {
        let mut all = vec![path.to_str().unwrap(), "--listen", "127.0.0.1:0"];
        all.extend(arguments);
        Server::start(&all)
    }

    /// Starts it with a configuration that has this many listeners.
    pub(crate) fn configured(path: &Path, listeners: usize) -> Server {
        let mut command = superpoll();
        command.args(["serve", "-c"]).arg(path);
        Server::of(command, listeners)
    }

    /// Starts a command that ends in it.
    pub(crate) fn of(mut command: Command, listeners: usize) -> Server {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Running(command.spawn().unwrap());
        let mut stderr = child.0.stderr.take().unwrap();
        let errors: Arc<Mutex<String>> = Arc::default();
        let kept = errors.clone();
        let reader = thread::spawn(move || {
            let mut room = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut room) {
                kept.lock().unwrap().push_str(&String::from_utf8_lossy(&room[..count]));
            }
        });
        let mut stdout = lines(child.0.stdout.take().unwrap());
        let mut fronts = Vec::new();
        for _ in 0..listeners {
            let line = stdout.next().unwrap_or_default();
            let Some(front) = line.strip_prefix("superpoll: serving ") else {
                wait(&mut child.0);
                panic!("{command:?} wrote {line:?}, {:?}", errors.lock().unwrap());
            };
            fronts.push(front.to_owned());
        }
        Server { child, _stdout: Box::new(stdout), fronts, errors, reader: Some(reader) }
    }

    /// Returns the URL of a path at its first address.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{}", self.fronts[0], path.trim_start_matches('/'))
    }

    /// Returns the socket address of one of its addresses.
    pub(crate) fn at(&self, index: usize) -> SocketAddr {
        let front = &self.fronts[index];
        let address = front.split("://").nth(1).unwrap().trim_end_matches('/');
        address.parse().unwrap_or_else(|_| panic!("{front} is no address"))
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.at(0))
    }

    pub(crate) fn child(&self) -> &Child {
        &self.child.0
    }

    /// Returns the numbers of its workers, once there are so many.
    pub(crate) fn workers(&self, count: usize) -> Vec<u32> {
        let mut found = Vec::new();
        until("it has so many workers", || {
            found = children(self.child().id());
            found.len() == count
        });
        found
    }

    /// Returns its standard error so far.
    pub(crate) fn errors(&self) -> String {
        self.errors.lock().unwrap().clone()
    }

    /// Waits until it has written that on standard error.
    pub(crate) fn says(&self, text: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.errors().contains(text) {
            assert!(Instant::now() < end, "it did not say {text:?}, but {:?}", self.errors());
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child.0, name);
    }

    /// Waits until it has ended. Returns the status and its standard error, without the lines about
    /// its end that [`ended_aloud`](Server::ended_aloud) has.
    pub(crate) fn ended(self) -> (ExitStatus, String) {
        let (status, errors) = self.ended_aloud();
        let others = errors.lines().filter(|line| !is_draining(line) && *line != ENDED);
        (status, others.map(|line| format!("{line}\n")).collect())
    }

    /// Waits until it has ended. Returns the status and its standard error.
    pub(crate) fn ended_aloud(mut self) -> (ExitStatus, String) {
        let status = wait(&mut self.child.0);
        let status = status.unwrap_or_else(|| panic!("it does not end: {}", self.errors()));
        let reader = self.reader.take().unwrap();
        let end = Instant::now() + PATIENCE;
        while !reader.is_finished() {
            // A process that it has started may still have its standard error.
            assert!(Instant::now() < end, "its errors do not end: {}", self.errors());
            thread::sleep(Duration::from_millis(1));
        }
        reader.join().unwrap();
        (status, self.errors())
    }

    /// Ends it; it must succeed, and say that it drains and has ended, and nothing else.
    pub(crate) fn finish(self) {
        self.signal("TERM");
        let (status, errors) = self.ended_aloud();
        let lines: Vec<&str> = errors.lines().collect();
        let is_well = matches!(lines[..], [first, ENDED] if is_draining(first));
        assert!(status.success() && is_well, "{status}: {errors}");
    }

    /// Ends it, where its log is elsewhere; it must succeed, and its standard error must be empty.
    pub(crate) fn finish_silently(self) {
        self.signal("TERM");
        let (status, errors) = self.ended_aloud();
        assert!(status.success() && errors.is_empty(), "{status}: {errors}");
    }

    /// Ends it; it must succeed. It must have complained, and each complaint must begin with one of
    /// these.
    pub(crate) fn finish_with(self, complaints: &[&str]) {
        self.signal("TERM");
        let (status, errors) = self.ended();
        let is_known = |line: &str| {
            let line = line.strip_prefix("superpoll: ");
            line.is_some_and(|line| complaints.iter().any(|known| line.starts_with(known)))
        };
        let are_known = !errors.is_empty() && errors.lines().all(is_known);
        assert!(status.success() && are_known, "{status}: {errors}");
    }
}

/// The last line of a server whose connections have all ended.
const ENDED: &str = "superpoll: ended";

/// Whether a line says how many connections a server has that begins to end.
fn is_draining(line: &str) -> bool {
    let is_count = |text: &str, noun: &str| {
        let (number, rest) = text.split_once(' ').unwrap_or_default();
        let noun = if number == "1" { noun.to_owned() } else { noun.replacen(' ', "s ", 1) };
        // Only a connection is followed by nothing.
        number.parse::<u64>().is_ok() && rest == noun.trim_end()
    };
    let counts = line.strip_prefix("superpoll: draining: ").and_then(|line| line.split_once(", "));
    counts.is_some_and(|(connections, requests)| {
        is_count(connections, "connection ") && is_count(requests, "request under way")
    })
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A client that writes twice before it reads does not wait for an acknowledgement.
    stream.set_nodelay(true).unwrap();
    stream
}

/// Reads a response of HTTP/1.1 that has a length or comes in chunks, head and body.
pub(crate) fn response(stream: &mut impl Read) -> String {
    // Not a byte more than the response.
    let mut reader = BufReader::with_capacity(1, stream);
    let head = read_head(&mut reader).expect("a head");
    let body = read_body(&mut reader, &head).expect("a body");
    let (body, _) = body.unwrap_or_default();
    format!("{head}\r\n{}", String::from_utf8_lossy(&body))
}

/// Requests a path on a connection that goes on.
pub(crate) fn get(stream: &mut (impl Read + Write), path: &str) -> String {
    // In one piece: a second small one would wait for the first to be acknowledged.
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    response(stream)
}

/// Returns bytes that repeat only after a long period.
pub(crate) fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// A folder with some files, and room for a configuration next to them.
pub(crate) struct Site {
    folder: TempDir,
}

impl Site {
    pub(crate) fn new() -> Site {
        let folder = tempfile::tempdir().unwrap();
        let www = folder.path().join("www");
        std::fs::create_dir_all(www.join("sub")).unwrap();
        std::fs::write(www.join("index.html"), "<p>the index</p>\n").unwrap();
        std::fs::write(www.join("small"), "0123456789").unwrap();
        std::fs::write(www.join("text.txt"), "many words that repeat themselves\n".repeat(2000))
            .unwrap();
        std::fs::write(www.join("sub/index.html"), "<p>below</p>\n").unwrap();
        Site { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn www(&self) -> PathBuf {
        self.path("www")
    }

    /// Writes a configuration file, or replaces it.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Creates a certificate for this machine and its key, as `cert.pem` and `cert.key`.
    pub(crate) fn certificate(&self) {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        self.write("cert.pem", &made.cert.pem());
        self.write("cert.key", &made.signing_key.serialize_pem());
    }

    /// Creates a file that is too large for the buffers of sockets, and returns its contents.
    pub(crate) fn large(&self) -> Vec<u8> {
        let bytes = noise(32 << 20);
        std::fs::write(self.path("www/large"), &bytes).unwrap();
        bytes
    }
}

/// Returns the processor time of a process in ticks of the clock.
pub(crate) fn ticks(child: &Child) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Answers the first clients at the path of a Unix socket with these texts, whatever they say.
pub(crate) fn speak<const N: usize>(path: &Path, texts: [String; N]) -> JoinHandle<()> {
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        for text in texts {
            let mut stream = listener.accept().unwrap().0;
            // The client ends when it has read enough.
            let _ = stream.write_all(text.as_bytes());
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
    })
}
