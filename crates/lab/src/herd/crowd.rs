//! The waiters: forked processes, or the engines of one process, and the kernel's account of them.
//!
//! WakeTimes waiters cannot report their own wake-ups, because the kernel puts many of them back to
//! sleep before they return. The kernel keeps count instead: each time a waiter goes to sleep, its
//! number of voluntary context switches grows by one. Between two connections the crowd must have
//! come to rest; otherwise a connection would find fewer waiters than there are. Inspecting each of
//! thousands of waiters would fill the caches with other data, and the next connection would pay
//! for that. So the crowd first checks the machine: if only one process runs, this one, then the
//! crowd is at rest. Only if the machine does not come to rest within some time is each waiter
//! inspected.
//!
//! The possible number of waiters is known for certain only when they are there. The kernel may
//! refuse a fork, and it may refuse the resources that a process needs to wait, of which there is a
//! fixed amount for all. A crowd makes do with the waiters that it got, and reports the reason for
//! the missing ones. No waiter outlives this process, however it ends: each has asked the kernel to
//! be killed with it.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use superpoll::BackendKind;

use crate::error::{Doing, Error, Result};
use crate::herd::method::{self, Method, Post, Report};
use crate::sys::memory::SharedNumbers;
use crate::sys::{descriptor, process, socket};
use crate::{environment, record};

/// The meaning of the shared numbers. After these come the connections of each waiter, and then the
/// state of each.
const READY: usize = 0;
const FAILED: usize = 1;
const ACCEPTED: usize = 2;
const PORT: usize = 3;
/// Waiters that could not get the resources to wait, and the kernel's error for one of them.
const REFUSED: usize = 4;
const LIMIT: usize = 5;
const FIRST: usize = 6;

/// The state that a waiter reports; zero before.
const WAITS: u64 = 1;
const LEFT: u64 = 2;

/// When waiters are refused a resource because there are so many, the crowd gives a part of it
/// back, because other processes need some, too.
const GIVEN_BACK: usize = 16;

/// The file that says, among other things, how many processes run.
const LOAD: &str = "/proc/loadavg";

/// How often the machine is checked for rest, at most and per waiter, before each waiter is
/// inspected. Next to other work the machine is never at rest.
const LOOKS: usize = 400;

/// Waiters on one port. They end when the crowd is dropped.
#[derive(Debug)]
pub(super) struct Crowd {
    shared: Arc<SharedNumbers>,
    children: Vec<process::Child>,
    /// The folders in which the kernel reports on each waiter.
    folders: Vec<PathBuf>,
    /// The indices of the waiters' shared numbers.
    numbers: Vec<usize>,
    /// How many of the waiters that were let go could not get their resources.
    refused: u64,
    /// The reason for having fewer waiters than requested.
    shortage: Option<String>,
    load: File,
    port: u16,
    // Keeps the port; not used otherwise.
    _listener: Option<OwnedFd>,
}

impl Crowd {
    /// Starts `waiters` waiters, or as many as limits allow, perhaps none, and returns when all are
    /// asleep.
    pub(super) fn gather(
        method: Method,
        waiters: usize,
        dups: usize,
        of_pipe: bool,
    ) -> Result<Crowd> {
        let failed = |doing: String| move |source| Error::system(doing, source);
        let shared = SharedNumbers::new(FIRST + 2 * waiters)
            .map_err(failed("sharing memory with processes".to_owned()))?;
        let mut crowd = Crowd {
            shared: Arc::new(shared),
            // Forked processes keep the pages that this process has written to meanwhile: the fewer
            // the better.
            children: Vec::with_capacity(waiters),
            folders: Vec::new(),
            numbers: Vec::with_capacity(waiters),
            refused: 0,
            shortage: None,
            load: File::open(LOAD).map_err(failed(format!("opening {LOAD}")))?,
            port: 0,
            _listener: None,
        };
        process::watch(method.name);
        match method.engines {
            Some(spread) => crowd.start_engines(waiters, method.backend(), spread)?,
            None => crowd.start_processes(method, waiters, dups, of_pipe)?,
        }
        if method.engines.is_some() {
            crowd.wait_for_all(method, waiters)?;
            crowd.port = crowd.shared[PORT].load(Ordering::Acquire) as u16;
            crowd.find_threads()?;
            crowd.look_at_each()?;
        } else {
            let started = crowd.children.len();
            crowd.refused = crowd.wait_for_all(method, started)?;
            let gives_back = crowd.shortage.is_some();
            crowd.let_the_refused_go(waiters, dups, gives_back);
            crowd.look_at_each()?;
            // Waiters that are refused later leave before all the remaining ones are asleep.
            while crowd.refused != crowd.shared[REFUSED].load(Ordering::Acquire) {
                crowd.refused = crowd.wait_for_all(method, started)?;
                crowd.let_the_refused_go(waiters, dups, false);
                crowd.look_at_each()?;
            }
        }
        process::unwatch();
        Ok(crowd)
    }

