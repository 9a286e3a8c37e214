//! A thread that did not run for a while: bytes that have arrived meanwhile count, and not the time
//! that is over.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use futures_lite::AsyncReadExt;
use superpoll::{Events, Interest, Mode, Poller, Watch};
use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::time::{timeout, timeout_at};
use superpoll_rt::{BackendKind, Runtime, spawn, yield_now};
use superpoll_test_support::alone;

const BACKENDS: [BackendKind; 5] = [
    BackendKind::Select,
    BackendKind::Poll,
    BackendKind::Epoll,
    BackendKind::Adaptive,
    BackendKind::Uring,
];

/// More descriptors than one wait reports.
const MANY: usize = 1100;

mod sys {
    /// Raises the number of descriptors that this process may have; false where that is not
    /// allowed.
    pub(crate) fn may_open(count: u64) -> bool {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: both calls read or write the limit only.
        unsafe {
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 && {
                limit.rlim_cur = limit.rlim_cur.max(count);
                limit.rlim_cur <= limit.rlim_max
                    && libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0
            }
        }
    }

    pub(crate) fn signal(process: u32, number: i32) {
        // SAFETY: kill takes two numbers.
        assert_eq!(unsafe { libc::kill(process as i32, number) }, 0);
    }
}

/// Makes `count` tasks read with a time limit, each through two other tasks, and writes to all of
/// them in time; then the thread does nothing until the time is over. Returns how many reads were
/// in time; none if the machine was so slow that nothing can be said.
fn paused(backend: BackendKind, count: usize, limit: Duration) -> Option<usize> {
    let runtime = Runtime::builder().backend(backend).build().unwrap();
    let outcome = runtime.try_block_on(async {
        let end = Instant::now() + limit;
        let mut tasks = Vec::new();
        let mut writers = Vec::new();
        for _ in 0..count {
            let (reader, writer) = StdUnixStream::pair().unwrap();
            reader.set_nonblocking(true).unwrap();
            let mut reader = UnixStream::from_std(reader).unwrap();
            writers.push(writer);
            let reads = spawn(async move { reader.read(&mut [0; 8]).await.unwrap() });
            let passes_on = spawn(async move { reads.await.unwrap() });
            tasks.push(spawn(timeout_at(end, passes_on)));
        }
        for _ in 0..count / 32 + 8 {
            yield_now().await;
        }
        for writer in &mut writers {
            writer.write_all(b"x").unwrap();
        }
        if Instant::now() > end {
            return None;
        }
        thread::sleep(end + Duration::from_millis(50) - Instant::now());
        let mut read = 0;
        for task in tasks {
            read += usize::from(task.await.unwrap().is_ok());
        }
        Some(read)
    });
    outcome.unwrap()
}

fn none_is_late(count: usize, backends: &[BackendKind]) {
    for &backend in backends.iter().filter(|backend| backend.is_available()) {
        // The first limit that leaves enough time.
        let limits = (0..8).map(|power| Duration::from_millis(150) * (1 << power));
        let read = limits.into_iter().find_map(|limit| paused(backend, count, limit));
        assert_eq!(read, Some(count), "{backend:?}");
    }
}

#[test]
fn bytes_that_arrived_before_a_deadline_count_when_the_loop_is_late() {
    none_is_late(8, &BACKENDS);
}

#[test]
fn and_so_it_does_for_more_descriptors_than_a_wait_reports() {
    // Alone, as `select` cannot number so many: the other tests use it.
    alone(|| {
        if !sys::may_open(3 * MANY as u64) {
            eprintln!("skipped: too few descriptors are allowed (ulimit -Hn)");
            return;
        }
        none_is_late(MANY, &BACKENDS[1..]);
    });
}

const CHILD: &str = "SUPERPOLL_TEST_STOPPED";

/// Runs in the process that is stopped: waits for a byte for a second, and writes a byte that says
/// whether it has come.
fn child(task: &str) {
    let (address, kind) = task.split_once(' ').unwrap();
    let (way, backend) = kind.split_once(' ').unwrap();
    let backend = BACKENDS.into_iter().find(|one| one.name() == backend).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let limit = Duration::from_secs(1);
    let mut tell = |text: &[u8]| stream.write_all(text).unwrap();
    let has_come = if way == "poller" {
        let mut poller = Poller::builder().backend(backend).build().unwrap();
        tell(b"w");
        let watch = Watch::new(Interest::READABLE).mode(Mode::Level);
        poller.register(&stream, watch).unwrap();
        poller.wait(&mut Events::with_limit(8), Some(limit)).unwrap() > 0
    } else {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        let copy = stream.try_clone().unwrap();
        copy.set_nonblocking(true).unwrap();
        runtime.block_on(async move {
            let mut reader = superpoll_rt::net::TcpStream::from_std(copy).unwrap();
            stream.write_all(b"w").unwrap();
            timeout(limit, reader.read(&mut [0])).await.is_ok()
        })
    };
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(if has_come { b"y" } else { b"n" }).unwrap();
}

/// Kills it at the end, also of a test that has failed.
struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns whether every thread of a process is stopped.
fn is_stopped(process: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    threads.into_iter().all(|thread| {
        let stat = fs::read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    })
}

/// Stops one process; none if this process was too slow for it.
fn stopped(name: &str, way: &str, backend: BackendKind) -> Option<bool> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let task = format!("{} {way} {}", listener.local_addr().unwrap(), backend.name());
    // Before the child's time begins, however late this process sees that.
    let begun = Instant::now();
    let is_late = || begun.elapsed() > Duration::from_millis(900);
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, task)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let child = Stopped(child);
    let mut stream = listener.accept().unwrap().0;
    stream.read_exact(&mut [0]).unwrap();
    // Most likely it waits by now, which is the case that the test is for; it may not.
    thread::sleep(Duration::from_millis(100));
    sys::signal(child.0.id(), libc::SIGSTOP);
    while !is_stopped(child.0.id()) {
        // A child that has ended is never stopped.
        if is_late() {
            return None;
        }
        thread::yield_now();
    }
    stream.write_all(b"x").unwrap();
    if is_late() {
        return None;
    }
    thread::sleep(Duration::from_millis(1100));
    sys::signal(child.0.id(), libc::SIGCONT);
    let mut answer = [0];
    listener.accept().unwrap().0.read_exact(&mut answer).unwrap();
    Some(answer == *b"y")
}

fn stopped_processes(name: &str, way: &'static str) {
    if let Ok(task) = std::env::var(CHILD) {
        return child(&task);
    }
    thread::scope(|scope| {
        let backends = BACKENDS.into_iter().filter(|backend| backend.is_available());
        let tests: Vec<_> = backends
            .map(|backend| {
                let test = move || (0..10).find_map(|_| stopped(name, way, backend));
                (backend, scope.spawn(test))
            })
            .collect();
        for (backend, test) in tests {
            assert_eq!(test.join().unwrap(), Some(true), "{way} {backend:?}");
        }
    });
}

#[test]
fn a_stopped_process_reads_the_bytes_that_arrived_meanwhile() {
    stopped_processes(
        "pauses::a_stopped_process_reads_the_bytes_that_arrived_meanwhile",
        "runtime",
    );
}

#[test]
fn a_stopped_wait_reports_the_events_that_arrived_meanwhile() {
    stopped_processes("pauses::a_stopped_wait_reports_the_events_that_arrived_meanwhile", "poller");
}
