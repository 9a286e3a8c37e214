//! Pollers, runtimes and servers of other projects: which subjects of experiments they are, in
//! which version, and how an experiment continues when one of them fails.
//!
//! A rival that breaks does not end the experiment: it is named with the reason and left out from
//! there on, and the remaining subjects go on. Our own subjects, and the yardsticks that all are
//! measured by, may not fail: without them there is no experiment.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use crate::error::Result;
use crate::fanout::service;
use crate::server::caddy;
use crate::sys::{libkqueue, process};
use crate::{go, say};

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rival {
    /// Its name.
    pub name: &'static str,
    /// The subjects that are this rival, or build on it.
    pub subjects: &'static [&'static str],
    /// Its version, or why it is absent.
    version: fn() -> Result<String, String>,
}

/// The version of a linked library, as it reports it.
macro_rules! linked {
    ($library:ident) => {{
        #[cfg(feature = "rivals-c")]
        let version = Ok(crate::sys::$library::version());
        #[cfg(not(feature = "rivals-c"))]
        let version = Err(not_built_in("rivals-c"));
        version
    }};
}

const fn rival(
    name: &'static str,
    subjects: &'static [&'static str],
    version: fn() -> Result<String, String>,
) -> Rival {
    Rival { name, subjects, version }
}

/// All of them.
pub(crate) const ALL: &[Rival] = &[
    rival("mio", &["mio"], || of_crate("mio", "rival-mio")),
    rival("polling", &["polling"], || of_crate("polling", "rival-polling")),
    rival("libevent", &["libevent"], || linked!(libevent)),
    rival("libev", &["libev"], || linked!(libev)),
    rival("libuv", &["libuv"], || linked!(libuv)),
    rival("libkqueue", &["libkqueue"], of_libkqueue),
    rival(
        "tokio",
        &["tokio", "tokio-multi", "hyper-tokio", "hyper-silent", "hyper-keep-alive"],
        || of_crate("tokio", "rivals-rt"),
    ),
    rival("smol", &["smol"], || of_crate("smol", "rivals-rt")),
    rival("monoio", &["monoio-epoll", "monoio-uring"], || of_crate("monoio", "rivals-rt")),
    rival("compio", &["compio-poll", "compio-uring"], || of_crate("compio", "rivals-rt")),
    rival("Go", &["go"], of_go),
    rival("hyper", &["hyper-tokio", "hyper-silent", "hyper-keep-alive"], || {
        of_crate("hyper", "http")
    }),
    rival("haproxy", &["haproxy", "haproxy-relay"], || of_program("haproxy", after_version)),
    rival(
        "nginx",
        &["nginx", "nginx-reads", "nginx-silent", "nginx-keep-alive", "nginx-tls", "nginx-h2"],
        || of_program("nginx", |line| line.rsplit_once('/').map(|(_, version)| version)),
    ),
    rival("Caddy", &["caddy", "caddy-keep-alive", "caddy-h2"], || caddy::CADDY.version()),
    rival("nchan", &["nchan"], || match service::without_nchan() {
        None => Ok(service::nchan_version().unwrap_or_else(|| UNKNOWN.to_owned())),
        Some(reason) => Err(reason),
    }),
    rival("pushpin", &["pushpin"], of_pushpin),
    rival("ws", &["node-ws"], || match service::without_ws() {
        None => Ok(service::ws_version().unwrap_or_else(|| UNKNOWN.to_owned())),
        Some(reason) => Err(reason),
    }),
    rival("Centrifugo", &["centrifugo"], || service::CENTRIFUGO.version()),
];

/// The text where the version is unknown.
const UNKNOWN: &str = "unknown";

/// The beginning of the note about an absent rival.
const ABSENT: &str = "absent: ";

/// Returns whether a subject belongs to another project.
pub(crate) fn is_rival(subject: &str) -> bool {
    ALL.iter().any(|rival| rival.subjects.contains(&subject))
}

