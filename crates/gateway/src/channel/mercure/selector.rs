//! Topic selectors: a text, a URI template, or `*` (the Mercure draft, section "Topic Selectors").
//!
//! RFC 6570 says what a template expands to; a topic matches a template if it is one of its
//! expansions, for any values of the variables. So each expression stands for a text of certain
//! characters behind a prefix: `{name}` for unreserved characters and escapes, `{+name}` for
//! reserved characters as well, `{/name}` for parts that begin with a slash each. An expression
//! whose variables are not defined expands to nothing, so the text may be empty.
//!
//! A topic is compared in one pass over the template. The pass keeps the set of all places of the
//! topic that the template may have come to, so nothing is tried twice, whatever a client's
//! template looks like: the work is at most the length of the template times that of the topic, and
//! both are bounded ([`LONGEST`]).

use serde::{Deserialize, Serialize};

/// The most bytes of a selector, and of a topic.
pub(super) const LONGEST: usize = 2048;

/// The selector of all topics.
const ALL: &str = "*";

/// A topic selector.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub(crate) struct Selector {
    text: String,
    /// The parts of a URI template; `None` if it is none, and stands for itself alone.
    template: Option<Vec<Part>>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Part {
    Literal(String),
    /// Any number of texts, each behind a separator (`{/name}`), or one text behind nothing.
    Expression(Operator),
}

/// The kind of an expression (RFC 6570, section 2.2 and appendix A).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Operator {
    /// `{name}`
    Simple,
    /// `{+name}`
    Reserved,
    /// `{#name}`
    Fragment,
    /// `{.name}`, `{/name}`, `{;name}`, `{?name}`, `{&name}`: the character that its text begins
    /// with, if it has any.
    Prefixed(u8),
}

impl Operator {
    /// Whether a byte may stand in the expansion. Bytes of characters beyond ASCII stand for
    /// themselves in an IRI.
    fn has(self, byte: u8) -> bool {
        let is_unreserved = byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte);
        let is_reserved = b":/?#[]@!$&'()*+,;=".contains(&byte);
        let is_simple = is_unreserved || byte >= 0x80 || byte == b',';
        match self {
            Operator::Simple => is_simple,
            Operator::Reserved | Operator::Fragment => is_simple || is_reserved,
            Operator::Prefixed(b'.') => is_simple,
            Operator::Prefixed(b'/') => is_simple || byte == b'/',
            Operator::Prefixed(b';') => is_simple || matches!(byte, b';' | b'='),
            // `{?name}` and `{&name}`
            Operator::Prefixed(_) => is_simple || matches!(byte, b'&' | b'='),
        }
    }

    /// Returns the byte that an expansion begins with, unless it is empty.
    fn prefix(self) -> Option<u8> {
        match self {
            Operator::Simple | Operator::Reserved => None,
            Operator::Fragment => Some(b'#'),
            Operator::Prefixed(byte) => Some(byte),
        }
    }
}

impl From<String> for Selector {
    fn from(text: String) -> Selector {
        let template = if text.contains('{') { parse(&text) } else { None };
        Selector { text, template }
    }
}

impl From<Selector> for String {
    fn from(selector: Selector) -> String {
        selector.text
    }
}

/// Returns the parts of a template; `None` if the text is none.
fn parse(text: &str) -> Option<Vec<Part>> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some((literal, after)) = rest.split_once('{') {
        let (expression, after) = after.split_once('}')?;
        if literal.contains('}') {
            return None;
        }
        if !literal.is_empty() {
            parts.push(Part::Literal(literal.to_owned()));
        }
        parts.push(Part::Expression(operator(expression)?));
        rest = after;
    }
    if rest.contains('}') {
        return None;
    }
    if !rest.is_empty() {
        parts.push(Part::Literal(rest.to_owned()));
    }
    Some(parts)
}

