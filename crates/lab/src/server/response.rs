//! Checks the bytes that arrive on a connection against the requested body: the status, the length
//! that the head promises, and every byte of the body.
//!
//! Long files come in many parts, and a generator that copied them would be slower than a server
//! that does not. So only a head that is not complete is kept; a body is compared where it was
//! read.

use std::rc::Rc;

/// The longest head of an answer.
const LONGEST_HEAD: usize = 4096;

/// The most fields of an answer's head.
const MOST_FIELDS: usize = 32;

/// The answer that arrives at present.
#[derive(Debug)]
pub(crate) struct Response {
    file: Rc<[u8]>,
    /// The part of a head that has arrived.
    head: Vec<u8>,
    /// How much of the body has arrived, once the head is complete.
    body: Option<usize>,
}

impl Response {
    /// Creates the check for this file.
    pub(crate) fn new(file: Rc<[u8]>) -> Response {
        Response { file, head: Vec::new(), body: None }
    }

    /// Takes the bytes that arrived and returns whether the answer is complete; the next request
    /// may begin then.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<bool, String> {
        let (begin, part) = match self.body {
            Some(begin) => (begin, bytes),
            None => match self.take_head(bytes)? {
                Some(part) => (0, part),
                None => return Ok(false),
            },
        };
        let expected = &self.file[begin..];
        if part.len() > expected.len() {
            return Err(format!(
                "{} bytes came after the end of the answer",
                part.len() - expected.len()
            ));
        }
        if part != &expected[..part.len()] {
            let wrong = part.iter().zip(expected).position(|(found, right)| found != right);
            return Err(format!("byte {} of a body was wrong", begin + wrong.unwrap_or(0)));
        }
        let complete = part.len() == expected.len();
        self.body = (!complete).then_some(begin + part.len());
        Ok(complete)
    }

    /// Takes the head from the bytes; returns the rest after it, if the head is complete.
    fn take_head<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<&'a [u8]>, String> {
        let complete = if self.head.is_empty() {
            end_of_head(bytes, self.file.len())?
        } else {
            let before = self.head.len();
            self.head.extend_from_slice(bytes);
            // It was not complete without these bytes, so it ends within them.
            end_of_head(&self.head, self.file.len())?.map(|end| end.saturating_sub(before))
        };
        match complete {
            Some(end) => {
                self.head.clear();
                Ok(Some(&bytes[end..]))
            }
            None => {
                if self.head.is_empty() {
                    self.head.extend_from_slice(bytes);
                }
                match self.head.len() {
                    ..=LONGEST_HEAD => Ok(None),
                    length => {
                        Err(format!("the head of an answer did not end within {length} bytes"))
                    }
                }
            }
        }
    }
}

/// Returns where a head ends, if it is complete; it must be the head of a file of this length.
fn end_of_head(bytes: &[u8], length: usize) -> Result<Option<usize>, String> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut head = httparse::Response::new(&mut fields);
    let end = match head.parse(bytes) {
        Ok(httparse::Status::Complete(end)) => end,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(format!("the head of an answer is none: {error}")),
    };
    if (head.version, head.code) != (Some(1), Some(200)) {
        let (minor, code) = (head.version.unwrap_or(0), head.code.unwrap_or(0));
        return Err(format!("an answer was HTTP/1.{minor} {code} instead of HTTP/1.1 200"));
    }
    let mut promised = None;
    for field in &*head.headers {
        let value = String::from_utf8_lossy(field.value);
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        if is("transfer-encoding")
            || is("content-encoding")
            || is("content-range")
            || (is("connection") && !value.eq_ignore_ascii_case("keep-alive"))
        {
            return Err(format!("an answer had {}: {value}, which none should have", field.name));
        }
        if is("content-length") {
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let number = value.parse::<usize>().ok().filter(|_| digits);
            let number = number.ok_or_else(|| format!("an answer had the length {value:?}"))?;
            if promised.replace(number).is_some() {
                return Err("an answer had two lengths".to_owned());
            }
        }
    }
    match promised {
        Some(promised) if promised == length => Ok(Some(end)),
        Some(promised) => Err(format!("an answer promised {promised} bytes instead of {length}")),
        None => Err("an answer had no content-length".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = b"thirteen more";
    const GOOD: &[u8] =
        b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\nConnection: keep-alive\r\n\r\nthirteen more";

    fn response() -> Response {
        Response::new(Rc::from(FILE))
    }

    #[test]
    fn an_answer_is_complete_with_its_last_byte_wherever_it_is_cut() {
        let mut response = response();
        assert!(response.take(GOOD).unwrap());
        for cut in 1..GOOD.len() {
            assert!(!response.take(&GOOD[..cut]).unwrap(), "cut at {cut}");
            assert!(response.take(&GOOD[cut..]).unwrap(), "cut at {cut}");
        }
        for byte in &GOOD[..GOOD.len() - 1] {
            assert!(!response.take(&[*byte]).unwrap());
        }
        assert!(response.take(b"e").unwrap());
    }

    #[test]
    fn anything_else_is_found_out() {
        let good = std::str::from_utf8(GOOD).unwrap();
        for (from, to, why) in [
            ("200 OK", "404 Not Found", "HTTP/1.1 404"),
            ("200 OK", "206 Partial Content", "206"),
            ("200 OK", "500 Oh", "500"),
            ("1.1", "1.0", "HTTP/1.0"),
            ("HTTP", "SPDY", "none"),
            ("Content-Length: 13\r\n", "", "no content-length"),
            ("Content-Length: 13", "Content-Length: 14", "14 bytes instead of 13"),
            ("Content-Length: 13", "Content-Length: +13", "+13"),
            ("Connection: keep-alive", "content-length: 13", "two lengths"),
            ("Connection: keep-alive", "date", "none"),
            ("keep-alive", "close", "close"),
            ("Connection: keep-alive", "Transfer-Encoding: chunked", "chunked"),
            ("Connection: keep-alive", "Content-Encoding: gzip", "gzip"),
            ("more", "mOre", "byte 10 "),
            ("more", "more?", "1 bytes"),
        ] {
            let answer = good.replace(from, to);
            let error = response().take(answer.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{answer:?}: {error}");
            // The same in small parts.
            let mut response = response();
            let found = answer.as_bytes().chunks(7).find_map(|part| response.take(part).err());
            assert!(found.is_some(), "{answer:?}");
        }
        // A head without end is not waited for.
        let mut response = response();
        response.take(b"HTTP/1.1 200 OK\r\nx: ").unwrap();
        assert!((0..5).any(|_| response.take(&[b'x'; 1000]).is_err()));
    }
}
