//! The processor time of a record, next to rustls': an experiment, not a test.
//!
//! `cargo test --release -p superpoll-http --lib tls::tests::cost -- --ignored --nocapture`
//!
//! Both subjects take the same steps, without a socket. Sealing begins with text and ends with
//! records in a buffer. Opening begins with records in a buffer, as a read of the socket leaves
//! them, and ends with text in a buffer of the caller. The subjects take turns on one processor,
//! and the clock is that of the thread.

use std::hint::black_box;
use std::io::{Read, Write};

use futures_rustls::rustls::{ClientConnection, ServerConnection};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use super::super::records::{self, Record, Records};
use super::{SUITES, rustls_alone, sent, shake_hands};

const ROUNDS: usize = 61;

/// The bytes that a subject seals or opens in a turn.
const TURN: usize = 4 << 20;
const MOST_RECORDS: usize = 8192;

/// The records that are written or read at once, as many as fit into the buffers of rustls.
fn batch(length: usize) -> usize {
    (16_384 / length).clamp(1, 16)
}

/// Returns nanoseconds of this thread.
fn now() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// One side of a connection that seals and opens.
trait Subject {
    fn seal(&mut self, text: &[u8], to: &mut Vec<u8>);

    /// Opens records with so many bytes of text in them.
    fn open(&mut self, records: &[u8], to: &mut [u8]);
}

impl Subject for ServerConnection {
    fn seal(&mut self, text: &[u8], to: &mut Vec<u8>) {
        self.writer().write_all(text).unwrap();
        self.write_tls(to).unwrap();
    }

    fn open(&mut self, mut records: &[u8], to: &mut [u8]) {
        let mut filled = 0;
        while !records.is_empty() {
            self.read_tls(&mut records).unwrap();
            let state = self.process_new_packets().unwrap();
            let count = state.plaintext_bytes_to_read();
            self.reader().read_exact(&mut to[filled..filled + count]).unwrap();
            filled += count;
        }
        assert_eq!(filled, to.len());
    }
}

/// The records, with the buffer that a stream would read into.
struct Own(Records, Vec<u8>);

impl Subject for Own {
    fn seal(&mut self, text: &[u8], to: &mut Vec<u8>) {
        self.0.sealer().seal_with_new_keys(text, to).unwrap();
    }

    fn open(&mut self, records: &[u8], to: &mut [u8]) {
        let Own(server, buffer) = self;
        buffer.clear();
        buffer.extend_from_slice(records);
        let (mut start, mut filled, mut answers) = (0, 0, Vec::new());
        while let Some(length) = records::length(&buffer[start..]).unwrap() {
            let record = &mut buffer[start..start + length];
            if let Record::Data(place) = server.open(record, &mut answers).unwrap() {
                to[filled..filled + place.len()].copy_from_slice(&record[place.clone()]);
                filled += place.len();
            }
            start += length;
        }
        assert_eq!(filled, to.len());
    }
}

/// Seals records of a length, and returns the nanoseconds of each.
fn sealing(subject: &mut impl Subject, length: usize) -> f64 {
    let count = (TURN / length).min(MOST_RECORDS);
    let text = vec![7; length];
    let mut to = Vec::with_capacity(2 * length + 64);
    let start = now();
    for _ in 0..count {
        to.clear();
        subject.seal(black_box(&text), &mut to);
        black_box(&to);
    }
    (now() - start) / count as f64
}

/// Opens records of a length, and returns the nanoseconds of each.
fn opening(subject: &mut impl Subject, client: &mut ClientConnection, length: usize) -> f64 {
    let (count, batch) = ((TURN / length).min(MOST_RECORDS), batch(length));
    let batches: Vec<Vec<u8>> = (0..count / batch)
        .map(|_| {
            let one = |_| {
                client.writer().write_all(&vec![7; length]).unwrap();
                sent(client)
            };
            (0..batch).flat_map(one).collect()
        })
        .collect();
    let mut to = vec![0; batch * length];
    let start = now();
    for records in &batches {
        subject.open(black_box(records), &mut to);
        black_box(&to);
    }
    (now() - start) / (batches.len() * batch) as f64
}

/// Returns the value below which a part of the values is.
fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(part * (values.len() - 1) as f64).round() as usize]
}

#[test]
#[ignore = "an experiment, for a release build"]
fn records_next_to_rustls() {
    let mut one = CpuSet::new();
    one.set(0);
    sched_setaffinity(None, &one).unwrap();
    println!(
        "suite, work, bytes: ns of ours, of rustls, lowest decile; ratio of these; median of "
    );
    println!("the ratios of rounds, with their middle 80 %");
    for suite in SUITES {
        for length in [64, 1024, 16_384] {
            let (mut own_client, handshake) = shake_hands(suite);
            let mut own = Own(handshake.leave().unwrap(), Vec::new());
            let (mut client, mut rustls) = rustls_alone(suite);
            for is_sealing in [true, false] {
                let (mut ours, mut theirs) = (Vec::new(), Vec::new());
                for round in 0..ROUNDS {
                    let mut turn = |is_own: bool| match (is_own, is_sealing) {
                        (true, true) => ours.push(sealing(&mut own, length)),
                        (true, false) => ours.push(opening(&mut own, &mut own_client, length)),
                        (false, true) => theirs.push(sealing(&mut rustls, length)),
                        (false, false) => theirs.push(opening(&mut rustls, &mut client, length)),
                    };
                    turn(round % 2 == 0);
                    turn(round % 2 == 1);
                }
                let mut ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(a, b)| a / b).collect();
                let (own, rustls) = (quantile(&mut ours, 0.1), quantile(&mut theirs, 0.1));
                let [low, median, high] = [0.1, 0.5, 0.9].map(|part| quantile(&mut ratios, part));
                let work = if is_sealing { "seal" } else { "open" };
                println!(
                    "{suite:?}, {work}, {length}: {own:.0}, {rustls:.0}; {:.2}; {median:.2} ({low:.2} to {high:.2})",
                    own / rustls
                );
            }
        }
    }
}
