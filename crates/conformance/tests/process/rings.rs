//! io_uring that is available but limited: too little memory, a refused operation, and as many
//! descriptors as a process may have. The back-end works, or states the problem in one line, and
//! `auto` does without it.

use std::collections::HashSet;
use std::io::{Read, Write, pipe};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use superpoll::{BackendKind, Error, Events, Interest, Mode, Poller, Watch};
use superpoll_conformance::{Bench, bench, checks, sys};
use superpoll_test_support::alone;

use crate::Result;

const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

fn uring() -> superpoll::Result<Poller> {
    Poller::builder().backend(BackendKind::Uring).build()
}

/// Whether rings are available at all.
fn has_rings() -> bool {
    let has = BackendKind::Uring.is_available();
    if !has {
        eprintln!("skipped: uring is not available here");
    }
    has
}

/// Checks that a byte in a pipe is reported.
fn works(poller: &mut Poller) -> Result {
    let (reader, mut writer) = pipe()?;
    let key = poller.register(&reader, Interest::READABLE)?;
    writer.write_all(b"x")?;
    let mut events = Events::with_limit(4);
    poller.wait(&mut events, PATIENCE)?;
    poller.deregister(key)?;
    let reported = events.iter().any(|event| event.key() == key && event.is_readable());
    if reported { Ok(()) } else { Err("a byte in a pipe is not reported".into()) }
}

/// Checks that the back-end is refused in one line with these words, and that other back-ends still
/// work.
fn is_refused(words: &[&str]) -> Result {
    let said = match uring() {
        Err(error @ Error::BackendUnavailable { backend: "uring", .. }) => error.to_string(),
        other => return Err(format!("it should be refused: {other:?}").into()),
    };
    let told = words.iter().chain(&["back-end uring", "or auto"]).all(|word| said.contains(word));
    if !told || said.contains('\n') {
        return Err(format!("{words:?} in {said:?}").into());
    }
    if BackendKind::Uring.is_available() || BackendKind::Auto.resolve() != BackendKind::Adaptive {
        return Err("it is refused and said to be available".into());
    }
    for builder in [Poller::builder().backend(BackendKind::Auto), Poller::builder()] {
        let mut poller = builder.build()?;
        if poller.backend() != "adaptive" {
            return Err(format!("{} instead of adaptive", poller.backend()).into());
        }
        works(&mut poller)?;
    }
    Ok(())
}

fn contract(bench: &Bench) -> Result {
    for check in checks::CHECKS {
        if (check.applies)(&bench.capabilities()) {
            (check.run)(bench).map_err(|problem| format!("{}: {problem}", check.name))?;
        }
    }
    Ok(())
}

#[test]
fn the_contract_holds_with_the_smallest_rings() {
    alone(|| -> Result {
        if !has_rings() {
            return Ok(());
        }
        sys::refuse_large_rings(9, libc::ENOMEM)?;
        let mut poller = uring()?;
        works(&mut poller)?;
        let pipes: Vec<_> = (0..100).map(|_| sys::pipe()).collect::<std::io::Result<_>>()?;
        let before = poller.stats().calls;
        for (reader, _) in &pipes {
            poller.register(reader, Interest::READABLE)?;
        }
        poller.flush();
        // One call carries eight changes.
        let calls = poller.stats().calls.since(&before);
        if calls.io_uring_enter < 100 / 8 {
            return Err(format!("this is not the smallest ring: {calls}").into());
        }
        let bench = bench::every().into_iter().find(|bench| bench.name() == "uring");
        contract(&bench.ok_or("no bench for uring")?)
    });
}

#[test]
fn a_size_that_no_kernel_takes_is_a_refusal() {
    alone(|| -> Result {
        sys::refuse_large_rings(9, libc::EINVAL)?;
        is_refused(&["Linux 5.19"])
    });
}

#[test]
fn no_memory_for_any_ring_is_a_refusal() {
    alone(|| -> Result {
        sys::refuse_large_rings(1, libc::ENOMEM)?;
        is_refused(&["Cannot allocate memory", "ulimit -l"])
    });
}

#[test]
fn rings_that_may_be_made_and_not_used_are_a_refusal() {
    alone(|| -> Result {
        sys::refuse_use_of_rings(libc::EPERM)?;
        is_refused(&["Operation not permitted", "seccomp", "io_uring_enter"])
    });
}

