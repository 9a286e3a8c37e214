//! Topic selectors: a text, a URI template, or `*` (the Mercure draft, section "Topic Selectors").
//!
//! RFC 6570 says what a template expands to; a topic matches a template if it is one of its
//! expansions, for any values of the variables. Rights are given by templates, so a topic that is
//! none must not match: `{/name}` stands for one part of a path, `{?name}` for a parameter of that
//! name, `{name:3}` for at most three characters. Each variable may have no value, and each value
//! may be a text, a list or pairs. The check is wider in one place: `%` need not be that of an
//! escape.
//!
//! A topic is compared in one pass over the template. The pass keeps the set of all places of the
//! topic that the template may have come to, so nothing is tried twice, whatever a client's
//! template looks like: the work is at most the length of the template times that of the topic, and
//! both are bounded ([`LONGEST`]).

use data_encoding::HEXLOWER_PERMISSIVE;
use serde::{Deserialize, Serialize};

/// The most bytes of a selector, and of a topic.
pub const LONGEST: usize = 2048;

/// The selector of all topics.
const ALL: &str = "*";

/// A topic selector.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Selector {
    text: String,
    /// The parts of a URI template; `None` if it is none, and stands for itself alone.
    template: Option<Vec<Part>>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Part {
    Literal(String),
    Expression(Operator, Vec<Variable>),
}

/// A variable of an expression (RFC 6570, section 2.3).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Variable {
    name: String,
    modifier: Modifier,
}

