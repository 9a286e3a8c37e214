//! Go's netpoll with a goroutine for each station: a program of its own (`go/main.go`), which
//! shares the pipes with this process.
//!
//! The time of a trip includes an order and its answer, some 20 µs. The program counts the bytes
//! that each station has passed on, and reports them after the trip.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use crate::error::{Error, Result};
use crate::go::Program;
use crate::ring::course::{Course, Pipes, Station, Trip, ends};
use crate::ring::tasks::Ring;
use crate::sys::{descriptor, process};

/// The program.
pub(super) static PROGRAM: Program = Program::new("ring", include_str!("go/main.go"));

struct Go {
    child: process::Child,
    line: BufReader<UnixStream>,
    stations: Vec<Station>,
    _pipes: Pipes,
}

pub(super) fn build(course: &Course, pipes: Pipes) -> Result<Box<dyn Ring>> {
    let failed = |e| Error::system("starting a ring in Go", e);
    let mut command = PROGRAM.command()?;
    let (line, theirs) = UnixStream::pair().map_err(failed)?;
    // Non-blocking, so that Go's netpoll waits for this socket as for all the other descriptors.
    theirs.set_nonblocking(true).map_err(failed)?;
    let keep = |fd: RawFd| descriptor::keep_on_exec(fd).map(|()| fd);
    let numbers = pipes
        .iter()
        .map(|(reader, writer)| Ok((keep(reader.as_raw_fd())?, keep(writer.as_raw_fd())?)));
    let numbers = numbers.collect::<io::Result<Vec<_>>>().map_err(failed)?;
    let each = ends(numbers).into_iter().map(|(reader, writer)| format!("{reader}:{writer}"));
    command.arg(keep(theirs.as_raw_fd()).map_err(failed)?.to_string());
    command.arg(each.collect::<Vec<_>>().join(","));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let (child, ..) = process::spawn(&mut command).map_err(failed)?;
    drop(theirs);
    let stations = course.stations();
    let mut ring = Go { child, line: BufReader::new(line), stations, _pipes: pipes };
    ring.answer().map_err(failed)?;
    Ok(Box::new(ring))
}

impl Go {
    fn answer(&mut self) -> io::Result<String> {
        let mut text = String::new();
        match self.line.read_line(&mut text)? {
            0 => Err(io::Error::other("the program in Go ended by itself")),
            _ => Ok(text.trim_end().to_owned()),
        }
    }

    fn order(&mut self, order: &str) -> io::Result<String> {
        self.line.get_mut().write_all(order.as_bytes())?;
        self.answer()
    }
}

impl Ring for Go {
    fn go(&mut self, trip: Trip) -> io::Result<()> {
        match self.order(&format!("trip {} {}\n", trip.arrivals, trip.onward))?.as_str() {
            "done" => Ok(()),
            other => Err(io::Error::other(other.to_owned())),
        }
    }

    fn flush_reports(&mut self) -> io::Result<()> {
        let counts = self.order("counts\n")?;
        let counts: Vec<u64> = counts.split(' ').filter_map(|number| number.parse().ok()).collect();
        if counts.len() != 2 * self.stations.len() {
            return Err(io::Error::other("the program in Go does not report its counts"));
        }
        for (station, counts) in self.stations.iter().zip(counts.chunks(2)) {
            station.counted(counts[0], counts[1]);
        }
        Ok(())
    }

    fn elsewhere(&self) -> Option<i32> {
        Some(self.child.pid())
    }
}
