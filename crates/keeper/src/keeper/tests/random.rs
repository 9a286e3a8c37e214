//! Sends random packets, well-formed and not, on links that come and go, and checks invariants
//! after each step.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll;

use crate::keeper::{ClientKind, EVENTS, Keeper, Options, UNSENT};
use crate::link::{KeeperLink, Peer};
use crate::protocol::{Record, Request, Role, Watching, encode, encode_first};

/// Numbers that look random, from a seed (xorshift).
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % most
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// Returns the number of rounds of a random test: `usual`, or the value of
/// `SUPERPOLL_KEEPER_ROUNDS`.
pub(super) fn rounds(usual: u64) -> u64 {
    let is_set = std::env::var_os("SUPERPOLL_SIT_ROUNDS").is_some();
    assert!(!is_set, "SUPERPOLL_SIT_ROUNDS is called SUPERPOLL_KEEPER_ROUNDS now");
    let asked = std::env::var("SUPERPOLL_KEEPER_ROUNDS").ok();
    asked.and_then(|asked| asked.parse().ok()).unwrap_or(usual)
}

impl Keeper {
    /// Returns the events that are ready now.
    fn ready_events(&self) -> Vec<epoll::Event> {
        let mut events = Vec::with_capacity(EVENTS);
        let room = rustix::buffer::spare_capacity(&mut events);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(self.registrations.epoll(), room, Some(&now)).unwrap();
        events
    }

    /// Handles the events that are ready, without waiting.
    pub(super) fn step(&mut self) {
        let events = self.ready_events();
        self.handle_events(&events);
        self.check();
    }

    fn check(&self) {
        self.registrations.check();
        for (index, client) in &self.clients {
            let kept: usize = client.unsent.iter().map(|packet| packet.len() + 64).sum();
            assert_eq!(kept, client.unsent_bytes, "link {index}");
            // On top of that comes at most one answer to each packet of a turn.
            assert!(kept <= UNSENT + (1 << 20), "link {index} has {kept} bytes kept for it");
            assert!(client.ready.is_empty());
        }
        for (_, session) in &self.sessions {
            session.check(self.clients.iter().map(|(_, client)| client.kind));
        }
    }
}

fn request<'a, 'b>(
    random: &mut Random,
    pairs: &'b [(UnixStream, UnixStream)],
    files: &mut Vec<BorrowedFd<'b>>,
    state: &'a [u8],
) -> Request<'a> {
    let below = |random: &mut Random, most| random.below(most) as u64;
    match random.below(13) {
        0..=4 => {
            let all = (0..random.below(6)).map(|_| {
                if random.below(10) > 0 {
                    files.push(pairs[random.below(pairs.len())].0.as_fd());
                }
                Watching {
                    key: below(random, 6),
                    events: random.one(&[1, 4, 5, 0, 0x2001, u32::MAX, 1 << 28, 1 << 31]),
                    number: random.one(&[-1, -1, 0, 99_999, -7]),
                    state: &state[..random.below(state.len())],
                }
            });
            Request::Watch(all.collect())
        }
        5 => Request::Forget((0..random.below(8)).map(|_| below(random, 6)).collect()),
        6 => Request::Sync(below(random, 100)),
        7 => {
            let more = random.below(2) == 0;
            let bytes = &state[..random.below(state.len())];
            Request::PutRecord(Record {
                space: below(random, 3),
                id: below(random, 3),
                more,
                bytes,
            })
        }
        8 => random.one(&[Role::Control, Role::Loop]).hello(below(random, 3)),
        9 => Request::TrimRecords { space: 1, below: 2 },
        10 => Request::Adopt { upgrades: random.below(2) == 0 },
        11 => [Request::ListHeld, Request::Yielded, Request::Settled][random.below(3)].clone(),
        _ => Request::Bye,
    }
}

impl Role {
    fn hello<'a>(self, session: u64) -> Request<'a> {
        Request::Hello { role: self, session }
    }
}

