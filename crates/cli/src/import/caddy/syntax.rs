//! The syntax of Caddyfiles: lines of words, quotes, heredocs, blocks, snippets and imports.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::super::directive::{Directive, Outcome, Place};
use super::super::source::{Sources, SyntaxError, Text};

/// The deepest nesting of imported snippets.
const DEEPEST_SNIPPET: usize = 16;

/// A word, with the line where it begins and where it ends.
struct Word {
    text: String,
    is_quoted: bool,
    first: usize,
    last: usize,
}

/// Reads the words of a text.
fn words(text: &str, file: &Rc<str>) -> Result<Vec<Word>, SyntaxError> {
    let mut all = Vec::new();
    let mut rest = text.trim_start_matches('\u{feff}').chars().peekable();
    let mut line = 1;
    while let Some(next) = rest.next() {
        let first = line;
        match next {
            '\n' => line += 1,
            one if one.is_whitespace() => {}
            '\\' if matches!(rest.peek(), Some('\n')) => {
                rest.next();
                // The next line goes on with this one: it gets no number of its own.
                if let Some(word) = all.last_mut() {
                    let word: &mut Word = word;
                    word.last = line + 1;
                }
                line += 1;
            }
            '#' => {
                while rest.peek().is_some_and(|one| *one != '\n') {
                    rest.next();
                }
            }
            quote @ ('"' | '`') => {
                let mut text = String::new();
                loop {
                    let place = Place { file: file.clone(), line: first };
                    match rest.next() {
                        None => return Err(SyntaxError::new(&place, "the quote is not closed")),
                        Some('\\') if quote == '"' && rest.peek() == Some(&'"') => {
                            text.extend(rest.next())
                        }
                        Some(one) if one == quote => break,
                        Some(one) => {
                            line += usize::from(one == '\n');
                            text.push(one);
                        }
                    }
                }
                all.push(Word { text, is_quoted: true, first, last: line });
            }
            one => {
                let mut text = one.to_string();
                while let Some(one) = rest.peek().filter(|one| !one.is_whitespace()) {
                    text.push(*one);
                    rest.next();
                }
                let mark =
                    text.strip_prefix("<<").filter(|mark| !mark.is_empty()).map(str::to_owned);
                let Some(mark) = mark else {
                    all.push(Word { text, is_quoted: false, first, last: line });
                    continue;
                };
                let mut body = String::new();
                rest.next();
                loop {
                    line += 1;
                    let mut next = String::new();
                    while let Some(one) = rest.next_if(|one| *one != '\n') {
                        next.push(one);
                    }
                    if next.trim() == mark {
                        break;
                    }
                    if rest.next().is_none() {
                        let place = Place { file: file.clone(), line: first };
                        return Err(SyntaxError::new(&place, format!("<<{mark} has no end")));
                    }
                    body.push_str(next.trim_start());
                    body.push('\n');
                }
                let text = body.trim_end_matches('\n').to_owned();
                all.push(Word { text, is_quoted: true, first, last: line });
            }
        }
    }
    Ok(all)
}

/// The top level of a Caddyfile: options, sites, and the snippets that sites import.
pub(super) struct Caddyfile {
    pub(super) blocks: Vec<Directive>,
    pub(super) snippets: Vec<Directive>,
}

/// Reads a Caddyfile.
pub(super) fn parse(text: &Text, sources: &mut Sources) -> Result<Caddyfile, SyntaxError> {
    let mut all = lines(text, sources)?;
    // One site needs no braces: what follows its addresses is its block.
    if let Some(at) = all.iter().position(|one| one.name != "import")
        && all[at].block.is_none()
    {
        let rest = all.split_off(at + 1);
        all[at].block = Some(rest);
    }
    let mut snippets = BTreeMap::new();
    let mut blocks = Vec::new();
    for one in all {
        match one.name.starts_with('(') {
            true => drop(snippets.insert(one.name.trim_matches(['(', ')']).to_owned(), one)),
            false => blocks.push(one),
        }
    }
    let blocks = expand(blocks, &snippets, 0, sources)?;
    Ok(Caddyfile { blocks, snippets: snippets.into_values().collect() })
}

