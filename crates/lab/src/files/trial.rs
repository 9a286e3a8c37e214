//! The servers in turn, round by round; then their calls.

use std::net::Ipv4Addr;
use std::path::Path;
use std::rc::Rc;

use Software::Ours;
use serde_json::json;
use superpoll::BackendKind::{self, Adaptive, Epoll, Poll, Uring};
use superpoll_gateway::{Config, serve};

use crate::error::{Doing, Error, Result};
use crate::files::{NAME, Options, Row};
use crate::random::Random;
use crate::record::Record;
use crate::relay::strace;
use crate::server::subject::{self, Entry, Subject, names, not_installed, rival};
use crate::server::tls::Certificate;
use crate::server::trial::{self, Figures, Plan, Runner, Trial};
use crate::server::web::{self, Clients, Page, Protocol, check_connections};
use crate::server::{Control, ProcessOptions, Server, caddy, program};
use crate::table::distinct;
use crate::{channel, options};

/// The longest file: one server holds it in memory, and so does the generator.
const LONGEST: usize = 64 << 20;

/// How much is read at a time: more than most answers have, so that a server does not wait for the
/// generator.
const ROOM: usize = 256 << 10;

/// A file, the protocol, and the number of connections that request it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Point {
    bytes: usize,
    protocol: Protocol,
    connections: usize,
}

fn points(options: &Options, servers: usize) -> Result<Vec<Point>> {
    let lengths = options::numbers("--bytes", &options.bytes)?;
    let numbers = options::numbers("--connections", &options.connections)?;
    lengths.iter().try_for_each(|&bytes| options::within("--bytes", bytes, 1..=LONGEST))?;
    numbers.iter().try_for_each(|&number| check_connections(number, servers))?;
    let all = &Protocol::ALL;
    let protocols =
        options::named(&options.protocol, all, |one| one.name(), |_| true, "no protocol")?;
    let mut points = Vec::new();
    for bytes in lengths {
        for &protocol in &protocols {
            let of = |&number| Point { bytes, protocol, connections: protocol.connections(number) };
            points.extend(numbers.iter().map(of));
        }
    }
    Ok(distinct(points))
}

/// Returns the contents of a file of this length: the same in every run with the same seed, without
/// repetition inside the file.
fn contents(bytes: usize, seed: u64) -> Rc<[u8]> {
    let mut random = Random::new(seed ^ bytes as u64);
    let words = std::iter::repeat_with(|| random.bits().to_ne_bytes());
    words.take(bytes.div_ceil(8)).flatten().take(bytes).collect()
}

pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    let (subjects, mut notes) =
        subject::present(ALL, options.subjects.as_deref(), "no file server")?;
    let points = points(options, subjects.len())?;
    notes.extend(channel::plain_network());
    for Subject { name, start, .. } in &subjects {
        let protocols = distinct(points.iter().map(|point| point.protocol));
        let lacking = protocols.into_iter().filter_map(|one| Some((one, start.lacks(one)?)));
        notes
            .extend(lacking.map(|(protocol, why)| format!("{name} {why}: left out of {protocol}")));
    }
    let mut plan = Plan::new("files", &options.output, &subjects, points.len(), 30.0);
    (plan.all, plan.notes) = (names(ALL), notes);
    let own = [("congestion_control", json!(channel::default_congestion()))];
    plan.run(&points, own, |trial, point| measure(options, &subjects, trial, *point))
}

fn measure(
    options: &Options,
    subjects: &[Subject<Software>],
    trial: &mut Trial<'_>,
    point: Point,
) -> Result<Vec<Row>> {
    let Point { bytes, protocol, connections } = point;
    let (root, keys) = (program::folder("files")?, program::folder("certificate")?);
    let certificate = Certificate::make(keys.path())?;
    let tls = protocol.client(&certificate)?;
    let encrypts = tls.is_some().then_some(&certificate);
    let file = contents(bytes, options.output.seed);
    let path = root.path().join(NAME);
    std::fs::write(&path, &file).doing(format_args!("writing {}", path.display()))?;
    let path = format!("/{NAME}");
    let page = Page { path: &path, body: &file, room: ROOM, protocol, tls: tls.as_ref() };
    let mut rows = trial.take_turns(
        subjects.iter().copied().filter(|one| one.start.lacks(protocol).is_none()),
        &format!("{bytes} bytes, {protocol}, {connections} connections"),
        |subject, process| {
            let folder = program::folder(subject.name)?;
            let (server, port) = start(subject, process, folder.path(), root.path(), encrypts)?;
            let load = web::load(subject.name, Ipv4Addr::LOCALHOST, &[port], connections, page)?;
            Ok((Runner::new(server, load)?, folder))
        },
        |runner, _, figures| row(runner, point, figures, options.output.quick),
    )?;
    trial::relate(
        &mut rows,
        |row| (&row.subject, &row.figures),
        |row, to| {
            row.nginx_ratio = to("nginx");
            row.hyper_ratio = to("hyper-tokio");
            row.caddy_ratio = to("caddy");
        },
    );
    Ok(rows)
}

