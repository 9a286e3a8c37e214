//! The users of a channel that several servers have.
//!
//! The law: the events of the log, folded, are the users who are connected to any of the servers,
//! once everything has settled; on the way nobody comes or goes twice, and nobody leaves who was
//! connected all the time. The list that the broker gives says the same. If the broker loses
//! something, the list is right in the end: subscribers are told that they have missed something.

use std::collections::BTreeSet;
use std::time::Instant;

use super::*;
use crate::broker::{LEASE, MembersAsked};
use crate::channel::hub::Hub;
use crate::channel::presence::User;

/// How long a user without a connection is still there.
const GRACE: Duration = Duration::from_millis(300);

/// A connection of a user.
struct Connection {
    node: usize,
    hub: Arc<Hub>,
    queue: u64,
    name: Arc<str>,
}

impl Connection {
    fn open(nodes: &[Node], node: usize, name: &Arc<str>) -> Option<Connection> {
        let hub = nodes[node].channels.find(NAME).filter(|hub| !hub.is_closed())?;
        let queue = hub.open(&Arc::default());
        let info = Some(format!("\"of {name}\"").into());
        hub.enter(queue, None, User { name: name.clone(), info });
        Some(Connection { node, hub, queue, name: name.clone() })
    }

    fn close(&self) {
        self.hub.exit(self.queue, &self.name, true);
    }
}

/// What was seen of the log.
#[derive(Default)]
struct Seen {
    last: Position,
    users: BTreeSet<String>,
    /// When each user was last without a connection.
    absent: HashMap<String, Instant>,
    /// How late it may be told.
    late: Duration,
    is_exact: bool,
}

impl Seen {
    fn follow(&mut self, log: &[(Position, String)]) {
        for (at, text) in log {
            if *at <= self.last {
                continue;
            }
            self.last = *at;
            let json: serde_json::Value = serde_json::from_str(text).unwrap();
            let name = json["user"].as_str().unwrap().to_owned();
            // Only those who come are described.
            let is_join = json.get("info").is_some();
            let is_new = match is_join {
                true => self.users.insert(name.clone()),
                false => self.users.remove(&name),
            };
            if self.is_exact {
                assert!(is_new, "{text} of {at} says nothing new");
                assert_eq!(json["users"], self.users.len(), "{text} of {at}");
                let was_absent = || time::now() - self.absent[&name] < self.late;
                assert!(is_join || was_absent(), "{name} left and was there");
            }
        }
    }
}

struct Scene {
    nodes: Vec<Node>,
    connections: Vec<Connection>,
    seen: Seen,
}

impl Scene {
    fn count(&self, name: &str) -> usize {
        self.connections.iter().filter(|one| &*one.name == name).count()
    }

    fn close(&mut self, index: usize) {
        self.connections.swap_remove(index).close();
    }

    /// Notes who is there, and what the log says.
    fn look(&mut self, log: &[(Position, String)]) {
        let names = (0..5).map(|number| format!("u{number}"));
        let absent: Vec<String> = names.filter(|name| self.count(name) == 0).collect();
        self.seen.absent.extend(absent.into_iter().map(|name| (name, time::now())));
        self.seen.follow(log);
    }

    /// Does what the engines and their tasks do: moves subscribers, and ends graces.
    fn tend(&mut self) {
        for node in &self.nodes {
            node.channels.end_graces(time::now());
        }
        for one in &mut self.connections {
            if one.hub.is_replaced()
                && let Some(moved) = Connection::open(&self.nodes, one.node, &one.name)
            {
                one.close();
                *one = moved;
            }
        }
    }

    fn names(&self) -> BTreeSet<String> {
        self.connections.iter().map(|one| one.name.to_string()).collect()
    }
}

fn options() -> Channel {
    Channel {
        history: 100_000,
        broker: true,
        presence: true,
        presence_grace: GRACE,
        ..Channel::default()
    }
}