/// Returns the operator of an expression; `None` if it is none of RFC 6570.
fn operator(expression: &str) -> Option<Operator> {
    let (operator, names) = match *expression.as_bytes().first()? {
        b'+' => (Operator::Reserved, &expression[1..]),
        b'#' => (Operator::Fragment, &expression[1..]),
        byte @ (b'.' | b'/' | b';' | b'?' | b'&') => (Operator::Prefixed(byte), &expression[1..]),
        _ => (Operator::Simple, expression),
    };
    names.split(',').all(is_variable).then_some(operator)
}

/// Whether a text names a variable, perhaps with a modifier: `name`, `name:3`, `name*`.
fn is_variable(text: &str) -> bool {
    let name = match (text.strip_suffix('*'), text.split_once(':')) {
        (Some(name), _) => name,
        (None, Some((name, length))) => {
            let is_length = (1..=4).contains(&length.len()) && !length.starts_with('0');
            if !is_length || !length.bytes().all(|byte| byte.is_ascii_digit()) {
                return false;
            }
            name
        }
        (None, None) => text,
    };
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_.%".contains(&byte);
    !name.is_empty() && name.bytes().all(is_part)
}

impl Selector {
    /// Returns how many expressions it has.
    pub(super) fn expressions(&self) -> usize {
        let parts = self.template.iter().flatten();
        parts.filter(|part| matches!(part, Part::Expression(_))).count()
    }

    /// Returns the selector as it was written.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether a topic, or another selector, matches.
    pub(super) fn has(&self, topic: &str) -> bool {
        self.text == ALL
            || self.text == topic
            || self.template.as_ref().is_some_and(|parts| fits(parts, topic.as_bytes()))
    }
}