/// Starts a server with a folder, encrypted if there is a certificate. Returns its port.
fn start(
    Subject { name, start, .. }: Subject<Software>,
    process: ProcessOptions,
    own: &Path,
    root: &Path,
    certificate: Option<&Certificate>,
) -> Result<(Server, u16)> {
    match start {
        Software::Ours(backend) => {
            let port = program::free_port()?;
            let server = Server::start(name, true, process, Vec::new(), |control| {
                serve(backend, root, port, certificate, control)
            })?;
            Ok((server, port))
        }
        Software::Nginx(sendfile) => {
            let port = program::free_port()?;
            let block = program::nginx_http(own, &configuration(root, port, certificate, sendfile));
            Ok((program::nginx(name, process, own, port, None, &block)?, port))
        }
        Software::Caddy => {
            let port = program::free_port()?;
            let directives = caddy::files(root);
            Ok((caddy::start(name, process, own, port, certificate, &directives)?, port))
        }
        #[cfg(feature = "http")]
        Software::Hyper => Server::accepting(name, false, process, |listener, control| {
            crate::files::tokio::serve(listener, root, control)
        }),
    }
}

/// Returns the time of a request and the system calls made for it.
fn row(
    runner: &mut Runner<Clients>,
    Point { bytes, protocol, connections }: Point,
    mut figures: Figures,
    quick: bool,
) -> Result<Row> {
    let requests = figures.requests;
    if runner.is_counting() {
        // First as many that do not count: the server has work on connections that were silent
        // during the turns of other servers.
        runner.ask(requests)?;
        figures = figures.with(runner.count(requests)?, requests);
    }
    let subject = runner.name().to_owned();
    let protocol = protocol.name().to_owned();
    let mut row = Row { subject, protocol, bytes, connections, figures, ..Row::default() };
    let traced = strace::most(quick);
    if let Some((calls, ())) = strace::count(runner.pid(), || runner.ask(traced))? {
        (row.strace_calls, row.strace_calls_per_request) = strace::by_request(Some(calls), traced);
    }
    Ok(row)
}

// The servers, by name.

/// The software of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Software {
    /// Ours on a back-end.
    Ours(BackendKind),
    /// nginx, with `sendfile` or without.
    Nginx(bool),
    /// Caddy.
    Caddy,
    /// hyper on tokio.
    #[cfg(feature = "http")]
    Hyper,
}

impl Software {
    /// Returns the feature that it lacks for a protocol, if any.
    fn lacks(self, protocol: Protocol) -> Option<&'static str> {
        match self {
            _ if protocol == Protocol::Http => None,
            #[cfg(feature = "http")]
            Software::Hyper => Some("has no TLS here"),
            _ => None,
        }
    }
}

/// All servers.
pub(crate) const ALL: &[Entry<Software>] = &[
    Entry::new("superpoll-poll", "superpoll serve, back-end poll", Ours(Poll)),
    Entry::new("superpoll-epoll", "superpoll serve, back-end epoll", Ours(Epoll)),
    Entry::new("superpoll-adaptive", "superpoll serve, back-end adaptive", Ours(Adaptive)),
    Entry::new("superpoll-uring", "superpoll serve, back-end uring", Ours(Uring)).with_ring(),
    Entry::new(
        "nginx",
        "nginx, one process: sendfile, open_file_cache, no access log",
        Software::Nginx(true),
    )
    .unless(|| not_installed("nginx")),
    Entry::new(
        "nginx-reads",
        "the same without sendfile: it reads files and writes them",
        Software::Nginx(false),
    )
    .unless(|| not_installed("nginx")),
    Entry::new("caddy", "Caddy with its standard modules, on one processor", Software::Caddy)
        .unless(caddy::refusal),
    rival!(
        "http",
        "hyper-tokio",
        "hyper on tokio's current_thread runtime, files held in memory",
        Software::Hyper
    ),
];

