//! `lab cite`: the numbers and pictures of the documentation, taken from a report.
//!
//! A document has blocks between `<!-- measured: NAME -->` and `<!-- end -->`, each of which is made here from the
//! report that is kept in `docs/measured`. So no number of theirs is copied by hand, all of them are from one run on one
//! machine, and a test fails if a document says what that report does not.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::claims::{self, Verdict};
use crate::document::{self, Document};
use crate::error::{Error, Result};
use crate::experiments;
use crate::record::{self, Figures};
use crate::{atr, ring};

/// Options of `lab cite`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The folder of the report to take them from
    #[arg(value_name = "FOLDER", default_value = "superpoll-report")]
    pub report: PathBuf,
    /// The checkout whose documents are written anew
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub into: PathBuf,
}

/// The documents that cite, from the root of a checkout.
pub const DOCUMENTS: [&str; 1] = ["README.md"];

/// Where the report that is cited lies, from the root of a checkout.
pub const MEASURED: &str = "docs/measured";

/// Plots of the report that documents show.
pub const PICTURES: [&str; 5] =
    ["atr-pipe-1000-end.svg", "mix.svg", "ring.svg", "idle.svg", "zombies-echo.svg"];

/// What makes a block; nothing where its experiment was not run.
type Block = fn(&Document) -> Option<String>;

/// All blocks, by name.
const BLOCKS: [(&str, Block); 9] = [
    ("origin", origin),
    ("claims", all_claims),
    ("advice", advice),
    ("atr", active_of_total),
    ("mix", mixed),
    ("ring", rings),
    ("servers", servers),
    ("idle", idle),
    ("herd", herds),
];

/// Writes a report's numbers into the documents of a checkout, and keeps the report there.
///
/// # Errors
///
/// [`Error::Usage`] if a document asks for what is no block or was not measured, or a picture was not drawn;
/// [`Error::System`] if a file cannot be read or written. Nothing is written then.
pub fn run(options: &Options) -> Result<()> {
    let document = Document::read(&options.report.join(document::FILE))?;
    let read = |path: PathBuf| {
        std::fs::read_to_string(&path)
            .map_err(|e| Error::system(format!("reading {}", path.display()), e))
    };
    let kept = options.into.join(MEASURED);
    let mut files = vec![(kept.join(document::FILE), document.to_json()?)];
    for name in PICTURES {
        files.push((kept.join(name), read(options.report.join(name))?));
    }
    for name in DOCUMENTS {
        let path = options.into.join(name);
        let text = cite(&read(path.clone())?, &document)
            .map_err(|why| Error::usage(format!("{}: {why}", path.display())))?;
        files.push((path, text));
    }
    std::fs::create_dir_all(&kept)
        .map_err(|e| Error::system(format!("creating the folder {}", kept.display()), e))?;
    for (path, text) in files {
        record::write(&path, &text)?;
        crate::say!("{}", path.display())?;
    }
    Ok(())
}

const BEGIN: &str = "<!-- measured: ";
const END: &str = "<!-- end -->";

/// A text with its blocks made anew, or the first that cannot be made.
fn cite(text: &str, document: &Document) -> Result<String, String> {
    let mut cited = String::with_capacity(text.len());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let _ = writeln!(cited, "{line}");
        let Some(name) = line.strip_prefix(BEGIN) else { continue };
        let name = name.trim_end_matches("-->").trim();
        let (_, block) = BLOCKS
            .iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| format!("{name:?} is no block"))?;
        let made = block(document).ok_or_else(|| format!("{name:?} was not measured"))?;
        let _ = write!(cited, "{}\n{END}\n", made.trim_end());
        if !lines.by_ref().any(|line| line == END) {
            return Err(format!("the block {name:?} does not end with {END}"));
        }
    }
    Ok(cited)
}

/// A table as Markdown has it.
fn table<const N: usize>(heading: [&str; N], rows: &[[String; N]]) -> Option<String> {
    if rows.is_empty() {
        return None;
    }
    let mut text = format!("| {} |\n|{}\n", heading.join(" | "), "---|".repeat(N));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    Some(text)
}

fn ratio(ratio: Option<f64>) -> String {
    crate::table::ratio(ratio)
}

fn origin(document: &Document) -> Option<String> {
    let origin = experiments::ALL.iter().find_map(|one| (one.origin)(&document.records))?;
    let here = origin.environment;
    let run = document.run.as_ref().map_or_else(String::new, |run| match run.extent {
        crate::journal::Extent::Quick => ", `lab all --quick`".to_owned(),
        crate::journal::Extent::Full => ", `lab all`".to_owned(),
    });
    let commit = here.commit.as_deref().map_or_else(String::new, |id| format!(", commit {id}"));
    Some(format!("Measured on {} on {}{commit}{run}.", here.summary(), here.date))
}