/// Returns the versions of the rivals among these subjects, or why they are absent, by name: for a
/// record.
pub(crate) fn versions<'a>(subjects: impl IntoIterator<Item = &'a str>) -> Value {
    let subjects: Vec<&str> = subjects.into_iter().collect();
    let takes_part = |rival: &&Rival| subjects.iter().any(|name| rival.subjects.contains(name));
    let each = ALL.iter().filter(takes_part).map(|rival| {
        let version = (rival.version)().unwrap_or_else(|reason| format!("{ABSENT}{reason}"));
        (rival.name.to_owned(), Value::String(version))
    });
    Value::Object(each.collect())
}

/// Returns one readable line from the parameters of a record; `None` if no rival took part.
pub(crate) fn line(parameters: &Map<String, Value>) -> Option<String> {
    let rivals = parameters.get("rivals")?.as_object().filter(|rivals| !rivals.is_empty())?;
    let each = rivals.iter().filter_map(|(name, version)| Some((name, version.as_str()?)));
    let (mut here, mut absent) = (Vec::new(), Vec::new());
    for (name, version) in each {
        match version.strip_prefix(ABSENT) {
            None => here.push(format!("{name} {version}")),
            Some(reason) => absent.push(format!("{name} ({reason})")),
        }
    }
    let mut parts = Vec::new();
    if !here.is_empty() {
        parts.push(here.join(", "));
    }
    if !absent.is_empty() {
        parts.push(format!("absent: {}", absent.join(", ")));
    }
    Some(parts.join("; "))
}

/// Returns the version of a crate that is linked, by the lock file of the build.
fn of_crate(name: &str, feature: &str) -> Result<String, String> {
    let is_built_in = match feature {
        "rival-mio" => cfg!(feature = "rival-mio"),
        "rival-polling" => cfg!(feature = "rival-polling"),
        "http" => cfg!(feature = "http"),
        _ => cfg!(feature = "rivals-rt"),
    };
    if !is_built_in {
        return Err(not_built_in(feature));
    }
    Ok(locked(env!("LAB_CRATES"), name).unwrap_or(UNKNOWN).to_owned())
}

/// Returns a version from a list of words like `mio=1.0.4`.
fn locked<'a>(crates: &'a str, name: &str) -> Option<&'a str> {
    crates.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn not_built_in(feature: &str) -> String {
    format!("not built in, feature {feature}")
}

fn of_go() -> Result<String, String> {
    find("go").ok_or(go::ABSENT)?;
    let line = first_line("go", &["version"]).unwrap_or_default();
    let version = line.split_whitespace().find_map(|word| word.strip_prefix("go1"));
    Ok(version.map_or_else(|| UNKNOWN.to_owned(), |rest| format!("1{rest}")))
}

/// Returns the version of a program, from a line that it prints; `part` extracts the version.
fn of_program(name: &str, part: fn(&str) -> Option<&str>) -> Result<String, String> {
    find(name).ok_or("not installed")?;
    let line = first_line(name, &["-v"]).unwrap_or_default();
    Ok(part(&line).unwrap_or(UNKNOWN).to_owned())
}

/// The library has no version of its own to report; its package has.
fn of_libkqueue() -> Result<String, String> {
    if let Some(reason) = libkqueue::missing() {
        return Err(reason);
    }
    let of = |package| package_version(package);
    Ok(of("libkqueue0t64").or_else(|| of("libkqueue0")).unwrap_or_else(|| UNKNOWN.to_owned()))
}

fn of_pushpin() -> Result<String, String> {
    find("pushpin").ok_or("not installed")?;
    let line = first_line("pushpin", &["--version"]).unwrap_or_default();
    Ok(line.split_whitespace().nth(1).unwrap_or(UNKNOWN).to_owned())
}

fn after_version(line: &str) -> Option<&str> {
    line.split_once("version ")?.1.split_whitespace().next()
}