    /// Waits until `started` waiters have begun to wait or were refused; returns how many were
    /// refused.
    fn wait_for_all(&self, method: Method, started: usize) -> Result<u64> {
        let (mut seen, mut without) = (0, 0);
        self.wait_until(|shared| {
            let [ready, refused] = [READY, REFUSED].map(|at| shared[at].load(Ordering::Acquire));
            if ready + refused > seen {
                // Thousands may take their time, as long as the number grows.
                seen = ready + refused;
                process::watch(method.name);
            }
            without = refused;
            ready + refused >= started as u64
        })?;
        Ok(without)
    }

    fn start_processes(
        &mut self,
        method: Method,
        waiters: usize,
        dups: usize,
        of_pipe: bool,
    ) -> Result<()> {
        let listening = |source| Error::system("listening on a loopback port", source);
        let listener = socket::listen(0, method.own_listener).map_err(listening)?;
        descriptor::set_blocking(listener.as_raw_fd(), method.blocks).map_err(listening)?;
        self.port = socket::port(&listener).map_err(listening)?;
        for number in 0..waiters {
            if number % 64 == 0 {
                process::watch(method.name);
            }
            // With a listener for each, the first waiter has the listener whose port was chosen. It
            // is not kept here, where no process would accept the connections that the kernel
            // assigns to it.
            let own = match number {
                0 => Ok(None),
                _ if method.own_listener => socket::listen(self.port, true).map(Some),
                _ => Ok(None),
            };
            let shared = &self.shared;
            let child = own.and_then(|own| {
                process::fork(|| {
                    let stands_at = own.as_ref().unwrap_or(&listener).as_raw_fd();
                    descriptor::close_all_but(&mut [stands_at]);
                    let (tally, count) = (shared.clone(), shared.clone());
                    let report = Report {
                        ready: Rc::new(move || {
                            count[FIRST + waiters + number].store(WAITS, Ordering::Relaxed);
                            count[READY].fetch_add(1, Ordering::Release);
                        }),
                        accepted: Rc::new(move || {
                            tally[FIRST + number].fetch_add(1, Ordering::Relaxed);
                            tally[ACCEPTED].fetch_add(1, Ordering::Release);
                        }),
                    };
                    let stood = Post::take_up(number, stands_at, dups, of_pipe)
                        .and_then(|post| (method.stand)(post, &report));
                    match stood.as_ref().err().map(code_of) {
                        // A program that changes its interest with its next wait gets the refusal
                        // there.
                        Some(code) if is_a_limit(code) => {
                            shared[LIMIT].store(code as u64, Ordering::Relaxed);
                            let state = &shared[FIRST + waiters + number];
                            if state.swap(LEFT, Ordering::Relaxed) == WAITS {
                                shared[READY].fetch_sub(1, Ordering::Relaxed);
                            }
                            shared[REFUSED].fetch_add(1, Ordering::Release);
                        }
                        _ => note_failure(shared, stood),
                    }
                })
            });
            match child {
                Ok(child) => {
                    self.children.push(child);
                    self.numbers.push(number);
                }
                Err(error) if error.raw_os_error().is_some_and(is_a_limit) => {
                    let limit = environment::tasks().map_or_else(String::new, |room| room.limit);
                    self.shortage = Some(format!("no process can be started: {error} ({limit})"));
                    break;
                }
                Err(source) => {
                    let doing = format!("starting process {} of {waiters}", number + 1);
                    return Err(Error::system(doing, source));
                }
            }
        }
        if !method.own_listener {
            self._listener = Some(listener);
        }
        Ok(())
    }

    fn start_engines(
        &mut self,
        engines: usize,
        backend: BackendKind,
        spread: superpoll_rt::net::Spread,
    ) -> Result<()> {
        let shared = &self.shared;
        let child = process::fork(|| {
            // The lowest free number may be any: the child uses no descriptor of the parent's.
            descriptor::close_all_but(&mut []);
            let ready = |port: u16| {
                shared[PORT].store(u64::from(port), Ordering::Release);
                shared[READY].store(engines as u64, Ordering::Release);
            };
            let tally = shared.clone();
            let accepted = move |engine: usize| {
                tally[FIRST + engine].fetch_add(1, Ordering::Relaxed);
                tally[ACCEPTED].fetch_add(1, Ordering::Release);
            };
            note_failure(
                shared,
                method::stand_by_engines(engines, backend, spread, ready, accepted),
            );
        })
        .doing("starting a process for our runtime")?;
        self.children.push(child);
        self.numbers = (0..engines).collect();
        Ok(())
    }

