//! `superpoll upstream`, `channels`, `connections` and `reopen-logs`: operations on a running
//! server.

use std::cell::RefCell;
use std::error::Error;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use superpoll_gateway::control::{
    ApiRequest, ChannelList, ChannelQuery, ClientFilter, ConnectionList, ConnectionQuery, Covered,
    MOST_LISTED, Operation, ReopenedLogs, ServerChange, ServerState, UpstreamReport, WeightChange,
};

use super::target::Meant;
use super::{LastSeen, ServerName, converse, not_answering, processes, say, target, within};
use crate::printable::printable_line;
use crate::quantity::count;
use crate::table::Table;

/// How long the answer may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Options of `upstream`.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct UpstreamOptions {
    #[command(subcommand)]
    change: Option<UpstreamChange>,
    #[command(flatten)]
    list: ListOptions,
}

/// The server that is meant, and the form of the output.
#[derive(Clone, Debug, clap::Args)]
struct ListOptions {
    #[command(flatten)]
    name: ServerName,
    /// Print an object of JSON in one line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum UpstreamChange {
    /// Forward no new requests to a server; those under way end as usual
    Down(ServerArguments),
    /// The same, but clients that are bound to the server go on with it
    Drain(ServerArguments),
    /// Forward requests to a server again, if it is healthy
    Up(ServerArguments),
    /// Change the weight of a server
    Weight {
        #[command(flatten)]
        server: ServerArguments,
        /// The weight, from 1 on, or "configured" for that of the configuration
        #[arg(value_name = "N|configured", value_parser = weight)]
        weight: WeightChange,
    },
}

impl ListOptions {
    fn place(&self) -> (Option<&str>, bool) {
        (self.name.get(), self.json)
    }
}

/// Options of `reopen-logs`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReopenOptions {
    #[command(flatten)]
    name: ServerName,
}

/// A server of an upstream.
#[derive(Clone, Debug, clap::Args)]
struct ServerArguments {
    /// The upstream, by its name in the configuration
    #[arg(value_name = "UPSTREAM")]
    upstream: String,
    /// The server, by its address in the configuration
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// The gateway by the number of its process, or by the path of its statistics socket [default:
    /// the only one of this user]
    #[arg(long = "of", value_name = "PID|PATH")]
    of: Option<String>,
}

/// Options of `channels`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ChannelOptions {
    #[command(flatten)]
    list: ListOptions,
    /// The most channels to list
    #[arg(long, value_name = "N", default_value = "100", value_parser = limit)]
    limit: usize,
    /// List those that come after this one
    #[arg(long, value_name = "CHANNEL")]
    after: Option<String>,
}

/// Options of `connections`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConnectionOptions {
    #[command(flatten)]
    list: ListOptions,
    /// The most connections to list, the oldest first
    #[arg(long, value_name = "N", default_value = "100", value_parser = limit)]
    limit: usize,
    /// Those of a client: an IP address, or ADDRESS:PORT for one connection
    #[arg(long, value_name = "CLIENT")]
    client: Option<ClientFilter>,
    /// Close the connections of that client
    #[arg(long, requires = "client")]
    close: bool,
}

fn weight(text: &str) -> Result<WeightChange, String> {
    if text == "configured" {
        return Ok(WeightChange::Configured);
    }
    let number = text.parse().ok().filter(|number| *number > 0).map(WeightChange::Number);
    number.ok_or_else(|| "expected a number from 1 on, or configured".to_owned())
}

fn limit(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=MOST_LISTED).contains(number));
    number.ok_or_else(|| format!("expected 1 to {MOST_LISTED}"))
}

/// Makes a server carry out an operation, and prints its report.
fn operate<T: DeserializeOwned>(
    (name, is_json): (Option<&str>, bool),
    operation: &Operation,
    print: impl FnOnce(&T) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    within(Some(LIMIT), async |seen: &RefCell<LastSeen>| {
        let path = &target::locate(name, Meant::WebServer).await?;
        seen.borrow_mut().path.clone_from(path);
        let mut exchange = converse(path, &ApiRequest::from(operation), seen).await?;
        let value = exchange.value().await?;
        let text = printable_line(&value)?;
        let covered: Covered<T> = exchange.understand(value)?;
        match is_json {
            true => say(&text)?,
            false => print(&covered.report)?,
        }
        complete(operation, &covered)
    })
}