/// The rivals that failed in a run, each with the reason.
#[derive(Debug, Default)]
pub(crate) struct Lost(Vec<(&'static str, String)>);

impl Lost {
    /// Returns the value of a subject's outcome; `None` if it failed and is a rival, which is
    /// noted.
    pub(crate) fn keep<T>(
        &mut self,
        subject: &'static str,
        outcome: Result<T>,
    ) -> Result<Option<T>> {
        match outcome {
            Ok(kept) => Ok(Some(kept)),
            Err(error) if is_rival(subject) => {
                let note = format!("{subject} failed and is left out from there on: {error}");
                say::note(&note);
                self.0.push((subject, note));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns whether a subject has failed.
    pub(crate) fn has(&self, subject: &str) -> bool {
        self.0.iter().any(|(name, _)| *name == subject)
    }

    /// Returns the notes, in order.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(_, note)| note.clone())
    }
}

// Programs of other projects: where they are installed, and the versions that they report.

/// The time that a program may take to print its version.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the path of a program in the search path, or in the folders of administrators' programs.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Returns the first line that a program prints, on either output, when called with these
/// arguments; `None` if it is not installed, fails, or takes too long.
pub(crate) fn first_line(name: &str, arguments: &[&str]) -> Option<String> {
    let mut text = tempfile::tempfile().ok()?;
    let copy = |file: &File| file.try_clone().ok();
    let mut command = Command::new(find(name)?);
    command.args(arguments).stdin(Stdio::null()).stdout(copy(&text)?).stderr(copy(&text)?);
    let (child, ..) = process::spawn(&mut command).ok()?;
    let begun = Instant::now();
    while !child.has_ended() {
        if begun.elapsed() > PATIENCE {
            return None;
        }
        process::sleep(1_000_000);
    }
    let mut said = String::new();
    text.rewind().and_then(|()| text.read_to_string(&mut said)).ok()?;
    said.lines().next().map(|line| line.trim().to_owned())
}

/// Returns the version of a package of Debian's; `None` if it is not installed, or there are no
/// such packages here.
pub(crate) fn package_version(package: &str) -> Option<String> {
    let line = first_line("dpkg-query", &["-W", "-f=${Version}\\n", package])?;
    Some(line).filter(|line| line.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::Error;

    #[test]
    fn a_rival_that_fails_is_noted_and_any_other_failure_is_an_error() {
        let mut lost = Lost::default();
        let broken = || Err::<(), _>(Error::usage("it broke"));
        assert_eq!(lost.keep("raw-epoll", Ok(1)).unwrap(), Some(1));
        for ours in ["raw-epoll", "floor", "read+write", "superpoll-rt-epoll", "epoll-lt"] {
            assert_eq!(lost.keep(ours, broken()).unwrap_err().to_string(), "it broke");
        }
        assert!(!lost.has("nginx"));
        assert_eq!(lost.keep("nginx", broken()).unwrap(), None);
        assert!(lost.has("nginx") && !lost.has("nginx-reads"));
        let notes: Vec<_> = lost.notes().collect();
        assert_eq!(notes, ["nginx failed and is left out from there on: it broke"]);
    }

    #[test]
    fn versions_are_those_of_the_participating_rivals() {
        let all = versions(["raw-epoll", "mio", "haproxy-relay"]);
        let names: Vec<_> = all.as_object().unwrap().keys().cloned().collect();
        assert_eq!(names, ["mio", "haproxy"]);
        if cfg!(feature = "rival-mio") {
            let version = all["mio"].as_str().unwrap();
            assert!(version.starts_with("1.") || version == UNKNOWN, "{version}");
        }
        assert_eq!(versions(["floor"]), json!({}));
        assert_eq!(locked("mio=1.0.4 tokio=1.2.3 monoio=0.2", "mio"), Some("1.0.4"));
        assert_eq!(locked("monoio=0.2", "mio"), None);
        let line = "HAProxy version 2.6.12-1+deb12u4 2025/12/25 - https://haproxy.org/";
        assert_eq!(after_version(line), Some("2.6.12-1+deb12u4"));
    }

    #[test]
    fn the_line_has_versions_first_and_then_absent_rivals() {
        let of = |rivals: Value| line(json!({ "rivals": rivals }).as_object().unwrap());
        let both = of(json!({ "Go": "absent: no go", "mio": "1.0.4", "nginx": "1.22" }));
        assert_eq!(both.unwrap(), "mio 1.0.4, nginx 1.22; absent: Go (no go)");
        assert_eq!(of(json!({ "mio": "1.0.4" })).unwrap(), "mio 1.0.4");
        assert_eq!(of(json!({})), None);
        assert_eq!(line(&Map::new()), None);
    }

    #[test]
    fn programs_are_found_in_the_search_path_and_asked() {
        assert!(find("sh").is_some() && find("no-such-program-here").is_none());
        assert!(first_line("ls", &["--version"]).unwrap().contains("ls"));
        assert!(first_line("no-such-program-here", &["-v"]).is_none());
    }

    // `docs/rivals.md` lists the experiments that each rival takes part in, and why not in others.

    const PAGE: &str = include_str!("../../../docs/rivals.md");

    /// Returns the subjects of an experiment, by name; none where it is not built in.
    fn subjects(experiment: &str) -> Option<Vec<&'static str>> {
        macro_rules! names {
            ($($list:tt)*) => { Some($($list)*.iter().map(|entry| entry.name).collect()) };
        }
        match experiment {
            "atr" | "mix" | "wake" => names!(crate::subject::ALL),
            "ring" => names!(crate::ring::subject::ALL),
            "echo" => names!(crate::echo::subject::ALL),
            #[cfg(feature = "http")]
            "http" => names!(crate::http::trial::ALL),
            #[cfg(not(feature = "http"))]
            "http" => None,
            "files" => names!(crate::files::trial::ALL),
            "relay" => names!(crate::relay::peers::ALL),
            "zombies" => names!(crate::zombies::fleet::ALL),
            "idle" => names!(crate::idle::service::ALL),
            "fanout" => names!(crate::fanout::service::ALL),
            "timers" => names!(crate::timers::trial::ALL),
            other => panic!("docs/rivals.md has a column for {other:?}"),
        }
    }

    /// Returns the texts between backticks.
    fn code(cell: &str) -> Vec<&str> {
        cell.split('`').skip(1).step_by(2).collect()
    }

    fn cells(line: &str) -> Vec<&str> {
        line.trim().trim_matches('|').split('|').map(str::trim).collect()
    }

    #[test]
    fn the_table_lists_the_rivals_of_each_experiment() {
        let (_, rest) = PAGE.split_once("| rival |").unwrap();
        let mut lines = rest.lines();
        let columns: Vec<Vec<&str>> = cells(lines.next().unwrap()).into_iter().map(code).collect();
        assert_eq!(columns.iter().flatten().count(), 12, "{columns:?}");
        let rows: Vec<Vec<&str>> =
            lines.skip(1).take_while(|line| line.starts_with('|')).map(cells).collect();
        let names: Vec<&str> = rows.iter().map(|row| row[0]).collect();
        assert_eq!(names, ALL.iter().map(|rival| rival.name).collect::<Vec<_>>());
        for (row, rival) in rows.iter().zip(ALL) {
            assert_eq!(row.len(), columns.len() + 1, "{}", rival.name);
            for (cell, experiments) in row[1..].iter().zip(&columns) {
                for experiment in experiments {
                    let Some(all) = subjects(experiment) else { continue };
                    let own: Vec<&str> =
                        all.into_iter().filter(|name| rival.subjects.contains(name)).collect();
                    assert_eq!(code(cell), own, "{} in superpoll-lab {experiment}", rival.name);
                }
                if code(cell).is_empty() {
                    let reason = format!("\n* **{cell}**: ");
                    assert!(PAGE.contains(&reason), "{}: no reason {cell:?}", rival.name);
                }
            }
        }
    }

    #[test]
    fn every_subject_that_is_not_ours_is_a_rival() {
        let experiments = [
            "atr", "ring", "echo", "http", "files", "relay", "zombies", "idle", "fanout", "timers",
        ];
        for experiment in experiments {
            for name in subjects(experiment).unwrap_or_default() {
                let beginnings = ["superpoll", "raw-", "gateway-", "batch-", "adaptive", "epoll-"];
                let names = ["floor", "read+write", "select", "poll", "uring", "auto"];
                let policies = ["idle-server", "media-server"];
                let ours = beginnings.iter().any(|beginning| name.starts_with(beginning))
                    || names.contains(&name)
                    || policies.contains(&name);
                assert_ne!(ours, is_rival(name), "{name} in superpoll-lab {experiment}");
            }
        }
    }
}
