//! Directives, the parts of both kinds of configurations.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

/// The longest text of a directive in a comment, in characters.
const LONGEST_TEXT: usize = 100;

/// A line of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// The file, as comments and errors name it.
    pub(super) file: Rc<str>,
    /// The line, from 1.
    pub(super) line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The outcome of a directive; of several, the last in this order counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Outcome {
    /// Nothing has looked at it yet.
    Unknown,
    /// It has nothing to set.
    NotNeeded,
    /// A line of the output has it.
    Imported,
    /// It cannot be expressed, or not all of it.
    NotImported,
}

/// A name with words after it, and perhaps a block.
#[derive(Clone, Debug)]
pub(super) struct Directive {
    /// The place of the name.
    pub(super) place: Place,
    /// The name; in a Caddyfile also an address of a site, or a snippet.
    pub(super) name: String,
    /// The words after the name, without their quotes.
    pub(super) words: Vec<String>,
    /// The directives in braces.
    pub(super) block: Option<Vec<Directive>>,
    outcome: Cell<Outcome>,
}

impl Directive {
    pub(super) fn new(place: Place, name: String) -> Directive {
        let outcome = Cell::new(Outcome::Unknown);
        Directive { place, name, words: Vec::new(), block: None, outcome }
    }

    /// Returns the word after the name, or an empty text.
    pub(super) fn first(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// Returns the second word after the name, or an empty text.
    pub(super) fn second(&self) -> &str {
        self.words.get(1).map_or("", String::as_str)
    }

    /// Returns the directives of the block; none without a block.
    pub(super) fn children(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }

    /// Returns the directive in one line, shortened if it is long.
    pub(super) fn text(&self) -> String {
        let mut text = self.head();
        if let Some(block) = &self.block {
            let inner: usize = block.iter().map(|child| child.name.len()).sum();
            let inner = match inner < LONGEST_TEXT {
                true => block.iter().map(|child| child.text() + "; ").collect::<String>(),
                false => "... ".to_owned(),
            };
            let whole = format!("{text} {{ {inner}}}");
            text = match whole.chars().count() > LONGEST_TEXT {
                true => format!("{text} {{ ... }}"),
                false => whole,
            };
        }
        shortened(&text)
    }

    /// Returns the name and the words.
    pub(super) fn head(&self) -> String {
        let words = self.words.iter().map(|word| match word.is_empty() {
            true => " \"\"".to_owned(),
            false => format!(" {word}"),
        });
        shortened(&(self.name.clone() + &words.collect::<String>()))
    }

    /// Returns the outcome of the directive so far.
    pub(super) fn outcome(&self) -> Outcome {
        self.outcome.get()
    }

    /// Notes an outcome of the directive.
    pub(super) fn note(&self, outcome: Outcome) {
        self.outcome.set(self.outcome.get().max(outcome));
    }

    /// Notes the same for all directives in it.
    pub(super) fn note_all(&self, outcome: Outcome) {
        self.note(outcome);
        self.children().iter().for_each(|child| child.note_all(outcome));
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
