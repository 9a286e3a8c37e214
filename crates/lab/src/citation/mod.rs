//! `superpoll-lab cite`: the numbers and pictures of the documentation, taken from a report.
//!
//! A document has blocks between `<!-- measured: NAME -->` and `<!-- end -->`, which are generated
//! here from the report in `docs/measured`. So no number of a block is copied by hand, all numbers
//! are from one run on one machine, and a test fails if a document differs from that report. Only
//! figures of the profile that packages have are cited.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::citation::blocks::BLOCKS;
use crate::document::{self, Document};
use crate::error::{Doing, Error, Result};
use crate::experiments;
use crate::record;

mod blocks;
mod short;

/// Options of `superpoll-lab cite`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// The folder of the report to take them from
    #[arg(value_name = "FOLDER", default_value = "superpoll-report")]
    pub report: PathBuf,
    /// The checkout with the documents to update
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub into: PathBuf,
}

/// The documents that cite, from the root of a checkout.
pub(crate) const DOCUMENTS: [&str; 6] = [
    "README.md",
    "GUIDE.md",
    "docs/measured/waiting.md",
    "docs/measured/servers.md",
    "docs/measured/runtimes.md",
    "docs/measured/claims.md",
];

/// The path of the cited report, from the root of a checkout.
pub(crate) const MEASURED: &str = "docs/measured";

/// Plots of the report that documents show.
pub(crate) const PICTURES: [&str; 5] =
    ["atr-pipe-1000-end.svg", "mix.svg", "ring.svg", "idle.svg", "zombies-echo.svg"];

/// The profile of published figures.
const PUBLISHED: &str = "dist";

/// Returns the first experiment that was measured with another profile than the published one, and
/// that profile.
fn of_another_profile(document: &Document) -> Option<(&'static str, String)> {
    experiments::ALL.iter().find_map(|one| {
        let profile = &(one.origin)(&document.records)?.environment.profile;
        (profile != PUBLISHED).then(|| (one.name, profile.clone()))
    })
}

/// Writes a report's numbers into the documents of a checkout, and keeps the report there.
pub(crate) fn run(options: &Options) -> Result<()> {
    let report = options.report.join(document::FILE);
    let document = Document::read(&report)?;
    if let Some((experiment, profile)) = of_another_profile(&document) {
        return Err(Error::usage(format!(
            "{}: {experiment} was measured with a build of the profile {profile:?}; published figures are of {PUBLISHED:?}: \
             measure with cargo run --profile {PUBLISHED} -p superpoll-lab",
            report.display()
        )));
    }
    let kept = options.into.join(MEASURED);
    let mut files = vec![(kept.join(document::FILE), document.to_json()?)];
    for name in PICTURES {
        files.push((kept.join(name), record::read(options.report.join(name))?));
    }
    for name in DOCUMENTS {
        let path = options.into.join(name);
        let text = cite(&record::read(&path)?, &document)
            .map_err(|why| Error::usage(format!("{}: {why}", path.display())))?;
        files.push((path, text));
    }
    std::fs::create_dir_all(&kept).doing(format_args!("creating the folder {}", kept.display()))?;
    for (path, text) in files {
        record::write(&path, &text)?;
        crate::say!("{}", path.display())?;
    }
    Ok(())
}

const BEGIN: &str = "<!-- measured: ";
const END: &str = "<!-- end -->";

/// Returns a text with its blocks generated anew, or the name of the first block that cannot be
/// generated.
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::environment::Environment;
    use crate::experiments::Records;
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
    fn figures_of_another_profile_are_refused() {
        let mut document = document();
        let of = |profile: &str| Environment { profile: profile.to_owned(), ..Environment::here() };
        let rows = document.records.idle.take().map_or_else(Vec::new, |record| record.rows);
        for (profile, refused) in [("dist", false), ("release", true), ("", true)] {
            let record = Record::new("idle", of(profile), [], rows.clone());
            document.records.idle = Some(record);
            let found = of_another_profile(&document);
            assert_eq!(found.is_some(), refused, "{profile:?}: {found:?}");
        }
    }

    #[test]
    fn what_was_measured_at_another_commit_is_named() {
        let mut document = document();
        let at =
            |commit: &str| Environment { commit: Some(commit.to_owned()), ..Environment::here() };
        let idle = document.records.idle.take().map_or_else(Vec::new, |record| record.rows);
        document.records.idle = Some(Record::new("idle", at("first"), [], idle));
        let text = "<!-- measured: origin -->\n<!-- end -->";
        assert!(cite(text, &document).unwrap().contains("commit first.\n"));
        document.records.sit = Some(Record::new("sit", at("second"), [], Vec::new()));
        assert!(cite(text, &document).unwrap().contains("commit first; sit at second.\n"));
        let elsewhere = Environment { cpu: "abacus".to_owned(), ..at("first") };
        document.records.sit = Some(Record::new("sit", elsewhere, [], Vec::new()));
        assert!(cite(text, &document).unwrap().contains("; sit at first on abacus, "));
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
            assert!(text.contains(BEGIN), "{name} cites nothing");
            let document = Document::read(&root.join(MEASURED).join(document::FILE)).unwrap();
            let cited = cite(&text, &document).unwrap_or_else(|why| panic!("{name}: {why}"));
            assert!(
                cited == text,
                "{name} is not what {MEASURED} says: superpoll-lab cite {MEASURED}"
            );
        }
    }

    #[test]
    fn each_block_is_cited_and_each_document_that_cites_is_listed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let text = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
        let cited: String = DOCUMENTS.iter().map(|name| text(name)).collect();
        for (name, _) in BLOCKS {
            let begins = format!("{BEGIN}{name} -->");
            assert!(cited.lines().any(|line| line == begins), "no document cites {name:?}");
        }
        for folder in ["", "docs/", "docs/measured/"] {
            for entry in std::fs::read_dir(root.join(folder)).unwrap() {
                let name = format!("{folder}{}", entry.unwrap().file_name().to_string_lossy());
                if name.ends_with(".md") {
                    let cites = text(&name).lines().any(|line| line.starts_with(BEGIN));
                    assert_eq!(cites, DOCUMENTS.contains(&&*name), "{name}");
                }
            }
        }
    }
}
