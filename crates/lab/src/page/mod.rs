//! The parts of a page: the elements of every section of the report.
//!
//! A page needs nothing but itself: plots are inline SVG, there is no script, no font and no
//! address of another host in it. Its colours follow the reader's choice of light or dark, those of
//! the plots too, as they are drawn with `currentColor`. Wide content scrolls within its own box,
//! so that a page fits a telephone. All text that was measured or given by a user goes through
//! [`escaped`].

use std::fmt::Write as _;
use std::path::Path;

use crate::error::Result;
use crate::plot::{self, Plot};
use crate::record;
use crate::table::Table;
use crate::target::{self, Target};

/// The style sheet.
const STYLE: &str = include_str!("style.css");

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
            self.table(&target::table(all));
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
