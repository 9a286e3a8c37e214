//! Those who wait: processes forked for it, or the engines of one, and what the kernel says of them.
//!
//! Who was woken is not left to the woken ones to tell, because many are put back to sleep by the kernel
//! before they return. It keeps count: whoever sleeps has given up the processor of its own will once more
//! than before. Between two connections the crowd must have come to rest, else a connection would find
//! fewer waiters than there are. Looking at each of thousands would leave the caches full of other things,
//! and the next connection would pay for that: a machine on which only one process runs, this one, is at
//! rest, and only if it does not come to that within some time is each looked at.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use superpoll::BackendKind;

use crate::error::{Error, Result};
use crate::herd::way::{Post, Tell, Way, engines};
use crate::sys::memory::SharedNumbers;
use crate::sys::{descriptor, process, socket};

/// What the shared numbers mean; those after are the connections of each waiter.
const READY: usize = 0;
const FAILED: usize = 1;
const ACCEPTED: usize = 2;
const PORT: usize = 3;
const FIRST: usize = 4;

/// How many processes run, among other things.
const LOAD: &str = "/proc/loadavg";

/// How often the machine is asked whether it is at rest, before each waiter is.
const LOOKS: usize = 400;

/// Waiters on one port. They end when this is dropped.
#[derive(Debug)]
pub struct Crowd {
    shared: Arc<SharedNumbers>,
    children: Vec<process::Child>,
    /// Of each waiter, what the kernel says of it.
    states: Vec<File>,
    folders: Vec<PathBuf>,
    load: File,
    port: u16,
    // Of no use here but to keep the port.
    _listener: Option<OwnedFd>,
}

impl Crowd {
    /// Starts so many waiters and returns when all are asleep.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if a process cannot be started or set up.
    pub fn gather(way: Way, waiters: usize, dups: usize, of_pipe: bool) -> Result<Crowd> {
        let failed = |doing: String| move |source| Error::system(doing, source);
        let shared = SharedNumbers::new(FIRST + waiters)
            .map_err(failed("sharing memory with processes".to_owned()))?;
        let mut crowd = Crowd {
            shared: Arc::new(shared),
            children: Vec::new(),
            states: Vec::new(),
            folders: Vec::new(),
            load: File::open(LOAD).map_err(failed(format!("opening {LOAD}")))?,
            port: 0,
            _listener: None,
        };
        process::watch(way.name);
        match way.engines {
            Some(spread) => crowd.start_engines(waiters, way.backend(), spread)?,
            None => crowd.start_processes(way, waiters, dups, of_pipe)?,
        }
        let mut seen = 0;
        crowd.wait_until(|shared| {
            let ready = shared[READY].load(Ordering::Acquire);
            if ready > seen {
                // Thousands may take their time, as long as they come.
                seen = ready;
                process::watch(way.name);
            }
            ready == waiters as u64
        })?;
        if way.engines.is_some() {
            crowd.port = crowd.shared[PORT].load(Ordering::Acquire) as u16;
            crowd.find_threads()?;
        }
        for folder in &crowd.folders {
            let file = File::open(folder.join("stat"))
                .map_err(failed(format!("opening {}", folder.join("stat").display())))?;
            crowd.states.push(file);
        }
        crowd.look_at_each()?;
        process::unwatch();
        Ok(crowd)
    }

