//! Formats numbers for people.

use std::collections::VecDeque;
use std::time::Duration;

use superpoll_gateway::telemetry::snapshot::Turn;
use superpoll_gateway::telemetry::traffic::Quantile;

/// Formats a number with three digits and a unit of thousands.
pub(super) fn count(value: f64) -> String {
    let (mut value, mut unit) = (value, 0);
    const UNITS: [&str; 5] = ["", "k", "M", "G", "T"];
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = match value {
        // A rate below one in ten is still more than zero.
        _ if value == 0.0 => 0,
        _ if value < 9.95 => 1,
        _ if value < 99.5 && unit > 0 => 1,
        _ => 0,
    };
    format!("{value:.digits$}{}", UNITS[unit])
}

/// Formats a whole number.
pub(super) fn whole(value: u64) -> String {
    if value < 1000 { value.to_string() } else { count(value as f64) }
}

/// Formats a rate; a dash where there is none.
pub(super) fn rate(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), count)
}

/// Formats a quantile of durations; a dash where there was none.
pub(super) fn quantile(value: Option<Quantile>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Draws the last values of a history as bars in a line.
pub(super) fn trend(values: &VecDeque<f64>, width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = values.iter().skip(values.len().saturating_sub(width));
    let most = shown.clone().copied().fold(0.0, f64::max);
    let bar = |value: &f64| match most > 0.0 {
        true => BARS[((value / most * 7.0).round() as usize).min(7)],
        false => BARS[0],
    };
    shown.map(bar).collect()
}

/// Formats an active/total ratio.
pub(super) fn ratio(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value > 0.0 && value < 0.0095 => format!("{value:.4}"),
        Some(value) => format!("{value:.2}"),
    }
}

/// Formats a duration or an age, in nanoseconds.
pub(super) fn time(nanos: u64) -> String {
    let value = nanos as f64;
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.1} us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", value / 1e6),
        1_000_000_000..100_000_000_000 => format!("{:.1} s", value / 1e9),
        _ => long(Duration::from_nanos(nanos)),
    }
}

/// Formats a long time by its two largest units.
fn long(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours) {
        (0, 0) => format!("{minutes}m{:02}s", seconds % 60),
        (0, _) => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

/// Formats a turn in a line. Times of the coarse clock are only approximate.
pub(super) fn turn(turn: &Turn) -> String {
    let about = if turn.step_ns > 0 { "~" } else { "" };
    let Turn { tasks, events, timers, .. } = turn;
    format!(
        "{about}{}  {} ago  {tasks} tasks, {events} events, {timers} timers",
        time(turn.took_ns),
        time(turn.ago_ns)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_keep_their_significant_digits() {
        let counts = [0.0, 0.25, 9.94, 9.96, 42.4, 999.4, 999.6, 12_345.0, 123_456.0, 5e9, 2e18];
        let texts = counts.map(count);
        assert_eq!(
            texts,
            ["0", "0.2", "9.9", "10", "42", "999", "1.0k", "12.3k", "123k", "5.0G", "2000000T"]
        );
        assert_eq!([0, 7, 999, 1000, 12_345].map(whole), ["0", "7", "999", "1.0k", "12.3k"]);
        assert_eq!([None, Some(1.5)].map(rate), ["-", "1.5"]);
        let ratios = [None, Some(0.0), Some(0.0001), Some(0.78), Some(1.0)].map(ratio);
        assert_eq!(ratios, ["-", "0.00", "0.0001", "0.78", "1.00"]);
        let times = [7, 1_234, 81_234_567, 2_500_000_000, 100_000_000_000, 3_723_000_000_000];
        let times = times.map(time);
        assert_eq!(times, ["7 ns", "1.2 us", "81.2 ms", "2.5 s", "1m40s", "1h02m"]);
        assert_eq!(time(90_000_000_000_000), "1d01h");
        assert_eq!(quantile(Some(Quantile::Below(500_000))), "<500us");
        let values = VecDeque::from([9.0, 0.0, 7.0, 1.0]);
        assert_eq!((trend(&values, 3), trend(&VecDeque::new(), 3)), ("▁█▂".into(), String::new()));
        assert_eq!(trend(&VecDeque::from([0.0, 0.0]), 3), "▁▁");
    }
}
