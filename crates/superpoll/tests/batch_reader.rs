//! The batch reader, on every back-end: each byte once and in order, whatever the order of reports.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use superpoll::{Arrivals, BackendKind, BatchReader, Error, Key, Outcome};

const NOW: Option<Duration> = Some(Duration::ZERO);

/// Readers of every make, with their names.
fn readers<T: AsFd>() -> Vec<(String, BatchReader<T>)> {
    let mut all = Vec::new();
    for kind in BackendKind::available() {
        let reader = BatchReader::with_backend(kind).unwrap();
        all.push((kind.name().to_owned(), reader.buffer_size(64)));
    }
    if BackendKind::Uring.is_available() {
        let uring = || BatchReader::with_backend(BackendKind::Uring).unwrap().buffer_size(64);
        all.push(("uring, watching".to_owned(), uring().without_speculation()));
        all.push(("uring, together".to_owned(), uring().reads_together(true)));
        all.push(("uring, by calls".to_owned(), uring().reads_together(false)));
        let watching = uring().reads_together(true).without_speculation();
        all.push(("uring, watching, together".to_owned(), watching));
    }
    all
}

fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    (ours, theirs)
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = std::io::pipe().unwrap();
    for fd in [reader.as_raw_fd(), writer.as_raw_fd()] {
        // SAFETY: the flags of an open descriptor are set.
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) }, 0);
    }
    (reader.into(), writer.into())
}

fn tcp() -> (OwnedFd, OwnedFd) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    theirs.set_nonblocking(true).unwrap();
    // A byte is not kept back until the one before is acknowledged.
    theirs.set_nodelay(true).unwrap();
    (listener.accept().unwrap().0.into(), theirs.into())
}

fn write(fd: &OwnedFd, bytes: &[u8]) -> usize {
    superpoll::call::write(fd, bytes).unwrap_or(0)
}

/// A generator of numbers, from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// What one end has written and the other has got.
struct Line {
    key: Option<Key>,
    writer: Option<OwnedFd>,
    written: usize,
    got: usize,
    paused: bool,
}

fn byte(line: usize, place: usize) -> u8 {
    (place * 7 + line * 31 + place / 256) as u8
}

#[test]
fn each_byte_comes_once_and_in_order() {
    // The last one has descriptors that are due and read in each wait at once, with little room.
    for seed in [1, 2, 3, 1_795_302_476_112_477_666] {
        for (name, reader) in readers() {
            run(&format!("{name}, seed {seed}"), reader, seed);
        }
    }
}

#[test]
fn each_byte_comes_once_and_in_order_whatever_the_numbers() {
    // As many as there is time for; what is tested differs from one time to the next, which the message tells.
    let begin = Instant::now();
    let mut seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    while begin.elapsed() < Duration::from_secs(3) {
        for (name, reader) in readers().into_iter().filter(|(name, _)| name.contains("uring")) {
            run(&format!("{name}, seed {seed}"), reader, seed);
        }
        seed += 1;
    }
}