/// Whether a text is an expansion of a template.
fn fits(parts: &[Part], topic: &[u8]) -> bool {
    // The places of the topic up to which the parts so far may have come.
    let mut places = vec![false; topic.len() + 1];
    places[0] = true;
    for part in parts {
        let mut next = vec![false; topic.len() + 1];
        match part {
            Part::Literal(text) => {
                let text = text.as_bytes();
                for at in 0..=topic.len().saturating_sub(text.len()) {
                    if places[at] && topic[at..].starts_with(text) {
                        next[at + text.len()] = true;
                    }
                }
            }
            Part::Expression(operator) => {
                let mut is_inside = false;
                for at in 0..=topic.len() {
                    // Everything that begins here, or goes on, may end here.
                    next[at] = places[at] || is_inside;
                    let Some(&byte) = topic.get(at) else { break };
                    let begins = places[at] && operator.prefix().is_none_or(|first| first == byte);
                    let begins_freely = begins && operator.prefix().is_none();
                    is_inside = (begins && !begins_freely)
                        || ((is_inside || begins_freely) && operator.has(byte));
                }
            }
        }
        if !next.contains(&true) {
            return false;
        }
        places = next;
    }
    places[topic.len()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn has(selector: &str, topic: &str) -> bool {
        Selector::from(selector.to_owned()).has(topic)
    }

    #[test]
    fn a_selector_has_the_topics_that_the_draft_says() {
        for (selector, topic, expected) in [
            ("*", "anything", true),
            ("bar", "bar", true),
            ("bar", "Bar", false),
            ("bar", "barn", false),
            ("https://example.com/books/{id}", "https://example.com/books/1", true),
            ("https://example.com/books/{id}", "https://example.com/books/a%20b", true),
            ("https://example.com/books/{id}", "https://example.com/books/1/2", false),
            ("https://example.com/books/{id}", "https://example.com/books/", true),
            ("https://example.com/books/{id}", "https://example.com/books", false),
            ("https://example.com/books/{id}.json", "https://example.com/books/1.2.json", true),
            ("https://example.com/books/{id}", "http://example.com/books/1", false),
            // A template matches itself, so that tokens can allow it.
            ("https://example.com/books/{id}", "https://example.com/books/{id}", true),
            ("https://example.com/books/{id}", "https://example.com/books/{name}", false),
            ("https://example.com/{+path}", "https://example.com/a/b?c=d#e", true),
            ("https://example.com{/path*}", "https://example.com/a/b", true),
            ("https://example.com{/path*}", "https://example.com", true),
            ("https://example.com{/path*}", "https://example.comx", false),
            (
                "https://example.com/users/foo/{?topic}",
                "https://example.com/users/foo/?topic=https%3A%2F%2Fexample.com%2Fbooks%2F1",
                true,
            ),
            (
                "https://example.com/users/foo/{?topic}",
                "https://example.com/users/fo/?topic=x",
                false,
            ),
            ("/x{?a,b}", "/x?a=1&b=2", true),
            ("/x{?a,b}", "/x&a=1", false),
            ("/x?fixed=1{&a}", "/x?fixed=1&a=2", true),
            ("/x{#place}", "/x#a/b", true),
            ("/x{.kind}", "/x.json", true),
            ("/x{.kind}", "/xjson", false),
            ("/x{;a}", "/x;a=1", true),
            ("{a}-{b}", "1-2-3", true),
            ("{a}{b}", "", true),
            ("/caf{e}", "/caf\u{e9}", true),
            ("/subscriptions{/topic}{/subscriber}", "/subscriptions/a%2Fb/urn%3Auuid%3A1", true),
            // What is no template stands for itself.
            ("/{", "/{", true),
            ("/{", "/x", false),
            ("/{}", "/x", false),
            ("/{a}}", "/x}", false),
            ("/{=a}", "/x", false),
            ("/{a b}", "/x", false),
            ("/{a:0}", "/x", false),
            ("/{a:3}", "/x", true),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(has(selector, topic), expected, "{selector} {topic}");
        }
    }

    #[test]
    fn the_work_for_a_topic_is_bounded() {
        // Tried out one by one, these would take longer than the universe has existed.
        let selector = format!("{}!", "{+a}".repeat(LONGEST / 4));
        assert!(!has(&selector, &"x".repeat(LONGEST)));
        assert!(has(&selector, &("x".repeat(LONGEST - 1) + "!")));
    }

    /// Expands a template by hand.
    fn expand(parts: &[Part], values: &[String]) -> String {
        let mut values = values.iter().cycle();
        let mut expanded = String::new();
        for part in parts {
            match part {
                Part::Literal(text) => expanded.push_str(text),
                Part::Expression(operator) => {
                    let value = values.next().unwrap();
                    let first = operator.prefix().map(char::from);
                    expanded.extend(first.into_iter().filter(|_| !value.is_empty()));
                    expanded.push_str(value);
                }
            }
        }
        expanded
    }

    proptest! {
        /// Each expansion of a template matches it.
        #[test]
        fn expansions_match(
            literals in prop::collection::vec("[a-c/:?.]{0,3}", 1..5),
            operators in prop::collection::vec("[+#./;?&]?", 1..5),
            values in prop::collection::vec("[a-c0-9.,~-]{0,4}", 1..5),
        ) {
            let mut text = String::new();
            for (literal, operator) in literals.iter().zip(&operators) {
                text += &format!("{literal}{{{operator}name}}");
            }
            let topic = expand(&parse(&text).unwrap(), &values);
            prop_assert!(has(&text, &topic), "{} {}", text, topic);
        }

        /// Against all ways to divide a topic among the parts.
        #[test]
        fn the_pass_finds_what_trying_finds(
            template in "(\\{[+/?]?x\\}|[ab/?]){0,5}",
            topic in "[ab/?=]{0,6}",
        ) {
            fn tries(parts: &[Part], topic: &[u8]) -> bool {
                let Some((part, rest)) = parts.split_first() else { return topic.is_empty() };
                (0..=topic.len()).any(|end| {
                    let fits = match part {
                        Part::Literal(text) => &topic[..end] == text.as_bytes(),
                        Part::Expression(operator) => match operator.prefix() {
                            Some(first) => end == 0 || (topic[0] == first
                                && topic[1..end].iter().all(|&byte| operator.has(byte))),
                            None => topic[..end].iter().all(|&byte| operator.has(byte)),
                        },
                    };
                    fits && tries(rest, &topic[end..])
                })
            }
            let parts = parse(&template).unwrap_or_default();
            prop_assert_eq!(fits(&parts, topic.as_bytes()), tries(&parts, topic.as_bytes()));
        }
    }
}