/// `kills` says whether servers end without a word, and `nap` how many milliseconds a step takes at
/// most.
async fn run<C, D>(
    (plan, kills, nap): (&Plan, bool, u64),
    connector: impl Fn() -> C,
    disaster: &D,
    handle: superpoll_rt::Handle,
) where
    C: crate::broker::Connector,
    D: Disaster,
{
    let random = Arc::new(Mutex::new(plan.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1));
    let often = Arc::new(AtomicU64::new(plan.faults));
    let start = async || {
        let node = Node::with(options());
        let (often, random) = (often.clone(), random.clone());
        let faulty = Faulty { inner: connector(), often, random };
        node.broker.start(&handle, faulty).unwrap();
        while node.channels.locate(&NAME.into()).await.is_err() {}
        node
    };
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(start().await);
    }
    let key = nodes[0].broker.key("", NAME);
    let late = if kills { 2 * LEASE } else { Duration::from_secs(5) };
    let seen = Seen { is_exact: !plan.loses, late, ..Seen::default() };
    let mut scene = Scene { nodes, connections: Vec::new(), seen };
    for _ in 0..plan.steps {
        let dice = next(&random);
        let pick = |count: usize| (dice >> 8) as usize % count;
        match dice % 100 {
            0..=29 => {
                let name: Arc<str> = format!("u{}", (dice >> 16) % 5).into();
                scene.connections.extend(Connection::open(&scene.nodes, pick(3), &name));
            }
            30..=59 if !scene.connections.is_empty() => {
                scene.close(pick(scene.connections.len()));
                scene.look(&[]);
            }
            60..=61 if kills => {
                let node = pick(3);
                scene.nodes[node].broker.end();
                while let Some(index) = scene.connections.iter().position(|one| one.node == node) {
                    scene.close(index);
                }
                scene.nodes[node] = start().await;
            }
            85..=87 => disaster.save(),
            88 if plan.loses => match (dice >> 12).is_multiple_of(2) {
                true => disaster.flush(),
                false => disaster.go_back(),
            },
            _ => sleep(Duration::from_millis(dice % nap)).await,
        }
        scene.tend();
        scene.look(&disaster.log(&key));
        superpoll_rt::yield_now().await;
    }
    often.store(0, Ordering::Relaxed);
    let begun = time::now();
    loop {
        scene.tend();
        scene.look(&disaster.log(&key));
        let asked = MembersAsked { key: key.clone(), after: None, count: 100 };
        let members = scene.nodes[0].broker.members(asked).await.unwrap();
        let listed = members.page.iter().map(|(name, _)| name.to_string()).collect();
        let expected = scene.names();
        if (plan.loses || scene.seen.users == expected) && expected == listed {
            assert_eq!(members.users, expected.len() as u64);
            let infos = members.page.iter();
            assert!(
                infos
                    .clone()
                    .all(|(name, info)| { info.as_deref() == Some(&*format!("\"of {name}\"")) })
            );
            break;
        }
        assert!(
            time::now() - begun < Duration::from_secs(90),
            "{} {kills}: {:?} by the log and {listed:?} by the list are not {expected:?}",
            plan.seed,
            scene.seen.users
        );
        sleep(Duration::from_millis(50)).await;
    }
    scene.nodes.iter().for_each(|node| node.broker.end());
}

fn run_on_toys(plan: &Plan, kills: bool) {
    let (runtime, toy) = (in_one_process(), Toy::default());
    runtime.block_on(run((plan, kills, 200), || toy.clone(), &toy, runtime.handle()));
}

#[test]
fn users_of_several_servers_are_told_once_while_connections_break() {
    for seed in seeds(6) {
        let plan = Plan { seed, steps: 400, history: 0, faults: 30, loses: false };
        run_on_toys(&plan, false);
    }
}

#[test]
fn users_of_servers_that_have_gone_leave() {
    for seed in seeds(6) {
        let plan = Plan { seed, steps: 400, history: 0, faults: 20, loses: false };
        run_on_toys(&plan, true);
    }
}

#[test]
fn users_are_told_again_to_a_broker_that_has_lost_them() {
    for seed in seeds(6) {
        let plan = Plan { seed, steps: 400, history: 0, faults: 10, loses: true };
        run_on_toys(&plan, false);
    }
}

#[test]
fn users_of_several_processes_are_told_once() {
    for (seed, loses) in seeds(2).flat_map(|seed| [(seed, false), (seed, true)]) {
        let name = format!("superpoll-test-{}-users-{seed}-{loses}", std::process::id());
        let runtime = in_one_process();
        let handle = runtime.handle();
        let plan = Plan { seed, steps: 400, history: 0, faults: 20, loses };
        runtime.block_on(async {
            let log = Local::start(&name);
            let connector = || local::Connector { name: name.as_str().into() };
            run((&plan, !loses, 200), connector, &log, handle).await;
        });
    }
}

#[cfg(feature = "redis")]
#[test]
fn users_of_several_servers_are_told_once_by_redis() {
    let Some(redis) = super::in_redis::Redis::start() else { return };
    for (seed, loses) in seeds(1).flat_map(|seed| [(seed, false), (seed, true)]) {
        redis.flush();
        let runtime = Runtime::new().unwrap();
        let handle = runtime.handle();
        let plan = Plan { seed, steps: 200, history: 0, faults: 20, loses };
        let config =
            superpoll_config::Broker { url: redis.url.parse().unwrap(), ..broker_config() };
        runtime.block_on(async {
            let connector = || crate::broker::redis::connector(&config).unwrap();
            run((&plan, false, 20), connector, &redis, handle).await;
        });
    }
}