/// Newer kernels do not count rings as locked memory; with older ones the error says that there is
/// none.
#[test]
fn without_locked_memory_a_ring_works_or_names_the_limit_to_raise() {
    alone(|| -> Result {
        sys::forbid_locked_memory()?;
        if sys::lock_memory().is_ok() {
            return Err("memory can still be locked".into());
        }
        match uring() {
            Ok(mut poller) => works(&mut poller)?,
            Err(Error::BackendUnavailable { source, .. })
                if source.raw_os_error() == Some(libc::ENOMEM) =>
            {
                is_refused(&["ulimit -l"])?;
            }
            // Another test covers reasons other than memory.
            Err(error) if has_rings() => return Err(error.into()),
            Err(_) => {}
        }
        works(&mut Poller::builder().backend(BackendKind::Auto).build()?)
    });
}

/// Returns ready counters, until there are no more descriptor numbers.
fn all_descriptors() -> Result<Vec<OwnedFd>> {
    let mut all = Vec::new();
    let end = loop {
        match sys::eventfd() {
            Ok(counter) => all.push(counter),
            Err(error) => break error,
        }
    };
    if end.raw_os_error() != Some(libc::EMFILE) {
        return Err(end.into());
    }
    for counter in &all {
        if sys::write(counter.as_raw_fd(), 8) != Ok(8) {
            return Err("a counter cannot be written to".into());
        }
    }
    Ok(all)
}

#[test]
fn as_many_descriptors_as_there_may_be_are_watched_and_one_more_is_an_error() {
    alone(|| -> Result {
        if !has_rings() {
            return Ok(());
        }
        let soft = superpoll::limits::raise_descriptors()?;
        sys::limit_descriptors(soft.min(20_000))?;
        for mode in [Mode::Level, Mode::Auto, Mode::OneShot] {
            let mut poller = uring()?;
            let all = all_descriptors()?;
            let refused = uring();
            match &refused {
                Err(error @ Error::DescriptorLimit { .. })
                    if error.to_string().contains("ulimit -n") => {}
                other => return Err(format!("no descriptor for another: {other:?}").into()),
            }
            let watch = Watch::new(Interest::READABLE).mode(mode);
            let mut missing = HashSet::new();
            for counter in &all {
                missing.insert(poller.register(counter, watch)?);
            }
            // A limit, so that it takes several turns.
            let count = missing.len();
            let mut events = Events::with_limit(count.div_ceil(3));
            for turn in 0.. {
                if missing.is_empty() {
                    break;
                }
                let news = poller.wait(&mut events, PATIENCE)?;
                let refused = events.refusals().first();
                if news == 0 || turn > 3 || refused.is_some() {
                    return Err(format!(
                        "{mode:?}, turn {turn}: {news} events, {} of {count} missing, {refused:?}",
                        missing.len()
                    )
                    .into());
                }
                for event in &events {
                    missing.remove(&event.key());
                }
            }
            drop((poller, all));
        }
        Ok(())
    });
}

/// Reads a byte that another thread writes when a ring of this thread is taken down. Returns how
/// often the read was interrupted.
fn read_while_a_ring_goes(limit: Option<Duration>) -> Result<usize> {
    let (mut reader, mut writer) = UnixStream::pair()?;
    reader.set_read_timeout(limit)?;
    let mut poller = uring()?;
    let (watched, its_writer) = pipe()?;
    poller.register(&watched, Interest::READABLE)?;
    poller.wait(&mut Events::with_limit(1), Some(Duration::ZERO))?;
    let writing = std::thread::spawn(move || {
        // The ring holds the reader, and with the last reader goes the ring.
        let mut end = Poller::builder().backend(BackendKind::Poll).build()?;
        end.register(&its_writer, Interest::PRIORITY)?;
        end.wait(&mut Events::with_limit(1), PATIENCE)?;
        writer.write_all(b"x")?;
        Ok::<_, std::io::Error>(writer)
    });
    drop((watched, poller));
    let mut interrupted = 0;
    loop {
        match reader.read(&mut [0]) {
            Ok(1) => break,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => interrupted += 1,
            other => return Err(format!("{other:?}").into()),
        }
    }
    writing.join().map_err(|_| "it panics")??;
    Ok(interrupted)
}

#[test]
fn a_thread_is_interrupted_for_a_ring_only_where_the_kernel_does_not_repeat_its_call() {
    if !has_rings() {
        return;
    }
    let mut times = 0;
    for _ in 0..20 {
        assert_eq!(read_while_a_ring_goes(None).unwrap(), 0, "a read without a timeout");
        times += read_while_a_ring_goes(PATIENCE).unwrap();
    }
    println!("20 reads with a timeout were interrupted {times} times");
}
