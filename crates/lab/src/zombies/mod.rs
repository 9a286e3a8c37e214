//! `superpoll-lab zombies`: how much idle connections add to the cost of busy ones.
//!
//! Ten clients send requests and read answers, 40,000 in all. Next to them are zombies: clients
//! that have sent one request and then keep silent. There are none at first, then ten, and twice as
//! many each time up to 10,240, and at last 10,240 for each busy client. A server whose time
//! for a request grows with the zombies pays for idle connections. The comparison is between a
//! server with zombies and the same server without, in turns, round by round. The figure is the
//! processor time of its process per request, next to the time on the clock. Where there are more
//! zombies than one process may have descriptors, several processes of the same server share the
//! zombies and the busy clients (`fleet.rs`); then the comparison uses the same number of processes
//! with and without zombies.
//!
//! The servers are echo servers (those of `superpoll-lab echo`: loops on `epoll`, on our poller's
//! back-ends, on our runtime, on tokio) and web servers that answer thirteen bytes over HTTP/1
//! (`superpoll serve` with a folder of one file, as a user would start it, hyper on tokio, and a
//! loop with canned bytes). The zombies' ends live in processes of their own, up to 5,000 in each.
//! They come from as many addresses of the loopback network, so that one server can have as many as
//! its limit of descriptors allows. They connect before the busy clients, so a `poll` array has all
//! of them in front. The experiment checks every zombie's answer, and at the end that none was
//! closed.
//!
//! `superpoll-lab zombies server`, `active` and `zombie` are the same experiment as three programs,
//! for as many machines (`machines.rs`).

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::experiment::{Experiment, Figure, Run, Target, Targets};
use crate::plot::{self, Plot};
use crate::server::trial::Figures;
use crate::statistics::Ratio;
use crate::table::{self, Part, Table};

pub(crate) mod fleet;
mod machines;
mod trial;

crate::options::options! {
    /// Options of `superpoll-lab zombies`.
    pub(crate) struct Options(
        /// Runs one of three programs, each for a machine of its own: the server waits for the
        /// other two and prints the table
        program: Option<machines::Program>
    );

    /// Silent connections to each server, with commas; none is always measured too. Several
    /// processes share a number that exceeds the descriptors of one process [default: 0, 10, twice
    /// as many each time up to 10240, and 102400; 0,10,100,1000 if quick]
    zombies: Option<String> = LIST,
    /// Connections that send requests
    active: usize = N 10,
    /// Requests to each server, over all rounds; fewer where the time is not enough
    requests: u64 = N 40_000,
    /// Where the program `server` listens, and where `active` and `zombie` find it
    address: String = HOST_PORT "127.0.0.1:7070",
    /// Servers to measure, with commas, or all
    subjects: Option<String> = LIST,
}

impl Options {
    /// Whether this is one of the two client programs.
    pub(crate) fn is_client(&self) -> bool {
        self.program.is_some_and(|program| program != machines::Program::Server)
    }
}

/// Runs a client program; the server has the results.
pub(crate) fn client(options: &Options) -> Result<()> {
    options.program.map_or(Ok(()), |program| machines::client(options, program))
}

/// One server with one number of zombies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The server.
    pub subject: String,
    /// `echo` or `web`.
    pub family: String,
    /// Connections that send requests, each with one request under way.
    pub active: usize,
    /// Processes of the server that share the connections.
    #[serde(default = "one")]
    pub workers: usize,
    /// Connections that have sent one request.
    pub zombies: usize,
    /// The figures of its rounds.
    #[serde(flatten)]
    pub figures: Figures,
    /// The same for the requested number of requests, in seconds.
    pub seconds: f64,
    /// The growth of the kernel's memory per zombie after all had connected, in bytes: slabs and
    /// pages for sockets, at both ends, and whatever else the machine did meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_bytes_per_zombie: Option<f64>,
    /// Processor time relative to the same server without zombies, in the same number of processes.
    pub none_ratio: Option<Ratio>,
    /// Time on the clock relative to the same server without zombies, in the same number of
    /// processes.
    pub none_clock_ratio: Option<Ratio>,
    /// Processor time relative to the family's epoll loop with the same number of zombies.
    pub raw_epoll_ratio: Option<Ratio>,
}

/// The default for a record from before servers had workers.
const fn one() -> usize {
    1
}

// The experiment `zombies`, for the command line and the report.

/// Silent connections next to busy ones.
#[derive(Debug)]
pub(crate) struct Zombies;

