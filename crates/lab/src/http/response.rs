//! Reads answers from a connection and checks each completely: the status, each header's form, the
//! length and every byte of the body.

/// The body of every answer.
pub(crate) const BODY: &[u8; 13] = b"Hello, World!";

/// The longest head of an answer.
const LONGEST_HEAD: usize = 4096;

/// The end of a head.
const BLANK: &[u8] = b"\r\n\r\n";

/// The answer that arrives at present.
#[derive(Debug, Default)]
pub(crate) struct Response {
    arrived: Vec<u8>,
}

impl Response {
    /// Takes the bytes that arrived and returns whether the answer is complete; the next request
    /// may begin then.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<bool, String> {
        self.arrived.extend_from_slice(bytes);
        let Some(head) = self.arrived.windows(BLANK.len()).position(|window| window == BLANK)
        else {
            return match self.arrived.len() {
                ..=LONGEST_HEAD => Ok(false),
                length => Err(format!("the head of an answer did not end within {length} bytes")),
            };
        };
        let length = body_length(&self.arrived[..head])?;
        if length != BODY.len() {
            return Err(format!("an answer promised {length} bytes instead of {}", BODY.len()));
        }
        let body = &self.arrived[head + BLANK.len()..];
        if !BODY.starts_with(&body[..body.len().min(BODY.len())]) {
            return Err(format!("an answer was {:?}", String::from_utf8_lossy(body)));
        }
        if body.len() > BODY.len() {
            return Err(format!(
                "{} bytes came after the end of the answer",
                body.len() - BODY.len()
            ));
        }
        let complete = body.len() == BODY.len();
        if complete {
            self.arrived.clear();
        }
        Ok(complete)
    }
}

/// Returns the length that a head gives for the body.
fn body_length(head: &[u8]) -> Result<usize, String> {
    let head = std::str::from_utf8(head).map_err(|_| "an answer's head is not text".to_owned())?;
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    if status != "HTTP/1.1 200 OK" {
        return Err(format!("an answer began with {status:?}"));
    }
    let mut length = None;
    for line in lines {
        let Some((name, value)) = line.split_once(':') else {
            return Err(format!("an answer had the header {line:?}"));
        };
        if name.eq_ignore_ascii_case("transfer-encoding") || name.eq_ignore_ascii_case("connection")
        {
            return Err(format!("an answer had the header {line:?}, which none should have"));
        }
        if name.eq_ignore_ascii_case("content-length") {
            let value = value.trim().parse().map_err(|_| format!("an answer had {line:?}"))?;
            if length.replace(value).is_some() {
                return Err("an answer had two lengths".to_owned());
            }
        }
    }
    length.ok_or_else(|| "an answer had no content-length".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\ndate: now\r\n\r\nHello, World!";

    #[test]
    fn an_answer_is_complete_with_its_last_byte_wherever_it_is_cut() {
        let mut response = Response::default();
        assert!(response.take(GOOD).unwrap());
        for cut in 1..GOOD.len() {
            assert!(!response.take(&GOOD[..cut]).unwrap(), "cut at {cut}");
            assert!(response.take(&GOOD[cut..]).unwrap(), "cut at {cut}");
        }
        for byte in &GOOD[..GOOD.len() - 1] {
            assert!(!response.take(&[*byte]).unwrap());
        }
        assert!(response.take(b"!").unwrap());
        let shouted = String::from_utf8(GOOD.to_vec()).unwrap();
        let shouted = shouted.replace("content-length: ", "Content-Length:");
        assert!(response.take(shouted.as_bytes()).unwrap());
    }

    #[test]
    fn anything_else_is_found_out() {
        let good = std::str::from_utf8(GOOD).unwrap();
        for (from, to, why) in [
            ("200 OK", "500 Oh", "500 Oh"),
            ("1.1", "1.0", "1.0"),
            ("content-length: 13\r\n", "", "no content-length"),
            ("content-length: 13", "content-length: 14", "14 bytes instead of 13"),
            ("content-length: 13", "content-length: +x", "+x"),
            ("date: now", "content-length: 13", "two lengths"),
            ("date: now", "transfer-encoding: chunked", "chunked"),
            ("date: now", "connection: close", "close"),
            ("date: now", "date", "\"date\""),
            ("World", "world", "Hello, world!"),
            ("World!", "World!?", "1 bytes"),
        ] {
            let answer = good.replace(from, to);
            let error = Response::default().take(answer.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{answer:?}: {error}");
        }
        // A wrong body shows before it is complete, and a head without end is not waited for.
        let mut response = Response::default();
        assert!(
            response.take(&good.replace("Hello", "Hullo").as_bytes()[..GOOD.len() - 9]).is_err()
        );
        let mut response = Response::default();
        assert!((0..5).any(|_| response.take(&[b'x'; 1000]).is_err()));
    }
}
