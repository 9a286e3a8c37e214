//! The report: one HTML page about every experiment with a record in the folder, and the page's
//! data next to it.
//!
//! It begins with the conclusions: the verdict on each claim of the five texts that the laboratory
//! starts from, and its consequences for a server. Then every experiment has a section: the method,
//! the claims that it is about, plots and tables. The data are on the page, too, as a file to save,
//! so that the page alone is enough to check it.

use std::fmt::Write as _;
use std::path::Path;

use crate::claims::{self, Finding, Verdict};
use crate::document::Document;
use crate::environment::Environment;
use crate::error::Result;
use crate::experiment::{self, Target};
use crate::experiments::{self, Listed, Origin};
use crate::plot::{self, Plot};
use crate::record::{self, Extent, Journal, State};
use crate::rivals;
use crate::table::Table;

/// The report, in its folder.
pub(crate) const PAGE: &str = "index.html";

/// Writes the page and the document over all records in a folder, and the plots next to them.
pub(crate) fn write(folder: &Path) -> Result<()> {
    let document = Document::of(folder);
    document.write(folder)?;
    let mut page = Page::new(folder);
    page.html("<h1>superpoll-lab</h1>\n");
    page.text(
        "Every experiment does the same work with every subject, in turns, and checks each byte. Compare ratios \
         within one table; absolute times belong to this machine and this hour.",
    );
    let measured: Vec<(&Listed, Origin<'_>)> = experiments::ALL
        .iter()
        .filter_map(|one| Some((one, (one.origin)(&document.records)?)))
        .collect();
    if let Some((_, origin)) = measured.first() {
        machine(&mut page, origin.environment);
    }
    if let Some(run) = &document.run {
        progress(&mut page, run);
    }
    page.list("Left out:", document.notes.iter().cloned());
    verdicts(&mut page, &document.claims);
    for (experiment, origin) in &measured {
        page.section(experiment.name, &format!("{}: {}", experiment.name, experiment.title));
        page.text(experiment.method);
        if let Some(note) = origin.parameters.get("interrupted").and_then(|note| note.as_str()) {
            page.text(note);
        }
        let own = document.claims.iter().filter(|one| one.experiment == experiment.name);
        list(&mut page, &own.collect::<Vec<_>>(), false);
        page.details("machine and parameters", |page| parameters(page, origin));
        (experiment.part)(&document.records, &mut page)?;
    }
    data(&mut page, &document)?;
    record::write(&folder.join(PAGE), &page.finish("superpoll-lab"))
}

/// Shows the machine of the first experiment; each section has its own next to its parameters.
fn machine(page: &mut Page<'_>, here: &Environment) {
    page.pairs([
        ("machine", here.summary()),
        ("date", here.date.clone()),
        ("superpoll", here.superpoll.clone()),
        ("commit", here.commit.clone().unwrap_or_default()),
        ("descriptor limit", here.descriptor_limit.to_string()),
        ("mitigations", here.mitigations.join("; ")),
    ]);
}

/// Shows the progress of a run, and the experiments that failed.
fn progress(page: &mut Page<'_>, run: &Journal) {
    let extent = match run.extent {
        Extent::Quick => "A quick run (superpoll-lab all --quick)",
        Extent::Full => "A full run (superpoll-lab all)",
    };
    let (done, all) = (run.done(), run.steps.len());
    page.text(&format!("{extent} of {}: {done} of {all} experiments are done.", run.date));
    let lines = run.steps.iter().filter_map(|step| match &step.state {
        State::Done { notes, .. } if notes.is_empty() => None,
        State::Done { notes, .. } => Some(format!("{}: {}", step.experiment, notes.join("; "))),
        State::Pending => Some(format!("{}: not yet", step.experiment)),
        State::Failed { reason } => Some(format!("{}: failed: {reason}", step.experiment)),
    });
    page.list("What was left out, made smaller or not done:", lines);
}

/// Shows all claims, by text.
fn verdicts(page: &mut Page<'_>, findings: &[Finding]) {
    page.section("claims", "Claims, and verdicts on this machine");
    page.text(
        "Five texts say what this laboratory tests. Each claim is given in our own words, with what was measured and \
         what follows on this machine; what was not measured is said to be so.",
    );
    page.text(&format!("{}.", claims::tally(findings)));
    let advice = claims::advice(findings);
    page.list("For your server that means:", advice);
    for source in &claims::SOURCES {
        let own: Vec<&Finding> = findings.iter().filter(|one| one.text == source.text).collect();
        if own.is_empty() {
            continue;
        }
        page.heading(source.title);
        page.text(source.about);
        list(page, &own, true);
    }
}

/// Shows claims, if there are any.
fn list(page: &mut Page<'_>, findings: &[&Finding], links: bool) {
    if findings.is_empty() {
        return;
    }
    let mut html = "<ul class=\"claims\">\n".to_owned();
    for one in findings {
        let class = match one.verdict {
            Verdict::Holds => "good",
            Verdict::Partly => "partly",
            Verdict::DoesNotHold => "bad",
            Verdict::NotMeasured => "none",
        };
        let experiment = escaped(&one.experiment);
        let link = if links && one.verdict != Verdict::NotMeasured {
            format!(" <a href=\"#{experiment}\">{experiment}</a>")
        } else {
            String::new()
        };
        let _ = writeln!(
            html,
            "<li><strong class=\"{class}\">{}</strong> {}<br><span>{}{link}</span></li>",
            one.verdict,
            escaped(&one.claim),
            escaped(&one.reason),
        );
    }
    page.html(&(html + "</ul>\n"));
}

fn parameters(page: &mut Page<'_>, origin: &Origin<'_>) {
    machine(page, origin.environment);
    let shown = |value: &serde_json::Value| match value {
        serde_json::Value::Array(list) if list.is_empty() => String::new(),
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Null => String::new(),
        value => value.to_string(),
    };
    let names: Vec<(String, String)> = origin
        .parameters
        .iter()
        .map(|(name, value)| match name.as_str() {
            "rivals" => (name.clone(), rivals::line(origin.parameters).unwrap_or_default()),
            _ => (name.replace('_', " "), shown(value)),
        })
        .collect();
    page.pairs(names.iter().map(|(name, value)| (name.as_str(), value.clone())));
}

/// Adds the document as a link that saves it: no second file is needed, and no script.
fn data(page: &mut Page<'_>, document: &Document) -> Result<()> {
    page.section("data", "Data");
    page.text(
        "Every measurement, as JSON. superpoll-lab compare sets two of these files side by side.",
    );
    page.html(&format!(
        "<p><a download=\"report.json\" href=\"data:application/json,{}\">report.json</a></p>\n",
        percent_encoded(&document.to_json()?)
    ));
    Ok(())
}

/// Encodes text for a data URL (RFC 3986): reserved characters are written as percent-encoded
/// bytes.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        match byte {
            _ if byte.is_ascii_alphanumeric() || b"-._~:,/".contains(&byte) => {
                encoded.push(char::from(byte));
            }
            other => {
                let _ = write!(encoded, "%{other:02X}");
            }
        }
    }
    encoded
}