    fn start_processes(
        &mut self,
        way: Way,
        waiters: usize,
        dups: usize,
        of_pipe: bool,
    ) -> Result<()> {
        let listening = |source| Error::system("listening on a loopback port", source);
        let listener = socket::listen(0, way.own_listener).map_err(listening)?;
        descriptor::set_blocking(listener.as_raw_fd(), way.blocks).map_err(listening)?;
        self.port = socket::port(&listener).map_err(listening)?;
        for number in 0..waiters {
            if number % 64 == 0 {
                process::watch(way.name);
            }
            // With a listener for each, the first has the one whose port was chosen; it is not kept
            // here, where nobody would accept what the kernel assigns to it.
            let own = match number {
                0 => None,
                _ if way.own_listener => Some(socket::listen(self.port, true).map_err(listening)?),
                _ => None,
            };
            let stands_at = own.as_ref().unwrap_or(&listener).as_raw_fd();
            let shared = &self.shared;
            let child = process::fork(|| {
                descriptor::close_all_but(&mut [stands_at]);
                let (tally, count) = (shared.clone(), shared.clone());
                let tell = Tell {
                    ready: Rc::new(move || {
                        count[READY].fetch_add(1, Ordering::Release);
                    }),
                    accepted: Rc::new(move || {
                        tally[FIRST + number].fetch_add(1, Ordering::Relaxed);
                        tally[ACCEPTED].fetch_add(1, Ordering::Release);
                    }),
                };
                let stood = Post::take_up(number, stands_at, dups, of_pipe)
                    .and_then(|post| (way.stand)(post, &tell));
                note_failure(shared, stood);
            });
            let doing = format!(
                "starting process {} of {waiters} (fewer with --processes, or a higher ulimit -u)",
                number + 1
            );
            let child = child.map_err(|source| Error::system(doing, source))?;
            self.folders.push(PathBuf::from(format!("/proc/{}", child.pid())));
            self.children.push(child);
        }
        if !way.own_listener {
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
            // The lowest free number may be any: nothing of the parent's is used.
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
            note_failure(shared, engines::stand(engines, backend, spread, ready, accepted));
        })
        .map_err(|source| Error::system("starting a process for our runtime", source))?;
        self.children.push(child);
        Ok(())
    }

    /// The threads of the one child.
    fn find_threads(&mut self) -> Result<()> {
        let folder = format!("/proc/{}/task", self.children[0].pid());
        let listing = std::fs::read_dir(&folder)
            .map_err(|source| Error::system(format!("listing {folder}"), source))?;
        self.folders.extend(listing.filter_map(|entry| Some(entry.ok()?.path())));
        Ok(())
    }

    /// Waits for something that the waiters do, unless one of them fails.
    fn wait_until(&self, mut done: impl FnMut(&SharedNumbers) -> bool) -> Result<()> {
        while !done(&self.shared) {
            self.check()?;
            process::sleep(20_000);
        }
        Ok(())
    }

    /// Whether any of them has met an error.
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
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits until so many connections were accepted in all, and then until all sleep again.
    ///
    /// # Errors
    ///
    /// What a waiter has met.
    pub fn settle(&self, accepted: u64) -> Result<()> {
        self.wait_until(|shared| shared[ACCEPTED].load(Ordering::Acquire) >= accepted)?;
        self.rest()
    }

    /// Waits until all sleep.
    fn rest(&self) -> Result<()> {
        let mut buffer = [0; 128];
        for _ in 0..LOOKS {
            let length = self
                .load
                .read_at(&mut buffer, 0)
                .map_err(|source| Error::system(format!("reading {LOAD}"), source))?;
            if running(&buffer[..length]) == Some(1) {
                return self.check();
            }
            process::sleep(50_000);
        }
        self.look_at_each()
    }

    /// Waits until all sleep. Nobody is woken meanwhile, so each has to be found asleep once.
    fn look_at_each(&self) -> Result<()> {
        for (state, folder) in self.states.iter().zip(&self.folders) {
            let mut buffer = [0; 512];
            loop {
                let length = state.read_at(&mut buffer, 0).map_err(|source| {
                    Error::system(format!("reading {}", folder.join("stat").display()), source)
                })?;
                match state_of(&buffer[..length]) {
                    Some(b'S') => break,
                    Some(b'Z' | b'X') | None => {
                        self.check()?;
                        return Err(Error::usage("a waiting process has ended by itself"));
                    }
                    _ => process::sleep(50_000),
                }
            }
        }
        Ok(())
    }

    /// How often the waiters have gone to sleep, in all.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the kernel does not say.
    pub fn sleeps(&self) -> Result<u64> {
        self.folders.iter().map(|folder| sleeps_of(&folder.join("status"))).sum()
    }

    /// How many connections each waiter has got.
    pub fn accepts(&self) -> Vec<u64> {
        self.shared.all()[FIRST..].iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // All at once first: one by one, the last would be woken again and again by the ends of others.
        self.children.iter().for_each(process::Child::kill);
    }
}

fn note_failure(shared: &SharedNumbers, stood: std::io::Result<()>) {
    let number = stood.err().and_then(|error| error.raw_os_error()).unwrap_or(libc::EIO);
    shared[FAILED].store(number as u64, Ordering::Release);
}

/// How many processes run at the moment on the machine, this one included: the number before the slash.
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
    let text = std::fs::read_to_string(path)
        .map_err(|source| Error::system(format!("reading {}", path.display()), source))?;
    let count = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count
        .and_then(|count| count.trim().parse().ok())
        .ok_or_else(|| Error::usage(format!("{} does not count context switches", path.display())))
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
    fn who_runs_is_counted_before_the_slash() {
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
}
