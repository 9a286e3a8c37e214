//! The processes of the server, each with a keeper: `superpoll serve` and `superpoll keep`, as a
//! user starts them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use superpoll_keeper::KeeperLink;
use tempfile::TempDir;

use crate::error::{Error, Result};
use crate::server::http::{Client, request};
use crate::server::program::{PROCESS, until};
use crate::server::{Server, memory, program};
use crate::sys::process;

/// How long a keeper may take to listen, a server to follow another one, and connections to be
/// parked.
const STARTING: Duration = Duration::from_secs(40);
const PARKING: Duration = Duration::from_secs(120);

/// How long an answer may take; a publication is answered after the server has begun to send the
/// message to thousands of subscribers.
const ANSWERING: Duration = Duration::from_secs(60);

/// A connection is parked soon after it fell silent. The parked ones are a metric.
const SETTINGS: &str = "header = \"24h\"\npark = \"100ms\"\n[metrics]";

/// The settings of the channel: no poll ends by itself.
const CHANNEL_SETTINGS: &str = "history = 1000, poll = \"24h\"";

pub(crate) const NAME: &str = "superpoll serve";

/// The channel of all subscribers.
pub(crate) const CHANNEL: &str = "/channel";

/// Anonymous memory, in bytes, or processor time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Use {
    /// That of all servers.
    pub servers: u64,
    /// That of all keepers.
    pub keepers: u64,
}

impl Use {
    /// Returns the growth since a time before, over a number of things.
    pub(crate) fn since(self, before: Use, count: usize) -> (f64, f64) {
        let each = |now: u64, before: u64| (now as f64 - before as f64) / count.max(1) as f64;
        (each(self.servers, before.servers), each(self.keepers, before.keepers))
    }
}

#[derive(Debug)]
struct Member {
    port: u16,
    /// The processor time of its processes that have been killed.
    spent_ns: u64,
    server: Option<Server>,
    keeper: Option<Server>,
}

/// All processes of the server.
#[derive(Debug)]
pub(crate) struct Fleet {
    members: Vec<Member>,
    has_keepers: bool,
    /// How many servers were started: each has a folder of its own.
    started: usize,
    folder: TempDir,
}

impl Fleet {
    /// Chooses the ports of so many servers, and starts none.
    pub(crate) fn new(processes: usize, has_keepers: bool) -> Result<Fleet> {
        let folder = program::folder("million")?;
        let member =
            |_| Ok(Member { port: program::free_port()?, spent_ns: 0, server: None, keeper: None });
        let members = (0..processes).map(member).collect::<Result<_>>()?;
        Ok(Fleet { members, has_keepers, started: 0, folder })
    }

    /// Returns the port to which the clients of this number connect.
    pub(crate) fn port(&self, clients: usize) -> u16 {
        self.members[clients % self.members.len()].port
    }

    /// Starts all processes. The page of each server has this body.
    pub(crate) fn start(&mut self, body: &[u8]) -> Result<()> {
        for number in 0..self.members.len() {
            if self.has_keepers {
                self.members[number].keeper = Some(start_keeper(&self.keeper_path(number))?);
            }
            self.members[number].server = Some(self.begin(number, body, &[])?);
        }
        Ok(())
    }

