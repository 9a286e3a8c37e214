//! The key or value that was probably meant by one that is unknown.

/// The least likeness, from 0 to 1, of a suggestion: three of ten letters are too many, too few or
/// wrong.
const LEAST: f64 = 0.7;

/// Adds the known word that an unknown one is most like, to a message as `unknown key `x`, expected
/// one of `y`, `z``.
pub(super) fn suggest(message: &str) -> String {
    let Some((unknown, expected)) = message.split_once(", expected ") else {
        return message.to_owned();
    };
    if !unknown.starts_with("unknown ") {
        return message.to_owned();
    }
    // What stands between each two backquotes.
    let quoted = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let (given, known): (Vec<String>, Vec<String>) = (quoted(unknown), quoted(expected));
    let Some(given) = given.first() else { return message.to_owned() };
    let likeness = |known: &String| strsim::normalized_damerau_levenshtein(given, known);
    let best = known.iter().max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    match best.filter(|best| likeness(best) >= LEAST || best.replace('_', "-") == *given) {
        Some(best) => format!("{unknown}, did you mean `{best}`? Expected {expected}"),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_word_that_is_much_alike_is_suggested() {
        let known = "expected one of `address`, `tls`, `proxy_protocol`";
        for (given, expected) in [
            ("adress", Some("address")),
            ("addresss", Some("address")),
            ("adrdess", Some("address")),
            ("proxy-protocol", Some("proxy_protocol")),
            ("proxyprotocol", Some("proxy_protocol")),
            ("port", None),
            ("xyz", None),
        ] {
            let message = format!("unknown key `{given}`, {known}");
            let text = suggest(&message);
            match expected {
                Some(word) => {
                    let start =
                        format!("unknown key `{given}`, did you mean `{word}`? Expected one");
                    assert!(text.starts_with(&start), "{text}");
                }
                None => assert_eq!(text, message),
            }
        }
        for message in ["something else, expected `a`", "unknown key `a`", ""] {
            assert_eq!(suggest(message), message);
        }
    }
}
