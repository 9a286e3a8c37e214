//! Tables for the terminal: names to the left, numbers to the right.

use std::fmt;

/// Rows of cells under a heading.
#[derive(Clone, Debug, Default)]
pub struct Table {
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
    /// How many columns, from the first, hold names.
    names: usize,
}

impl Table {
    /// An empty table.
    pub fn new<T: Into<String>>(heading: impl IntoIterator<Item = T>) -> Table {
        Table { heading: heading.into_iter().map(Into::into).collect(), rows: Vec::new(), names: 1 }
    }

    /// The same with so many columns of names, from the first.
    #[must_use]
    pub fn names(self, names: usize) -> Table {
        Table { names, ..self }
    }

    /// Whether a column holds names.
    pub fn is_name(&self, column: usize) -> bool {
        column < self.names
    }

    /// Adds a row; cells it lacks stay empty.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let mut cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        cells.resize(self.heading.len(), String::new());
        self.rows.push(cells);
    }

    /// The heading.
    pub fn heading(&self) -> &[String] {
        &self.heading
    }

    /// The rows.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = || std::iter::once(&self.heading).chain(&self.rows);
        let width =
            |column: usize| lines().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.heading.len()).map(width).collect();
        for (number, cells) in lines().enumerate() {
            let mut line = String::new();
            for (column, (cell, &width)) in cells.iter().zip(&widths).enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                line += &if self.is_name(column) {
                    format!("{gap}{cell:<width$}")
                } else {
                    format!("{gap}{cell:>width$}")
                };
            }
            writeln!(f, "{}", line.trim_end())?;
            if number == 0 {
                let rules: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
                writeln!(f, "{}", rules.join("  "))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["name", "ns"]);
        table.row(["a", "1000"]);
        table.row(["longer"]);
        assert_eq!(table.to_string(), "name      ns\n------  ----\na       1000\nlonger\n");
    }
}