/// Random writes, waits, pauses, closes and deregistrations, with a busy part of the lines, against what must come.
fn run(name: &str, mut reader: BatchReader<OwnedFd>, seed: u64) {
    let mut random = Random(seed);
    let mut lines: Vec<Line> = Vec::new();
    let mut by_key = std::collections::HashMap::new();
    let mut arrivals = Arrivals::with_limit(1);
    let mut ended = 0;
    for step in 0..2500 {
        let open = lines.len() < 40 || random.below(60) == 0;
        if open && lines.len() < 100 {
            let (ours, theirs) = match random.below(3) {
                0 => pipe(),
                1 => tcp(),
                _ => {
                    let (ours, theirs) = pair();
                    (ours.into(), theirs.into())
                }
            };
            let key = reader.register(ours).map_err(|refused| refused.error).unwrap();
            assert!(by_key.insert(key, lines.len()).is_none(), "{name}: {key:?} twice");
            let writer = Some(theirs);
            lines.push(Line { key: Some(key), writer, written: 0, got: 0, paused: false });
        }
        for (number, line) in lines.iter_mut().enumerate() {
            // A fifth of them is busy.
            let busy = number % 5 == 0;
            let writes = if busy { random.below(8) > 0 } else { random.below(50) == 0 };
            if let (true, Some(writer)) = (writes, &line.writer) {
                let most = if random.below(20) == 0 { 3000 } else { 40 };
                let places = line.written..line.written + 1 + random.below(most);
                let bytes: Vec<u8> = places.map(|place| byte(number, place)).collect();
                line.written += write(writer, &bytes);
            }
        }
        let which = random.below(lines.len());
        match random.below(40) {
            0 => lines[which].writer = None,
            1 => {
                if let Some(key) = lines[which].key {
                    reader.pause(key).unwrap();
                    lines[which].paused = true;
                }
            }
            2 => {
                if let Some(key) = lines[which].key.take() {
                    drop(reader.deregister(key).unwrap());
                    assert!(matches!(reader.deregister(key), Err(Error::StaleKey { .. })));
                }
            }
            _ => {}
        }
        for line in lines.iter_mut().filter(|line| line.paused) {
            if random.below(10) == 0
                && let Some(key) = line.key
            {
                reader.resume(key).unwrap();
                line.paused = false;
            }
        }
        let limit = [1, 2, 3, 7, 64, 500][random.below(6)];
        if arrivals.limit() != limit {
            arrivals = Arrivals::with_limit(limit);
        }
        if random.below(300) == 0 {
            reader = std::thread::scope(|scope| {
                let wait = || {
                    reader.wait(&mut arrivals, NOW).unwrap();
                    reader
                };
                scope.spawn(wait).join().unwrap()
            });
        } else {
            reader.wait(&mut arrivals, NOW).unwrap();
        }
        assert!(arrivals.len() <= limit, "{name}: {} arrivals, limit {limit}", arrivals.len());
        ended += take(name, step, &arrivals, &by_key, &mut lines);
    }
    for line in &mut lines {
        line.writer = None;
        if let (true, Some(key)) = (line.paused, line.key) {
            reader.resume(key).unwrap();
            line.paused = false;
        }
    }
    let left = lines.iter().filter(|line| line.key.is_some()).count();
    let deadline = Instant::now() + Duration::from_secs(20);
    let all = lines.len();
    while reader_has(&lines) && Instant::now() < deadline {
        reader.wait(&mut arrivals, Some(Duration::from_millis(200))).unwrap();
        ended += take(name, usize::MAX, &arrivals, &by_key, &mut lines);
    }
    assert!(!reader_has(&lines), "{name}: {ended} of {left} ends of {all} lines have come");
    assert_eq!(reader.wait(&mut arrivals, NOW).unwrap(), 0, "{name}: something after the ends");
}

fn reader_has(lines: &[Line]) -> bool {
    lines.iter().any(|line| line.key.is_some() && line.got != usize::MAX)
}

/// Compares arrivals with what was written. Returns how many ends there were.
fn take(
    name: &str,
    step: usize,
    arrivals: &Arrivals,
    by_key: &std::collections::HashMap<Key, usize>,
    lines: &mut [Line],
) -> usize {
    let mut ends = 0;
    let mut seen = std::collections::HashSet::new();
    for arrival in arrivals {
        let number = by_key[&arrival.key()];
        let line = &mut lines[number];
        let context = format!("{name}, step {step}, line {number}");
        assert!(seen.insert(number), "{context}: twice in a wait");
        assert_eq!(line.key, Some(arrival.key()), "{context}: deregistered");
        assert!(!line.paused, "{context}: paused");
        match arrival.outcome() {
            Outcome::Bytes(bytes) => {
                assert!(!bytes.is_empty() && bytes.len() <= 64, "{context}: {} bytes", bytes.len());
                for &got in bytes {
                    assert_eq!(got, byte(number, line.got), "{context}, place {}", line.got);
                    line.got += 1;
                }
                assert!(line.got <= line.written, "{context}");
            }
            Outcome::End => {
                assert!(line.writer.is_none(), "{context}: an end of what is open");
                assert_eq!(line.got, line.written, "{context}: an end before the last byte");
                line.got = usize::MAX;
                ends += 1;
            }
            other => panic!("{context}: {other:?}"),
        }
    }
    ends
}

