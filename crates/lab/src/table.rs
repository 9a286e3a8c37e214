//! Tables for the terminal, and numbers in their cells.

pub use superpoll_cli::table::Table;

/// A ratio with two digits; a dash if there is none.
pub fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// Nanoseconds, in the unit that keeps three or four digits.
pub fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        ns if ns < 10_000.0 => format!("{ns:.0} ns"),
        ns if ns < 10_000_000.0 => format!("{:.1} us", ns / 1e3),
        ns => format!("{:.1} ms", ns / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_ratios() {
        assert_eq!(time(950.4), "950 ns");
        assert_eq!(time(25_040.0), "25.0 us");
        assert_eq!(time(25_040_000.0), "25.0 ms");
        assert_eq!((ratio(Some(0.777)), ratio(None)), ("0.78".to_owned(), "-".to_owned()));
    }
}
