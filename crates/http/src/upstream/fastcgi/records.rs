//! The records of FastCGI 1.0 (the specification of Open Market, 1996).
//!
//! A record is a head of eight bytes, its content, and padding. Parameters are written so that none
//! straddles two records: php-fpm closes the connection otherwise. No record has more content than
//! it accepts.

use std::cell::Cell;

/// The bytes of a record's head.
pub(super) const HEAD: usize = 8;

/// The most bytes of content that are written in one record.
pub(super) const LONGEST: usize = 65_528;

const BEGIN: u8 = 1;
const END: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;
/// Answers to questions about the server itself, which is never asked.
const VALUES: u8 = 10;
const UNKNOWN: u8 = 11;

/// The role of a server that answers requests.
const RESPONDER: u8 = 1;

/// Returns the number of the next request. A connection has one request at a time; with numbers of
/// their own, what a server sends late for one is not taken for the response to the next.
pub(in crate::upstream) fn next_id() -> u16 {
    thread_local! {
        static LAST: Cell<u16> = const { Cell::new(0) };
    }
    // 0 is for the server itself.
    let next = LAST.get().checked_add(1).unwrap_or(1);
    LAST.set(next);
    next
}

fn record_head(kind: u8, id: u16, length: usize) -> [u8; HEAD] {
    let [high, low] = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
    let [id_high, id_low] = id.to_be_bytes();
    [1, kind, id_high, id_low, high, low, 0, 0]
}

/// Returns the head of a record with so many bytes of a request's body, at most [`LONGEST`].
pub(super) fn body_head(id: u16, length: usize) -> [u8; HEAD] {
    record_head(STDIN, id, length)
}

/// Returns the end of a request's body, and with it of the request.
pub(super) fn end_of_body(id: u16) -> [u8; HEAD] {
    body_head(id, 0)
}

/// Appends a whole body, and its end.
pub(in crate::upstream) fn write_body(id: u16, data: &[u8], to: &mut Vec<u8>) {
    for piece in data.chunks(LONGEST) {
        to.extend(body_head(id, piece.len()));
        to.extend_from_slice(piece);
    }
    to.extend(end_of_body(id));
}

/// A parameter has more bytes than a record.
#[derive(thiserror::Error, Debug)]
#[error("a parameter has more than {LONGEST} bytes")]
pub(in crate::upstream) struct TooLong;

/// Writes the beginning of a request, and its parameters.
pub(super) struct Params<'v> {
    to: &'v mut Vec<u8>,
    id: u16,
    /// The place of the record's head.
    record: usize,
}

