//! Server-sent events with their ids, as a page's `EventSource` takes them.

/// An event.
#[derive(Debug, PartialEq)]
pub(super) enum Event {
    /// A message, with its id.
    Message(String, String),
    /// The notice that messages were missed.
    Missed,
}

/// The lines of a stream, up to the event in them.
#[derive(Debug, Default)]
pub(super) struct Lines {
    line: Vec<u8>,
    kind: String,
    data: Option<String>,
    /// The last id, with which the stream is resumed.
    pub last_id: Option<String>,
}

impl Lines {
    /// Takes bytes, and calls `hear` with each complete event.
    pub(super) fn take(&mut self, bytes: &[u8], hear: &mut dyn FnMut(Event)) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                if let Some(event) = self.line(String::from_utf8_lossy(&line).trim_end()) {
                    hear(event);
                }
            }
        }
    }

    fn line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let (kind, data) = (std::mem::take(&mut self.kind), self.data.take()?);
            let id = self.last_id.clone().unwrap_or_default();
            return Some(if kind == "missed" { Event::Missed } else { Event::Message(data, id) });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => self.data = Some(value.to_owned()),
            "event" => value.clone_into(&mut self.kind),
            "id" => self.last_id = Some(value.to_owned()),
            // Comments, and the time to wait before the next connection.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_with_their_ids_wherever_the_stream_is_cut() {
        let text = "retry: 2000\nid: 0-a\n: hi\nevent: missed\nid: 0-a\ndata: true\n\n\
                    id: 1-a\ndata: x\n\nid: 2-a\ndata: y\n";
        for cut in 0..text.len() {
            let (mut lines, mut heard) = (Lines::default(), Vec::new());
            for part in [&text[..cut], &text[cut..]] {
                lines.take(part.as_bytes(), &mut |event| heard.push(event));
            }
            let message = Event::Message("x".to_owned(), "1-a".to_owned());
            assert_eq!(heard, [Event::Missed, message]);
            assert_eq!(lines.last_id.as_deref(), Some("2-a"));
        }
    }
}