#[test]
fn no_ready_source_waits_longer_than_its_turn() {
    for (name, mut reader) in readers() {
        let lines: Vec<_> = (0..30).map(|_| pair()).collect();
        let mut writers = Vec::new();
        for (ours, theirs) in lines {
            reader.register(ours).map_err(|refused| refused.error).unwrap();
            writers.push(theirs);
        }
        let mut arrivals = Arrivals::with_limit(4);
        let mut waits = std::collections::HashMap::<Key, usize>::new();
        for round in 0..300 {
            for writer in &mut writers {
                let _ = writer.write(&[7; 64]);
            }
            assert!(reader.wait(&mut arrivals, NOW).unwrap() > 0, "{name}");
            for arrival in &arrivals {
                let last = waits.insert(arrival.key(), round).unwrap_or(0);
                // Those that are watched and those that are not have half of the limit each.
                assert!(round - last <= 2 * 30_usize.div_ceil(4) + 2, "{name}: {last} to {round}");
            }
        }
        assert_eq!(waits.len(), 30, "{name}");
        assert!(waits.values().all(|&last| last >= 300 - 18), "{name}: {waits:?}");
    }
}

#[test]
fn room_to_write_is_told_once_and_reading_goes_on() {
    for (name, mut reader) in readers() {
        let (ours, mut theirs) = pair();
        ours.set_nonblocking(true).unwrap();
        let key = reader.register(ours).map_err(|refused| refused.error).unwrap();
        let mut arrivals = Arrivals::with_limit(10);
        while reader.get_mut(key).unwrap().write(&[1; 4096]).is_ok() {}
        reader.notify_writable(key).unwrap();
        assert_eq!(reader.wait(&mut arrivals, NOW).unwrap(), 0, "{name}: there is no room");
        theirs.write_all(b"x").unwrap();
        assert_eq!(reader.wait(&mut arrivals, None).unwrap(), 1, "{name}");
        assert_eq!(arrivals.iter().next().unwrap().bytes(), Some(&b"x"[..]), "{name}");
        let mut sink = vec![0; 1 << 20];
        while theirs.read(&mut sink).is_ok() {}
        assert_eq!(reader.wait(&mut arrivals, None).unwrap(), 1, "{name}");
        let arrival = arrivals.iter().next().unwrap();
        assert!(matches!(arrival.outcome(), Outcome::Writable), "{name}: {arrival:?}");
        assert_eq!(reader.wait(&mut arrivals, NOW).unwrap(), 0, "{name}: told twice");
        theirs.write_all(b"y").unwrap();
        assert_eq!(reader.wait(&mut arrivals, None).unwrap(), 1, "{name}");
        assert_eq!(arrivals.iter().next().unwrap().bytes(), Some(&b"y"[..]), "{name}");
    }
}

#[test]
fn what_is_no_stream_is_given_back_with_the_reason() {
    let (blocking, writer) = std::io::pipe().unwrap();
    let datagrams = UnixDatagram::unbound().unwrap();
    let folder = std::env::temp_dir().join(format!("superpoll-reader-{}", std::process::id()));
    let _ = std::fs::remove_file(&folder);
    let listener = UnixListener::bind(&folder).unwrap();
    std::fs::remove_file(&folder).unwrap();
    let cases: [(OwnedFd, &str); 6] = [
        (std::fs::File::open("/proc/self/exe").unwrap().into(), "a file"),
        (blocking.into(), "blocking"),
        (pipe().1, "writing only"),
        (datagrams.into(), "a datagram socket"),
        (UdpSocket::bind("127.0.0.1:0").unwrap().into(), "a datagram socket"),
        (listener.into(), "a listening socket"),
    ];
    drop(writer);
    let mut reader = BatchReader::new().unwrap();
    for (fd, reason) in cases {
        let number = fd.as_raw_fd();
        let refused = reader.register(fd).unwrap_err();
        assert_eq!(refused.io.as_raw_fd(), number);
        let says = refused.error.to_string();
        assert!(matches!(refused.error, Error::NotAStream { .. }), "{says}");
        assert!(says.contains(reason) && says.contains(&number.to_string()), "{says}");
    }
    assert!(reader.is_empty());
    assert!(matches!(reader.wait(&mut Arrivals::with_limit(0), NOW), Err(Error::ZeroLimit)));
}