// The parts of a page: the elements of every section of the report.
//
// A page needs nothing but itself: plots are inline SVG, there is no script, no font and no
// address of another host in it. Its colours follow the reader's choice of light or dark, those of
// the plots too, as they are drawn with `currentColor`. Wide content scrolls within its own box,
// so that a page fits a telephone. All text that was measured or given by a user goes through
// [`escaped`].

/// The style sheet.
const STYLE: &str = include_str!("page/style.css");

/// A page under construction. Its plots are written as files of their own, too.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    folder: &'a Path,
    body: String,
}

impl<'a> Page<'a> {
    /// Creates an empty page, with a folder for its plots.
    pub(crate) fn new(folder: &'a Path) -> Page<'a> {
        Page { folder, body: String::new() }
    }

    /// Returns the whole document under a title.
    pub(crate) fn finish(self, title: &str) -> String {
        let title = escaped(title);
        let body = self.body;
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
             <title>{title}</title><style>\n{STYLE}</style></head><body>\n\
             {body}</body></html>\n"
        )
    }

    /// Adds text that is HTML already.
    pub(crate) fn html(&mut self, html: &str) {
        self.body += html;
    }

    /// Adds a heading that can be linked to.
    pub(crate) fn section(&mut self, id: &str, heading: &str) {
        let _ = writeln!(self.body, "<h2 id=\"{}\">{}</h2>", escaped(id), escaped(heading));
    }

    /// Adds a heading within a section.
    pub(crate) fn heading(&mut self, heading: &str) {
        let _ = writeln!(self.body, "<h3>{}</h3>", escaped(heading));
    }

    /// Adds a paragraph.
    pub(crate) fn text(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p>{}</p>", escaped(text));
    }

    /// Adds a list under its paragraph; nothing if it is empty.
    pub(crate) fn list(&mut self, lead: &str, lines: impl IntoIterator<Item = String>) {
        let lines: String =
            lines.into_iter().map(|line| format!("<li>{}</li>\n", escaped(&line))).collect();
        if !lines.is_empty() {
            self.text(lead);
            let _ = writeln!(self.body, "<ul>\n{lines}</ul>");
        }
    }

