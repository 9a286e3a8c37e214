//! Redis, the servers, the subscribers and the publishers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tempfile::TempDir;

use crate::cluster::crowd::{self, Report};
use crate::cluster::publisher::{Load, Published, Publisher};
use crate::cluster::redis::{Redis, Watched};
use crate::cluster::{CHANNEL, Fault, LOCAL, SERVERS};
use crate::error::{Doing, Error, Result};
use crate::findings::Named;
use crate::server::clients::{Clients, most};
use crate::server::http::Client;
use crate::server::program::{PROCESS, until};
use crate::server::{Server, program};
use crate::sys::process;
use crate::{rivals, statistics};

/// The log of the channel.
#[derive(Debug)]
pub(super) enum Broker {
    /// A single server.
    Single(Redis),
    /// A master with a replica.
    Watched(Watched),
}

/// All programs and processes of a fault.
#[derive(Debug)]
pub(super) struct Site {
    /// The addresses of the servers.
    pub addresses: Vec<SocketAddr>,
    /// The processes of the subscribers.
    pub crowds: Vec<Clients>,
    /// The servers.
    pub gateways: Vec<Gateway>,
    /// The log.
    pub broker: Broker,
    _folder: TempDir,
}

impl Site {
    /// Starts the programs that this fault needs, without subscribers.
    pub(super) fn start(fault: Fault, subscribers: usize) -> Result<Site> {
        let mut namespaces: Vec<Option<Namespace>> = Vec::new();
        for number in 0..SERVERS {
            let is_apart = fault == Fault::Partition;
            namespaces.push(is_apart.then(|| Namespace::new(number as u8)).transpose()?);
        }
        let addresses = namespaces.iter().map(address).collect::<Result<Vec<_>>>()?;
        // Processes are forked before there is anything that they could inherit.
        let crowds = (0..processes(subscribers))
            .map(|_| crowd::start(addresses.clone()))
            .collect::<Result<Vec<_>>>()?;
        let folder = program::folder("cluster")?;
        let words = bind(&namespaces);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let broker = match fault {
            Fault::Promote => Broker::Watched(Watched::start(folder.path())?),
            _ => Broker::Single(Redis::start(folder.path(), &words)?),
        };
        let mut gateways = Vec::new();
        for (address, namespace) in addresses.iter().zip(namespaces) {
            let url = match (&broker, &namespace) {
                (Broker::Watched(watched), _) => watched.url(),
                (Broker::Single(redis), Some(own)) => {
                    format!("redis://{}:{}", own.outside, redis.port)
                }
                (Broker::Single(redis), None) => format!("redis://127.0.0.1:{}", redis.port),
            };
            gateways.push(Gateway::start(folder.path(), *address, &url, namespace)?);
        }
        Ok(Site { addresses, crowds, gateways, broker, _folder: folder })
    }

    /// Publishes so many messages, one after the other, at the first server.
    fn publish(&self, path: &'static str, name: String, period_ms: u64, count: u64) -> Published {
        let load = Load { path, name, period_ms, hang_up_every: None };
        Publisher::new(&self.addresses, 0).publish(&load, count, &AtomicBool::new(false))
    }

    /// Publishes a message at the first server.
    pub(super) fn publish_one(&self, text: &str) -> Published {
        Publisher::new(&self.addresses, 0).one(CHANNEL, text)
    }

    /// Connects subscribers, behind a first message that is published for this.
    pub(super) fn connect(&mut self, subscribers: usize) -> Result<()> {
        let first = self.publish_one("begin");
        let Some(first) = first.confirmed.first() else {
            let reasons = first.failures;
            return Err(Error::usage(format!("the first message was not confirmed: {reasons:?}")));
        };
        let processes = self.crowds.len();
        let share = |place: usize| subscribers * place / processes;
        for (place, crowd) in self.crowds.iter_mut().enumerate() {
            let (from, to) = (share(place), share(place + 1));
            crowd.order(&crowd::Order::Connect(from, to, first.position))?;
        }
        for crowd in &mut self.crowds {
            crowd.answer::<Report>()?;
        }
        Ok(())
    }
}

/// Returns how many processes these subscribers need.
fn processes(subscribers: usize) -> usize {
    subscribers.div_ceil(most()).max(1)
}

