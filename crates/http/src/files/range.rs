//! The Range header field (RFC 9110, section 14): the bytes of a file that are asked for.

use std::borrow::Cow;
use std::ops::Range;

use http_range_header::{
    EndPosition, StartPosition, SyntacticallyCorrectRange, parse_range_header,
};

/// The most parts of one response; a client that asks for more gets the whole file.
const MOST: usize = 16;

/// The bytes that a request asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    /// All of it: there is no field, or none that is understood, which the RFC says to ignore.
    Whole,
    /// These parts: in bounds, not empty, apart from each other, in the order of the request.
    Parts(Vec<Range<u64>>),
    /// No byte that the file has.
    Unsatisfiable,
}

fn bounded(range: &SyntacticallyCorrectRange, length: u64) -> Option<Range<u64>> {
    let start = match range.start {
        StartPosition::Index(start) => start,
        StartPosition::FromLast(count) => length.saturating_sub(count),
    };
    let end = match range.end {
        EndPosition::Index(last) => last.saturating_add(1).min(length),
        EndPosition::LastByte => length,
    };
    (start < end).then_some(start..end)
}

/// Returns a list without blanks around its commas and without empty elements, as RFC 9110 requires
/// lists to be read (section 5.6.1.2).
fn plain(list: &str) -> Cow<'_, str> {
    if !list.contains([' ', '\t']) && !list.contains(",,") {
        return Cow::Borrowed(list);
    }
    let elements = list.split(',').map(|element| element.trim_matches([' ', '\t']));
    Cow::Owned(elements.filter(|element| !element.is_empty()).collect::<Vec<_>>().join(","))
}

pub(super) fn wanted(field: &str, length: u64) -> Wanted {
    // The unit is compared without regard to case (RFC 9110, section 14.1).
    let field = match field.get(..6) {
        Some(unit) if unit.eq_ignore_ascii_case("bytes=") => {
            format!("bytes={}", plain(&field[6..]))
        }
        _ => return Wanted::Whole,
    };
    let Ok(parsed) = parse_range_header(&field) else { return Wanted::Whole };
    if parsed.ranges.len() > MOST {
        return Wanted::Whole;
    }
    let reversed = |range: &SyntacticallyCorrectRange| match (range.start, range.end) {
        (StartPosition::Index(start), EndPosition::Index(end)) => end < start,
        _ => false,
    };
    if parsed.ranges.iter().any(reversed) {
        return Wanted::Whole;
    }
    let parts: Vec<_> = parsed.ranges.iter().filter_map(|range| bounded(range, length)).collect();
    match parts.len() {
        0 => Wanted::Unsatisfiable,
        1 => Wanted::Parts(parts),
        _ => Wanted::Parts(merged(parts)),
    }
}

/// Joins parts that overlap or touch, so that no client gets more than the file; the remaining
/// parts keep their order.
fn merged(parts: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut apart: Vec<Range<u64>> = Vec::new();
    for mut part in parts {
        let mut at = apart.len();
        let mut index = 0;
        while index < apart.len() {
            let other = &apart[index];
            if other.start <= part.end && part.start <= other.end {
                part = part.start.min(other.start)..part.end.max(other.end);
                apart.remove(index);
                at = at.min(index);
                // A part that has grown may touch a part that it was apart from.
                index = 0;
            } else {
                index += 1;
            }
        }
        apart.insert(at.min(apart.len()), part);
    }
    apart
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_form_is_read() {
        let parts = |parts: &[(u64, u64)]| {
            Wanted::Parts(parts.iter().map(|(start, end)| *start..*end).collect())
        };
        for (field, expected) in [
            ("bytes=0-0", parts(&[(0, 1)])),
            ("BYTES=2-", parts(&[(2, 10)])),
            ("bytes=-3", parts(&[(7, 10)])),
            ("bytes=-30", parts(&[(0, 10)])),
            ("bytes=5-99", parts(&[(5, 10)])),
            ("bytes=0-1, 4-5", parts(&[(0, 2), (4, 6)])),
            ("bytes=4-5,0-1", parts(&[(4, 6), (0, 2)])),
            ("bytes=0-1 , 4-5", parts(&[(0, 2), (4, 6)])),
            ("bytes=0-1\t,\t4-5 ", parts(&[(0, 2), (4, 6)])),
            ("bytes= 0-1,,4-5", parts(&[(0, 2), (4, 6)])),
            ("bytes=0 -1", Wanted::Whole),
            ("bytes=0-1,2-3", parts(&[(0, 4)])),
            ("bytes=0-1,6-7,1-6", parts(&[(0, 8)])),
            ("bytes=0-1,99-", parts(&[(0, 2)])),
            ("bytes=10-", Wanted::Unsatisfiable),
            ("bytes=18446744073709551615-", Wanted::Unsatisfiable),
            ("bytes=5-4", Wanted::Whole),
            ("bytes=", Wanted::Whole),
            ("bytes=a-b", Wanted::Whole),
            ("lines=0-1", Wanted::Whole),
            ("é", Wanted::Whole),
        ] {
            assert_eq!(wanted(field, 10), expected, "{field}");
        }
        assert_eq!(wanted("bytes=0-", 0), Wanted::Unsatisfiable);
        let many = format!("bytes={}", vec!["0-0"; MOST + 1].join(","));
        assert_eq!(wanted(&many, 10), Wanted::Whole);
    }

    proptest! {
        #[test]
        fn parts_are_apart_and_in_bounds(field in "bytes=([0-9]{0,2}-[0-9]{0,2},?){0,8}|\\PC{0,20}", length in 0..60_u64) {
            if let Wanted::Parts(mut parts) = wanted(&field, length) {
                prop_assert!(!parts.is_empty());
                parts.sort_by_key(|part| part.start);
                prop_assert!(parts.iter().all(|part| part.start < part.end && part.end <= length));
                prop_assert!(parts.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
        }
    }
}