fn all_claims(document: &Document) -> Option<String> {
    let mut text = format!("{}.\n", claims::tally(&document.claims));
    for source in claims::SOURCES {
        let own = document.claims.iter().filter(|one| one.text == source.text);
        let rows: Vec<[String; 3]> = own
            .map(|one| [one.claim.clone(), one.verdict.to_string(), one.reason.clone()])
            .collect();
        let heading = ["claim", "here", "measured"];
        let _ = write!(text, "\n**{}**\n\n{}", source.title, table(heading, &rows)?);
    }
    let judged = document.claims.iter().any(|one| one.verdict != Verdict::NotMeasured);
    judged.then_some(text)
}

fn advice(document: &Document) -> Option<String> {
    let lines = claims::advice(&document.claims);
    (!lines.is_empty()).then(|| lines.iter().map(|line| format!("* {line}\n")).collect())
}

fn active_of_total(document: &Document) -> Option<String> {
    let rows = &document.records.atr.as_ref()?.rows;
    let own: Vec<&atr::Row> = rows
        .iter()
        .filter(|row| (&*row.kind, row.total, &*row.placement) == ("pipe", 1000, "end"))
        .collect();
    let at = |active, subject: &str| -> Option<&Figures> {
        let row = own.iter().find(|row| row.active == active && row.subject == subject)?;
        Some(&row.figures)
    };
    let time = |figures: &Figures| crate::table::time(figures.ns_per_round_median);
    let mut points: Vec<usize> = own.iter().map(|row| row.active).collect();
    points.sort_unstable();
    points.dedup();
    let row = |active: usize| -> Option<[String; 6]> {
        let adaptive = at(active, "adaptive")?;
        Some([
            format!("{}", active as f64 / 1000.0),
            time(at(active, "poll")?),
            time(at(active, "epoll-lt")?),
            time(adaptive),
            ratio(adaptive.loop_ratio),
            ratio(adaptive.cost_ratio),
        ])
    };
    let rows: Vec<[String; 6]> = points.into_iter().filter_map(row).collect();
    table(["active/total", "poll", "epoll", "adaptive", "adaptive / best", "cost / best"], &rows)
}

fn mixed(document: &Document) -> Option<String> {
    let rows = &document.records.mix.as_ref()?.rows;
    let own = rows.iter().filter(|row| row.family == "mixed" && row.subject == "adaptive");
    let rows: Vec<[String; 4]> = own
        .map(|row| {
            let of = |subject: &str| {
                let same = |other: &&crate::mix::Row| {
                    (&other.kind, &other.load, &*other.subject) == (&row.kind, &row.load, subject)
                };
                rows.iter().find(same).and_then(|row| row.figures.cost_ratio)
            };
            [
                format!("{}, {}/{}", row.kind, row.hot, row.cold),
                ratio(row.figures.cost_ratio),
                ratio(of("adaptive-uring")),
                ratio(of("mio")),
            ]
        })
        .collect();
    table(["busy/idle", "`adaptive`", "`BatchReader` on `uring`", "mio"], &rows)
}

fn rings(document: &Document) -> Option<String> {
    let rows = &document.records.ring.as_ref()?.rows;
    let most = rows.iter().filter(|row| row.in_flight == 1).map(|row| row.total).max()?;
    let mut own: Vec<&ring::Row> =
        rows.iter().filter(|row| row.in_flight == 1 && row.total == most).collect();
    own.sort_by(|a, b| a.ns_per_hop_median.total_cmp(&b.ns_per_hop_median));
    let rows: Vec<[String; 4]> = own
        .iter()
        .map(|row| {
            [
                row.subject.clone(),
                format!("{:.0}", row.ns_per_hop_median),
                ratio(row.tokio_ratio),
                row.syscalls_per_hop.map_or_else(String::new, |calls| format!("{calls:.2}")),
            ]
        })
        .collect();
    table(["runtime", "ns per pipe", "/ tokio", "system calls"], &rows)
}

