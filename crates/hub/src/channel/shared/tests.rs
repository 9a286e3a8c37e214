//! Servers that share a channel, against a broker whose connections break, which loses everything
//! and goes back in time.
//!
//! The law: each message that a subscriber gets follows directly, in the log, the one that it got
//! before, on whichever server it asks; or else it is told that it has missed something. Nothing
//! lost, doubled, or in another order passes that. And no publication is in the log twice.

#[cfg(feature = "redis")]
mod in_redis;
mod users;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use superpoll_config::{self, Channel};
use superpoll_http::ipc;
use superpoll_rt::net::unix::UnixListener;
use superpoll_rt::time::{self, sleep};
use superpoll_rt::{Runtime, spawn};

use super::super::cursor::Cursor;
use super::super::message::Draft;
use super::super::pattern::Pattern;
use super::super::route::{Channels, SharedRoute};
use super::*;
use crate::broker::local;
use crate::broker::local::service::LogService;
use crate::broker::local::store::Store;
use crate::broker::tests::toy::{Faulty, Toy, next};
use crate::broker::{Engine, Position};

const NAME: &str = "/news";

/// Ways in which a broker fails.
trait Disaster {
    fn flush(&self);
    fn save(&self);
    fn go_back(&self);
    /// Returns the positions and texts of all messages of the log.
    fn log(&self, key: &str) -> Vec<(Position, String)>;
}

impl Disaster for Toy {
    fn flush(&self) {
        Toy::flush(self);
    }

    fn save(&self) {
        Toy::save(self);
    }

    fn go_back(&self) {
        Toy::go_back(self);
    }

    fn log(&self, key: &str) -> Vec<(Position, String)> {
        messages_of(self.entries(key))
    }
}

fn messages_of(entries: Vec<Entry>) -> Vec<(Position, String)> {
    let messages = entries.into_iter().filter_map(|entry| match entry.content {
        Content::Message(payload) => {
            Some((entry.at, String::from_utf8(payload.data.to_vec()).unwrap()))
        }
        _ => None,
    });
    messages.collect()
}

fn broker_config() -> superpoll_config::Broker {
    superpoll_config::Broker {
        url: "redis://toy".parse().unwrap(),
        ca: None,
        prefix: "test:".to_owned(),
        replicas: 0,
        publish: Duration::from_secs(5),
    }
}

/// A server, as far as channels are concerned.
struct Node {
    broker: Arc<Broker>,
    channels: Arc<Channels>,
}

impl Node {
    fn new(history: usize) -> Node {
        Node::with(Channel { history, broker: true, ..Channel::default() })
    }

    fn with(options: Channel) -> Node {
        let report = |event: &superpoll_http::log::Event| {
            if std::env::var_os("SUPERPOLL_SHOW").is_some() {
                eprintln!("{event:?}");
            }
        };
        let broker = Broker::new(Engine::Redis(broker_config()), Arc::new(report));
        let shared = SharedRoute { broker: broker.clone(), host: String::new() };
        let pattern = Pattern::parse(NAME).unwrap();
        let channels = Channels::new(String::new(), pattern, options, [], Some(shared));
        Node { broker, channels }
    }
}

/// What is known of the messages: the one before each, by its epoch.
#[derive(Default)]
struct Truth {
    before: HashMap<(u64, String), Option<String>>,
    published: Vec<(String, Position)>,
    /// Times something was lost.
    losses: u64,
}

impl Truth {
    /// Learns the order of messages from a log.
    fn learn(&mut self, log: &[(Position, String)]) {
        for (index, (at, text)) in log.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| &log[before]);
            let before = before.filter(|before| before.0.epoch == at.epoch);
            let key = (at.epoch, text.clone());
            match before {
                Some((_, before)) => {
                    let known = self.before.entry(key).or_default();
                    if let Some(known) = known {
                        assert_eq!(known, before, "the log itself has changed");
                    }
                    *known = Some(before.clone());
                }
                None => drop(self.before.entry(key).or_default()),
            }
        }
    }
}

/// A subscriber.
struct Client {
    node: usize,
    cursor: Cursor,
    /// The last message that it has, if it knows one.
    last: Option<String>,
    missed: u64,
    got: Vec<String>,
}