// nginx with a folder, as a careful operator configures it: `sendfile`, heads and files in the
// same packets, descriptors of files kept open and not looked at again for a minute, no access
// log, one process.
//
// `sendfile` is right for long files and costs more than it saves with short ones, for which the
// packets have to be held back and released with a call each. So nginx also takes part without
// `sendfile`, with buffers for a long file.

fn configuration(
    root: &Path,
    port: u16,
    certificate: Option<&Certificate>,
    sendfile: bool,
) -> String {
    let sending = match sendfile {
        true => "sendfile on; tcp_nopush on;",
        false => "sendfile off; output_buffers 2 128k;",
    };
    let (tls, keys) = match certificate {
        Some(certificate) => (" ssl http2", certificate.directives_of_nginx()),
        None => ("", String::new()),
    };
    format!(
        "{sending} default_type application/octet-stream;\n\
         open_file_cache max=1000 inactive=1h; open_file_cache_valid 60s;\n\
         server {{ listen 127.0.0.1:{port}{tls} backlog=4096; {keys} root {}; }}",
        root.display()
    )
}

// `superpoll serve`'s server with a folder, in a process of its own, which reports its poller's
// counters.

/// Serves a folder on a port indefinitely, with one engine.
pub(super) fn serve(
    backend: BackendKind,
    root: &Path,
    port: u16,
    certificate: Option<&Certificate>,
    control: &mut Control,
) -> Result<()> {
    let listener = program::listener(port, certificate);
    let text = program::configuration(&listener, &[program::files(root)], "");
    let config = Config::parse("files", &text).map_err(|error| Error::usage(error.to_string()))?;
    program::serve(backend, control, |runtime| {
        // A client that is not served gets no answer, which the load generator notices.
        serve::Server::start(runtime, &config, |_| {})
            .map_err(|error| Error::usage(error.to_string()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_limited_by_memory_and_descriptors() {
        let of = |bytes: &str, connections: &str| {
            let (bytes, connections) = (bytes.to_owned(), connections.to_owned());
            let protocol = "http".to_owned();
            let options = Options { bytes, protocol, connections, ..Options::default() };
            points(&options, 6)
        };
        let all = of("10, 20,10", "1,2").unwrap();
        let all: Vec<_> = all.into_iter().map(|point| (point.bytes, point.connections)).collect();
        assert_eq!(all, [(10, 1), (10, 2), (20, 1), (20, 2)]);
        let all = points(&Options::default(), 6).unwrap();
        let all: Vec<_> = all.into_iter().map(|p| (p.bytes, p.protocol, p.connections)).collect();
        let of_each =
            |bytes| Protocol::ALL.map(|one| (bytes, one, if one == Protocol::H2 { 8 } else { 64 }));
        assert_eq!(all, [of_each(1024), of_each(102_400)].concat());
        for (bytes, connections, about) in [
            ("0", "1", "--bytes 0"),
            ("1,100000000", "1", "--bytes 100000000"),
            ("x", "1", "--bytes"),
            ("1", "0", "--connections 0"),
            ("1", "1,10000000", "--connections 10000000"),
        ] {
            let error = of(bytes, connections).unwrap_err().to_string();
            assert!(error.contains(about), "{error}");
        }
    }

    #[test]
    fn files_are_as_long_as_they_should_be_and_differ_by_length_and_seed() {
        let file = contents(1001, 1);
        assert_eq!((file.len(), &file), (1001, &contents(1001, 1)));
        assert!(file[..] != contents(1001, 2)[..] && file[..8] != contents(1000, 1)[..8]);
        assert!(file[..500] != file[500..1000]);
    }

    #[test]
    fn the_configuration_names_port_and_folder() {
        let text = configuration(Path::new("/tmp/root"), 1234, None, true);
        assert!(text.contains("listen 127.0.0.1:1234 ") && text.contains("root /tmp/root;"));
        assert!(text.contains("sendfile on;"));
        assert!(configuration(Path::new("/r"), 1, None, false).contains("sendfile off;"));
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}
