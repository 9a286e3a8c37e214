//! The messages that are sent, and the check that the same bytes come back.
//!
//! Every request is different: its bytes are drawn from the connection's number and from how many
//! requests went before it. An answer to another connection, or an old, cut or doubled answer, is
//! detected by its bytes.

use crate::random::Random;

/// Fills in the request with this number on a connection.
pub(super) fn fill(connection: u64, number: u64, bytes: &mut [u8]) {
    let mut random = Random::new((connection << 40) ^ number);
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&random.bits().to_le_bytes()[..chunk.len()]);
    }
}

/// The answer that arrives at present.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answer {
    arrived: usize,
}

impl Answer {
    /// Takes the bytes that arrived in answer to `request`; returns whether the answer is complete.
    /// The next request may begin then.
    pub(super) fn take(&mut self, bytes: &[u8], request: &[u8]) -> Result<bool, String> {
        let rest = &request[self.arrived.min(request.len())..];
        if bytes.len() > rest.len() {
            let more = bytes.len() - rest.len();
            return Err(format!("{more} bytes came after the end of the answer"));
        }
        if let Some(place) = bytes.iter().zip(rest).position(|(came, sent)| came != sent) {
            return Err(format!(
                "byte {} of an answer was {} instead of {}",
                self.arrived + place,
                bytes[place],
                rest[place]
            ));
        }
        self.arrived += bytes.len();
        let complete = self.arrived == request.len();
        if complete {
            self.arrived = 0;
        }
        Ok(complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(connection: u64, number: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        fill(connection, number, &mut bytes);
        bytes
    }

    #[test]
    fn requests_are_all_different_and_the_same_each_time() {
        let all: Vec<_> =
            (0..50).flat_map(|c| (0..50).map(move |number| request(c, number, 13))).collect();
        let different: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(request(7, 3, 13), all[7 * 50 + 3]);
        assert_eq!(request(7, 3, 5), all[7 * 50 + 3][..5]);
    }

    #[test]
    fn an_answer_is_complete_with_its_last_byte_wherever_it_is_cut() {
        let sent = request(1, 2, 20);
        let mut answer = Answer::default();
        assert!(answer.take(&sent, &sent).unwrap());
        for cut in 1..20 {
            assert!(!answer.take(&sent[..cut], &sent).unwrap(), "cut at {cut}");
            assert!(answer.take(&sent[cut..], &sent).unwrap(), "cut at {cut}");
        }
    }

    #[test]
    fn anything_else_is_found_out() {
        let sent = request(1, 2, 20);
        for place in 0..20 {
            let mut wrong = sent.clone();
            wrong[place] ^= 1;
            let mut answer = Answer::default();
            assert!(!answer.take(&wrong[..place], &sent).unwrap_or(true), "nothing is wrong yet");
            let error = answer.take(&wrong[place..], &sent).unwrap_err();
            assert!(error.contains(&format!("byte {place} of")), "{error}");
        }
        let doubled = [&sent[..], &sent[..1]].concat();
        let error = Answer::default().take(&doubled, &sent).unwrap_err();
        assert!(error.contains("1 bytes came"), "{error}");
        // The answer to another connection, and the previous answer.
        for other in [request(2, 2, 20), request(1, 1, 20)] {
            assert!(Answer::default().take(&other, &sent).is_err());
        }
    }
}