impl Client {
    /// Asks its server for news.
    fn ask(&mut self, nodes: &[Node], truth: &mut Truth, log: &[(Position, String)]) {
        truth.learn(log);
        let Some(hub) = nodes[self.node].channels.find(NAME) else { return };
        if hub.is_replaced() {
            return;
        }
        let since = hub.since(Some(self.cursor));
        if since.missed {
            self.missed += 1;
            self.last = None;
        }
        for message in &since.messages {
            let text = String::from_utf8(message.data.to_vec()).unwrap();
            if let Some(last) = &self.last {
                let before = truth.before.get(&(hub.epoch(), text.clone()));
                // A message whose predecessor the test has never seen tells nothing.
                if let Some(Some(before)) = before {
                    assert_eq!(before, last, "{text} of epoch {} follows", hub.epoch());
                }
            }
            self.got.push(text.clone());
            self.last = Some(text);
        }
        self.cursor = Cursor { id: since.last, epoch: Some(hub.epoch()) };
    }
}

/// The steps of a run.
struct Plan {
    seed: u64,
    steps: usize,
    history: usize,
    /// Of a thousand calls so many fail.
    faults: u64,
    /// Whether the broker loses something.
    loses: bool,
}

async fn run<C, D>(plan: &Plan, connectors: Vec<C>, disaster: &D, handle: superpoll_rt::Handle)
where
    C: crate::broker::Connector,
    D: Disaster,
{
    let random = Arc::new(Mutex::new(plan.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1));
    let often = Arc::new(AtomicU64::new(plan.faults));
    let nodes: Vec<Node> = connectors.iter().map(|_| Node::new(plan.history)).collect();
    for (node, inner) in nodes.iter().zip(connectors) {
        let faulty = Faulty { inner, often: often.clone(), random: random.clone() };
        node.broker.start(&handle, faulty).unwrap();
    }
    let key = nodes[0].broker.key("", NAME);
    let truth = Arc::new(Mutex::new(Truth::default()));
    let mut clients: Vec<Client> = Vec::new();
    for node in 0..2 * nodes.len() {
        let node = node % nodes.len();
        let hub = loop {
            if let Ok(hub) = nodes[node].channels.locate(&NAME.into()).await {
                break hub;
            }
        };
        let cursor = Cursor { id: hub.last(), epoch: Some(hub.epoch()) };
        clients.push(Client { node, cursor, last: None, missed: 0, got: Vec::new() });
    }
    let mut publishing = Vec::new();
    for step in 0..plan.steps {
        let dice = next(&random);
        match dice % 100 {
            0..=29 => {
                let channels = nodes[(dice >> 8) as usize % nodes.len()].channels.clone();
                let (truth, text) = (truth.clone(), format!("{}-{step}", plan.seed));
                publishing.push(spawn(async move {
                    let Ok(hub) = channels.locate(&NAME.into()).await else { return };
                    let Some(shared) = hub.shared() else { return };
                    let draft = Draft::new(text.clone().into());
                    if let Ok(published) = shared.begin(draft).await {
                        let at = Position { epoch: published.epoch, id: published.id };
                        truth.lock().unwrap().published.push((text, at));
                    }
                }));
            }
            30..=69 => {
                let client = (dice >> 8) as usize % clients.len();
                let log = disaster.log(&key);
                clients[client].ask(&nodes, &mut truth.lock().unwrap(), &log);
            }
            70..=84 => {
                let client = (dice >> 8) as usize % clients.len();
                clients[client].node = (dice >> 16) as usize % nodes.len();
            }
            85..=87 => disaster.save(),
            88 if plan.loses && (dice >> 8).is_multiple_of(2) => {
                truth.lock().unwrap().losses += 1;
                match (dice >> 12).is_multiple_of(2) {
                    true => disaster.flush(),
                    false => disaster.go_back(),
                }
            }
            _ => sleep(Duration::from_millis(dice % 7)).await,
        }
        if dice.is_multiple_of(7) {
            let log = disaster.log(&key);
            truth.lock().unwrap().learn(&log);
            superpoll_rt::yield_now().await;
        }
    }
    for task in publishing {
        task.await.unwrap();
    }
    often.store(0, Ordering::Relaxed);
    // In the end all servers have what the log has.
    let begun = time::now();
    let last = loop {
        let passed = time::now() - begun;
        assert!(passed < Duration::from_secs(60), "the servers do not agree");
        let last = disaster.log(&key).last().map(|(at, _)| *at);
        let agrees = |node: &Node| {
            let hub = node.channels.find(NAME)?;
            let at = Position { epoch: hub.epoch(), id: hub.last() };
            (Some(at) == last || (last.is_none() && at.id == 0)).then_some(())
        };
        if nodes.iter().all(|node| agrees(node).is_some()) {
            break last;
        }
        // A log that nobody publishes to is looked at every few seconds only.
        if let Ok(hub) = nodes[0].channels.locate(&NAME.into()).await
            && let Some(shared) = hub.shared()
        {
            let text = format!("{}-end-{passed:?}", plan.seed);
            let _ = shared.begin(Draft::new(text.into())).await;
        }
        sleep(Duration::from_millis(20)).await;
    };
    let log = disaster.log(&key);
    let mut truth = truth.lock().unwrap();
    assert!(truth.published.len() * 10 > plan.steps, "hardly anything was published");
    for client in &mut clients {
        client.ask(&nodes, &mut truth, &log);
        let got: HashSet<_> = client.got.iter().collect();
        if truth.losses == 0 {
            assert_eq!(got.len(), client.got.len(), "a subscriber got a message twice");
            let is_whole = client.missed == 0;
            let end = log.last().map(|(_, text)| text);
            assert!(!is_whole || client.last.as_ref() == end || last.is_none());
        }
    }
    let texts: HashSet<_> = log.iter().map(|(_, text)| text).collect();
    assert_eq!(texts.len(), log.len(), "a publication is in the log twice");
    if truth.losses == 0 {
        let kept: HashMap<_, _> = log.iter().map(|(at, text)| (text, *at)).collect();
        let first = log.first().map_or(0, |(at, _)| at.id);
        for (text, at) in truth.published.iter().filter(|(_, at)| at.id >= first) {
            assert_eq!(kept.get(text), Some(at), "{text} was confirmed");
        }
        if plan.history > plan.steps {
            assert!(clients.iter().all(|client| client.missed == 0), "nothing was lost");
        }
    }
    nodes.iter().for_each(|node| node.broker.end());
}

