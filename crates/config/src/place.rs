//! Places of values in the text that types do not keep.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Returns the place of a value in the table at another place; that place, if the table has no such
/// value.
pub(super) fn within(tree: &DeTable<'_>, table: &Range<usize>, keys: &[&str]) -> Range<usize> {
    let value = find(tree, table)
        .and_then(|table| keys.iter().try_fold(table, |value, key| value.get_ref().get(*key)));
    value.map_or_else(|| table.clone(), Spanned::span)
}

/// Returns the place of a value that the text has.
pub(super) fn of(tree: &DeTable<'_>, keys: &[&str]) -> Range<usize> {
    let [first, others @ ..] = keys else { return 0..0 };
    tree.get(*first).map_or(0..0, |value| within(tree, &value.span(), others))
}

/// Returns the value at a place, to be changed.
pub(super) fn find_mut<'t, 'a>(
    table: &'t mut DeTable<'a>,
    place: &Range<usize>,
) -> Option<&'t mut DeValue<'a>> {
    table.iter_mut().find_map(|(_, value)| find_in_mut(value, place))
}

fn find_in_mut<'t, 'a>(
    value: &'t mut Spanned<DeValue<'a>>,
    place: &Range<usize>,
) -> Option<&'t mut DeValue<'a>> {
    let is_it = value.span() == *place;
    match value.get_mut() {
        value if is_it => Some(value),
        DeValue::Table(table) => find_mut(table, place),
        DeValue::Array(array) => {
            array.as_mut().iter_mut().find_map(|value| find_in_mut(value, place))
        }
        _ => None,
    }
}

/// Returns the value at a place.
fn find<'a>(table: &'a DeTable<'a>, place: &Range<usize>) -> Option<&'a Spanned<DeValue<'a>>> {
    table.values().find_map(|value| find_in(value, place))
}

fn find_in<'a>(
    value: &'a Spanned<DeValue<'a>>,
    place: &Range<usize>,
) -> Option<&'a Spanned<DeValue<'a>>> {
    if value.span() == *place {
        return Some(value);
    }
    match value.get_ref() {
        DeValue::Table(table) => find(table, place),
        DeValue::Array(array) => array.iter().find_map(|value| find_in(value, place)),
        _ => None,
    }
}