    fn keeper_path(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("keeper.{number}"))
    }

    /// Starts a server whose page has this body, with further arguments.
    fn begin(&mut self, number: usize, body: &[u8], arguments: &[&str]) -> Result<Server> {
        self.started += 1;
        let own = self.folder.path().join(self.started.to_string());
        let routes = [program::page(&own, body)?, program::channel(CHANNEL, CHANNEL_SETTINGS)];
        let listener = program::listener(self.members[number].port, None);
        let configuration = program::configuration(&listener, &routes, SETTINGS);
        let keeper = text(&self.keeper_path(number));
        // Statistics sockets of killed servers would be left in a folder of the user's.
        let more = ["--stats", "off", "--keeper", &keeper];
        let more = if self.has_keepers { &more[..] } else { &more[..2] };
        let all = [more, arguments].concat();
        Ok(program::superpoll_serve(NAME, PROCESS, &own, &configuration, &all)?.0)
    }

    /// Kills the first server, and waits for its end.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let first = &mut self.members[0];
        if let Some(server) = first.server.take() {
            first.spent_ns += server.processor_time()?;
        }
        Ok(())
    }

    /// Starts a server in place of the first one, whose page is another one unless the first was
    /// killed. Returns the nanoseconds from its start until it has answered a request; then waits
    /// for the end of the first one.
    pub(crate) fn follow(&mut self, body: &[u8], arguments: &[&str]) -> Result<u64> {
        let begun = process::now();
        let server = self.begin(0, body, arguments)?;
        let mut said = None;
        while said.as_deref().map(str::as_bytes) != Some(body) {
            if process::now() - begun > STARTING.as_nanos() as u64 {
                return Err(wrong(format!("a new server does not answer, but {said:?}")));
            }
            said = get(self.members[0].port, "/").ok();
        }
        let answered = process::now() - begun;
        if let Some(before) = self.members[0].server.replace(server) {
            let otherwise = "a server that was replaced does not end";
            until(otherwise, STARTING, || Ok(before.has_ended()))?;
        }
        Ok(answered)
    }

    /// Publishes a message at every server. The channels are each server's own.
    pub(crate) fn publish(&self, message: &str) -> Result<()> {
        let failed = |e: io::Error| wrong(format!("a publication failed: {e}"));
        let request = request("POST", CHANNEL, "", Some(message));
        let mut all: Vec<Client> = self.members.iter().map(|member| client(member.port)).collect();
        all.iter_mut().try_for_each(|one| one.send(&request)).map_err(failed)?;
        for one in &mut all {
            let (code, answer) = one.answer().map_err(failed)?;
            if code != 201 {
                return Err(wrong(format!("a publication was answered {code} {answer:?}")));
            }
        }
        Ok(())
    }

    /// Waits until so many connections are parked, and watched by a keeper if there are any.
    pub(crate) fn until_parked(&self, connections: usize) -> Result<()> {
        let name = if self.has_keepers { "connections_away" } else { "connections_parked" };
        let parked = || {
            let each =
                self.members.iter().map(|member| Ok(gauge(&get(member.port, "/metrics")?, name)));
            each.sum::<Result<usize>>()
        };
        let otherwise = format!("{connections} idle connections were not all parked");
        until(&otherwise, PARKING, || Ok(parked()? >= connections))
    }

    /// Returns the anonymous memory when it no longer changes, in bytes.
    pub(crate) fn memory(&self, least_ns: u64) -> Result<Use> {
        memory::settled(least_ns, || self.sum(memory_of).map(|all| all.servers + all.keepers))?;
        self.sum(memory_of)
    }

    /// Returns the processor time so far, in nanoseconds.
    pub(crate) fn processor_time(&self) -> Result<Use> {
        let mut all = self.sum(Server::processor_time)?;
        all.servers += self.members.iter().map(|member| member.spent_ns).sum::<u64>();
        Ok(all)
    }

    fn sum(&self, of: fn(&Server) -> Result<u64>) -> Result<Use> {
        let mut all = Use::default();
        for member in &self.members {
            all.servers += member.server.as_ref().map_or(Ok(0), of)?;
            all.keepers += member.keeper.as_ref().map_or(Ok(0), of)?;
        }
        Ok(all)
    }
}

fn memory_of(server: &Server) -> Result<u64> {
    memory::anonymous(server.pid())
}

fn wrong(found: impl Into<String>) -> Error {
    Error::Work { subject: NAME, found: found.into() }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Starts a keeper, and waits until it listens at this path.
pub(crate) fn start_keeper(path: &Path) -> Result<Server> {
    let (command, listen) = (text(&program::command()?), text(path));
    let arguments = ["keep", "--listen", &listen];
    program::until_there("superpoll keep", PROCESS, &command, &arguments, STARTING, || {
        KeeperLink::connect(path).is_ok()
    })
}

/// Returns a client of the server at a port.
pub(crate) fn client(port: u16) -> Client {
    Client::new(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), ANSWERING)
}

/// Returns the answer to a request on a connection of its own.
fn get(port: u16, path: &str) -> Result<String> {
    match client(port).get(path) {
        Ok((200, answer)) => Ok(answer),
        Ok((code, answer)) => Err(wrong(format!("GET {path} was answered {code} {answer:?}"))),
        Err(error) => Err(wrong(format!("GET {path} was not answered: {error}"))),
    }
}

/// Returns a gauge of the server's metrics, the sum over its workers.
fn gauge(metrics: &str, name: &str) -> usize {
    let values = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix("superpoll_")?.strip_prefix(name)?;
        let is_this = rest.starts_with(['{', ' ']);
        is_this.then(|| rest.rsplit(' ').next()?.parse::<f64>().ok())?
    });
    values.sum::<f64>() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauges_are_summed_over_workers() {
        let text = "HTTP/1.1 200 OK\r\n\r\n# HELP superpoll_connections_away x 9\n\
                    superpoll_connections_away{worker=\"0\"} 20\n\
                    superpoll_connections_away{worker=\"1\"} 3.0\n\
                    superpoll_connections_away_more 5\nsuperpoll_connections_parked 7\n";
        assert_eq!(gauge(text, "connections_away"), 23);
        assert_eq!(gauge(text, "connections_parked"), 7);
        assert_eq!(gauge(text, "absent"), 0);
    }

    #[test]
    fn growth_is_counted_apart() {
        let now = Use { servers: 700, keepers: 90 };
        assert_eq!(now.since(Use { servers: 100, keepers: 100 }, 10), (60.0, -1.0));
    }
}
