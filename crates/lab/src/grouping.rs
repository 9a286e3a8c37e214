//! Rows in the order in which they were measured: the distinct values of a key, and the rows of
//! each.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_kind_says_where_the_kind_comes() {
        assert_eq!(distinct([3, 1, 3, 2, 1]), [3, 1, 2]);
        let rows = ["pear", "fig", "plum", "apple"];
        let expected = [(4, vec![&"pear", &"plum"]), (3, vec![&"fig"]), (5, vec![&"apple"])];
        assert_eq!(groups(&rows, |row| row.len()), expected);
    }
}