fn run(seed: u64) {
    let random = &mut Random::new(seed);
    let grace = random.one(&[Duration::ZERO, Duration::from_secs(60)]);
    let orphans = random.one(&[Duration::ZERO, Duration::from_secs(60)]);
    let mut keeper = Keeper::new(Options { grace, orphans, ends: false }, |_| {}).unwrap();
    let pairs: Vec<_> = (0..12).map(|_| UnixStream::pair().unwrap()).collect();
    for (one, other) in &pairs {
        one.set_nonblocking(true).unwrap();
        other.set_nonblocking(true).unwrap();
    }
    let own = std::process::id().cast_signed();
    let mut links: Vec<KeeperLink> = Vec::new();
    let state = [7; 40];
    for _ in 0..300 {
        match random.below(25) {
            0 | 1 if links.len() < 20 => {
                let (link, theirs) = KeeperLink::pair().unwrap();
                if random.below(8) == 0 {
                    keeper.work_for(theirs).unwrap();
                } else {
                    let peer = Some(Peer { process: own, user: 0 });
                    keeper.add_client(theirs, ClientKind::Unknown, peer).unwrap();
                }
                let (link, revocation) = link.with_revocation().unwrap();
                if random.below(20) > 0 {
                    let hello =
                        random.one(&[Role::Control, Role::Loop]).hello(random.below(3) as u64);
                    link.send(&encode_first(&hello), &[revocation.as_fd()]).unwrap();
                }
                links.push(link);
            }
            2 if !links.is_empty() => {
                let gone = links.swap_remove(random.below(links.len()));
                if random.below(2) == 0 {
                    gone.revoke();
                }
            }
            3 => drop((&pairs[random.below(12)].1).write(b"x")),
            4 => drop((&pairs[random.below(12)].0).read(&mut [0; 64])),
            5..=9 => keeper.step(),
            12 if !links.is_empty() => {
                // One link ends between the wait and the handling of its events.
                let events = keeper.ready_events();
                drop(links.swap_remove(random.below(links.len())));
                keeper.handle_events(&events);
                keeper.check();
            }
            10 => {
                let (mut room, mut files) = (Vec::new(), Vec::new());
                for link in &links {
                    while link.receive(&mut room, &mut files).is_ok_and(|got| got.length > 0) {}
                }
            }
            11 if !links.is_empty() => {
                let packet: Vec<u8> =
                    (0..=random.below(60)).map(|_| random.below(256) as u8).collect();
                drop(links[random.below(links.len())].send(&packet, &[]));
            }
            _ if !links.is_empty() => {
                let mut files = Vec::new();
                let asked = request(random, &pairs, &mut files, &state);
                drop(links[random.below(links.len())].send(&encode(&asked), &files));
            }
            _ => {}
        }
    }
    drop(links);
    for _ in 0..20 {
        keeper.step();
    }
    assert!(keeper.clients.is_empty(), "seed {seed}: links that have ended are still there");
}

#[test]
fn counters_stay_consistent_under_random_requests() {
    for seed in 1..=rounds(200) {
        run(seed);
    }
}

#[test]
fn unsent_bytes_for_a_client_that_never_reads_are_bounded() {
    let mut keeper = Keeper::new(Options::default(), |_| {}).unwrap();
    let (link, theirs) = KeeperLink::pair().unwrap();
    keeper.work_for(theirs).unwrap();
    let question = encode(&Request::Sync(7));
    let mut asked = 0;
    for _ in 0..100_000 {
        if link.send(&question, &[]).is_err() {
            keeper.step();
            if link.send(&question, &[]).is_err() {
                break;
            }
        }
        asked += 1;
    }
    assert!((1000..100_000).contains(&asked), "{asked}");
    // All of them are answered once it reads.
    let (mut room, mut files, mut answered) = (Vec::new(), Vec::new(), 0);
    while answered < asked {
        keeper.step();
        let before = answered;
        while link.receive(&mut room, &mut files).is_ok() {
            answered += 1;
        }
        assert!(answered > before, "{answered} of {asked}");
    }
}