#[test]
fn a_failure_is_told_once_and_a_wake_and_a_timeout_end_a_wait() {
    for (name, mut reader) in readers() {
        let (ours, theirs) = tcp();
        let key = reader.register(ours).map_err(|refused| refused.error).unwrap();
        let mut arrivals = Arrivals::with_limit(10);
        let begin = Instant::now();
        let timeout = Duration::from_micros(1500);
        assert_eq!(reader.wait(&mut arrivals, Some(timeout)).unwrap(), 0, "{name}");
        assert!(begin.elapsed() >= timeout, "{name}");
        let waker = reader.waker().unwrap();
        waker.wake().unwrap();
        assert_eq!(reader.wait(&mut arrivals, None).unwrap(), 0, "{name}");
        assert!(arrivals.woken(), "{name}");
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        // SAFETY: the kernel reads one linger structure, which outlives the call.
        let set = unsafe {
            libc::setsockopt(
                theirs.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_LINGER,
                (&raw const linger).cast(),
                size_of::<libc::linger>() as libc::socklen_t,
            )
        };
        assert_eq!(set, 0);
        drop(theirs);
        assert_eq!(reader.wait(&mut arrivals, None).unwrap(), 1, "{name}");
        match arrivals.iter().next().unwrap().outcome() {
            Outcome::Failed(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{name}");
            }
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(reader.wait(&mut arrivals, NOW).unwrap(), 0, "{name}: told twice");
        assert!(reader.deregister(key).is_ok() && reader.is_empty(), "{name}");
    }
}

#[test]
fn memory_of_bytes_goes_back_to_the_pool_unless_it_is_taken() {
    for (name, mut reader) in readers() {
        let (ours, mut theirs) = pair();
        reader.register(ours).map_err(|refused| refused.error).unwrap();
        let mut arrivals = Arrivals::with_limit(10);
        let mut addresses = std::collections::HashSet::new();
        let mut taken = Vec::new();
        for round in 0..40 {
            theirs.write_all(&[round]).unwrap();
            assert_eq!(reader.wait(&mut arrivals, None).unwrap(), 1, "{name}");
            if round < 30 {
                addresses
                    .insert(arrivals.iter().next().unwrap().bytes().unwrap().as_ptr() as usize);
            } else {
                taken.extend(arrivals.take());
            }
        }
        assert!(addresses.len() <= 3, "{name}: {} buffers for one source", addresses.len());
        let bytes: Vec<u8> =
            taken.iter().flat_map(|arrival| arrival.bytes().unwrap().to_vec()).collect();
        assert_eq!(bytes, (30..40).collect::<Vec<u8>>(), "{name}");
    }
}

/// A descriptor by its number, which dropping it does not close.
struct Numbered(std::os::fd::RawFd);

impl AsFd for Numbered {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        // SAFETY: the test knows when the number is open; what is not is refused by the kernel.
        unsafe { std::os::fd::BorrowedFd::borrow_raw(self.0) }
    }
}

#[test]
fn a_refused_descriptor_keeps_its_key_and_leaves_its_place_to_others() {
    for kind in [BackendKind::Epoll, BackendKind::Uring] {
        if !kind.is_available() {
            continue;
        }
        let name = kind.name();
        let mut reader = BatchReader::with_backend(kind).unwrap();
        let (gone, _theirs) = pair();
        // A number that nothing else in this process gets meanwhile.
        // SAFETY: duplicates an open descriptor.
        let number = unsafe { libc::fcntl(gone.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 700) };
        assert!(number >= 700, "{name}");
        let lost = reader.register(Numbered(number)).map_err(|refused| refused.error).unwrap();
        // SAFETY: the duplicate is the test's own.
        assert_eq!(unsafe { libc::close(number) }, 0);
        let mut arrivals = Arrivals::with_limit(10);
        assert_eq!(reader.wait(&mut arrivals, None).unwrap(), 0, "{name}");
        assert_eq!(arrivals.refusals().len(), 1, "{name}");
        assert_eq!(arrivals.refusals()[0].0, lost, "{name}");
        assert!(reader.is_empty(), "{name}");

        let (ours, mut theirs) = pair();
        let number = ours.as_raw_fd();
        let key = reader.register(Numbered(number)).map_err(|refused| refused.error).unwrap();
        assert_eq!(key.index(), lost.index(), "{name}: the place is given to another");
        assert_eq!(reader.len(), 1, "{name}");
        assert!(reader.pause(lost).is_err() && reader.get(lost).is_some(), "{name}");
        assert_eq!(reader.get(key).unwrap().0, number, "{name}");
        assert!(reader.deregister(lost).unwrap().0 >= 700, "{name}");
        assert!(matches!(reader.deregister(lost), Err(Error::StaleKey { .. })), "{name}");
        theirs.write_all(b"x").unwrap();
        assert_eq!(reader.wait(&mut arrivals, None).unwrap(), 1, "{name}");
        assert_eq!(arrivals.iter().next().unwrap().bytes(), Some(&b"x"[..]), "{name}");
    }
}