/// Returns the address of a server.
fn address(namespace: &Option<Namespace>) -> Result<SocketAddr> {
    let host = namespace.as_ref().map_or(Ipv4Addr::LOCALHOST, |namespace| namespace.inside);
    Ok(SocketAddr::new(IpAddr::V4(host), program::free_port()?))
}

/// Returns the options with which Redis listens where servers in namespaces reach it.
fn bind(namespaces: &[Option<Namespace>]) -> Vec<String> {
    let own = namespaces.iter().flatten().map(|namespace| namespace.outside.to_string());
    ["--bind".to_owned(), "127.0.0.1".to_owned()].into_iter().chain(own).collect()
}

// A server with a channel in Redis: `superpoll serve`, as a user starts it.

/// How long it may take to be ready.
const PATIENCE: Duration = Duration::from_secs(30);

/// The path that says whether it is ready.
const READY: &str = "/readyz";

/// A server, which may have been killed.
#[derive(Debug)]
pub(super) struct Gateway {
    address: SocketAddr,
    file: PathBuf,
    namespace: Option<Namespace>,
    server: Option<Server>,
}

impl Gateway {
    /// Starts a server at an address, with the broker at this URL.
    pub(super) fn start(
        folder: &Path,
        address: SocketAddr,
        url: &str,
        namespace: Option<Namespace>,
    ) -> Result<Gateway> {
        let file = folder.join(format!("server-{}-{}.toml", address.ip(), address.port()));
        let text = format!(
            "[broker]\nurl = \"{url}\"\npublish = \"5s\"\n\
             [metrics]\npublic = true\nready = \"{READY}\"\n\
             [[listeners]]\naddress = \"{address}\"\n[[hosts]]\n\
             [[hosts.routes]]\npath = \"{CHANNEL}\"\n\
             channel = {{ broker = true, history = 10000, publish = \"anyone\" }}\n\
             [[hosts.routes]]\npath = \"{LOCAL}\"\nchannel = {{ history = 10000 }}\n"
        );
        std::fs::write(&file, text).doing("writing the configuration of a server")?;
        let mut gateway = Gateway { address, file, namespace, server: None };
        gateway.start_again()?;
        Ok(gateway)
    }

    /// Starts it again at its address, and waits until it says that it is ready.
    pub(super) fn start_again(&mut self) -> Result<()> {
        let command = program::command()?;
        let (command, file) = (command.to_string_lossy(), self.file.to_string_lossy());
        let inside = self.namespace.as_ref().map(Namespace::words);
        let serve = [&*command, "serve", "--workers", "1", "-c", &file];
        let words = [inside.as_ref().map_or(&[][..], |words| words), &serve].concat();
        let is_ready = || self.is_ready();
        let (name, arguments) = ("superpoll serve", &words[1..]);
        let server = program::until_there(name, PROCESS, words[0], arguments, PATIENCE, is_ready)?;
        self.server = Some(server);
        Ok(())
    }

    /// Kills it, and waits until it has ended.
    pub(super) fn kill(&mut self) {
        self.server = None;
    }

    /// Waits until it says that it is ready.
    pub(super) fn until_ready(&self) -> Result<()> {
        until("a server is not ready", PATIENCE, || Ok(self.is_ready()))
    }

    fn is_ready(&self) -> bool {
        Client::new(self.address, Duration::from_secs(2))
            .get(READY)
            .is_ok_and(|(code, _)| code == 200)
    }

    /// Returns the processor time that it has used, in nanoseconds.
    pub(super) fn processor_time(&self) -> Result<u64> {
        self.server.as_ref().map_or(Ok(0), Server::processor_time)
    }

    /// Returns the network namespace in which it runs.
    pub(super) fn namespace(&self) -> Option<&Namespace> {
        self.namespace.as_ref()
    }
}

// Network namespaces, each with a pair of virtual devices to the machine: a link that can be cut.

/// The program that makes namespaces.
const PROGRAM: &str = "ip";

/// A namespace, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Namespace {
    name: String,
    device: String,
    /// The address of the machine, as seen from inside.
    pub outside: Ipv4Addr,
    /// The address inside.
    pub inside: Ipv4Addr,
}

