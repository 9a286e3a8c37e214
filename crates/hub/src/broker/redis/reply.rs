//! Reading the answers of Redis.

use std::sync::Arc;

use bytes::Bytes;
use redis::{RedisError, Value};

use crate::broker::log::{
    Appended, Attended, Content, Entry, Failure, Looked, Members, Payload, Position, Token,
};

fn odd(what: &str, value: impl std::fmt::Debug) -> Failure {
    Failure::passing(format!("{what} was expected as an answer, not {value:?}"))
}

/// Describes an error in one line.
pub(super) fn words(error: &RedisError) -> String {
    error.to_string().replace(['\n', '\r'], " ")
}

/// Reads a number, which scripts return as text, as theirs are floating-point numbers.
pub(super) fn number(value: Option<&Value>) -> Result<u64, Failure> {
    match value {
        Some(Value::Int(number)) => u64::try_from(*number).map_err(|_| odd("a number", value)),
        Some(Value::BulkString(text)) => {
            let text = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
            text.ok_or_else(|| odd("a number", value))
        }
        _ => Err(odd("a number", value)),
    }
}

/// Reads the answer of the script that appends.
pub(super) fn appended(values: &[Value]) -> Result<Appended, Failure> {
    let at = Position { epoch: number(values.get(1))?, id: number(values.get(2))? };
    match number(values.first())? {
        0 => Ok(Appended::Here(at)),
        1 => Ok(Appended::Before(at)),
        2 => Ok(Appended::OtherWithKey),
        other => Err(odd("0, 1 or 2", other)),
    }
}

/// Reads the answer of the script that looks.
pub(super) fn looked(values: &[Value]) -> Result<Looked, Failure> {
    let of = |index: usize| number(values.get(index));
    let last = Position { epoch: of(0)?, id: of(1)? };
    Ok(Looked { last, first: of(2)?, history: of(3)? })
}

/// Reads the answer of the script that notes users.
pub(super) fn attended(values: &[Value]) -> Result<Attended, Failure> {
    let is_complete = number(values.first())? == 1;
    Ok(Attended { is_complete, has_more: number(values.get(1))? == 1 })
}

/// Reads the answer of the script that lists users.
pub(super) fn members(values: Vec<Value>) -> Result<Members, Failure> {
    let (last, users) = (number(values.first())?, number(values.get(1))?);
    let mut texts = values.into_iter().skip(2).map(|value| {
        let text = bytes(value).and_then(|bytes| String::from_utf8(bytes).ok());
        text.ok_or_else(|| Failure::passing("the name of a user was expected as an answer"))
    });
    let mut page = Vec::new();
    while let (Some(name), Some(info)) = (texts.next(), texts.next()) {
        let info = Some(info?).filter(|info| !info.is_empty());
        page.push((name?.into(), info.map(Arc::from)));
    }
    Ok(Members { last, users, page })
}

fn position(text: &[u8]) -> Option<Position> {
    let (epoch, id) = std::str::from_utf8(text).ok()?.split_once('-')?;
    Some(Position { epoch: epoch.parse().ok()?, id: id.parse().ok()? })
}

fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

/// Reads the fields of an entry.
fn content(fields: Value) -> (Option<Token>, Content) {
    let Value::Array(fields) = fields else { return (None, Content::Unreadable) };
    let (mut token, mut data, mut is_text, mut meta, mut begins) = (None, None, false, None, false);
    let mut fields = fields.into_iter();
    while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
        let (Some(name), Some(value)) = (bytes(name), bytes(value)) else { continue };
        match &name[..] {
            b"d" => data = Some(Bytes::from(value)),
            b"k" => {
                let text = std::str::from_utf8(&value).ok();
                token = text.and_then(|text| u128::from_str_radix(text, 16).ok()).map(Token);
            }
            b"t" => is_text = true,
            b"m" => meta = Some(Bytes::from(value)),
            b"b" => begins = true,
            _ => {}
        }
    }
    let content = match data {
        // A client would not get over text that is none.
        Some(data) if is_text && std::str::from_utf8(&data).is_err() => Content::Unreadable,
        Some(data) => Content::Message(Payload { data, is_text, meta }),
        None if begins => Content::Begin,
        None => Content::Unreadable,
    };
    (token, content)
}