/// Has each of them busy for long enough that it is read in every wait, by whatever is cheapest.
fn keep_busy(reader: &mut BatchReader<OwnedFd>, writers: &[OwnedFd], rounds: usize) {
    let mut arrivals = Arrivals::with_limit(1000);
    for round in 0..rounds {
        for writer in writers {
            assert_eq!(write(writer, &[round as u8]), 1);
        }
        let mut got = 0;
        while got < writers.len() {
            reader.wait(&mut arrivals, None).unwrap();
            for arrival in &arrivals {
                let bytes = arrival.bytes().unwrap();
                assert!(bytes.iter().all(|&byte| byte == round as u8));
                got += bytes.len();
            }
        }
    }
}

#[test]
fn a_busy_descriptor_that_is_given_back_is_closed_for_its_peer_at_once() {
    for (name, mut reader) in readers::<OwnedFd>() {
        let lines: Vec<_> =
            (0..40).map(|place| if place % 2 == 0 { tcp() } else { pipe() }).collect();
        let (ours, writers): (Vec<_>, Vec<_>) = lines.into_iter().unzip();
        let keys: Vec<_> = ours.into_iter().map(|fd| reader.register(fd).unwrap()).collect();
        keep_busy(&mut reader, &writers, 60);
        for (key, writer) in keys.into_iter().zip(&writers) {
            drop(reader.deregister(key).unwrap());
            let mut slot =
                libc::pollfd { fd: writer.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: the kernel reads and writes one structure, which outlives the call.
            assert_eq!(unsafe { libc::poll(&raw mut slot, 1, 10_000) }, 1, "{name}");
        }
    }
}

#[test]
fn a_reader_goes_on_in_another_thread_and_back() {
    for (name, mut reader) in readers::<OwnedFd>() {
        let (ours, writers): (Vec<_>, Vec<_>) = (0..30).map(|_| tcp()).unzip();
        for fd in ours {
            reader.register(fd).unwrap();
        }
        keep_busy(&mut reader, &writers, 60);
        for _ in 0..3 {
            // What is hot here is hot there, and what was written before the move is read after it.
            reader = std::thread::scope(|scope| {
                let work = || {
                    keep_busy(&mut reader, &writers, 40);
                    reader
                };
                scope.spawn(work).join().unwrap()
            });
            keep_busy(&mut reader, &writers, 40);
        }
        let mut arrivals = Arrivals::with_limit(100);
        assert_eq!(reader.wait(&mut arrivals, NOW).unwrap(), 0, "{name}");
    }
}

#[test]
fn a_child_process_is_told_that_it_must_say_so_first() {
    for (name, mut reader) in readers::<OwnedFd>() {
        let (ours, theirs) = pipe();
        let key = reader.register(ours).unwrap();
        keep_busy(&mut reader, std::slice::from_ref(&theirs), 60);
        assert_eq!(write(&theirs, b"parent"), 6, "{name}");
        let mut arrivals = Arrivals::with_limit(10);
        // SAFETY: the child makes system calls, allocates nothing before it knows that it may, and exits at once.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "{name}");
        if child == 0 {
            let refused = matches!(reader.wait(&mut arrivals, NOW), Err(Error::System { .. }));
            // SAFETY: ends the process without anything else.
            unsafe { libc::_exit(if refused { 7 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: the kernel writes one integer, which outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child, "{name}");
        assert_eq!(libc::WEXITSTATUS(status), 7, "{name}: status {status}");
        assert_eq!(reader.wait(&mut arrivals, None).unwrap(), 1, "{name}");
        let arrival = arrivals.iter().next().unwrap();
        assert_eq!((arrival.key(), arrival.bytes()), (key, Some(&b"parent"[..])), "{name}");
    }
}

#[test]
fn what_takes_the_place_of_a_refused_busy_descriptor_is_read_and_not_that() {
    if !BackendKind::Uring.is_available() {
        return;
    }
    let reader = BatchReader::with_backend(BackendKind::Uring).unwrap();
    let mut reader = reader.reads_together(true);
    let mut arrivals = Arrivals::with_limit(100);
    // A descriptor that is read so often that the ring keeps its file, among others that make it worth it.
    let (old, mut to_old) = pair();
    // SAFETY: duplicates an open descriptor, to a number that nothing else in this process gets meanwhile.
    let number = unsafe { libc::fcntl(old.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 800) };
    assert!(number >= 800);
    let lost = reader.register(Numbered(number)).map_err(|refused| refused.error).unwrap();
    let others: Vec<_> = (0..20).map(|_| pair()).collect();
    for (ours, _) in &others {
        reader.register(Numbered(ours.as_raw_fd())).map_err(|refused| refused.error).unwrap();
    }
    for _ in 0..200 {
        to_old.write_all(b"x").unwrap();
        for (_, theirs) in &others {
            (&*theirs).write_all(b"x").unwrap();
        }
        let mut got = 0;
        while got < 21 {
            got += reader.wait(&mut arrivals, None).unwrap();
        }
    }
    // SAFETY: the duplicate is the test's own.
    assert_eq!(unsafe { libc::close(number) }, 0);
    // A wait that would block has the kernel watch it again, which is refused.
    assert_eq!(reader.wait(&mut arrivals, None).unwrap(), 0);
    assert_eq!(arrivals.refusals().len(), 1);
    assert_eq!(arrivals.refusals()[0].0, lost);
    let (new, mut to_new) = pair();
    let key = reader.register(Numbered(new.as_raw_fd())).map_err(|refused| refused.error).unwrap();
    assert_eq!(key.index(), lost.index(), "the place is given to another");
    to_old.write_all(b"a stranger's").unwrap();
    for (_, theirs) in &others[..3] {
        (&*theirs).write_all(b"x").unwrap();
    }
    to_new.write_all(b"its own").unwrap();
    let mut got = Vec::new();
    for _ in 0..4 {
        reader.wait(&mut arrivals, NOW).unwrap();
        for arrival in arrivals.iter().filter(|arrival| arrival.key() == key) {
            got.extend_from_slice(arrival.bytes().unwrap());
        }
    }
    assert_eq!(String::from_utf8_lossy(&got), "its own");
}

#[test]
fn an_empty_record_is_not_the_end() {
    for (name, mut reader) in readers::<OwnedFd>() {
        let (ours, theirs) = records();
        let key = reader.register(ours).unwrap();
        let mut arrivals = Arrivals::with_limit(10);
        let mut got = Vec::new();
        for records in [&[&b"one"[..], b"", b"two"][..], &[b""], &[b"", b""], &[b"three", b""]] {
            for &record in records {
                send_record(&theirs, record);
            }
            for _ in 0..4 {
                reader.wait(&mut arrivals, NOW).unwrap();
                got.extend(arrivals.iter().map(|arrival| match arrival.outcome() {
                    Outcome::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                    other => format!("{other:?}"),
                }));
            }
        }
        assert_eq!(got, ["one", "two", "three"], "{name}");
        // Neither before the end nor when everything has come at once.
        for record in [&b"last"[..], b"", b"words"] {
            send_record(&theirs, record);
        }
        drop(theirs);
        got.clear();
        while got.last().is_none_or(|last| last != "End") {
            assert!(
                reader.wait(&mut arrivals, Some(Duration::from_secs(10))).unwrap() > 0,
                "{name}"
            );
            got.extend(arrivals.iter().map(|arrival| match arrival.outcome() {
                Outcome::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                other => format!("{other:?}"),
            }));
        }
        assert_eq!(got, ["last", "words", "End"], "{name}");
        assert!(reader.deregister(key).is_ok(), "{name}");
    }
}

/// Two ends of a connection that keeps records apart.
fn records() -> (OwnedFd, OwnedFd) {
    use std::os::fd::FromRawFd;
    let mut ends = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the kernel writes two numbers, which outlive the call.
    assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }, 0);
    // SAFETY: nobody else knows of them.
    let [one, other] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    (one, other)
}

fn send_record(fd: &OwnedFd, record: &[u8]) {
    // SAFETY: the kernel reads the record, which outlives the call.
    let sent = unsafe { libc::send(fd.as_raw_fd(), record.as_ptr().cast(), record.len(), 0) };
    assert_eq!(sent, record.len() as isize);
}
