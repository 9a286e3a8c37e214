//! The position of a reader of several channels: the position in each, in the order of the URL,
//! separated by periods, which no position has in it (`17-62a9.4-62b0`).
//!
//! A position may be empty: the reader then begins with the next message of that channel. `0` alone
//! stands for the beginning of all channels.

use http::{HeaderMap, Uri};
use percent_encoding::percent_decode_str;

use super::super::cursor::Cursor;
use super::super::joined::SEPARATOR;
use super::MOST_CHANNELS;

/// The most bytes of a position: those of two numbers, and the characters between.
const LONGEST: usize = 40 * MOST_CHANNELS;

/// Reads the position in each of `count` channels.
fn parse(text: &str, count: usize) -> Option<Vec<Option<Cursor>>> {
    if text == "0" {
        return Some(vec![Cursor::parse(text); count]);
    }
    if text.len() > LONGEST {
        return None;
    }
    let read = |part: &str| match part {
        "" => Some(None),
        part => Cursor::parse(part).map(Some),
    };
    let all: Option<Vec<_>> = text.split(SEPARATOR).map(read).collect();
    all.filter(|all| all.len() == count)
}

/// Reads the position that a request asks for, in each of its channels.
///
/// # Errors
///
/// The mistake, in words.
pub(super) fn asked(
    uri: &Uri,
    headers: &HeaderMap,
    count: usize,
) -> Result<Vec<Option<Cursor>>, String> {
    // The field has the last id that the client has read, as in a request for one channel.
    if let Some(last) = headers.get("last-event-id").filter(|last| !last.is_empty()) {
        let read = last.to_str().ok().and_then(|text| parse(text, count));
        return Ok(read.unwrap_or_else(|| vec![Some(Cursor::foreign()); count]));
    }
    let pairs = uri.query().unwrap_or("").split('&');
    let after = pairs.filter_map(|pair| pair.strip_prefix("after=")).next_back();
    let Some(after) = after else { return Ok(vec![None; count]) };
    let text = percent_decode_str(after).decode_utf8_lossy();
    parse(&text, count).ok_or_else(|| {
        format!(
            "after={text:?} in the URL: the positions in its {count} channels are expected, \
             separated by periods\n"
        )
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn cursor(id: u64, epoch: Option<u64>) -> Option<Cursor> {
        Some(Cursor { id, epoch })
    }

    #[test]
    fn a_position_has_one_part_for_each_channel() {
        for (text, count, expected) in [
            ("17-62a9.4", 2, Some(vec![cursor(17, Some(0x62a9)), cursor(4, None)])),
            ("17-62a9", 1, Some(vec![cursor(17, Some(0x62a9))])),
            (".4.", 3, Some(vec![None, cursor(4, None), None])),
            ("0", 3, Some(vec![cursor(0, None); 3])),
            ("1", 3, None),
            ("1.2.3", 2, None),
            ("1.2", 3, None),
            ("1.x", 2, None),
            ("1,2", 2, None),
            ("..", 2, None),
        ] {
            assert_eq!(parse(text, count), expected, "{text}");
        }
        let most = vec![Cursor { id: u64::MAX, epoch: Some(u64::MAX) }.to_string(); MOST_CHANNELS];
        assert_eq!(parse(&most.join("."), MOST_CHANNELS).map(|all| all.len()), Some(MOST_CHANNELS));
        assert_eq!(parse(&"1".repeat(LONGEST + 1), 1), None);
    }

    #[test]
    fn the_field_counts_more_than_the_url() {
        let uri = Uri::from_static("/a?also=/b&after=3%2d1f.&token=x");
        let mut headers = HeaderMap::new();
        let expected = vec![cursor(3, Some(0x1f)), None];
        assert_eq!(asked(&uri, &headers, 2).unwrap(), expected);
        assert_eq!(asked(&Uri::from_static("/a"), &headers, 2).unwrap(), [None, None]);
        headers.insert("last-event-id", HeaderValue::from_static("9.8-a"));
        let expected = vec![cursor(9, None), cursor(8, Some(10))];
        assert_eq!(asked(&uri, &headers, 2).unwrap(), expected);
        // It is not the client's fault if another server has given the id out.
        headers.insert("last-event-id", HeaderValue::from_static("9"));
        assert_eq!(asked(&uri, &headers, 2).unwrap(), [Some(Cursor::foreign()); 2]);
    }

    #[test]
    fn mistakes_in_the_url_are_named() {
        let uri = Uri::from_static("/a?also=/b&after=3");
        let error = asked(&uri, &HeaderMap::new(), 2).unwrap_err();
        assert!(error.starts_with("after=\"3\" in the URL: the positions in its 2"), "{error}");
    }
}