fn servers(document: &Document) -> Option<String> {
    let spread = |ratio: Option<crate::echo::Ratio>| {
        ratio.map_or_else(String::new, |ratio| {
            format!("{:.2} ({:.2} to {:.2})", ratio.median, ratio.low, ratio.high)
        })
    };
    let mut rows: Vec<[String; 4]> = Vec::new();
    let ours = ["superpoll-epoll", "superpoll-adaptive"];
    for row in document.records.files.iter().flat_map(|record| &record.rows) {
        if ours.contains(&&*row.subject) {
            rows.push([
                format!("a file of {} bytes, {} connections", row.bytes, row.connections),
                row.subject.clone(),
                format!("{} of nginx", spread(row.nginx_ratio)),
                format!("{} of hyper on tokio", spread(row.hyper_ratio)),
            ]);
        }
    }
    for row in document.records.relay.iter().flat_map(|record| &record.rows) {
        if ours.contains(&&*row.subject) {
            rows.push([
                format!("relay, {}, {} connections", row.load, row.connections),
                row.subject.clone(),
                format!("{} of haproxy", spread(row.haproxy_ratio)),
                format!("{} of nginx", spread(row.nginx_ratio)),
            ]);
        }
    }
    rows.retain(|row| !row[2].starts_with(' ') && !row[3].starts_with(' '));
    table(["work", "server", "processor time", ""], &rows)
}

fn idle(document: &Document) -> Option<String> {
    let rows = &document.records.idle.as_ref()?.rows;
    let rows: Vec<[String; 3]> = rows
        .iter()
        .filter(|row| row.arrival == "one-by-one")
        .map(|row| {
            [
                row.subject.clone(),
                row.kind.clone(),
                format!("{:.0}", row.user_bytes_per_connection.median),
            ]
        })
        .collect();
    table(["server", "connection", "bytes of its memory"], &rows)
}

fn herds(document: &Document) -> Option<String> {
    let rows = &document.records.herd.as_ref()?.rows;
    let most = rows.iter().filter(|row| row.dups == 0).map(|row| row.processes).max()?;
    let own = rows.iter().filter(|row| row.processes == most && row.dups == 0);
    let rows: Vec<[String; 4]> = own
        .map(|row| {
            [
                row.subject.clone(),
                crate::table::time(row.connect_ns_median),
                format!("{:.1}", row.woken_per_connect),
                format!("{:.2}", row.jain),
            ]
        })
        .collect();
    let connect = format!("`connect()` with {most} that wait");
    table(["way to wait", &connect, "woken", "fairness (Jain)"], &rows)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::document::Records;
    use crate::environment::Environment;
    use crate::idle::Spread;
    use crate::record::{Record, SCHEMA};

    fn document() -> Document {
        let row = crate::idle::Row {
            subject: "superpoll-tls".to_owned(),
            kind: "tls".to_owned(),
            arrival: "one-by-one".to_owned(),
            user_bytes_per_connection: Spread { median: 300.4, ..Spread::default() },
            ..crate::idle::Row::default()
        };
        let record = Record::new("idle", Environment::here(), [], vec![row]);
        Document {
            schema: SCHEMA,
            run: None,
            claims: Vec::new(),
            records: Records { idle: Some(record), ..Records::default() },
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_block_is_made_anew_and_the_rest_stays() {
        let text = "before\n<!-- measured: idle -->\nold\n<!-- end -->\nafter\n";
        let cited = cite(text, &document()).unwrap();
        assert!(cited.contains("| superpoll-tls | tls | 300 |") && !cited.contains("old"));
        assert!(cited.starts_with("before\n<!-- measured: idle -->\n| server |"), "{cited}");
        assert!(cited.ends_with("|\n<!-- end -->\nafter\n"), "{cited}");
        assert_eq!(cite(&cited, &document()).unwrap(), cited);
    }

    #[test]
    fn what_is_not_there_is_refused() {
        for (text, part) in [
            ("<!-- measured: nothing -->\n<!-- end -->", "\"nothing\" is no block"),
            ("<!-- measured: ring -->\n<!-- end -->", "\"ring\" was not measured"),
            ("<!-- measured: idle -->\n", "does not end with"),
        ] {
            let error = cite(text, &document()).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn the_documents_say_what_the_report_that_they_cite_says() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for name in DOCUMENTS {
            let text = std::fs::read_to_string(root.join(name)).unwrap();
            if !text.contains(BEGIN) {
                continue;
            }
            let document = Document::read(&root.join(MEASURED).join(document::FILE)).unwrap();
            let cited = cite(&text, &document).unwrap_or_else(|why| panic!("{name}: {why}"));
            assert!(
                cited == text,
                "{name} is not what {MEASURED} says: superpoll lab cite {MEASURED}"
            );
        }
    }
}