impl<'v> Params<'v> {
    /// Begins a request. The connection may stay open after it.
    pub(super) fn begin(to: &'v mut Vec<u8>, id: u16, keeps: bool) -> Params<'v> {
        to.extend(record_head(BEGIN, id, 8));
        to.extend([0, RESPONDER, u8::from(keeps), 0, 0, 0, 0, 0]);
        Params::more(to, id)
    }

    /// Continues with the parameters of a request that has begun.
    pub(super) fn more(to: &'v mut Vec<u8>, id: u16) -> Params<'v> {
        let record = to.len();
        to.extend(record_head(PARAMS, id, 0));
        Params { to, id, record }
    }

    /// Appends a parameter.
    ///
    /// # Errors
    ///
    /// It fits in no record.
    pub(super) fn push(&mut self, name: &[u8], value: &[u8]) -> Result<(), TooLong> {
        self.push_joined(name, &[value], b"")
    }

    /// Appends a parameter whose value is several values with something between them.
    ///
    /// # Errors
    ///
    /// It fits in no record.
    pub(super) fn push_joined(
        &mut self,
        name: &[u8],
        values: &[&[u8]],
        between: &[u8],
    ) -> Result<(), TooLong> {
        let gaps = between.len() * values.len().saturating_sub(1);
        let length = values.iter().map(|value| value.len()).sum::<usize>() + gaps;
        let size = length_bytes(name.len()) + length_bytes(length) + name.len() + length;
        if size > LONGEST {
            return Err(TooLong);
        }
        if self.to.len() - self.record - HEAD + size > LONGEST {
            self.close();
            self.record = self.to.len();
            self.to.extend(record_head(PARAMS, self.id, 0));
        }
        push_length(name.len(), self.to);
        push_length(length, self.to);
        self.to.extend_from_slice(name);
        for (place, value) in values.iter().enumerate() {
            if place > 0 {
                self.to.extend_from_slice(between);
            }
            self.to.extend_from_slice(value);
        }
        Ok(())
    }

    /// Notes the length of the record; one without content would end the parameters.
    fn close(&mut self) {
        let length = self.to.len() - self.record - HEAD;
        if length == 0 {
            self.to.truncate(self.record);
        } else {
            let head = record_head(PARAMS, self.id, length);
            self.to[self.record..self.record + HEAD].copy_from_slice(&head);
        }
    }

    /// Leaves the parameters open: [`more`](Params::more) of them follow.
    pub(super) fn pause(mut self) {
        self.close();
    }

    /// Ends the parameters. The body follows.
    pub(super) fn end(mut self) {
        self.close();
        self.to.extend(record_head(PARAMS, self.id, 0));
    }
}

fn length_bytes(length: usize) -> usize {
    if length < 128 { 1 } else { 4 }
}

fn push_length(length: usize, to: &mut Vec<u8>) {
    match u8::try_from(length) {
        Ok(short @ ..128) => to.push(short),
        _ => to.extend((u32::try_from(length).unwrap_or(0) | 1 << 31).to_be_bytes()),
    }
}

/// The reason for which bytes are no records of a response.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoRecord {
    #[error("the server does not speak FastCGI: a record begins with {0}, expected version 1")]
    Version(u8),
    #[error("the server has sent a record of type {0}, which no response has")]
    Kind(u8),
    #[error("the server has sent a record of request {0}, expected {1}")]
    Request(u16, u16),
    #[error("the server has sent an end of {0} bytes, expected 8")]
    End(usize),
}

/// A part of a response.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Part<'b> {
    /// Some of the output.
    Output(&'b [u8]),
    /// The output is over.
    OutputEnd,
    /// Some text for the log.
    Errors(&'b [u8]),
    /// The response is over, with this status of the protocol: 0 if the request was carried out.
    End(u8),
}

/// Reads records that come in any pieces.
#[derive(Default)]
pub(super) struct Reader {
    /// The number of the request.
    id: u16,
    /// The head of the record, and how many of its bytes are there.
    head: [u8; HEAD],
    seen: usize,
    /// The content and the padding that follow.
    content: usize,
    padding: usize,
    /// The content of an end, as far as it is there.
    end: [u8; 8],
}

impl Reader {
    /// Begins to read the response to the request of a number.
    pub(super) fn new(id: u16) -> Reader {
        Reader { id, ..Reader::default() }
    }

    /// Reads some bytes, and at most `most` of output. Returns how many were used, and a part if
    /// one was found. None are used if more bytes, or more room, are needed.
    ///
    /// # Errors
    ///
    /// The bytes are no records of a response.
    pub(super) fn step<'b>(
        &mut self,
        bytes: &'b [u8],
        most: usize,
    ) -> Result<(usize, Option<Part<'b>>), NoRecord> {
        let mut used = 0;
        if self.seen < HEAD {
            used = (HEAD - self.seen).min(bytes.len());
            self.head[self.seen..self.seen + used].copy_from_slice(&bytes[..used]);
            self.seen += used;
            if self.seen < HEAD {
                return Ok((used, None));
            }
            self.begin()?;
        }
        let kind = self.head[1];
        if self.content == 0 && self.padding == 0 {
            self.seen = 0;
            return Ok((used, self.empty(kind)));
        }
        let rest = &bytes[used..];
        if self.content > 0 {
            let length = match kind {
                STDOUT => self.content.min(rest.len()).min(most),
                _ => self.content.min(rest.len()),
            };
            let part = match kind {
                _ if length == 0 => None,
                STDOUT => Some(Part::Output(&rest[..length])),
                STDERR => Some(Part::Errors(&rest[..length])),
                END => {
                    let at = self.end.len() - self.content;
                    self.end[at..at + length].copy_from_slice(&rest[..length]);
                    None
                }
                _ => None,
            };
            self.content -= length;
            if self.content == 0 && self.padding == 0 {
                self.seen = 0;
                if kind == END {
                    return Ok((used + length, Some(Part::End(self.end[4]))));
                }
            }
            return Ok((used + length, part));
        }
        let length = self.padding.min(rest.len());
        self.padding -= length;
        if self.padding == 0 {
            self.seen = 0;
            let part = (kind == END).then_some(Part::End(self.end[4]));
            return Ok((used + length, part.or_else(|| self.empty(kind))));
        }
        Ok((used + length, None))
    }

    /// Returns how many bytes of output follow before anything else.
    pub(super) fn output_run(&self) -> usize {
        if self.seen == HEAD && self.head[1] == STDOUT { self.content } else { 0 }
    }

    /// Notes that so many bytes of that run were read elsewhere.
    pub(super) fn skip_output(&mut self, count: usize) {
        self.content -= count;
        if self.content == 0 && self.padding == 0 {
            self.seen = 0;
        }
    }

    /// Takes the last bytes of the last part of output back: they come again.
    pub(super) fn put_back(&mut self, count: usize) {
        if count > 0 {
            (self.seen, self.content) = (HEAD, self.content + count);
        }
    }

    /// Reads the head of a record.
    fn begin(&mut self) -> Result<(), NoRecord> {
        let [version, kind, id_high, id_low, high, low, padding, _] = self.head;
        if version != 1 {
            return Err(NoRecord::Version(version));
        }
        let id = u16::from_be_bytes([id_high, id_low]);
        let of_request = match kind {
            END | STDOUT | STDERR => true,
            VALUES | UNKNOWN => false,
            other => return Err(NoRecord::Kind(other)),
        };
        if of_request && id != self.id {
            return Err(NoRecord::Request(id, self.id));
        }
        self.content = usize::from(u16::from_be_bytes([high, low]));
        self.padding = usize::from(padding);
        if kind == END && self.content != self.end.len() {
            return Err(NoRecord::End(self.content));
        }
        Ok(())
    }

    /// Returns the part that a record without content is.
    fn empty(&self, kind: u8) -> Option<Part<'static>> {
        let is_empty = self.head[4..6] == [0, 0];
        (kind == STDOUT && is_empty).then_some(Part::OutputEnd)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the parameters of a request, and checks that none straddles two records.
    pub(in crate::upstream::fastcgi) fn parameters(mut bytes: &[u8]) -> Vec<(String, String)> {
        let mut found = Vec::new();
        while let [_, kind, _, _, high, low, padding, _, rest @ ..] = bytes {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            let (mut content, after) = rest.split_at(length);
            bytes = &after[usize::from(*padding)..];
            if *kind != PARAMS {
                continue;
            }
            while !content.is_empty() {
                let [name, value] = [(); 2].map(|()| take_length(&mut content));
                let [name, value] = [name, value].map(|length| {
                    let (text, rest) = content.split_at(length);
                    content = rest;
                    String::from_utf8(text.to_vec()).unwrap()
                });
                found.push((name, value));
            }
        }
        assert!(bytes.is_empty(), "{bytes:?}");
        found
    }

    fn take_length(content: &mut &[u8]) -> usize {
        if content[0] < 128 {
            let length = usize::from(content[0]);
            *content = &content[1..];
            return length;
        }
        let length = u32::from_be_bytes(content[..4].try_into().unwrap()) & !(1 << 31);
        *content = &content[4..];
        length as usize
    }

    #[test]
    fn parameters_straddle_no_records() {
        let values: Vec<_> = (0..40).map(|at| "v".repeat(at * 173 % 9_000)).collect();
        let mut bytes = Vec::new();
        let mut params = Params::begin(&mut bytes, 258, true);
        for value in &values {
            params.push(b"NAME", value.as_bytes()).unwrap();
        }
        params.pause();
        let mut params = Params::more(&mut bytes, 258);
        params.push(b"LAST", b"").unwrap();
        params.end();
        let found = parameters(&bytes);
        assert_eq!(found.len(), values.len() + 1);
        assert!(found.iter().zip(&values).all(|((_, found), value)| found == value));
        assert!(bytes.ends_with(&record_head(PARAMS, 258, 0)));
        let mut most = Vec::new();
        let mut params = Params::begin(&mut most, 258, false);
        params.push(b"N", &vec![b'v'; LONGEST - 6]).unwrap();
        assert!(params.push(b"N", &vec![b'v'; LONGEST - 5]).is_err());
        params.end();
        assert_eq!(parameters(&most)[0].1.len(), LONGEST - 6);
    }

    fn response(kind: u8, content: &[u8], padding: usize) -> Vec<u8> {
        let mut record = record_head(kind, 258, content.len()).to_vec();
        record[6] = padding as u8;
        record.extend_from_slice(content);
        record.resize(record.len() + padding, b'p');
        record
    }

    /// The output, the texts for the log, and the ends.
    type ReadParts = (Vec<u8>, Vec<u8>, Vec<Part<'static>>);

    /// Reads records in pieces of `size` bytes, with so much room for output.
    fn read(bytes: &[u8], size: usize, room: usize) -> Result<ReadParts, NoRecord> {
        let (mut reader, mut output, mut errors, mut rest) =
            (Reader::new(258), Vec::new(), Vec::new(), Vec::new());
        for mut piece in bytes.chunks(size) {
            while !piece.is_empty() {
                let (used, part) = reader.step(piece, room)?;
                match part {
                    Some(Part::Output(data)) => output.extend_from_slice(data),
                    Some(Part::Errors(data)) => errors.extend_from_slice(data),
                    Some(Part::OutputEnd) => rest.push(Part::OutputEnd),
                    Some(Part::End(status)) => rest.push(Part::End(status)),
                    None if used == 0 => panic!("nothing is done"),
                    None => {}
                }
                piece = &piece[used..];
            }
        }
        assert_eq!(reader.seen, 0);
        Ok((output, errors, rest))
    }

    #[test]
    fn records_are_read_however_they_are_cut() {
        // php-fpm leaves garbage in the reserved bytes of an end.
        let end = [0, 0, 0, 9, 0, 1, 2, 3];
        for paddings in 0..16 {
            let padding = |at: usize| if paddings >> at & 1 == 1 { 1 + at * 3 } else { 0 };
            let bytes = [
                response(STDOUT, b"Status: 200\r\n\r\nab", padding(0)),
                response(STDERR, b"oops", padding(1)),
                response(VALUES, b"xyz", 1),
                response(STDOUT, b"cdef", padding(2)),
                response(STDOUT, b"", padding(3)),
                response(END, &end, padding(0)),
            ]
            .concat();
            for size in 1..=bytes.len() {
                for room in [1, 3, 100] {
                    let (output, errors, rest) = read(&bytes, size, room).unwrap();
                    assert_eq!(output, b"Status: 200\r\n\r\nabcdef", "{size}");
                    assert_eq!(errors, b"oops");
                    assert_eq!(rest, [Part::OutputEnd, Part::End(0)], "{size} {paddings}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_response_is_refused() {
        assert_eq!(read(b"HTTP/1.1 200", 5, 9).unwrap_err(), NoRecord::Version(b'H'));
        assert_eq!(read(&response(PARAMS, b"a", 0), 99, 9).unwrap_err(), NoRecord::Kind(PARAMS));
        assert_eq!(read(&response(END, b"a", 0), 99, 9).unwrap_err(), NoRecord::End(1));
        let mut other = response(STDOUT, b"a", 0);
        (other[2], other[3]) = (0, 3);
        assert_eq!(read(&other, 99, 9).unwrap_err(), NoRecord::Request(3, 258));
    }
}
