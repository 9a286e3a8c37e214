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
