//! Results and errors: room to write, failures, wakes and timeouts, refused descriptors, and the
//! owner of the memory that bytes are in.

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::time::{Duration, Instant};

use superpoll::Error;
use superpoll::batch::{Arrivals, BatchReader, Outcome};

use super::stage::{NOW, pair, pipe, readers, tcp};
use super::sys;

#[test]
fn room_to_write_is_reported_once_and_reading_goes_on() {
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
        assert_eq!(reader.wait(&mut arrivals, NOW).unwrap(), 0, "{name}: reported twice");
        theirs.write_all(b"y").unwrap();
        assert_eq!(reader.wait(&mut arrivals, None).unwrap(), 1, "{name}");
        assert_eq!(arrivals.iter().next().unwrap().bytes(), Some(&b"y"[..]), "{name}");
    }
}

#[test]
fn a_descriptor_that_is_no_stream_is_returned_with_the_reason() {
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
fn a_failure_is_reported_once_and_a_wake_and_a_timeout_end_a_wait() {
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
        sys::reset_at_close(&theirs);
        drop(theirs);
        assert_eq!(reader.wait(&mut arrivals, None).unwrap(), 1, "{name}");
        match arrivals.iter().next().unwrap().outcome() {
            Outcome::Failed(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{name}");
            }
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(reader.wait(&mut arrivals, NOW).unwrap(), 0, "{name}: reported twice");
        assert!(reader.deregister(key).is_ok() && reader.is_empty(), "{name}");
    }
}

#[test]
fn memory_of_bytes_goes_back_to_the_pool_unless_it_is_taken() {
    for (name, mut reader) in readers() {
        let (ours, mut theirs) = pair();
        reader.register(ours).map_err(|refused| refused.error).unwrap();
        let mut arrivals = Arrivals::with_limit(10);
        let mut addresses = HashSet::new();
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