/// Reads the entries of some streams, with the numbers of these. The streams are in the order in
/// which they were asked for, without those that have nothing new. A stream may have been asked for
/// twice, by two hubs of one server: each answer then belongs to the first of them that lacks its
/// first entry.
pub(super) fn entries(
    streams: Vec<Value>,
    places: &[(Arc<str>, Position)],
) -> Result<Vec<(usize, Vec<Entry>)>, Failure> {
    let mut next = 0;
    let mut read = Vec::with_capacity(streams.len());
    for stream in streams {
        let Value::Array(pair) = stream else { return Err(odd("a stream", stream)) };
        let mut pair = pair.into_iter();
        let key = pair.next().and_then(bytes).unwrap_or_default();
        let Some(Value::Array(found)) = pair.next() else { return Err(odd("entries", key)) };
        let mut entries = Vec::with_capacity(found.len());
        for entry in found {
            let Value::Array(pair) = entry else { return Err(odd("an entry", entry)) };
            let mut pair = pair.into_iter();
            let id = pair.next().and_then(bytes).unwrap_or_default();
            let Some(at) = position(&id) else { return Err(odd("an id", id)) };
            let (token, content) = content(pair.next().unwrap_or_default());
            entries.push(Entry { at, token, content });
        }
        let Some(first) = entries.first().map(|entry: &Entry| entry.at) else { continue };
        let lacks = |(of, at): &(Arc<str>, Position)| of.as_bytes() == key && *at < first;
        let Some(found) = places[next..].iter().position(lacks) else {
            return Err(odd("a stream", key));
        };
        next += found + 1;
        read.push((next - 1, entries));
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn fields(all: &[&str]) -> Value {
        Value::Array(all.iter().copied().map(text).collect())
    }

    #[test]
    fn entries_that_no_server_has_written_are_unreadable() {
        let message = |data: &str, is_text| {
            let data = Bytes::copy_from_slice(data.as_bytes());
            Content::Message(Payload { data, is_text, meta: None })
        };
        let token = Some(Token(0x1f));
        for (given, expected) in [
            (fields(&["d", "x", "k", "1f", "t", "1"]), (token, message("x", true))),
            (fields(&["d", "x", "k", "1f"]), (token, message("x", false))),
            (fields(&["d", "", "other", "y"]), (None, message("", false))),
            (fields(&["b", ""]), (None, Content::Begin)),
            (fields(&["name", "value"]), (None, Content::Unreadable)),
            (fields(&["d"]), (None, Content::Unreadable)),
            (Value::Nil, (None, Content::Unreadable)),
        ] {
            assert_eq!(content(given), expected);
        }
        let no_text =
            Value::Array(vec![text("t"), text("1"), text("d"), Value::BulkString(vec![255])]);
        assert_eq!(content(no_text), (None, Content::Unreadable));
    }

    #[test]
    fn answers_of_scripts_are_numbers_as_text() {
        let values = [Value::Int(0), text("1764000000000000"), text("7")];
        let at = Position { epoch: 1_764_000_000_000_000, id: 7 };
        assert_eq!(appended(&values), Ok(Appended::Here(at)));
        assert!(appended(&values[..2]).is_err());
        assert!(appended(&[Value::Int(9), text("1"), text("1")]).is_err());
        let looked = looked(&[text("5"), text("9"), text("3"), text("100")]);
        let last = Position { epoch: 5, id: 9 };
        assert_eq!(looked, Ok(Looked { last, first: 3, history: 100 }));
    }

    #[test]
    fn streams_are_found_by_their_keys() {
        let places = [("a".into(), Position::default()), ("b".into(), Position::default())];
        let entry = Value::Array(vec![text("5-1"), fields(&["d", "x"])]);
        let stream = Value::Array(vec![text("b"), Value::Array(vec![entry])]);
        let read = entries(vec![stream.clone()], &places).unwrap();
        assert_eq!((read[0].0, read[0].1[0].at), (1, Position { epoch: 5, id: 1 }));
        assert!(entries(vec![stream], &places[..1]).is_err());
        // Two hubs of one log, one of which has read further.
        let entry = |id: &&str| Value::Array(vec![text(id), fields(&["d", "x"])]);
        let answer = |ids: &[&str]| {
            Value::Array(vec![text("a"), Value::Array(ids.iter().map(entry).collect())])
        };
        let at = |id| ("a".into(), Position { epoch: 5, id });
        for (places, answers, expected) in [
            ([at(1), at(2)], vec![answer(&["5-2"])], vec![0]),
            ([at(2), at(1)], vec![answer(&["5-2"])], vec![1]),
            ([at(1), at(2)], vec![answer(&["5-2", "5-3"]), answer(&["5-3"])], vec![0, 1]),
            ([at(2), at(1)], vec![answer(&["5-3"]), answer(&["5-2", "5-3"])], vec![0, 1]),
        ] {
            let read = entries(answers, &places).unwrap();
            assert_eq!(read.iter().map(|one| one.0).collect::<Vec<_>>(), expected);
        }
    }
}