impl Experiment for Zombies {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "zombies";
    const TITLE: &'static str = "connections that are silent";
    const METHOD: &'static str = "A few clients ask and are answered; all other connections have asked once and keep silent. \
             Measured is the processor time of the server's processes by request, and the time on the clock \
             for all requests; “/ none” is the ratio to the same server, in as many processes, without \
             zombies, round by round. More zombies than one process may have are shared by several.";
    const QUICK: &'static str = "zombies --quick --seconds 20";
    const FULL: &'static str = "zombies --seconds 150";
    const MEASURED: &'static str =
        "processor time of a server for one request, next to silent connections";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        let plots = ["echo", "web"]
            .map(|family| Part::plot(format!("zombies-{family}.svg"), over_zombies(rows, family)));
        let text = "Seconds for all requests (40,000 unless --requests says otherwise), by the number \
                    of zombies:";
        let tables = [
            Part::text(text),
            Part::Table(seconds(rows)),
            Part::text("Processor time of a request:"),
            Part::Table(servers(rows)),
        ];
        plots.into_iter().chain(tables).collect()
    }

    /// The targets that `superpoll-lab zombies` measures, for servers that promise the same speed
    /// with zombies as without. They apply to one process with the largest measured number of
    /// zombies.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let sparing = [
            "gateway-epoll",
            "gateway-adaptive",
            "gateway-uring",
            "superpoll-rt-epoll",
            "superpoll-rt-adaptive",
            "superpoll-rt-uring",
        ];
        let is_alone = |row: &Row| row.workers <= 1;
        let most = rows.iter().filter(|row| is_alone(row)).map(|row| row.zombies).max();
        let most = most.filter(|most| *most > 0);
        let applies = |row: &Row| is_alone(row) && Some(row.zombies) == most;
        let mut targets = Targets::new(rows, |row| format!("{} with {}", row.subject, row.zombies));
        for family in ["echo", "web"] {
            let ours = |row: &Row| row.family == family && sparing.contains(&&*row.subject);
            let name = format!("zombies, {family}: CPU of a request / that without any");
            let ratio = |row: &Row| Some(row.none_ratio?.headline().value);
            targets.add(name, 1.03, |row| applies(row) && ours(row), ratio);
        }
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        let Row { subject, zombies, figures, .. } = row;
        Some(figures.compared(match row.workers {
            0 | 1 => format!("{zombies} zombies, {subject}"),
            several => format!("{zombies} zombies, {several} processes, {subject}"),
        }))
    }
}

// The output of `superpoll-lab zombies`: for each server its numbers of zombies, one line each.

/// The seconds for all requests: a line for each server, a column for each number of zombies.
fn seconds(rows: &[Row]) -> Table {
    let mut numbers = table::distinct(rows.iter().map(|row| row.zombies));
    numbers.sort_unstable();
    let heading = ["server".to_owned()].into_iter().chain(numbers.iter().map(usize::to_string));
    let mut table = Table::new(heading);
    for (server, own) in table::groups(rows, name) {
        let at = |zombies: &usize| own.iter().find(|row| row.zombies == *zombies);
        let cell = |zombies| table::number(at(zombies).map(|row| row.seconds), 3);
        table.row([server].into_iter().chain(numbers.iter().map(cell)));
    }
    table
}

/// The table of all servers.
pub(crate) fn servers(rows: &[Row]) -> Table {
    table::of(
        rows,
        1,
        &[
            ("server", |row| row.subject.clone()),
            ("processes", |row| row.workers.to_string()),
            ("zombies", |row| row.zombies.to_string()),
            ("cpu ns/request", |row| format!("{:.0}", row.figures.cpu_ns_per_request_median)),
            ("least", |row| format!("{:.0}", row.figures.cpu_ns_per_request_min)),
            ("/ none", |row| table::headline(row.none_ratio)),
            ("90 %", |row| table::interval(row.none_ratio)),
            ("median", |row| table::median(row.none_ratio)),
            ("seconds", |row| format!("{:.3}", row.seconds)),
            ("/ none", |row| table::headline(row.none_clock_ratio)),
            ("90 %", |row| table::interval(row.none_clock_ratio)),
            ("median", |row| table::median(row.none_clock_ratio)),
            ("generator", |row| format!("{:.0} %", row.figures.generator_busy * 100.0)),
            ("waits/request", |row| table::number(row.figures.waits_per_request, 3)),
            ("/ raw-epoll", |row| table::headline(row.raw_epoll_ratio)),
            ("90 %", |row| table::interval(row.raw_epoll_ratio)),
            ("median", |row| table::median(row.raw_epoll_ratio)),
            ("kernel bytes/zombie", bytes),
        ],
    )
}

/// With few zombies the figure is lost in the machine's other activity.
fn bytes(row: &Row) -> String {
    table::number(row.kernel_bytes_per_zombie.filter(|_| row.zombies >= 1000), 0)
}

// The plots of `superpoll-lab zombies`: processor time of a request, over the number of
// connections.