/// Checks whether all processes of the server have answered.
fn complete<T>(operation: &Operation, report: &Covered<T>) -> Result<(), Box<dyn Error>> {
    let missing = &report.missing_processes;
    if missing.is_empty() {
        return Ok(());
    }
    let silent = not_answering(missing);
    if !operation.is_change() {
        return Err(format!("this is without {silent}").into());
    }
    let applied = match &report.applied_processes[..] {
        [] => "in no process yet".to_owned(),
        applied => format!("in {}", processes(applied)),
    };
    let later = match operation {
        // It is no setting, which a worker gets in any case.
        Operation::Close(_) => "repeat it when that goes on",
        _ => "it will be as soon as that goes on",
    };
    Err(format!("the change is made {applied}, and not in {silent}; {later}").into())
}

/// The answer with upstreams.
#[derive(Deserialize)]
struct Upstreams {
    upstreams: Vec<UpstreamReport>,
}

/// The answer to a change of connections.
#[derive(Deserialize)]
struct Closed {
    closed: u64,
}

/// Lists upstreams, or changes a server of one.
pub(crate) fn upstream(options: &UpstreamOptions) -> Result<(), Box<dyn Error>> {
    let (server, state, weight) = match &options.change {
        None => {
            let list = options.list.place();
            return operate(list, &Operation::Upstreams, |Upstreams { upstreams }| {
                print_upstreams(upstreams)
            });
        }
        Some(UpstreamChange::Down(server)) => (server, Some(ServerState::Down), None),
        Some(UpstreamChange::Drain(server)) => (server, Some(ServerState::Drain), None),
        Some(UpstreamChange::Up(server)) => (server, Some(ServerState::Up), None),
        Some(UpstreamChange::Weight { server, weight }) => (server, None, Some(*weight)),
    };
    let ServerArguments { upstream, address, of } = server;
    let (upstream, server) = (upstream.clone(), address.clone());
    let change = ServerChange { upstream, server, state, weight };
    let operation = Operation::SetServer(change);
    operate((of.as_deref(), false), &operation, |Upstreams { upstreams }| {
        print_upstreams(upstreams)
    })
}

/// Lists channels.
pub(crate) fn channels(options: &ChannelOptions) -> Result<(), Box<dyn Error>> {
    let ChannelOptions { list, limit, after } = options;
    let query = ChannelQuery { after: after.clone(), limit: *limit };
    operate(list.place(), &Operation::Channels(query), print_channels)
}

/// Lists connections, or closes those of a client.
pub(crate) fn connections(options: &ConnectionOptions) -> Result<(), Box<dyn Error>> {
    let ConnectionOptions { list, limit, client, close } = options;
    match client {
        Some(client) if *close => {
            operate(list.place(), &Operation::Close(*client), |Closed { closed }| {
                say(&format!("closed {}", count(*closed, "connection")))
            })
        }
        client => {
            let query = ConnectionQuery { client: *client, parked: None, limit: *limit };
            operate(list.place(), &Operation::Connections(query), print_connections)
        }
    }
}

/// Makes a server open the files of its logs again.
pub(crate) fn reopen_logs(options: &ReopenOptions) -> Result<(), Box<dyn Error>> {
    operate((options.name.get(), false), &Operation::ReopenLogs, |reopened: &ReopenedLogs| {
        for path in &reopened.paths {
            say(&format!("reopened {}", path.display()))?;
        }
        if !reopened.failures.is_empty() {
            return Err(reopened.failures.join("\n").into());
        }
        match reopened.paths.is_empty() {
            true => say("there is no log in a file"),
            false => Ok(()),
        }
    })
}

