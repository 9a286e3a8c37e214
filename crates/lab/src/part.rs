//! The results of an experiment, part by part: all of them on a page, and all but the pictures on
//! the terminal.

use crate::error::Result;
use crate::page::Page;
use crate::plot::Plot;
use crate::table::Table;

/// A part of the results.
#[derive(Debug)]
pub(crate) enum Part {
    /// The heading of all parts up to the next heading.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// Lines under a paragraph; nothing if there are none.
    List(&'static str, Vec<String>),
    /// A table; nothing if it has no rows.
    Table(Table),
    /// A plot and the name of its file; nothing without points to draw.
    Plot(String, Option<Plot>),
    /// Another picture, as SVG, and the name of its file.
    Picture(&'static str, String),
}

impl Part {
    pub(crate) fn text(text: impl Into<String>) -> Part {
        Part::Text(text.into())
    }

    pub(crate) fn plot(file: impl Into<String>, plot: Option<Plot>) -> Part {
        Part::Plot(file.into(), plot)
    }

    /// Returns the part for the terminal.
    fn printed(&self) -> Option<String> {
        match self {
            Part::Heading(text) | Part::Text(text) => Some(format!("{text}\n")),
            Part::List(_, lines) if lines.is_empty() => None,
            Part::List(lead, lines) => Some(format!("{lead}\n\n{}\n", lines.join("\n"))),
            Part::Table(table) if table.rows().is_empty() => None,
            Part::Table(table) => Some(table.to_string()),
            Part::Plot(..) | Part::Picture(..) => None,
        }
    }

    /// Adds the part to a page.
    ///
    /// # Errors
    ///
    /// The errors of [`Page::plot`].
    pub(crate) fn show(self, page: &mut Page<'_>) -> Result<()> {
        match self {
            Part::Heading(text) => page.heading(&text),
            Part::Text(text) => page.text(&text),
            Part::List(lead, lines) => page.list(lead, lines),
            Part::Table(table) => page.table(&table),
            Part::Plot(file, plot) => page.plot(&file, plot)?,
            Part::Picture(file, svg) => page.figure(file, &svg)?,
        }
        Ok(())
    }
}

/// Returns the parts for the terminal, with an empty line between two.
pub(crate) fn text(parts: &[Part]) -> String {
    parts.iter().filter_map(Part::printed).collect::<Vec<_>>().join("\n")
}
