//! Variables of the environment in the strings of a configuration.
//!
//! `${NAME}` stands for the value of a variable, `${NAME:-TEXT}` for a text where the variable is
//! not set or empty, and `$${` for `${` itself. They are replaced after the text was parsed, so
//! that no value can add a key or end a string, and each mistake has the place in the file. Where a
//! number or a boolean is expected, the value of a string that has variables is read as one.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::env::{self, VarError};
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::mistake::LocatedMistake;
use super::place;

/// The texts with values in the place of variables, by the beginnings of their strings.
#[derive(Debug, Default)]
pub(super) struct Expanded(BTreeMap<usize, String>);

impl Expanded {
    /// Replaces the variables of all strings, and adds a mistake for each that cannot be.
    pub(super) fn of(tree: &DeTable<'_>, found: &mut Vec<LocatedMistake>) -> Expanded {
        let mut expanded = Expanded::default();
        expanded.add_table(tree, found);
        expanded
    }

    fn add_table(&mut self, table: &DeTable<'_>, found: &mut Vec<LocatedMistake>) {
        table.values().for_each(|value| self.add(value, found));
    }

    fn add(&mut self, value: &Spanned<DeValue<'_>>, found: &mut Vec<LocatedMistake>) {
        match value.get_ref() {
            DeValue::Table(table) => self.add_table(table, found),
            DeValue::Array(array) => array.iter().for_each(|element| self.add(element, found)),
            DeValue::String(text) if text.contains("${") => match of_environment(text) {
                Ok(text) => drop(self.0.insert(value.span().start, text)),
                Err(what) => found.push((value.span(), what)),
            },
            _ => {}
        }
    }

    /// Puts the texts in the place of the strings.
    pub(super) fn put_into<'a>(&'a self, tree: &mut DeTable<'a>) {
        for (_, value) in tree.iter_mut() {
            self.put_below(value);
        }
    }

    fn put_below<'a>(&'a self, value: &mut Spanned<DeValue<'a>>) {
        let start = value.span().start;
        match value.get_mut() {
            DeValue::Table(table) => self.put_into(table),
            DeValue::Array(array) => self.put_into_array(array),
            DeValue::String(text) => {
                if let Some(expanded) = self.0.get(&start) {
                    *text = Cow::Borrowed(expanded);
                }
            }
            _ => {}
        }
    }

    fn put_into_array<'a>(&'a self, array: &mut DeArray<'a>) {
        array.as_mut().iter_mut().for_each(|element| self.put_below(element));
    }

    /// Turns a string with variables into the number or boolean that its text is. Returns whether
    /// it was such a string.
    pub(super) fn read_as_scalar<'a>(&'a self, tree: &mut DeTable<'a>, at: &Range<usize>) -> bool {
        let Some(text) = self.0.get(&at.start) else { return false };
        let Some(value) = place::find_mut(tree, at) else { return false };
        if !matches!(value, DeValue::String(_)) {
            return false;
        }
        let scalar = DeValue::parse(text.trim()).ok().map(Spanned::into_inner);
        let is_scalar = |value: &DeValue<'_>| {
            matches!(value, DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_))
        };
        let Some(scalar) = scalar.filter(is_scalar) else { return false };
        *value = scalar;
        true
    }
}

/// Returns the value of a variable; none if it is not set.
fn read(name: &str) -> Result<Option<String>, String> {
    match env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => {
            Err(format!("the environment variable {name} is not UTF-8, expected a text"))
        }
    }
}

/// Replaces the variables of a text by those of the environment; the error says which cannot be
/// replaced.
pub(super) fn of_environment(text: &str) -> Result<String, String> {
    expand(text, read)
}

/// Replaces the variables of a text; the error says which cannot be replaced.
fn expand(
    text: &str,
    read: impl Fn(&str) -> Result<Option<String>, String>,
) -> Result<String, String> {
    let mut all = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, after) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            all.push_str(before);
            all.push_str("${");
            rest = &after[2..];
            continue;
        }
        all.push_str(before);
        let Some((variable, behind)) = after[2..].split_once('}') else {
            let expected = "expected ${NAME}, and $${ for these two characters";
            return Err(format!("{text:?} has ${{ without its end, {expected}"));
        };
        let (name, default) = match variable.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (variable, None),
        };
        let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        let is_name = name.bytes().next().is_some_and(is_first)
            && name.bytes().all(|byte| is_first(byte) || byte.is_ascii_digit());
        if !is_name {
            let expected = "expected letters, digits and _ as in ${NAME}";
            return Err(format!("{name:?} is no name of a variable, {expected}"));
        }
        let value = read(name)?;
        let value = match (value, default) {
            (Some(value), None) => value,
            (Some(value), Some(_)) if !value.is_empty() => value,
            (_, Some(default)) => default.to_owned(),
            (None, None) => {
                let expected = format!("expected it, or a default as in ${{{name}:-TEXT}}");
                return Err(format!("the environment variable {name} is not set, {expected}"));
            }
        };
        all.push_str(&value);
        rest = behind;
    }
    all.push_str(rest);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(name: &str) -> Result<Option<String>, String> {
        match name {
            "PORT" => Ok(Some("80".to_owned())),
            "EMPTY" => Ok(Some(String::new())),
            "NESTED" => Ok(Some("${PORT}".to_owned())),
            "BROKEN" => Err("it is broken".to_owned()),
            _ => Ok(None),
        }
    }

    #[test]
    fn variables_are_replaced_once() {
        for (text, expected) in [
            ("", ""),
            ("$PORT {path} $", "$PORT {path} $"),
            ("${PORT}", "80"),
            ("a:${PORT}${PORT}/", "a:8080/"),
            ("${PORT:-1}${NONE:-2}${EMPTY:-3}${NONE:-}", "8023"),
            ("${EMPTY}", ""),
            ("${NESTED}", "${PORT}"),
            ("${NONE:-a:-b}", "a:-b"),
            ("$${PORT} $$${PORT}", "${PORT} $${PORT}"),
            ("ä${PORT}ö", "ä80ö"),
        ] {
            assert_eq!(expand(text, value).as_deref(), Ok(expected), "{text}");
        }
        for (text, expected) in [
            ("${NONE}", "the environment variable NONE is not set, expected it, or a default"),
            ("${PORT", "has ${ without its end"),
            ("${}", "\"\" is no name of a variable"),
            ("${1}", "\"1\" is no name of a variable"),
            ("${A B}", "\"A B\" is no name of a variable"),
            ("${BROKEN}", "it is broken"),
        ] {
            let error = expand(text, value).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
