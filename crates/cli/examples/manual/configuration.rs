//! The manual page of the configuration, from the file that has every key.
//!
//! In that file a comment explains the lines that follow it. So each run of keys and tables becomes
//! a list of terms, and the comment before it their text; the comment at the head is the
//! description. Terms keep the `#` of defaults, which the description explains.

use clap_mangen::roff::{Roff, bold, roman};

/// Returns the page.
///
/// # Errors
///
/// The line that is neither a comment, nor a table, nor a key.
pub(crate) fn page(text: &str) -> Result<String, String> {
    let mut roff = Roff::new();
    roff.control("TH", ["superpoll.toml", "5", "", "superpoll", "Superpoll"]);
    roff.control("SH", ["NAME"])
        .text([roman("superpoll.toml - configuration of superpoll-serve(1)")]);
    roff.control("SH", ["DESCRIPTION"]);
    let mut section = None;
    let mut entry = Entry::default();
    for line in text.lines() {
        match Line::of(line).ok_or_else(|| line.to_owned())? {
            Line::Blank => entry.flush(&mut roff),
            Line::Comment(comment) => {
                if !entry.terms.is_empty() {
                    entry.flush(&mut roff);
                }
                entry.words.push(comment.to_owned());
            }
            Line::Table { name, line } => {
                if !entry.terms.is_empty() {
                    entry.flush(&mut roff);
                }
                if section.as_deref() != Some(name) {
                    roff.control("SH", [name.to_uppercase().as_str()]);
                    section = Some(name.to_owned());
                }
                entry.terms.push(line.to_owned());
                // Keys may follow without a comment of their own, and are not explained by that of
                // the table.
                entry.flush(&mut roff);
            }
            Line::Key(line) => entry.terms.push(line.to_owned()),
        }
    }
    entry.flush(&mut roff);
    roff.control("SH", ["SEE ALSO"]);
    roff.text([bold("superpoll-serve"), roman("(1)")]);
    Ok(roff.to_roff())
}

/// A line of the file.
enum Line<'a> {
    Blank,
    Comment(&'a str),
    /// The beginning of a table, with the first part of its name.
    Table {
        name: &'a str,
        line: &'a str,
    },
    /// A key with its value; with `#` before it, its default.
    Key(&'a str),
}

impl Line<'_> {
    fn of(line: &str) -> Option<Line<'_>> {
        if line.is_empty() {
            return Some(Line::Blank);
        }
        if line == "#" {
            return Some(Line::Comment(""));
        }
        if let Some(comment) = line.strip_prefix("# ") {
            return Some(Line::Comment(comment));
        }
        if line.starts_with('[') {
            let name = line.trim_start_matches('[').split(['.', ']']).next()?;
            return Some(Line::Table { name, line });
        }
        let (key, _) = line.trim_start_matches('#').split_once(" = ")?;
        let is_key = key
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        is_key.then_some(Line::Key(line))
    }
}

/// Keys with their explanation.
#[derive(Default)]
struct Entry {
    words: Vec<String>,
    terms: Vec<String>,
}

impl Entry {
    /// Writes the entry, and begins another one.
    fn flush(&mut self, roff: &mut Roff) {
        let (words, terms) = (std::mem::take(&mut self.words), std::mem::take(&mut self.terms));
        let paragraphs = words.split(String::is_empty).map(|lines| lines.join(" "));
        let mut paragraphs = paragraphs.filter(|paragraph| !paragraph.is_empty());
        for (at, term) in terms.iter().enumerate() {
            roff.control(if at == 0 { "TP" } else { "TQ" }, []).text([bold(term.as_str())]);
        }
        if !terms.is_empty() {
            roff.text([roman(paragraphs.next().unwrap_or_default())]);
        }
        for paragraph in paragraphs {
            roff.control("PP", []).text([roman(paragraph)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = include_str!("../../../../docs/superpoll.toml");

    #[test]
    fn every_line_of_the_example_is_in_the_page() {
        let plain = page(TEXT).unwrap().replace("\\fB", "").replace("\\fR", "").replace("\\-", "-");
        let words: Vec<&str> = plain.split_whitespace().collect();
        let all = words.join(" ").replace("\\&", "").replace("\\*(Aq", "'").replace("\\\\", "\\");
        let mut keys = 0;
        for line in TEXT.lines().filter(|line| !line.is_empty() && *line != "#") {
            let wanted = line.strip_prefix("# ").unwrap_or(line);
            let wanted = wanted.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(all.contains(&wanted), "{wanted}");
            keys += usize::from(line.contains(" = "));
        }
        assert!(keys > 100, "{keys} keys");
    }

    #[test]
    fn keys_have_the_comment_before_them() {
        let page = page(
            "# Head.\n\n# A table.\n[server]\n# First.\n#a = 1\nb = 2\n\n# Other.\n[[hosts]]\n",
        )
        .unwrap();
        let (_, server) = page.split_once(".SH SERVER").expect(&page);
        let lines: Vec<&str> = server.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(
            lines,
            [
                ".TP",
                "\\fB[server]\\fR",
                "A table.",
                ".TP",
                "\\fB#a = 1\\fR",
                ".TQ",
                "\\fBb = 2\\fR",
                "First.",
                ".SH HOSTS",
                ".TP",
                "\\fB[[hosts]]\\fR",
                "Other.",
                ".SH \"SEE ALSO\"",
                "\\fBsuperpoll\\-serve\\fR(1)",
            ]
        );
    }

    #[test]
    fn a_line_that_is_none_of_these_is_an_error() {
        assert_eq!(page("#a = 1\nno key\n").unwrap_err(), "no key");
    }
}