fn print_upstreams(all: &[UpstreamReport]) -> Result<(), Box<dyn Error>> {
    if all.iter().all(|upstream| upstream.servers.is_empty()) {
        return say("there are no upstreams");
    }
    say(upstream_table(all).to_string().trim_end())
}

fn upstream_table(all: &[UpstreamReport]) -> Table {
    let heading = ["upstream", "server", "state", "health", "weight", "active", "requests"];
    let mut table = Table::new(heading.into_iter().chain(["failures", "idle"])).names(4);
    for upstream in all {
        for server in &upstream.servers {
            let health = match (server.healthy_in, server.processes) {
                (0, _) => "down".to_owned(),
                (some, all) if some < all => format!("up in {some} of {all}"),
                _ => "up".to_owned(),
            };
            let weight = match server.weight == server.configured_weight {
                true => server.weight.to_string(),
                false => format!("{} ({})", server.weight, server.configured_weight),
            };
            let address = match &server.name {
                Some(name) => format!("{name} ({})", server.address),
                None => server.address.clone(),
            };
            let cells = [&upstream.name, &address, server.state.name(), &health, &weight]
                .map(str::to_owned);
            let counts = [server.active, server.requests, server.failures, server.idle_connections];
            table.row(cells.into_iter().chain(counts.map(|count| count.to_string())));
        }
    }
    table
}

fn print_channels(list: &ChannelList) -> Result<(), Box<dyn Error>> {
    if list.channels.is_empty() {
        return say("there are no channels");
    }
    let mut table = Table::new(["channel", "subscribers", "last id", "messages", "bytes"]);
    for channel in &list.channels {
        let counts = [channel.subscribers, channel.last_id, channel.messages, channel.bytes];
        let counts = counts.map(|count| count.to_string());
        table.row([channel.key.clone()].into_iter().chain(counts));
    }
    say(table.to_string().trim_end())?;
    match &list.next {
        Some(next) => say(&format!("there are more: --after {next:?}")),
        None => Ok(()),
    }
}

fn print_connections(list: &ConnectionList) -> Result<(), Box<dyn Error>> {
    if list.connections.is_empty() {
        return say("there are no connections");
    }
    let heading = ["client", "local", "protocol", "tls", "state", "process", "age"];
    let mut table = Table::new(heading).names(5);
    for one in &list.connections {
        let address = |address: &Option<String>| address.clone().unwrap_or("unix".to_owned());
        let age = |seconds: u32| {
            humantime::format_duration(Duration::from_secs(seconds.into())).to_string()
        };
        table.row([
            address(&one.client),
            address(&one.local),
            one.protocol.name().to_owned(),
            if one.tls { "yes" } else { "no" }.to_owned(),
            if one.parked { "parked" } else { "active" }.to_owned(),
            one.process.to_string(),
            one.age_seconds.map_or_else(|| "unknown".to_owned(), age),
        ]);
    }
    say(table.to_string().trim_end())?;
    match list.total - list.connections.len() as u64 {
        0 => Ok(()),
        more => say(&format!("and {more} more")),
    }
}

#[cfg(test)]
mod tests {
    use superpoll_gateway::control::ServerReport;

    use super::*;

    #[test]
    fn servers_are_shown_with_what_is_set_and_their_health() {
        let server = ServerReport {
            address: "10.0.0.1:80".to_owned(),
            name: None,
            state: ServerState::Down,
            healthy: true,
            healthy_in: 1,
            processes: 2,
            weight: 5,
            configured_weight: 1,
            active: 2,
            requests: 30,
            failures: 4,
            idle_connections: 6,
        };
        let upstream = UpstreamReport { name: "app".to_owned(), servers: vec![server] };
        assert_eq!(
            upstream_table(&[upstream]).to_string(),
            "upstream  server       state  health        weight  active  requests  failures  idle\n\
             --------  -----------  -----  ------------  ------  ------  --------  --------  ----\n\
             app       10.0.0.1:80  down   up in 1 of 2   5 (1)       2        30         4     6\n"
        );
    }
}
