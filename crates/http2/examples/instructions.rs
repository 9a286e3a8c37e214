//! Requests of a browser and their responses, as many as the first argument says, to be counted:
//!
//! ```text
//! cargo build --profile dist -p superpoll-http2 --example instructions
//! valgrind --tool=callgrind target/dist/examples/instructions 2000
//! ```
//!
//! The difference of 2,000 and 1,000 requests is what a thousand cost. A request has 17 fields, of
//! which its path has a Huffman code and the others are in tables; a response has 200, 7 fields and
//! 1 KiB of data. A second argument, `head`, leaves out the copy of the data; `prepared` does that
//! and takes the fields of the response from [`PreparedFields`], as files do; and `first` sends the
//! fields of a first request each time, with Huffman codes for all of them.

use http::StatusCode;
use superpoll_http1::{FieldName, FieldValue};
use superpoll_http2::{Config, Connection, Event, PREFACE, PreparedFields, Scratch};

/// The first request of a browser.
#[rustfmt::skip]
const FIRST: &[u8] = b"\x82\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff\x87\x04\x90\x60\x68\x41\x52\
      \x86\x10\x64\x95\x66\xa5\x7c\x82\x91\x72\x21\x1f\x40\x87\x41\x48\xb1\x27\x5a\xd1\xff\xb8\
      \xfe\x6f\x4f\x61\xe9\x35\xb4\xff\x3f\x7d\xe0\xfe\x42\xc8\x3f\x9f\xa5\x3f\x9c\x47\x3c\xd4\
      \x15\x4b\xd3\xd8\x7a\x4b\xfc\xfd\xf7\x83\xf9\x0b\x20\xfe\x7e\x94\xfe\x74\x9d\x3f\xe4\x31\
      \x5d\xb0\x75\x49\xfc\xfd\xf7\x83\xf9\x7d\xff\xe7\x40\x8b\x41\x48\xb1\x27\x5a\xd1\xad\x49\
      \xe3\x35\x05\x02\x3f\x30\x40\x8d\x41\x48\xb1\x27\x5a\xd1\xad\x5d\x03\x4c\xa7\xb2\x9f\x07\
      \x22\x4c\x69\x6e\x75\x78\x22\x7a\xce\xd0\x7f\x66\xa2\x81\xb0\xda\xe0\x53\xfa\xfc\x08\x7e\
      \xd4\xce\x6a\xad\xf2\xa7\x97\x9c\x89\xc6\xbf\xb5\x21\xae\xba\x0b\xc8\xb1\xe6\x32\x58\x6d\
      \x97\x57\x65\xc5\x3f\xac\xd8\xf7\xe8\xcf\xf4\xa5\x06\xea\x55\x31\x14\x9d\x4f\xfd\xa9\x7a\
      \x7b\x0f\x49\x58\x0b\x20\x5c\x0b\x81\x70\x29\xb8\x72\x8e\xc3\x30\xdb\x2e\xae\xcb\x9f\x53\
      \x8e\x49\x7c\xa5\x82\x21\x1f\x5f\x2c\x7c\xfd\xf6\x80\x0b\x87\x40\x8a\x41\x48\xb4\xa5\x49\
      \x27\x59\x06\x49\x7f\x88\x40\xe9\x2a\xc7\xb0\xd3\x1a\xaf\x40\x8a\x41\x48\xb4\xa5\x49\x27\
      \x5a\x93\xc8\x5f\x85\xa8\xeb\x10\xf6\x23\x40\x8a\x41\x48\xb4\xa5\x49\x27\x5a\x42\xa1\x3f\
      \x84\x42\x7d\x50\x5f\x73\x9b\x9d\x29\xad\x17\x18\x63\xc7\x8f\x0b\x97\xc8\xe9\xae\x82\xae\
      \x43\xd2\xc5\x76\x1e\x4b\x48\x94\x31\x41\x90\x9f\x50\x92\x9b\xd9\xab\xfa\x52\x42\xcb\x40\
      \xd2\x5f\xa5\x23\xb3\xe9\x4f\x68\x4c\x9f\x51\x8b\x2d\x4b\x70\xdd\xf4\x5a\xbe\xfb\x40\x05\
      \xdf\x60\x9a\x41\x50\x83\x1e\xa8\x1b\x94\x51\xbc\x40\x95\xf1\xbb\x23\x40\x65\xcf\xb5\x13\
      \x39\x69\x2c\x12\x0e\xce\xbf\x40\x86\xae\xc3\x1e\xc3\x27\xd7\x03\x75\x3d\x30";

/// The same request once more.
#[rustfmt::skip]
const AGAIN: &[u8] = b"\x82\xcb\x87\x04\x90\x60\x68\x41\x52\x86\x10\x64\x95\x66\xa5\x7c\x82\x91\x72\x21\x1f\xca\
      \xc9\xc8\xc7\xc6\xc5\xc4\xc3\xc2\xc1\xc0\xbf\xbe";

/// The fields of a response.
const FIELDS: [(&str, &str); 7] = [
    ("content-type", "text/css; charset=utf-8"),
    ("content-length", "1024"),
    ("last-modified", "Sat, 29 Oct 2026 19:43:31 GMT"),
    ("etag", "\"5f2b8c1e-400\""),
    ("cache-control", "max-age=3600"),
    ("server", "superpoll"),
    ("date", "Mon, 30 Nov 2026 05:40:00 GMT"),
];

/// A frame of fields that are a whole request.
fn frame(block: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (block.len() as u32).to_be_bytes();
    [&[a, b, c, 1, 5, 0, 0, 0, 0][..], block].concat()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let requests: u32 = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(1000);
    let kind = arguments.next().unwrap_or_default();
    let (mut out, mut scratch) = (Vec::new(), Scratch::new());
    let mut connection = Connection::new(Config::DEFAULT, &mut out);
    let fields = FIELDS.map(|(name, value)| {
        let value = FieldValue::new(value.as_bytes()).expect("a value");
        (FieldName::new(name.as_bytes()).expect("a name"), value)
    });
    let mut prepared = PreparedFields::new();
    fields.iter().for_each(|(name, value)| prepared.push(*name, *value));
    let body = [b'a'; 1024];
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    // Windows of 2^31 bytes are enough for all responses.
    let window = [0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0xff, 0, 0];
    let mut input = [PREFACE, &settings, &window].concat();
    let (mut first, mut again) = (frame(FIRST), frame(AGAIN));
    let mut answered = 0;
    while answered < requests {
        let mut rest = &input[..];
        while !rest.is_empty() {
            let step = connection.receive(rest, 0, &mut scratch, &mut out).expect("good frames");
            rest = &rest[step.used..];
            let Event::Request { stream, head, .. } = step.event else { continue };
            assert_eq!((head.target.path().len(), head.fields.len()), (23, 13));
            let mut writer =
                connection.respond(stream, StatusCode::OK, false, &mut out).expect("a stream");
            match kind == "prepared" {
                true => writer.prepared(&prepared),
                false => fields.iter().for_each(|(name, value)| writer.field(*name, *value)),
            }
            writer.finish();
            connection.data_head(stream, body.len(), true, &mut out).expect("room");
            if !matches!(&*kind, "head" | "prepared") {
                out.extend_from_slice(&body);
            }
            answered += 1;
        }
        let next = if answered == 0 || kind == "first" { &mut first } else { &mut again };
        next[5..9].copy_from_slice(&(2 * answered + 1).to_be_bytes());
        input.clear();
        input.extend_from_slice(next);
        out.clear();
    }
    assert_eq!(connection.streams(), 0);
}
