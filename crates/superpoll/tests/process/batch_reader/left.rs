//! Reads that give less than there was room for and leave something all the same.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use superpoll::batch::{Arrivals, BatchReader, Outcome};

use super::stage::{NOW, pair, readers, tcp};
use super::sys;

/// How long the reader may take for bytes that are there.
const LIMIT: Duration = Duration::from_secs(20);

/// How something is sent that one read does not take.
type Send = fn(&OwnedFd);

fn write(writer: &OwnedFd, bytes: &[u8]) {
    File::from(writer.try_clone().unwrap()).write_all(bytes).unwrap();
}

fn urgent(writer: &OwnedFd) {
    write(writer, b"abc");
    sys::send_urgent(writer);
    write(writer, b"def");
}

fn descriptor(writer: &OwnedFd) {
    sys::send_with_descriptor(writer, b"abc");
    write(writer, b"def");
}

fn packets(writer: &OwnedFd) {
    write(writer, b"abc");
    write(writer, b"def");
}

fn take(reader: &mut BatchReader<OwnedFd>, arrivals: &mut Arrivals, count: usize) -> Vec<u8> {
    let (mut all, begun) = (Vec::new(), Instant::now());
    while all.len() < count && begun.elapsed() < LIMIT {
        reader.wait(arrivals, Some(LIMIT)).unwrap();
        for arrival in &*arrivals {
            if let Outcome::Bytes(bytes) = arrival.outcome() {
                all.extend_from_slice(bytes);
            }
        }
    }
    all
}

#[test]
fn remaining_bytes_are_read_without_further_arrivals() {
    let unix = || {
        let (one, other) = pair();
        (OwnedFd::from(one), OwnedFd::from(other))
    };
    type Open = fn() -> (OwnedFd, OwnedFd);
    let kinds: [(&str, Open, Send); 4] = [
        ("urgent, TCP", tcp, urgent),
        ("urgent, Unix", unix, urgent),
        ("descriptor", unix, descriptor),
        ("packets", sys::packets, packets),
    ];
    for (what, open, send) in kinds {
        for (name, mut reader) in readers::<OwnedFd>() {
            let mut arrivals = Arrivals::with_limit(8);
            let (ours, theirs) = open();
            sys::unblock(&ours);
            reader.register(ours).unwrap();
            // It has waited before, and gets arrivals only.
            reader.wait(&mut arrivals, NOW).unwrap();
            for round in 0..5 {
                write(&theirs, b"w");
                assert_eq!(take(&mut reader, &mut arrivals, 1), b"w", "{name}, {what}, {round}");
                for _ in 0..round {
                    reader.wait(&mut arrivals, NOW).unwrap();
                }
                send(&theirs);
                let all = take(&mut reader, &mut arrivals, 6);
                assert_eq!(all, b"abcdef", "{name}, {what}, {round}");
            }
        }
    }
}
