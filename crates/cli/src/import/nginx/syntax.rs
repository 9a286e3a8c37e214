//! The syntax of nginx: words, quotes, `;`, blocks and comments, read as nginx reads them
//! (`ngx_conf_read_token`).

use std::rc::Rc;

use super::super::directive::{Directive, Place};
use super::super::source::{Sources, SyntaxError, Text, is_among};

/// The files that each installation has, and whose meaning is built in here.
const KNOWN_FILES: &str = "fastcgi.conf fastcgi-php.conf fastcgi_params koi-utf koi-win mime.types \
                           scgi_params uwsgi_params";

/// Whether a file of an include has a meaning that is built in.
pub(super) fn is_known_file(path: &str) -> bool {
    is_among(KNOWN_FILES, path.rsplit('/').next().unwrap_or_default())
}

/// A part of the text.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    Word(String),
    Semicolon,
    Open,
    Close,
}

/// Reads tokens, each with its line.
struct Lexer<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    file: Rc<str>,
    line: usize,
}

impl Lexer<'_> {
    fn place(&self) -> Place {
        Place { file: self.file.clone(), line: self.line }
    }

    fn wrong<T>(&self, what: impl Into<String>) -> Result<T, SyntaxError> {
        Err(SyntaxError::new(&self.place(), what))
    }

    fn bump(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    /// Returns the next token and the line where it begins.
    fn token(&mut self) -> Result<Option<(Token, usize)>, SyntaxError> {
        loop {
            let Some(next) = self.rest.peek().copied() else { return Ok(None) };
            match next {
                ' ' | '\t' | '\r' | '\n' | '\u{feff}' => drop(self.bump()),
                '#' => while self.bump().is_some_and(|one| one != '\n') {},
                _ => break,
            }
        }
        let line = self.line;
        let token = match self.rest.peek() {
            Some(';') => Token::Semicolon,
            Some('{') => Token::Open,
            Some('}') => Token::Close,
            Some('"' | '\'') => return Ok(Some((Token::Word(self.quoted()?), line))),
            _ => return Ok(Some((Token::Word(self.word()?), line))),
        };
        self.bump();
        Ok(Some((token, line)))
    }

    fn quoted(&mut self) -> Result<String, SyntaxError> {
        let start = self.place();
        let quote = self.bump();
        let mut word = String::new();
        loop {
            match self.bump() {
                None => return Err(SyntaxError::new(&start, "the quote is not closed")),
                Some('\\') => self.escape(&mut word),
                next if next == quote => break,
                Some(other) => word.push(other),
            }
        }
        match self.rest.peek().copied() {
            None | Some(' ' | '\t' | '\r' | '\n' | ';' | '{' | ')') => Ok(word),
            Some(other) => self.wrong(format!("{other:?} after a quote, expected a space")),
        }
    }

    fn word(&mut self) -> Result<String, SyntaxError> {
        let mut word = String::new();
        while let Some(next) = self.rest.peek().copied() {
            let is_variable = next == '{' && word.ends_with('$');
            match next {
                ' ' | '\t' | '\r' | '\n' | ';' => break,
                '{' if !is_variable => break,
                '\\' => {
                    self.bump();
                    self.escape(&mut word);
                }
                _ => word.extend(self.bump()),
            }
        }
        Ok(word)
    }

    /// Reads the character after a backslash. The backslash stays, except before quotes, another
    /// backslash and t, r, n.
    fn escape(&mut self, word: &mut String) {
        match self.bump() {
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            Some(quote @ ('"' | '\'' | '\\')) => word.push(quote),
            Some(other) => word.extend(['\\', other]),
            None => word.push('\\'),
        }
    }

    /// Passes over a block of code in another language, in which braces are balanced.
    fn code(&mut self, start: &Place) -> Result<(), SyntaxError> {
        let mut open = 1;
        while open > 0 {
            match self.bump() {
                Some('{') => open += 1,
                Some('}') => open -= 1,
                Some(_) => {}
                None => return Err(SyntaxError::new(start, "the block is not closed")),
            }
        }
        Ok(())
    }
}

/// Reads the directives of a file, with those of the files that it includes.
pub(super) fn parse(text: &Text, sources: &mut Sources) -> Result<Vec<Directive>, SyntaxError> {
    let mut lexer = Lexer { rest: text.text.chars().peekable(), file: text.name.clone(), line: 1 };
    block(&mut lexer, sources, None)
}

/// Reads directives up to the end of the block that has begun at a place, or of the file.
fn block(
    lexer: &mut Lexer<'_>,
    sources: &mut Sources,
    start: Option<&Place>,
) -> Result<Vec<Directive>, SyntaxError> {
    let mut all = Vec::new();
    loop {
        let Some((token, line)) = lexer.token()? else {
            return match start {
                Some(start) => Err(SyntaxError::new(start, "the block is not closed")),
                None => Ok(all),
            };
        };
        let place = Place { line, ..lexer.place() };
        let name = match (token, start) {
            (Token::Word(name), _) => name,
            (Token::Close, Some(_)) => return Ok(all),
            (Token::Close, None) => return Err(SyntaxError::new(&place, "unexpected \"}\"")),
            (Token::Open, _) => return Err(SyntaxError::new(&place, "unexpected \"{\"")),
            (Token::Semicolon, _) => return Err(SyntaxError::new(&place, "unexpected \";\"")),
        };
        sources.count(&place)?;
        let mut directive = Directive::new(place.clone(), name);
        loop {
            match lexer.token()? {
                Some((Token::Word(word), _)) => directive.words.push(word),
                Some((Token::Semicolon, _)) => break,
                Some((Token::Open, _)) if directive.name.ends_with("_by_lua_block") => {
                    lexer.code(&place)?;
                    directive.block = Some(Vec::new());
                    break;
                }
                Some((Token::Open, _)) => {
                    sources.enter(&place)?;
                    directive.block = Some(block(lexer, sources, Some(&place))?);
                    sources.leave();
                    break;
                }
                _ => {
                    let what = format!("\"{}\" is not ended by \";\"", directive.head());
                    return Err(SyntaxError::new(&place, what));
                }
            }
        }
        let is_include = directive.name == "include" && !is_known_file(directive.first());
        let included = if is_include { sources.include(&directive, parse)? } else { None };
        // An include without a file stays.
        all.extend(included.unwrap_or_else(|| vec![directive]));
    }
}