/// Another process of the broker lacks the last messages. Nobody continues before all have looked.
#[test]
fn a_server_that_knows_less_does_not_go_on_before_the_others_have_looked() {
    let (runtime, toy) = (in_one_process(), Toy::default());
    let handle = runtime.handle();
    runtime.block_on(async {
        let often = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let nodes = [Node::new(100), Node::new(100)];
        for (node, often) in nodes.iter().zip(&often) {
            let (inner, random) = (toy.clone(), Arc::new(Mutex::new(1)));
            let faulty = Faulty { inner, often: often.clone(), random };
            node.broker.start(&handle, faulty).unwrap();
        }
        let publish = async |node: &Node, text: &str| {
            let hub = node.channels.locate(&NAME.into()).await.unwrap();
            let published = hub.shared().unwrap().begin(Draft::new(text.to_owned().into())).await;
            published.unwrap().id
        };
        let last = |node: &Node| node.channels.find(NAME).map_or(0, |hub| hub.last());
        let until = async |node: &Node, id: u64| {
            while last(node) < id {
                sleep(Duration::from_millis(1)).await;
            }
        };
        for id in 1..=5 {
            assert_eq!(publish(&nodes[0], "both").await, id);
        }
        until(&nodes[0], 5).await;
        assert!(nodes[1].channels.locate(&NAME.into()).await.is_ok());
        toy.save();
        // The second server hears nothing of five more.
        often[1].store(1000, Ordering::Relaxed);
        sleep(Duration::from_millis(50)).await;
        for id in 6..=10 {
            assert_eq!(publish(&nodes[0], "one").await, id);
        }
        until(&nodes[0], 10).await;
        let known = nodes[0].channels.find(NAME).unwrap();
        let cursor = Cursor { id: 10, epoch: Some(known.epoch()) };
        // The first one is away for a moment when the other process comes.
        often[0].store(1000, Ordering::Relaxed);
        toy.go_back();
        often[1].store(0, Ordering::Relaxed);
        let back = async {
            sleep(Duration::from_millis(60)).await;
            often[0].store(0, Ordering::Relaxed);
        };
        let publishes = async {
            for _ in 0..7 {
                publish(&nodes[1], "other").await;
            }
            nodes[1].channels.find(NAME).unwrap().since(Some(cursor))
        };
        let ((), since) = futures_lite::future::zip(back, publishes).await;
        assert!(since.missed, "{since:?}");
        nodes.iter().for_each(|node| node.broker.end());
    });
}