impl Namespace {
    /// Makes a namespace; they are counted from zero.
    pub(super) fn new(number: u8) -> Result<Namespace> {
        let own = std::process::id();
        // Addresses for tests of networks (RFC 2544), which lead nowhere else.
        let address = |last| Ipv4Addr::new(198, 18, (own % 250) as u8, 4 * number + last);
        let namespace = Namespace {
            name: format!("superpoll-{own}-{number}"),
            device: format!("sp{own}-{number}"),
            outside: address(1),
            inside: address(2),
        };
        let Namespace { name, device, outside, inside } = &namespace;
        let (outside, inside) = (format!("{outside}/30"), format!("{inside}/30"));
        let within = ["-n", name];
        ip(&["netns", "add", name])?;
        ip(&["link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", name])?;
        ip(&["address", "add", &outside, "dev", device])?;
        ip(&["link", "set", device, "up"])?;
        ip(&[&within[..], &["address", "add", &inside, "dev", "eth0"]].concat())?;
        ip(&[&within[..], &["link", "set", "eth0", "up"]].concat())?;
        ip(&[&within[..], &["link", "set", "lo", "up"]].concat())?;
        Ok(namespace)
    }

    /// Returns the words before a command that runs inside.
    pub(super) fn words(&self) -> [&str; 4] {
        [PROGRAM, "netns", "exec", &self.name]
    }

    /// Cuts the link, or mends it.
    pub(super) fn set_up(&self, is_up: bool) -> Result<()> {
        ip(&["link", "set", &self.device, if is_up { "up" } else { "down" }])
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Its device inside goes with it, and so does the other end.
        let _ = ip(&["link", "del", &self.device]);
        let _ = ip(&["netns", "del", &self.name]);
    }
}

/// Returns why namespaces cannot be made here.
pub(super) fn refusal() -> Option<String> {
    if rivals::find(PROGRAM).is_none() {
        return Some("ip is not installed (Debian: iproute2)".to_owned());
    }
    if process::user() != 0 {
        return Some("network namespaces need root".to_owned());
    }
    Namespace::new(63).err().map(|error| error.to_string())
}

fn ip(words: &[&str]) -> Result<()> {
    let mut command = Command::new(PROGRAM);
    let output = command.args(words).stdin(Stdio::null()).output();
    let failed = |text: String| Error::usage(format!("ip {}: {text}", words.join(" ")));
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(failed(text.lines().next().unwrap_or("it failed").to_owned()))
}

// The faults, while messages are published.

/// How long a killed server is away.
const AWAY_NS: u64 = 500_000_000;

/// How often all connections are cut, and the pause after each.
const CUTS: usize = 10;
const CUT_NS: u64 = 50_000_000;

/// How long a link is cut.
const APART_NS: u64 = 5_000_000_000;

impl Site {
    /// Makes a part fail, and returns when the fault is over. Rounds are counted from zero.
    pub(super) fn suffer(&mut self, fault: Fault, round: usize, stop: Duration) -> Result<()> {
        let victim = round % self.gateways.len();
        match (fault, &mut self.broker) {
            // Publishers cause this one.
            (Fault::None | Fault::Reply, _) => Ok(()),
            (Fault::Gateway, _) => {
                let gateway = &mut self.gateways[victim];
                gateway.kill();
                process::sleep(AWAY_NS);
                gateway.start_again()
            }
            (Fault::Partition, _) => {
                let link = |gateway: &Gateway, is_up| {
                    gateway.namespace().map_or(Ok(()), |namespace| namespace.set_up(is_up))
                };
                link(&self.gateways[victim], false)?;
                process::sleep(APART_NS);
                link(&self.gateways[victim], true)
            }
            (Fault::Promote, Broker::Watched(watched)) => watched.promote(),
            (Fault::Redis, Broker::Single(redis)) => {
                redis.kill();
                redis.start_again(&[])
            }
            (Fault::Stop, Broker::Single(redis)) => {
                redis.stop(true)?;
                process::sleep(stop.as_nanos() as u64);
                redis.stop(false)
            }
            (Fault::Flush, Broker::Single(redis)) => {
                redis.call(&["FLUSHALL"]).map(drop).doing("emptying Redis")
            }
            (Fault::Cut, Broker::Single(redis)) => {
                for _ in 0..CUTS {
                    redis
                        .call(&["CLIENT", "KILL", "TYPE", "normal"])
                        .doing("cutting the connections to Redis")?;
                    process::sleep(CUT_NS);
                }
                Ok(())
            }
            _ => Err(Error::usage(format!("the fault {fault} needs another log"))),
        }
    }

