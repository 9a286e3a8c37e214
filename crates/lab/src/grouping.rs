//! Rows in the order in which they were measured: the distinct values of a key, and the rows of
//! each.

use std::collections::BTreeMap;

/// Returns each value once, in the order of first occurrence.
pub(crate) fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut different = Vec::new();
    for one in all {
        if !different.contains(&one) {
            different.push(one);
        }
    }
    different
}

/// Returns the rows of each key, with the keys in the order of their first rows.
pub(crate) fn groups<'a, Row, Key: PartialEq>(
    rows: &'a [Row],
    key: impl Fn(&'a Row) -> Key,
) -> Vec<(Key, Vec<&'a Row>)> {
    let mut groups: Vec<(Key, Vec<&Row>)> = Vec::new();
    for row in rows {
        let key = key(row);
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((key, vec![row])),
        }
    }
    groups
}

/// Returns the rows of each key, with the keys ascending.
pub(crate) fn ascending<'a, Row, Key: Ord>(
    rows: &[&'a Row],
    key: impl Fn(&Row) -> Key,
) -> BTreeMap<Key, Vec<&'a Row>> {
    let mut groups: BTreeMap<Key, Vec<&Row>> = BTreeMap::new();
    for &row in rows {
        groups.entry(key(row)).or_default().push(row);
    }
    groups
}

/// Returns the rows of each subject of a sweep, the fewest active descriptors first, with the
/// subjects in the order of their first rows.
pub(crate) fn subjects<'a, Row>(
    rows: &[&'a Row],
    subject: impl Fn(&Row) -> &str,
    active: impl Fn(&Row) -> usize,
) -> Vec<Vec<&'a Row>> {
    let names = distinct(rows.iter().map(|row| subject(row)));
    let own = names.into_iter().map(|name| {
        let own = rows.iter().copied().filter(|row| subject(row) == name);
        let mut own: Vec<&Row> = own.collect();
        own.sort_by_key(|row| active(row));
        own
    });
    own.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_kind_says_where_the_kind_comes() {
        assert_eq!(distinct([3, 1, 3, 2, 1]), [3, 1, 2]);
        let rows = ["pear", "fig", "plum", "apple"];
        let expected = [(4, vec![&"pear", &"plum"]), (3, vec![&"fig"]), (5, vec![&"apple"])];
        assert_eq!(groups(&rows, |row| row.len()), expected);
        let sorted: Vec<_> = ascending(&rows.each_ref(), |row| row.len()).into_iter().collect();
        assert_eq!(sorted, [1, 0, 2].map(|place| expected[place].clone()));
    }
}