    /// Ends the waiters that were refused, and some of the remaining ones if other processes need
    /// their resources.
    fn let_the_refused_go(&mut self, asked: usize, dups: usize, gives_back: bool) {
        let waits =
            |number: usize| self.shared[FIRST + asked + number].load(Ordering::Relaxed) == WAITS;
        let mut kept: Vec<bool> = self.numbers.iter().map(|&number| waits(number)).collect();
        let some_left = kept.contains(&false);
        if some_left {
            let code = self.shared[LIMIT].load(Ordering::Relaxed) as i32;
            self.shortage = Some(format!("no more can wait: {}", why(code, dups)));
        }
        if some_left || gives_back {
            let count = kept.iter().filter(|kept| **kept).count();
            let waiting = kept.iter_mut().rev().filter(|kept| **kept);
            waiting.take(count / GIVEN_BACK).for_each(|kept| *kept = false);
        }
        if kept.first() == Some(&false) {
            // The first waiter has the only listener with the port, or is the only one that waits
            // for it.
            kept.fill(false);
        }
        let gone = self.children.iter().zip(&kept).filter(|(_, kept)| !**kept);
        // All at once, because they would wake each other by ending.
        gone.for_each(|(child, _)| child.kill());
        let mut place = kept.iter();
        self.children.retain(|_| place.next() == Some(&true));
        let mut place = kept.iter();
        self.numbers.retain(|_| place.next() == Some(&true));
        let folder = |child: &process::Child| PathBuf::from(format!("/proc/{}", child.pid()));
        self.folders = self.children.iter().map(folder).collect();
    }

    /// Returns how many wait, and the reason if more were requested.
    pub(super) fn size(&self) -> (usize, Option<&str>) {
        (self.numbers.len(), self.shortage.as_deref())
    }

    /// Finds the threads of the only child.
    fn find_threads(&mut self) -> Result<()> {
        let folder = format!("/proc/{}/task", self.children[0].pid());
        let listing = std::fs::read_dir(&folder).doing(format_args!("listing {folder}"))?;
        self.folders.extend(listing.filter_map(|entry| Some(entry.ok()?.path())));
        Ok(())
    }

    /// Waits for a step of the waiters, unless one of them fails.
    fn wait_until(&self, mut done: impl FnMut(&SharedNumbers) -> bool) -> Result<()> {
        while !done(&self.shared) {
            self.check()?;
            process::sleep(20_000);
        }
        Ok(())
    }

    /// Checks whether any waiter has met an error.
    fn check(&self) -> Result<()> {
        match self.shared[FAILED].load(Ordering::Acquire) {
            0 => Ok(()),
            failure => {
                let source = std::io::Error::from_raw_os_error(failure as i32);
                Err(Error::system("waiting in a process", source))
            }
        }
    }

    /// The port to connect to.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Waits until `accepted` connections were accepted in total, and then until all waiters sleep
    /// again.
    pub(super) fn wait_for_accepts(&self, accepted: u64) -> Result<()> {
        self.wait_until(|shared| shared[ACCEPTED].load(Ordering::Acquire) >= accepted)?;
        self.wait_until_asleep()
    }

    /// Waits until all sleep.
    fn wait_until_asleep(&self) -> Result<()> {
        let mut buffer = [0; 128];
        for _ in 0..LOOKS.min(self.folders.len()) {
            let length = self.load.read_at(&mut buffer, 0).doing(format_args!("reading {LOAD}"))?;
            if running(&buffer[..length]) == Some(1) {
                return self.check();
            }
            process::sleep(50_000);
        }
        self.look_at_each()
    }

    /// Waits until all sleep. No waiter is woken meanwhile, so each must be found asleep once.
    fn look_at_each(&self) -> Result<()> {
        for folder in &self.folders {
            let mut buffer = [0; 512];
            let path = folder.join("stat");
            loop {
                // Opened each time: there are more of these files than this process may have open.
                let length = File::open(&path)
                    .and_then(|mut state| state.read(&mut buffer))
                    .doing(format_args!("reading {}", path.display()))?;
                match state_of(&buffer[..length]) {
                    Some(b'S') => break,
                    Some(b'Z' | b'X') | None => {
                        self.check()?;
                        if self.refused != self.shared[REFUSED].load(Ordering::Acquire) {
                            break;
                        }
                        return Err(Error::usage("a waiting process has ended by itself"));
                    }
                    _ => process::sleep(50_000),
                }
            }
        }
        Ok(())
    }

    /// How often the waiters have gone to sleep, in total.
    pub(super) fn sleeps(&self) -> Result<u64> {
        self.folders.iter().map(|folder| sleeps_of(&folder.join("status"))).sum()
    }

