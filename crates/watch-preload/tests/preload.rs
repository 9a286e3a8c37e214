//! Programs that load the library: the counts are theirs, and they notice nothing.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use superpoll_test_support::start;
use superpoll_watch::{Counts, Key, Kind, Method, Watch};

/// Runs a program to its end, watched. `None` if there is no such program.
fn run(program: &OsStr, arguments: &[&str]) -> Option<(Watch, Output, u32)> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut watch = Watch::preload(program).unwrap();
    assert_eq!(watch.method(), Method::Preload);
    let child = match watch.start(&mut command) {
        Ok(child) => child,
        Err(error) => {
            eprintln!("skipped: {}: {error}", program.display());
            return None;
        }
    };
    let process = child.id();
    Some((watch, child.wait_with_output().unwrap(), process))
}

/// The same of a program in Python, which must succeed. Returns the numbers that it has printed.
fn python(program: &str) -> Option<(Watch, Vec<u64>, u32)> {
    let (watch, output, process) = run("python3".as_ref(), &["-c", program])?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    Some((watch, text.split_whitespace().map(|word| word.parse().unwrap()).collect(), process))
}

fn sum(watch: &Watch, of: impl Fn(&Key) -> bool, count: fn(&Counts) -> u64) -> u64 {
    let all = watch.counts();
    all.iter().filter(|(key, _)| of(key)).map(|(_, counts)| count(counts)).sum()
}

#[test]
fn counts_are_those_of_cpython() {
    let program = r#"
import selectors, socket
selector = selectors.NAME()
pairs = [socket.socketpair() for _ in range(40)]
for one, _ in pairs:
    one.setblocking(False)
    selector.register(one, selectors.EVENT_READ)
waits = events = empty = reads = empty_reads = 0
for round in range(400):
    for _, other in pairs[:round % 23]:
        other.send(b"x")
    found = selector.select(0 if round % 2 else 0.001)
    waits += 1
    events += len(found)
    empty += not found
    for key, _ in found:
        key.fileobj.recv(8)
print(waits, events, empty)
"#;
    for (selector, kind) in [
        ("EpollSelector", Kind::Epoll),
        ("PollSelector", Kind::Poll),
        ("SelectSelector", Kind::Select),
    ] {
        let Some((watch, counted, _)) = python(&program.replace("NAME", selector)) else { return };
        let of = |key: &Key| key.kind == kind;
        let counts = [Counts::waits, Counts::events, Counts::empty];
        assert_eq!(counts.map(|count| sum(&watch, of, count)), *counted, "{selector}");
        assert_eq!(sum(&watch, of, Counts::looks), 200, "{selector}");
        assert_eq!(sum(&watch, of, Counts::failed), 0, "{selector}");
        if kind == Kind::Epoll {
            assert_eq!(watch.take_distinct().values().sum::<f64>().round(), 22.0);
            assert_eq!(sum(&watch, of, Counts::added), 40);
        }
        // A command of this name may start others before.
        assert!(watch.loaded() > 0 && watch.overflow() == 0);
    }
}

#[test]
fn threads_children_and_programs_that_they_execute_are_counted_each() {
    let program = r#"
import ctypes, os, select, socket, subprocess, sys, threading
one, other = socket.socketpair()
epoll = select.epoll()
epoll.register(one, select.EPOLLIN)
other.send(b"x")
def wait(times):
    for _ in range(times): epoll.poll(0)
threads = [threading.Thread(target=wait, args=(50 * n,)) for n in range(4)]
for one in threads: one.start()
for one in threads: one.join()
child = os.fork()
if child == 0:
    wait(7)
    waits = "import select; [select.epoll().poll(0.001) for _ in range(5)]"
    os.execvp("python3", ["python3", "-c", waits])
os.waitpid(child, 0)
# Descriptors are closed, and the C library does not learn of the process.
waits = "import select; [select.poll().poll(0) for _ in range(11)]"
started = subprocess.Popen([sys.executable, "-c", waits], close_fds=True)
started.wait()
fork = {"x86_64": (57,), "aarch64": (220, 17, 0, 0, 0, 0)}[os.uname().machine]
libc = ctypes.PyDLL(None)
raw = libc.syscall(*fork)
if raw == 0:
    libc.poll(None, 0, 0)
    libc._exit(0)
os.waitpid(raw, 0)
print(child, started.pid, raw)
"#;
    let Some((watch, children, process)) = python(program) else { return };
    let waits = |process: u64, kind| {
        let of = |key: &Key| u64::from(key.process) == process && key.kind == kind;
        sum(&watch, of, Counts::waits)
    };
    assert_eq!(waits(process.into(), Kind::Epoll), 300);
    assert_eq!(waits(process.into(), Kind::Poll), 0);
    assert_eq!(waits(children[0], Kind::Epoll), 12);
    assert_eq!(waits(children[1], Kind::Poll), 11);
    assert_eq!(waits(children[2], Kind::Poll), 1);
    assert!(watch.loaded() >= 3);
}

#[test]
fn more_sets_than_there_is_room_for_are_told_and_nothing_is_counted_after_the_end() {
    let program = r#"
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
for set in range(10_000, 16_000):
    assert libc.epoll_wait(set, ctypes.byref(ctypes.c_uint64()), 1, 0) == -1
    assert ctypes.get_errno() == 9
"#;
    let Some((mut watch, _, _)) = python(program) else { return };
    let failed = sum(&watch, |key| key.kind == Kind::Epoll, Counts::failed);
    assert_eq!(failed + watch.overflow(), 6000);
    assert_eq!(watch.counts().len(), watch.slots());
    let loaded = watch.loaded();
    watch.end();
    let mut command = Command::new("python3");
    let child = watch.start(command.args(["-c", program])).unwrap().wait_with_output();
    assert!(child.unwrap().status.success());
    assert_eq!((watch.loaded(), failed + watch.overflow()), (loaded, 6000));
}

/// A program that fails in most of the functions, and is interrupted, cancelled and left by a jump
/// in waits. Its output and its status are the same without the library.
#[test]
fn a_program_notices_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "noticing.c") else { return };
    let plain = start(Command::new(&program).stdout(Stdio::piped())).wait_with_output().unwrap();
    let (watch, watched, _) = run(program.as_os_str(), &[]).unwrap();
    let text = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(text(&watched), text(&plain));
    assert!(text(&plain).ends_with("over\n"), "{}", text(&plain));
    assert_eq!((watched.status.code(), plain.status.code()), (Some(7), Some(7)));
    assert!(watched.stderr.is_empty());
    assert!(sum(&watch, |key| key.kind == Kind::Epoll, Counts::failed) >= 4);
    assert!(sum(&watch, |key| key.kind == Kind::Process, Counts::empty_reads) >= 4);
}

/// Compiles a program of this folder, or says that there is no compiler.
fn compile(folder: &Path, name: &str) -> Option<std::path::PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    let program = folder.join("program");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-D_FORTIFY_SOURCE=2", "-pthread", "-o"]).arg(&program).arg(source);
    match compiler.output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(program)
        }
        Err(error) => {
            eprintln!("skipped: cc: {error}");
            None
        }
    }
}