/// Reads the lines of a text, without following its imports.
fn lines(text: &Text, sources: &mut Sources) -> Result<Vec<Directive>, SyntaxError> {
    let words = words(&text.text, &text.name)?;
    let mut open: Vec<Directive> = Vec::new();
    let mut done: Vec<Directive> = Vec::new();
    let mut rest = words.into_iter().peekable();
    while let Some(word) = rest.next() {
        let place = Place { file: text.name.clone(), line: word.first };
        if word.text == "}" && !word.is_quoted {
            let Some(mut block) = open.pop() else {
                return Err(SyntaxError::new(&place, "unexpected \"}\""));
            };
            sources.leave();
            block.block =
                Some(std::mem::replace(&mut done, block.block.take().unwrap_or_default()));
            done.push(block);
            continue;
        }
        sources.count(&place)?;
        let mut last = word.last;
        let is_open = |word: &Word| word.text == "{" && !word.is_quoted;
        let mut begins = is_open(&word);
        // Options have a block without a name.
        let name = if begins { String::new() } else { word.text };
        let mut directive = Directive::new(place.clone(), name);
        while !begins {
            // Addresses go on after a comma.
            let goes_on =
                open.is_empty() && directive.words.last().unwrap_or(&directive.name).ends_with(',');
            let Some(next) = rest.next_if(|next| next.first == last || goes_on) else { break };
            last = next.last;
            match is_open(&next) {
                true => begins = true,
                false => directive.words.push(next.text),
            }
        }
        if begins {
            sources.enter(&place)?;
            // What is around the block waits in it.
            directive.block = Some(std::mem::take(&mut done));
            open.push(directive);
        } else {
            done.push(directive);
        }
    }
    match open.pop() {
        Some(block) => Err(SyntaxError::new(&block.place, "the block is not closed")),
        None => Ok(done),
    }
}

/// Replaces imports by their snippets and files; an import that names neither stays.
fn expand(
    directives: Vec<Directive>,
    snippets: &BTreeMap<String, Directive>,
    depth: usize,
    sources: &mut Sources,
) -> Result<Vec<Directive>, SyntaxError> {
    let mut all = Vec::new();
    for mut directive in directives {
        if directive.name != "import" {
            let block = directive.block.take();
            directive.block =
                block.map(|block| expand(block, snippets, depth, sources)).transpose()?;
            all.push(directive);
            continue;
        }
        let snippet = snippets.get(directive.first()).filter(|_| directive.block.is_none());
        if let Some(snippet) = snippet {
            if depth >= DEEPEST_SNIPPET {
                let what = format!("snippets import one another more than {DEEPEST_SNIPPET} deep");
                return Err(SyntaxError::new(&directive.place, what));
            }
            snippet.note(Outcome::Imported);
            let mut block = snippet.children().to_vec();
            for one in &mut block {
                fill(one, &directive.words[1..], sources)?;
            }
            all.extend(expand(block, snippets, depth + 1, sources)?);
            continue;
        }
        let read = |text: &Text, sources: &mut Sources| {
            expand(lines(text, sources)?, snippets, depth, sources)
        };
        all.extend(sources.include(&directive, read)?.unwrap_or_else(|| vec![directive]));
    }
    Ok(all)
}

/// Replaces `{args[0]}` and its like by the words of an import.
fn fill(
    directive: &mut Directive,
    given: &[String],
    sources: &mut Sources,
) -> Result<(), SyntaxError> {
    sources.count(&directive.place)?;
    for word in std::iter::once(&mut directive.name).chain(&mut directive.words) {
        if word.contains("{args") {
            for (number, text) in given.iter().enumerate() {
                *word = word.replace(&format!("{{args[{number}]}}"), text);
                *word = word.replace(&format!("{{args.{number}}}"), text);
            }
            *word = word.replace("{args[:]}", &given.join(" "));
        }
    }
    directive.block.iter_mut().flatten().try_for_each(|one| fill(one, given, sources))
}
