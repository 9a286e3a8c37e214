//! The servers in turn, round by round.

use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;

use Software::{Other, Ours};
use serde_json::json;
use superpoll::BackendKind;

use crate::error::Result;
use crate::http::raw_epoll::{self, load};
use crate::http::{Options, Row, ours, tokio};
use crate::record::Record;
use crate::server::subject::{self, Entry, Subject, names};
use crate::server::trial::{Plan, Runner};
use crate::server::web::{Clients, check_connections};
use crate::server::{Control, ProcessOptions, Server};
use crate::statistics::ToTokio;
use crate::{channel, options};

fn connections(options: &Options, servers: usize) -> Result<Vec<usize>> {
    let numbers = options::numbers("--connections", &options.connections)?;
    numbers.iter().try_for_each(|&number| check_connections(number, servers))?;
    Ok(crate::table::distinct(numbers))
}

pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    let (subjects, _) = subject::chosen(ALL, options.subjects.as_deref(), "no HTTP server")?;
    let points = connections(options, subjects.len())?;
    let mut plan = Plan::new("http", &options.output, &subjects, points.len(), 30.0);
    // hyper is under all of them but the lower bound.
    plan.all = [names(ALL), vec!["hyper-tokio"]].concat();
    plan.run(&points, [("connections", json!(points))], |trial, &connections| {
        let mut rows = trial.take_turns(
            subjects.iter().copied(),
            &format!("{connections} connections"),
            |subject, process| Ok((set_up(subject, connections, process)?, ())),
            |runner, (), figures| {
                let subject = runner.name().to_owned();
                Ok(Row { subject, connections, figures, ..Row::default() })
            },
        )?;
        relate(&mut rows);
        Ok(rows)
    })
}

/// Starts a server, connects to it, and measures how long a request takes.
fn set_up(
    Subject { name, start, .. }: Subject<Software>,
    connections: usize,
    process: ProcessOptions,
) -> Result<Runner<Clients>> {
    let counts = matches!(start, Software::Ours(_));
    let (server, port) = Server::accepting(name, counts, process, |listener, control| {
        let listener = OwnedFd::from(listener);
        // Accepted connections inherit this.
        channel::plain_congestion(&listener);
        start.serve(listener.into(), control)
    })?;
    Runner::new(server, load(name, Ipv4Addr::LOCALHOST, &[port], connections)?)
}

/// Fills in the ratios within a point.
fn relate(point: &mut [Row]) {
    let Some(tokio) = point.iter().find(|row| row.subject == "tokio").cloned() else { return };
    for row in point {
        row.to_tokio = ToTokio::of(&row.figures.cpu_ns, &tokio.figures.cpu_ns);
    }
}

// The servers, by name.

/// The software of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Software {
    /// Our runtime.
    Ours(BackendKind),
    /// Another loop or runtime.
    Other(fn(TcpListener, &mut Control) -> Result<()>),
}

impl Software {
    /// Serves a listener's connections indefinitely.
    pub(crate) fn serve(self, listener: TcpListener, control: &mut Control) -> Result<()> {
        match self {
            Ours(backend) => ours::serve(listener, control, backend),
            Other(serve) => serve(listener, control),
        }
    }
}

const fn by_our_runtime(
    name: &'static str,
    about: &'static str,
    backend: BackendKind,
) -> Entry<Software> {
    Entry::new(name, about, Ours(backend))
}

/// All servers, the lower bound first.
pub(crate) const ALL: &[Entry<Software>] = &[
    Entry::new("raw-epoll", "an epoll loop that answers canned bytes", Other(raw_epoll::serve)),
    by_our_runtime("superpoll-rt-poll", "hyper on our runtime, back-end poll", BackendKind::Poll),
    by_our_runtime(
        "superpoll-rt-epoll",
        "hyper on our runtime, back-end epoll",
        BackendKind::Epoll,
    ),
    by_our_runtime(
        "superpoll-rt-adaptive",
        "hyper on our runtime, back-end adaptive",
        BackendKind::Adaptive,
    ),
    by_our_runtime(
        "superpoll-rt-uring",
        "hyper on our runtime, back-end uring",
        BackendKind::Uring,
    )
    .with_ring(),
    Entry::new("tokio", "hyper on tokio's current_thread runtime", Other(tokio::serve)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_limited_by_descriptors() {
        let of = |connections: &str| {
            let connections = connections.to_owned();
            super::connections(&Options { connections, ..Options::default() }, 5)
        };
        assert_eq!(of("1, 64,1").unwrap(), [1, 64]);
        for bad in ["0", "10000000", "x", ""] {
            let error = of(bad).unwrap_err().to_string();
            assert!(error.contains("--connections"), "{error}");
        }
    }
}