    /// Restores the parts that a fault has taken, and waits until every server is ready.
    pub(super) fn mend(&mut self, fault: Fault) -> Result<()> {
        if let (Fault::Promote, Broker::Watched(watched)) = (fault, &mut self.broker) {
            watched.mend()?;
        }
        self.gateways.iter().try_for_each(Gateway::until_ready)
    }
}

// Without a fault: the delay of a message, and the processor time of a publication.

/// The milliseconds from one message to the next while delays are measured, at least.
const PERIOD_MS: u64 = 200;

/// Subscribers that receive a message in a millisecond, at least: so all of them have a message
/// before the next.
const RECEIVERS: usize = 8;

/// The name of the message after the last that is measured.
const END: &str = "end-of-delay";

/// Publications in a block, of each kind in turn.
const BLOCK: u64 = 100;

impl Site {
    /// Returns the time from the beginning of a publication at the first server until the last
    /// subscriber of the other servers has the message, and the processor time that all servers and
    /// all subscribers spend on a message.
    pub(super) fn delay(&mut self, messages: u64, subscribers: usize) -> Result<[Named; 4]> {
        for crowd in &mut self.crowds {
            crowd.order(&crowd::Order::Follow(END.to_owned()))?;
        }
        let period_ms = PERIOD_MS.max(subscribers.div_ceil(RECEIVERS) as u64);
        let before = self.servers_time()?;
        let published = self.publish(CHANNEL, "delay".to_owned(), period_ms, messages);
        self.publish_one(END);
        let mut reports = Vec::new();
        for crowd in &mut self.crowds {
            reports.push(crowd.answer::<Report>()?);
        }
        let spent = (self.servers_time()? - before) as f64;
        let load: u64 = reports.iter().map(|report| report.cpu_ns).sum();
        let delays: Vec<f64> = published
            .confirmed
            .iter()
            .filter_map(|confirmed| {
                let of = |report: &Report| {
                    let mut found = report.messages.iter().filter(|one| one.text == confirmed.text);
                    found.next().map(|one| one.last_elsewhere_ns)
                };
                let last = reports.iter().filter_map(of).max()?;
                Some(last.saturating_sub(confirmed.begun_ns) as f64)
            })
            .collect();
        if delays.len() < messages as usize {
            return Err(Error::Work {
                subject: "superpoll serve",
                found: format!("{} of {messages} messages were received", delays.len()),
            });
        }
        let of = |share| statistics::quantile(&delays, share);
        let each = |time: f64| time / messages as f64;
        Ok([
            ("p50", "ns", of(0.5)),
            ("p99", "ns", of(0.99)),
            ("servers", "ns", each(spent)),
            ("subscribers", "ns", each(load as f64)),
        ])
    }

    /// Returns the processor time that all servers have used, in nanoseconds.
    fn servers_time(&self) -> Result<u64> {
        self.gateways.iter().map(Gateway::processor_time).sum()
    }

    /// Returns the processor time of the first server for a publication, with the log in Redis and
    /// with its own. There must be no subscribers yet.
    pub(super) fn processor(&mut self, messages: u64, round: usize) -> Result<[Named; 3]> {
        let mut spent = [0, 0];
        let blocks = messages.div_ceil(BLOCK);
        for block in 0..blocks {
            for (place, path) in [CHANNEL, LOCAL].into_iter().enumerate() {
                let name = format!("processor-{round}-{block}");
                let before = self.gateways[0].processor_time()?;
                let published = self.publish(path, name, 0, BLOCK);
                spent[place] += self.gateways[0].processor_time()? - before;
                if published.confirmed.len() < BLOCK as usize {
                    return Err(Error::Work {
                        subject: "superpoll serve",
                        found: format!("messages were not confirmed: {:?}", published.failures),
                    });
                }
            }
        }
        let each = spent.map(|spent| spent as f64 / (blocks * BLOCK) as f64);
        let difference = each[0] - each[1];
        Ok([("redis", "ns", each[0]), ("own", "ns", each[1]), ("difference", "ns", difference)])
    }
}
