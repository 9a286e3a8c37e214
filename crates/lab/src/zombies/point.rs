//! How many zombies a server gets, and in how many processes it serves them.
//!
//! The number of descriptors of a process is limited. Several processes of the same server, its
//! workers, share more zombies than that; each has a listener of its own. Their time is the sum
//! over all workers, and more workers wait more often for the same requests. So such a point comes
//! with a second one, with the same number of workers and no zombies, and is compared with that.

use std::iter;

use crate::channel;
use crate::error::{Error, Result};
use crate::headroom::Headroom;
use crate::options;
use crate::server::clients;
use crate::zombies::Options;

/// Descriptors that a server needs in addition to its connections.
const RESERVE: usize = 64;

/// The share of its descriptors that a worker uses for connections, in eighths: one worker may need
/// more than another for itself.
const USED: usize = 7;

/// The most zombies that the options may request.
const MOST: usize = 1_000_000;

/// The memory of a connection on this machine, both ends together, in bytes: more than was ever
/// measured.
const BYTES: u64 = 16 << 10;

/// The number of servers that have their zombies at the same time: one, and the yardstick.
const TOGETHER: usize = 2;

/// A server's zombies and its processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Point {
    /// Processes of the server.
    pub workers: usize,
    /// Its zombies.
    pub zombies: usize,
}

/// One worker's part of a number that is dealt out to several workers in turn.
pub(super) fn share(all: usize, workers: usize, worker: usize) -> usize {
    all / workers.max(1) + usize::from(worker < all % workers.max(1))
}

/// Returns the requested points, in groups that are measured together: those of one process, then
/// each of several; all with the same server without zombies. Also returns notes on points with
/// fewer zombies than requested.
pub(super) fn groups(options: &Options) -> Result<(Vec<Vec<Point>>, Vec<String>)> {
    options::within("--active", options.active, 1..=1000)?;
    if options.requests == 0 {
        return Err(Error::usage("--requests 0 measures nothing: give 1 or more"));
    }
    let default = if options.output.quick { "0,100,1000" } else { "0,100,1000,9900,102400" };
    let mut asked = options::numbers("--zombies", options.zombies.as_deref().unwrap_or(default))?;
    asked.sort_unstable();
    asked.dedup();
    if let Some(zombies) = asked.iter().find(|zombies| **zombies > MOST) {
        return Err(Error::usage(format!(
            "--zombies {zombies} is not possible: give up to {MOST}"
        )));
    }
    let most = (2 * channel::most_pairs()).saturating_sub(RESERVE + options.active);
    if most == 0 {
        return Err(Error::usage(format!(
            "the limit of {} descriptors leaves a server none for zombies: raise it (ulimit -n)",
            superpoll::limits::nofile().1
        )));
    }
    Ok(divided(&asked, most, &Headroom::here()))
}

/// Divides the requested numbers by the capacity of one process, within the room that the machine
/// has left.
fn divided(asked: &[usize], most: usize, here: &Headroom) -> (Vec<Vec<Point>>, Vec<String>) {
    let alone = |zombies: &usize| *zombies <= most;
    let some = asked.iter().copied().filter(|zombies| *zombies > 0 && alone(zombies));
    let first: Vec<Point> =
        iter::once(0).chain(some).map(|zombies| Point { workers: 1, zombies }).collect();
    let each = (most / 8 * USED).max(1);
    let (possible, limit) = here.connections(BYTES, each, clients::most());
    let possible = possible / TOGETHER;
    let (mut groups, mut notes) = (Vec::new(), Vec::new());
    // The group with only zero zombies is measured only if nothing else was requested.
    if first.len() > 1 || asked.iter().all(alone) || asked.contains(&0) {
        groups.push(first);
    }
    for &wanted in asked.iter().filter(|zombies| !alone(zombies)) {
        let zombies = wanted.min(possible);
        if zombies < wanted {
            notes.push(format!(
                "--zombies {wanted}: measuring {zombies}, the most that {limit} leaves for two servers at a time"
            ));
        }
        let workers = zombies.div_ceil(each).max(1);
        let group = [0, zombies].map(|zombies| Point { workers, zombies });
        if zombies > 0 && !groups.contains(&group.to_vec()) {
            groups.push(group.to_vec());
        }
    }
    (groups, notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(workers: usize, zombies: usize) -> Point {
        Point { workers, zombies }
    }

    #[test]
    fn points_are_sorted_with_none_and_refused_where_they_make_no_sense() {
        let of = |zombies: &str, active, requests| {
            let zombies = Some(zombies.to_owned());
            super::groups(&Options { zombies, active, requests, ..Options::default() })
        };
        let (groups, notes) = of("10, 2,10", 10, 1).unwrap();
        assert_eq!((groups, notes.len()), (vec![vec![point(1, 0), point(1, 2), point(1, 10)]], 0));
        for (zombies, active, requests, about) in [
            ("x", 10, 1, "--zombies"),
            ("10000000", 10, 1, "--zombies 10000000"),
            ("1", 0, 1, "--active 0"),
            ("1", 5000, 1, "--active 5000"),
            ("1", 1, 0, "--requests 0"),
        ] {
            let error = of(zombies, active, requests).unwrap_err().to_string();
            assert!(error.contains(about), "{error}");
        }
    }

    #[test]
    fn connections_beyond_one_process_are_shared_and_compared_with_as_many_processes() {
        let here = Headroom::here();
        let (groups, notes) = divided(&[0, 50, 250], 80, &here);
        let shared = vec![point(4, 0), point(4, 250)];
        assert_eq!(
            (groups, notes.len()),
            (vec![vec![point(1, 0), point(1, 50)], shared.clone()], 0)
        );
        assert_eq!(divided(&[250], 80, &here).0, [shared]);
        let dealt: Vec<usize> = (0..4).map(|worker| share(250, 4, worker)).collect();
        assert_eq!(dealt, [63, 63, 62, 62]);
    }

    #[test]
    fn connections_beyond_the_machine_are_lowered_with_a_note() {
        let (groups, notes) = divided(&[usize::MAX / 4], 20_000, &Headroom::here());
        let found = groups[0][1].zombies;
        assert!(found < 1 << 32 && notes[0].contains(&format!("measuring {found}")), "{notes:?}");
    }
}
