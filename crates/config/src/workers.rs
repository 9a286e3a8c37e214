//! The numbers of workers and of processes: digits, or `"auto"`.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

/// The most workers. Each is a thread with a poller, listeners and timers of its own; workers
/// beyond the number of processors only share the processors.
const MOST_WORKERS: usize = 1024;

/// The number of workers of a process: engines that share the connections, each on a thread of its
/// own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Workers {
    /// One for each processor that the process may use; several processes share the processors out
    /// among them.
    #[default]
    Auto,
    /// This many, at most 1024.
    Count(NonZeroUsize),
}

impl Workers {
    /// Returns the number of workers of one of some equal processes.
    #[must_use]
    pub fn count(self, processes: NonZeroUsize) -> NonZeroUsize {
        match self {
            Workers::Count(count) => count,
            Workers::Auto => {
                let each = processors().get() / processes;
                NonZeroUsize::new(each.min(MOST_WORKERS)).unwrap_or(NonZeroUsize::MIN)
            }
        }
    }
}

impl FromStr for Workers {
    type Err = String;

    fn from_str(text: &str) -> Result<Workers, String> {
        if text == "auto" {
            return Ok(Workers::Auto);
        }
        match text.parse::<NonZeroUsize>() {
            Ok(count) if count.get() <= MOST_WORKERS => return Ok(Workers::Count(count)),
            Ok(count) => Err(format!("{count} workers are more than there can be")),
            Err(_) => Err(format!("{text:?} is no number of workers")),
        }
        .map_err(|what| {
            format!("{what}, expected 1 to {MOST_WORKERS}, or \"auto\" for one for each processor")
        })
    }
}

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Workers, D::Error> {
        deserializer.deserialize_any(CountText { what: "workers", parse: str::parse })
    }
}

/// The number of processors that this process may use; a machine that does not tell has one.
fn processors() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// A number in a configuration, or a text that is read as on the command line.
struct CountText<T> {
    what: &'static str,
    parse: fn(&str) -> Result<T, String>,
}

impl<T> Visitor<'_> for CountText<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a number of {}, or \"auto\"", self.what)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        (self.parse)(&number.to_string()).map_err(E::custom)
    }
}

/// The most processes. Each has an engine at least; processes beyond the number of processors only
/// share the processors.
const MOST_PROCESSES: usize = 1024;

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
    number.ok_or_else(|| {
        let expected = format!("1 to {MOST_PROCESSES}, or \"auto\" for one for each processor");
        format!("{text:?} is no number of processes, expected {expected}")
    })
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

    fn one(number: usize) -> NonZeroUsize {
        NonZeroUsize::new(number).unwrap()
    }

    #[test]
    fn numbers_of_workers() {
        assert_eq!("4".parse(), Ok(Workers::Count(one(4))));
        assert_eq!("auto".parse(), Ok(Workers::Auto));
        assert_eq!(Workers::Count(one(3)).count(one(7)), one(3));
        for wrong in ["0", "1025", "-1", "many", "1.5", ""] {
            let error = wrong.parse::<Workers>().unwrap_err();
            assert!(error.contains("expected 1 to 1024"), "{error}");
        }
    }

    #[test]
    fn processes_share_the_processors_out() {
        assert_eq!(Workers::Auto.count(one(1)), processors());
        assert_eq!(Workers::Auto.count(processors()), one(1));
        assert_eq!(Workers::Auto.count(one(1024)), one(1));
    }
}