/// The modifier after a variable's name (RFC 6570, section 2.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Modifier {
    None,
    /// `:3`: at most so many characters of a text.
    Prefix(u16),
    /// `*`: the items of a list, or the pairs, one by one.
    Explode,
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
    /// Whether a byte may stand in the value of a variable. Bytes of characters beyond ASCII stand
    /// for themselves in an IRI.
    fn has(self, byte: u8, modifier: Modifier) -> bool {
        let is_unreserved = byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte);
        let has_reserved = matches!(self, Operator::Reserved | Operator::Fragment);
        let is_separator = match modifier {
            Modifier::None => byte == b',',
            Modifier::Prefix(_) => false,
            Modifier::Explode => byte == self.separator() || byte == b'=',
        };
        is_unreserved
            || byte >= 0x80
            || is_separator
            || (has_reserved && b":/?#[]@!$&'()*+,;=".contains(&byte))
    }

    /// Returns the byte that an expansion begins with, unless it is empty.
    fn prefix(self) -> Option<u8> {
        match self {
            Operator::Simple | Operator::Reserved => None,
            Operator::Fragment => Some(b'#'),
            Operator::Prefixed(byte) => Some(byte),
        }
    }

    /// Returns the byte between two values.
    fn separator(self) -> u8 {
        match self {
            Operator::Simple | Operator::Reserved | Operator::Fragment => b',',
            Operator::Prefixed(b'?') => b'&',
            Operator::Prefixed(byte) => byte,
        }
    }

    /// Whether values have the names of their variables before them.
    fn is_named(self) -> bool {
        matches!(self, Operator::Prefixed(b';' | b'?' | b'&'))
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
        parts.push(read_expression(expression)?);
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

/// Returns an expression; `None` if it is none of RFC 6570.
fn read_expression(text: &str) -> Option<Part> {
    let (operator, names) = match *text.as_bytes().first()? {
        b'+' => (Operator::Reserved, &text[1..]),
        b'#' => (Operator::Fragment, &text[1..]),
        byte @ (b'.' | b'/' | b';' | b'?' | b'&') => (Operator::Prefixed(byte), &text[1..]),
        _ => (Operator::Simple, text),
    };
    let variables: Option<Vec<Variable>> = names.split(',').map(read_variable).collect();
    Some(Part::Expression(operator, variables?))
}

/// Returns a variable, perhaps with a modifier: `name`, `name:3`, `name*`.
fn read_variable(text: &str) -> Option<Variable> {
    let (name, modifier) = match (text.strip_suffix('*'), text.split_once(':')) {
        (Some(name), _) => (name, Modifier::Explode),
        (None, Some((name, length))) => {
            let is_length = (1..=4).contains(&length.len()) && !length.starts_with('0');
            if !is_length || !length.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            (name, Modifier::Prefix(length.parse().ok()?))
        }
        (None, None) => (text, Modifier::None),
    };
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_.%".contains(&byte);
    let is_name = !name.is_empty() && name.bytes().all(is_part);
    is_name.then(|| Variable { name: name.to_owned(), modifier })
}

impl Selector {
    /// Returns how many variables it has.
    pub fn variables(&self) -> usize {
        let parts = self.template.iter().flatten();
        parts
            .map(|part| match part {
                Part::Literal(_) => 0,
                Part::Expression(_, variables) => variables.len(),
            })
            .sum()
    }

    /// Returns the selector as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether a topic, or another selector, matches.
    pub fn has(&self, topic: &str) -> bool {
        self.text == ALL
            || self.text == topic
            || self.template.as_ref().is_some_and(|parts| fits(parts, topic.as_bytes()))
    }
}

/// Some places of a topic: for each, and for its end, whether it is one.
type Places = Vec<bool>;

/// Whether a text is an expansion of a template.
fn fits(parts: &[Part], topic: &[u8]) -> bool {
    // The places of the topic up to which the parts so far may have arrived.
    let mut places = vec![false; topic.len() + 1];
    places[0] = true;
    for part in parts {
        places = match part {
            Part::Literal(text) => behind(&places, topic, text.as_bytes()),
            Part::Expression(operator, variables) => {
                behind_expression(&places, topic, *operator, variables)
            }
        };
        if !places.contains(&true) {
            return false;
        }
    }
    places[topic.len()]
}

/// Returns the places after a text that begins at one of some places.
fn behind(places: &Places, topic: &[u8], text: &[u8]) -> Places {
    let mut next = vec![false; topic.len() + 1];
    for at in 0..=topic.len().saturating_sub(text.len()) {
        if places[at] && topic[at..].starts_with(text) {
            next[at + text.len()] = true;
        }
    }
    next
}

fn add(to: &mut Places, places: &Places) {
    to.iter_mut().zip(places).for_each(|(to, place)| *to |= place);
}

/// Returns the places after an expression that begins at one of some places.
fn behind_expression(
    places: &Places,
    topic: &[u8],
    operator: Operator,
    variables: &[Variable],
) -> Places {
    let first = match operator.prefix() {
        None => places.clone(),
        Some(first) => behind(places, topic, &[first]),
    };
    // The places after some value. A variable without one leaves no trace.
    let mut filled = vec![false; topic.len() + 1];
    for Variable { name, modifier } in variables {
        let mut starts = behind(&filled, topic, &[operator.separator()]);
        add(&mut starts, &first);
        if operator.is_named() && *modifier == Modifier::Explode {
            // The names are those of the pairs, of which there is one at least.
            add(&mut filled, &behind_value(&starts, topic, operator, *modifier, false));
            continue;
        }
        if operator.is_named() {
            let named = behind(&starts, topic, name.as_bytes());
            if operator == Operator::Prefixed(b';') {
                add(&mut filled, &named);
            }
            starts = behind(&named, topic, b"=");
        }
        add(&mut filled, &behind_value(&starts, topic, operator, *modifier, true));
    }
    add(&mut filled, places);
    filled
}

/// Returns the places after a value that begins at one of some places.
fn behind_value(
    starts: &Places,
    topic: &[u8],
    operator: Operator,
    modifier: Modifier,
    may_be_empty: bool,
) -> Places {
    let most = match modifier {
        Modifier::Prefix(most) => usize::from(most),
        Modifier::None | Modifier::Explode => usize::MAX,
    };
    let mut ends = vec![false; topic.len() + 1];
    // The characters since the last start; those of values that have begun before are more.
    let mut inside: Option<usize> = None;
    for at in 0..=topic.len() {
        ends[at] = inside.is_some() || (may_be_empty && starts[at]);
        let Some(&byte) = topic.get(at) else { break };
        if starts[at] {
            inside = Some(0);
        }
        let is_one = most < usize::MAX && begins_character(topic, at);
        let count = inside.map(|count| count + usize::from(is_one));
        inside = count.filter(|&count| count <= most && operator.has(byte, modifier));
    }
    ends
}

/// Whether a character of a value begins at a place of its expansion: neither a byte within a
/// character of UTF-8, nor one within the escape of a byte.
fn begins_character(topic: &[u8], at: usize) -> bool {
    let escape = |from: usize| {
        let digits = topic.get(from..from + 3)?.strip_prefix(b"%")?;
        HEXLOWER_PERMISSIVE.decode(digits).ok()?.first().copied()
    };
    let is_continued = |byte: u8| (0x80..0xc0).contains(&byte);
    let is_within = (1..=2).any(|back| at >= back && escape(at - back).is_some());
    !is_within && !is_continued(escape(at).unwrap_or(topic[at]))
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
            ("/{a:3}", "/abcd", false),
            ("/{a:1}", "/%C3%A4", true),
            ("/{a:1}", "/\u{e4}", true),
            ("/{a:1}", "/%41b", false),
            ("/{a:1}{b:1}", "/xyz", false),
            // Only as many values as there are variables, unless they are a list.
            ("/a{/b}", "/a/1", true),
            ("/a{/b}", "/a/1/2", false),
            ("/a{/b,c}", "/a/1/2", true),
            ("/a{/b,c}", "/a/1/2/3", false),
            ("/a{/b*}", "/a/1/2/3", true),
            ("/a{/b}", "/a/1,2", true),
            ("/a{;b}", "/a;b", true),
            ("/a{;b}", "/a;b=1;c=2", false),
            ("/a{;b}", "/a;c=1", false),
            // Values of their own names, in their order.
            ("/a{?b}", "/a?c=1", false),
            ("/a{?b}", "/a?b=1&c=2", false),
            ("/a{?b}", "/a?bc=1", false),
            ("/a{?b}", "/a?b", false),
            ("/a{?b}", "/a?b=", true),
            ("/a{?b,c}", "/a?c=2", true),
            ("/a{?b,c}", "/a?c=2&b=1", false),
            ("/a{&b}", "/a&c=1", false),
            ("/a{?b*}", "/a?c=1&d=2", true),
            ("/a{?b*}", "/a?", false),
            ("/a{b*}", "/ac=1,d=2", true),
            ("/a{b}", "/ac=1", false),
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

    /// The value of a variable.
    #[derive(Clone, Debug)]
    enum Given {
        Nothing,
        Text(String),
        List(Vec<String>),
        Pairs(Vec<(String, String)>),
    }

    fn given() -> impl Strategy<Value = Given> {
        let text = || "[a-c0-9./,?&=;%\u{e4} ~-]{0,4}";
        prop_oneof![
            1 => Just(Given::Nothing),
            4 => text().prop_map(Given::Text),
            2 => prop::collection::vec(text(), 1..3).prop_map(Given::List),
            2 => prop::collection::vec(("[a-c]{1,2}", text()), 1..3).prop_map(Given::Pairs),
        ]
    }

    /// Expands an expression as RFC 6570 says (section 3.2.1 and appendix A).
    fn expand(operator: Operator, variables: &[Variable], values: &[Given]) -> String {
        let is_free = matches!(operator, Operator::Reserved | Operator::Fragment);
        let encode = |text: &str| -> String {
            let is_kept = |one: char| {
                one.is_ascii_alphanumeric()
                    || "-._~".contains(one)
                    || (is_free && ":/?#[]@!$&'()*+,;=".contains(one))
            };
            let escape = |one: char| {
                let mut bytes = [0; 4];
                let bytes = one.encode_utf8(&mut bytes).bytes();
                bytes.map(|byte| format!("%{byte:02X}")).collect::<String>()
            };
            text.chars().map(|one| if is_kept(one) { one.into() } else { escape(one) }).collect()
        };
        let separator = char::from(operator.separator()).to_string();
        let named = |name: &str, value: &str| match (operator, value) {
            (Operator::Prefixed(b';'), "") => name.to_owned(),
            _ if operator.is_named() => format!("{name}={value}"),
            _ => value.to_owned(),
        };
        let mut all = Vec::new();
        for (Variable { name, modifier }, value) in variables.iter().zip(values) {
            let is_exploded = *modifier == Modifier::Explode;
            all.push(match (value, modifier) {
                (Given::Nothing, _) => continue,
                (Given::Text(text), Modifier::Prefix(most)) => {
                    let some: String = text.chars().take(usize::from(*most)).collect();
                    named(name, &encode(&some))
                }
                (Given::Text(text), _) => named(name, &encode(text)),
                // A prefix of these is not defined.
                (Given::List(_) | Given::Pairs(_), Modifier::Prefix(_)) => continue,
                (Given::List(items), _) if is_exploded => {
                    let items = items.iter().map(|item| named(name, &encode(item)));
                    items.collect::<Vec<_>>().join(&separator)
                }
                (Given::List(items), _) => {
                    let items = items.iter().map(|item| encode(item));
                    named(name, &items.collect::<Vec<_>>().join(","))
                }
                (Given::Pairs(pairs), _) if is_exploded => {
                    let pairs = pairs.iter().map(|(key, value)| match operator {
                        Operator::Prefixed(b';') if value.is_empty() => encode(key),
                        _ => format!("{}={}", encode(key), encode(value)),
                    });
                    pairs.collect::<Vec<_>>().join(&separator)
                }
                (Given::Pairs(pairs), _) => {
                    let pairs = pairs.iter().map(|(key, value)| encode(key) + "," + &encode(value));
                    named(name, &pairs.collect::<Vec<_>>().join(","))
                }
            });
        }
        if all.is_empty() {
            return String::new();
        }
        let first = operator.prefix().map(char::from);
        first.into_iter().collect::<String>() + &all.join(&separator)
    }

    /// Whether a text is an expansion of an expression, found by trying.
    fn tries(operator: Operator, variables: &[Variable], text: &str) -> bool {
        let has = |text: &str, modifier| text.bytes().all(|byte| operator.has(byte, modifier));
        let is_value = |Variable { name, modifier }: &Variable, text: &str| {
            if operator.is_named() && *modifier == Modifier::Explode {
                return !text.is_empty() && has(text, *modifier);
            }
            let value = match (operator.is_named(), text.strip_prefix(name.as_str())) {
                (false, _) => text,
                (true, None) => return false,
                (true, Some("")) => return operator == Operator::Prefixed(b';'),
                (true, Some(rest)) => match rest.strip_prefix('=') {
                    Some(value) => value,
                    None => return false,
                },
            };
            let most = match modifier {
                Modifier::Prefix(most) => usize::from(*most),
                _ => usize::MAX,
            };
            // Without escapes, which this is not for.
            value.chars().count() <= most && has(value, *modifier)
        };
        if text.is_empty() {
            return true;
        }
        let rest = match operator.prefix().map(char::from) {
            None => text,
            Some(first) => match text.strip_prefix(first) {
                Some(rest) => rest,
                None => return false,
            },
        };
        let separator = char::from(operator.separator()).to_string();
        // All choices of the variables that have a value, and all ways to divide the text.
        (1..1_u32 << variables.len()).any(|chosen| {
            let chosen: Vec<&Variable> = (0..variables.len())
                .filter(|at| chosen >> at & 1 == 1)
                .map(|at| &variables[at])
                .collect();
            fn divide<'a>(
                chosen: &[&Variable],
                text: &'a str,
                separator: &str,
                is_value: &impl Fn(&Variable, &'a str) -> bool,
            ) -> bool {
                match chosen {
                    [] => false,
                    [last] => is_value(last, text),
                    [first, rest @ ..] => text.match_indices(separator).any(|(at, _)| {
                        is_value(first, &text[..at])
                            && divide(rest, &text[at + 1..], separator, is_value)
                    }),
                }
            }
            divide(&chosen, rest, &separator, &is_value)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        /// Each expansion of a template matches it.
        #[test]
        fn expansions_match(
            template in "([a/]{0,2}\\{[+#./;?&]?a(:[12]|\\*)?(,b(:[12]|\\*)?)?\\}){1,3}[a/]?",
            values in prop::collection::vec((given(), given()), 3),
        ) {
            let mut values = values.into_iter();
            let topic: String = parse(&template).unwrap().iter().map(|part| match part {
                Part::Literal(text) => text.clone(),
                Part::Expression(operator, variables) => {
                    let (one, two) = values.next().unwrap();
                    expand(*operator, variables, &[one, two])
                }
            }).collect();
            prop_assert!(has(&template, &topic), "{} {}", template, topic);
        }

        /// Against all ways to divide a topic among the parts, and an expression's text among its
        /// variables.
        #[test]
        fn the_pass_finds_what_trying_finds(
            template in "(\\{[+/?;.]?a(:[12]|\\*)?(,b(:[12]|\\*)?)?\\}|[ab/?=]){0,4}",
            topic in "[ab,/?;&.=]{0,7}",
        ) {
            fn all(parts: &[Part], topic: &str) -> bool {
                let Some((part, rest)) = parts.split_first() else { return topic.is_empty() };
                (0..=topic.len()).any(|end| {
                    let fits = match part {
                        Part::Literal(text) => &topic[..end] == text,
                        Part::Expression(operator, variables) => {
                            tries(*operator, variables, &topic[..end])
                        }
                    };
                    fits && all(rest, &topic[end..])
                })
            }
            let parts = parse(&template).unwrap_or_default();
            prop_assert_eq!(fits(&parts, topic.as_bytes()), all(&parts, &topic));
        }
    }
}
