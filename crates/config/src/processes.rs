//! The number of processes that serve.

use std::num::NonZeroUsize;

use serde::de::Deserializer;

use super::workers::{CountText, processors};

/// The most processes. Each has an engine at least; processes beyond the number of processors only
/// share the processors.
const MOST_PROCESSES: usize = 1024;

fn expected() -> String {
    format!("expected 1 to {MOST_PROCESSES}, or \"auto\" for one for each processor")
}

/// Reads a number of processes: digits, or `auto` for the number of processors that this process
/// may use.
///
/// # Errors
///
/// The mistake, and the expected value.
pub fn parse_processes(text: &str) -> Result<NonZeroUsize, String> {
    if text == "auto" {
        return Ok(processors());
    }
    let number = text.parse::<NonZeroUsize>().ok().filter(|one| one.get() <= MOST_PROCESSES);
    number.ok_or_else(|| format!("{text:?} is no number of processes, {}", expected()))
}

pub(super) fn processes<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<NonZeroUsize, D::Error> {
    deserializer.deserialize_any(CountText { what: "processes", parse: parse_processes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_processes() {
        assert_eq!(parse_processes("4").unwrap().get(), 4);
        assert!(parse_processes("auto").unwrap().get() >= 1);
        for wrong in ["0", "1025", "-1", "many", ""] {
            let error = parse_processes(wrong).unwrap_err();
            assert!(error.contains("expected 1 to 1024"), "{error}");
        }
    }
}