    /// Adds names with their values; names without a value are left out.
    pub(crate) fn pairs<'t>(&mut self, pairs: impl IntoIterator<Item = (&'t str, String)>) {
        self.body += "<dl>\n";
        for (name, value) in pairs.into_iter().filter(|(_, value)| !value.is_empty()) {
            let _ = writeln!(self.body, "<dt>{}</dt><dd>{}</dd>", escaped(name), escaped(&value));
        }
        self.body += "</dl>\n";
    }

    /// Adds a plot, here and in a file of its own.
    pub(crate) fn plot(&mut self, file: &str, plot: Option<Plot>) -> Result<()> {
        plot.map_or(Ok(()), |plot| self.figure(file, &plot.svg()?))
    }

    /// Adds a picture as SVG, here and in a file of its own.
    pub(crate) fn figure(&mut self, file: &str, svg: &str) -> Result<()> {
        record::write(&self.folder.join(file), &plot::standalone(svg))?;
        let _ = writeln!(self.body, "<figure>{}</figure>", svg.trim());
        Ok(())
    }

    /// Adds a table, if it has rows.
    pub(crate) fn table(&mut self, table: &Table) {
        if table.rows().is_empty() {
            return;
        }
        let class = |column: usize| if table.is_name(column) { " class=\"name\"" } else { "" };
        self.body += "<div class=\"wide\"><table><tr>";
        for (column, cell) in table.heading().iter().enumerate() {
            let _ = write!(self.body, "<th{}>{}</th>", class(column), escaped(cell));
        }
        self.body += "</tr>\n";
        for row in table.rows() {
            self.body += "<tr>";
            for (column, cell) in row.iter().enumerate() {
                let _ = write!(self.body, "<td{}>{}</td>", class(column), escaped(cell));
            }
            self.body += "</tr>\n";
        }
        self.body += "</table></div>\n";
    }

    /// Adds content that is hidden until the reader opens its summary line.
    pub(crate) fn details(&mut self, summary: &str, content: impl FnOnce(&mut Page<'_>)) {
        let _ = writeln!(self.body, "<details><summary>{}</summary>", escaped(summary));
        content(self);
        self.body += "</details>\n";
    }

    /// Adds our targets and their results, if there are any.
    pub(crate) fn targets(&mut self, all: &[Target]) {
        if !all.is_empty() {
            self.heading("Targets");
            self.table(&experiment::table(all));
        }
    }
}

/// Escapes text for HTML, in an attribute's quotes too.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wake;

    #[test]
    fn data_are_a_part_of_the_page_and_come_back_whole() {
        let folder = tempfile::tempdir().unwrap();
        let row = wake::Row { subject: "a\"<>&é%".to_owned(), ..wake::Row::default() };
        let record = record::Record::new("wake", Environment::here(), [], vec![row]);
        std::fs::write(folder.path().join("wake.json"), record.to_json().unwrap()).unwrap();
        write(folder.path()).unwrap();
        let page = std::fs::read_to_string(folder.path().join(PAGE)).unwrap();
        let start = page.find("data:application/json,").unwrap() + "data:application/json,".len();
        let encoded = &page[start..start + page[start..].find('"').unwrap()];
        let mut bytes = Vec::new();
        let mut rest = encoded.bytes();
        while let Some(byte) = rest.next() {
            bytes.push(match byte {
                b'%' => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                plain => plain,
            });
        }
        let beside = std::fs::read(folder.path().join(crate::document::FILE)).unwrap();
        assert_eq!(bytes, beside);
        assert!(page.contains("a&quot;&lt;&gt;&amp;é%") && !page.contains("<script"));
    }

    #[test]
    fn text_is_escaped_and_empty_parts_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let mut page = Page::new(folder.path());
        page.section("a\"b", "x < y & z");
        page.list("unread", []);
        page.table(&Table::new(["neither this"]));
        page.pairs([("kept", "yes".to_owned()), ("empty", String::new())]);
        page.details("more", |page| page.text("<script>"));
        let html = page.finish("t");
        for part in ["id=\"a&quot;b\"", "x &lt; y &amp; z", "<dd>yes</dd>", "&lt;script&gt;"] {
            assert!(html.contains(part), "{part} in {html}");
        }
        for part in ["unread", "neither", "empty", "<script"] {
            assert!(!html.contains(part), "{part} in {html}");
        }
    }
}