/// Returns a runtime whose clock moves as soon as all tasks wait: servers and log are here.
fn in_one_process() -> Runtime {
    Runtime::builder().start_paused(true).build().unwrap()
}

fn run_on_toys(plan: &Plan) {
    let runtime = in_one_process();
    let toy = Toy::default();
    let connectors = vec![toy.clone(), toy.clone(), toy.clone()];
    runtime.block_on(run(plan, connectors, &toy, runtime.handle()));
}

/// The log of a supervisor, which answers on a socket as one does.
struct Local(std::rc::Rc<LogService>);

impl Local {
    /// Begins to answer, from a task.
    fn start(name: &str) -> Local {
        let log = std::rc::Rc::new(LogService::new(Store::new(u64::MAX)));
        let door = UnixListener::bind_addr(&ipc::address(name).unwrap()).unwrap();
        let service = log.clone();
        let accepts = async move {
            while let Ok((stream, _)) = door.accept().await {
                let service = service.clone();
                let serves = async move {
                    assert_eq!(ipc::welcome(&stream).await.unwrap(), Some(ipc::Purpose::Log));
                    // A worker that breaks its connection is part of the test.
                    let _ = service.serve(stream).await;
                };
                spawn(serves).detach();
            }
        };
        spawn(accepts).detach();
        Local(log)
    }
}

impl Disaster for Local {
    fn flush(&self) {
        self.0.with_store(|store| *store = Store::new(u64::MAX));
    }

    fn save(&self) {}

    /// A supervisor has all messages of the one before, or none.
    fn go_back(&self) {
        self.flush();
    }

    fn log(&self, key: &str) -> Vec<(Position, String)> {
        messages_of(self.0.with_store(|store| store.entries(key)))
    }
}

fn run_on_local(plan: &Plan, test: &str) {
    let name = format!("superpoll-test-{}-{test}-{}", std::process::id(), plan.seed);
    let runtime = in_one_process();
    let handle = runtime.handle();
    runtime.block_on(async {
        let log = Local::start(&name);
        let connectors = vec![local::Connector { name: name.as_str().into() }; 3];
        run(plan, connectors, &log, handle).await;
    });
}

#[test]
fn nothing_is_lost_or_doubled_in_the_log_of_a_supervisor() {
    for seed in seeds(4) {
        let plan = |history| Plan { seed, steps: 600, history, faults: 30, loses: false };
        run_on_local(&plan(1000), "long");
        run_on_local(&plan(3), "short");
    }
}

#[test]
fn a_supervisor_that_has_lost_its_log_says_what_is_missed() {
    for seed in seeds(4) {
        let plan = Plan { seed, steps: 1500, history: 2000, faults: 10, loses: true };
        run_on_local(&plan, "loses");
    }
}

fn seeds(count: u64) -> std::ops::Range<u64> {
    let cases = std::env::var("SUPERPOLL_CASES").ok().and_then(|cases| cases.parse().ok());
    1..cases.unwrap_or(count) + 1
}

#[test]
fn nothing_is_lost_or_doubled_while_connections_break() {
    for seed in seeds(12) {
        run_on_toys(&Plan { seed, steps: 600, history: 1000, faults: 30, loses: false });
    }
}

#[test]
fn a_short_history_says_what_is_missed() {
    for seed in seeds(8) {
        run_on_toys(&Plan { seed, steps: 600, history: 3, faults: 30, loses: false });
    }
}

#[test]
fn a_log_that_is_lost_or_goes_back_in_time_says_what_is_missed() {
    for seed in seeds(10) {
        run_on_toys(&Plan { seed, steps: 1500, history: 2000, faults: 10, loses: true });
    }
}