/// A curve for each server of a family; none if only one number of zombies was measured.
pub(crate) fn over_zombies(rows: &[Row], family: &str) -> Option<Plot> {
    let own: Vec<(String, &Row)> =
        rows.iter().filter(|row| row.family == family).map(|row| (name(row), row)).collect();
    let active = own.first()?.1.active;
    let mut plot = Plot {
        title: format!("{family}: {active} connections ask, the others have asked once"),
        // A logarithmic axis has no room for zero zombies.
        x_label: "connections".to_owned(),
        y_label: "cpu ns per request of the server's processes".to_owned(),
        curves: plot::curves(&own, |(name, row)| {
            let connections = (row.active + row.zombies) as f64;
            Some((name.as_str(), (connections, row.figures.cpu_ns_per_request_median)))
        }),
        ..Plot::default()
    };
    for curve in &mut plot.curves {
        curve.thin = own.iter().any(|(name, row)| *name == curve.name && row.workers > 1);
    }
    plot.drawn_over_powers_of_ten()
}

/// Several processes count as another server: each has fewer requests at a time.
fn name(row: &Row) -> String {
    match row.workers {
        0 | 1 => row.subject.clone(),
        workers => format!("{}, {workers} processes", row.subject),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::trial::Figures;
    use crate::statistics::Ratio;

    #[test]
    fn servers_are_judged_with_most_zombies() {
        let row = |subject: &str, family: &str, zombies, median| Row {
            subject: subject.to_owned(),
            family: family.to_owned(),
            zombies,
            none_ratio: Some(Ratio { median, ..Ratio::default() }),
            ..Row::default()
        };
        let rows = [
            row("superpoll-rt-poll", "echo", 9900, 50.0),
            row("superpoll-rt-epoll", "echo", 9900, 1.02),
            row("superpoll-rt-adaptive", "echo", 100, 1.5),
            row("gateway-adaptive", "web", 9900, 1.05),
        ];
        let shared = Row { workers: 6, ..row("superpoll-rt-epoll", "echo", 102_400, 2.0) };
        let rows = [&rows[..], &[shared]].concat();
        let kept: Vec<(f64, bool)> =
            Zombies::targets(&rows).iter().map(|t| (t.measured, t.is_kept())).collect();
        assert_eq!(kept, [(1.02, true), (1.05, false)]);
        assert!(Zombies::targets(&[row("gateway-epoll", "web", 0, 1.0)]).is_empty());
    }

    #[test]
    fn each_point_has_a_line_and_unknown_values_a_dash() {
        let row = |zombies, none_ratio| Row {
            subject: "ours".to_owned(),
            workers: 3,
            kernel_bytes_per_zombie: Some(8123.4),
            zombies,
            figures: Figures { cpu_ns_per_request_median: 4321.0, ..Figures::default() },
            seconds: 0.25,
            none_ratio,
            ..Row::default()
        };
        let ratio = Ratio { median: 1.01, low: 0.9, high: 1.1, decile: None };
        let text = servers(&[row(0, None), row(9900, Some(ratio))]).to_string();
        let last = text.lines().last().unwrap();
        for part in ["3     9900", "4321", "1.01  0.90-1.10", "0.250", "8123"] {
            assert!(last.contains(part), "{part} is missing in {text}");
        }
        assert!(text.lines().nth(2).unwrap().ends_with("  -"), "{text}");
    }

    #[test]
    fn seconds_have_a_line_for_each_server_and_a_column_for_each_number() {
        let row = |subject: &str, zombies, seconds| Row {
            subject: subject.to_owned(),
            zombies,
            seconds,
            ..Row::default()
        };
        let table = seconds(&[row("poll", 0, 0.5), row("epoll", 0, 0.625), row("poll", 20, 1.5)]);
        assert_eq!(table.rows(), [["poll", "0.500", "1.500"], ["epoll", "0.625", "-"]]);
        assert!(table.to_string().starts_with("server"));
    }

    #[test]
    fn a_family_is_drawn_over_all_connections() {
        let row = |family: &str, zombies, cpu_ns_per_request_median| Row {
            subject: "raw-epoll".to_owned(),
            family: family.to_owned(),
            active: 10,
            zombies,
            figures: Figures { cpu_ns_per_request_median, ..Figures::default() },
            ..Row::default()
        };
        let rows = [row("echo", 0, 5000.0), row("echo", 990, 5100.0), row("web", 0, 9000.0)];
        let plot = over_zombies(&rows, "echo").unwrap();
        assert_eq!(plot.curves[0].points, [(1.0, 5000.0), (3.0, 5100.0)]);
        assert!(plot.svg().unwrap().contains("connections"));
        let shared = |zombies| Row { workers: 6, ..row("echo", zombies, 7000.0) };
        let all = [&rows[..], &[shared(0), shared(102_400)]].concat();
        let curves = over_zombies(&all, "echo").unwrap().curves;
        assert_eq!((curves[1].name.as_str(), curves[1].thin), ("raw-epoll, 6 processes", true));
        assert!(!curves[0].thin && curves[0].points.len() == 2 && curves[1].points.len() == 2);
        assert!(over_zombies(&rows, "web").is_none() && over_zombies(&rows, "other").is_none());
    }
}
