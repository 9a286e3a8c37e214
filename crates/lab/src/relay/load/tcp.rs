//! Requests that a relay of bytes passes on: a number, the length of the answer, and a part of the
//! pattern.

use super::FoundRequest;
use super::pattern::Pattern;

/// The length of a request.
pub(super) const REQUEST: usize = 100;

/// Where a request states the length of its answer, after its number.
const LENGTH_AT: usize = 8;
const HEAD: usize = 16;

pub(super) fn write_request(pattern: &Pattern, number: u64, bytes: usize, to: &mut Vec<u8>) {
    to.extend_from_slice(&number.to_le_bytes());
    to.extend_from_slice(&(bytes as u64).to_le_bytes());
    to.extend_from_slice(pattern.whole(number, REQUEST - HEAD));
}

/// Finds the request that the origin has received, if it is complete.
pub(super) fn find_request(
    pattern: &Pattern,
    got: &[u8],
    bytes: usize,
) -> Result<Option<FoundRequest>, String> {
    let Some((number, rest)) = got.split_at_checked(LENGTH_AT).filter(|_| got.len() == REQUEST)
    else {
        return Ok(None);
    };
    let number = number.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
    let (length, part) = rest.split_at(HEAD - LENGTH_AT);
    if length != (bytes as u64).to_le_bytes() || part != pattern.whole(number, REQUEST - HEAD) {
        return Err(format!("the origin got a wrong request {number}"));
    }
    Ok(Some(FoundRequest { number, closes: false }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_and_correct_request_is_found() {
        let pattern = Pattern::new();
        let mut request = Vec::new();
        write_request(&pattern, 0x1234_5678_9abc, 200, &mut request);
        assert_eq!(request.len(), REQUEST);
        let find = |request: &[u8]| find_request(&pattern, request, 200);
        assert_eq!(find(&request[..REQUEST - 1]), Ok(None));
        let number = 0x1234_5678_9abc;
        assert_eq!(find(&request), Ok(Some(FoundRequest { number, closes: false })));
        for place in 0..REQUEST {
            let mut spoilt = request.clone();
            spoilt[place] ^= 1;
            assert!(find(&spoilt).unwrap_err().contains("wrong request"), "byte {place}");
        }
    }
}
