//! Tables in lines: a name that takes the room there is, and columns of figures at the right.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// The least width of names.
const NAME: usize = 10;

/// A column of figures.
pub(super) struct Column<R: 'static> {
    pub title: &'static str,
    pub width: usize,
    /// The least width of a screen that has this column.
    pub from: u16,
    pub of: fn(&R) -> String,
}

pub(super) fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

pub(super) fn dim() -> Style {
    Style::new().fg(Color::DarkGray)
}

/// Returns the columns that a screen of a width has, and the width that names have.
pub(super) fn fitting<R>(columns: &[Column<R>], width: u16) -> (Vec<&Column<R>>, usize) {
    let fitting: Vec<_> = columns.iter().filter(|column| width >= column.from).collect();
    let taken: usize = fitting.iter().map(|column| 1 + column.width).sum();
    (fitting, usize::from(width).saturating_sub(taken).max(NAME))
}

fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Returns a name in exactly this many columns. A longer name loses its beginning: the end of a
/// path says more than the name of a host.
pub(super) fn fit(name: &str, room: usize) -> String {
    if width(name) <= room {
        return format!("{name}{}", " ".repeat(room - width(name)));
    }
    let (mut end, mut used) = (name.len(), 1);
    for (index, character) in name.char_indices().rev() {
        used += width(name.get(index..index + character.len_utf8()).unwrap_or_default());
        if used > room {
            break;
        }
        end = index;
    }
    let shown = format!("…{}", name.get(end..).unwrap_or_default());
    let missing = room.saturating_sub(width(&shown));
    format!("{shown}{}", " ".repeat(missing))
}

/// Returns the line above a table.
pub(super) fn header<R>(name: &str, columns: &[&Column<R>], room: usize) -> Line<'static> {
    let mut text = fit(name, room);
    for Column { title, width, .. } in columns {
        text.push_str(&format!(" {title:>width$}"));
    }
    Line::styled(text, bold())
}

/// Returns the line of a row.
pub(super) fn row<R>(
    name: &str,
    row: &R,
    columns: &[&Column<R>],
    room: usize,
    style: Style,
) -> Line<'static> {
    let mut text = fit(name, room);
    for Column { width, of, .. } in columns {
        text.push_str(&format!(" {:>width$}", of(row)));
    }
    Line::styled(text, style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_exactly_the_room_there_is() {
        assert_eq!(fit("ab", 4), "ab  ");
        assert_eq!(fit("example.org/api", 6), "…g/api");
        // Of two columns each.
        assert_eq!(fit("日本語", 6), "日本語");
        assert_eq!(fit("日本語", 5), "…本語");
        assert_eq!(fit("日本語", 4), "…語 ");
        assert_eq!(fit("ab", 1), "…");
        assert_eq!(fit(&"x".repeat(1000), 3), "…xx");
    }
}