    /// How many connections each waiter has got.
    pub(super) fn accepts(&self) -> Vec<u64> {
        let of = |number: &usize| self.shared[FIRST + number].load(Ordering::Relaxed);
        self.numbers.iter().map(of).collect()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // All at once first: if they ended in turn, the ends of the first would wake the last again
        // and again.
        self.children.iter().for_each(process::Child::kill);
    }
}

fn note_failure(shared: &SharedNumbers, stood: std::io::Result<()>) {
    let number = stood.err().as_ref().map_or(libc::EIO, code_of);
    shared[FAILED].store(number as u64, Ordering::Release);
}

/// How many processes run on the machine at the moment, including this one: the number before the
/// slash.
fn running(load: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(load).ok()?;
    text.split_whitespace().nth(3)?.split('/').next()?.parse().ok()
}

/// The letter after the name, which stands in parentheses and may hold anything.
fn state_of(stat: &[u8]) -> Option<u8> {
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    stat.get(end + 2).copied()
}

fn sleeps_of(path: &std::path::Path) -> Result<u64> {
    let text = record::read(path)?;
    let count = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count
        .and_then(|count| count.trim().parse().ok())
        .ok_or_else(|| Error::usage(format!("{} does not count context switches", path.display())))
}

// The kernel's errors when there are too many of something, and the limit that was probably
// reached.

/// Returns the kernel's number of an error, also if other errors wrap it.
pub(super) fn code_of(error: &io::Error) -> i32 {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(code) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return code;
        }
        cause = error.source();
    }
    match error.kind() {
        ErrorKind::StorageFull => libc::ENOSPC,
        ErrorKind::OutOfMemory => libc::ENOMEM,
        _ => libc::EIO,
    }
}

/// Whether the kernel returns this error when there are too many of something.
pub(super) fn is_a_limit(code: i32) -> bool {
    use libc::{EAGAIN, EMFILE, ENFILE, ENOBUFS, ENOMEM, ENOSPC};
    [EAGAIN, EMFILE, ENFILE, ENOBUFS, ENOMEM, ENOSPC].contains(&code)
}

/// Describes what the kernel refused to processes that wait for `dups` duplicates each, and by
/// which limit, for readers who can raise it.
pub(super) fn why(code: i32, dups: usize) -> String {
    let error = io::Error::from_raw_os_error(code);
    let (path, name) = match code {
        libc::ENOSPC => ("/proc/sys/fs/epoll/max_user_watches", "fs.epoll.max_user_watches"),
        libc::ENFILE => ("/proc/sys/fs/file-max", "fs.file-max"),
        libc::EMFILE => return format!("{error} (ulimit -n, with {dups} duplicates in each)"),
        _ => return error.to_string(),
    };
    match environment::line(path) {
        Some(value) => format!("{error} ({name} is {value})"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_found_behind_any_name() {
        assert_eq!(state_of(b"12 (superpoll) S 1 2"), Some(b'S'));
        assert_eq!(state_of(b"12 (a) R) b) Z 1 2"), Some(b'Z'));
        assert_eq!(state_of(b"12 (cut"), None);
    }

    #[test]
    fn running_tasks_are_counted_before_the_slash() {
        assert_eq!(running(b"0.42 1.00 2.50 3/1234 99\n"), Some(3));
        assert_eq!(running(b"0.42 1.00 2.50"), None);
        let here = std::fs::read(LOAD).unwrap();
        assert!(running(&here).unwrap() >= 1, "this one runs");
    }

    #[test]
    fn this_thread_has_slept_before() {
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(sleeps_of(std::path::Path::new("/proc/thread-self/status")).unwrap() > 0);
        let error = sleeps_of(std::path::Path::new("/proc/thread-self/nothing")).unwrap_err();
        assert!(error.to_string().contains("nothing"), "{error}");
    }

    #[test]
    fn limits_are_distinguished_from_failures_and_named_if_known() {
        assert!(is_a_limit(libc::EAGAIN) && is_a_limit(libc::ENOSPC) && !is_a_limit(libc::EBADF));
        assert!(why(libc::EMFILE, 1019).contains("1019 duplicates"));
        assert!(why(libc::ENFILE, 0).contains(" (fs.file-max is "));
        assert!(!why(libc::EAGAIN, 0).contains(" is "));
    }

    #[test]
    fn an_error_has_its_number_however_it_was_wrapped() {
        let of_system = io::Error::from_raw_os_error(libc::ENFILE);
        assert_eq!(code_of(&of_system), libc::ENFILE);
        let wrapped = crate::error::Error::system("opening", of_system);
        assert_eq!(code_of(&io::Error::other(wrapped)), libc::ENFILE);
        assert_eq!(code_of(&ErrorKind::StorageFull.into()), libc::ENOSPC);
        assert_eq!(code_of(&io::Error::other("anything")), libc::EIO);
    }
}
