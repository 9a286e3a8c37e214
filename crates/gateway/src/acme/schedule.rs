//! The times of renewals and of attempts after a failure: arithmetic without a clock.

use std::time::{Duration, SystemTime};

use ring::rand::{SecureRandom, SystemRandom};

use super::certificate::Validity;

/// The largest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(6 * 60 * 60);

/// The reason for which there is no certificate, as far as it decides about the next attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FailureKind {
    /// No answer of the authority, or of the disk: an attempt costs nothing.
    Unreachable,
    /// The authority has refused, or has answered nonsense: it counts attempts.
    Refused,
}

/// Returns a random number that is at least 0 and less than 1.
pub(super) fn jitter() -> f64 {
    let mut bytes = [0; 4];
    // Without random numbers there is no TLS either.
    let _ = SystemRandom::new().fill(&mut bytes);
    f64::from(u32::from_ne_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
}

/// Returns the time at which a certificate is renewed: after two thirds of its life, less up to a
/// thirtieth of its life, so that the certificates of many servers are not renewed at the same
/// time. `jitter` is at least 0 and less than 1.
pub(super) fn renewal(validity: Validity, jitter: f64) -> SystemTime {
    let life = validity.to.duration_since(validity.from).unwrap_or_default();
    validity.from + life.mul_f64(2.0 / 3.0 - jitter.clamp(0.0, 1.0) / 30.0)
}

/// Returns a time in the window that the authority suggests (RFC 9773, section 4.2), and never one
/// at which the certificate has ended.
pub(super) fn suggested(
    start: SystemTime,
    end: SystemTime,
    validity: Validity,
    jitter: f64,
) -> SystemTime {
    let length = end.duration_since(start).unwrap_or_default();
    let life = validity.to.duration_since(validity.from).unwrap_or_default();
    let latest = validity.to.checked_sub(life / 12).unwrap_or(validity.to);
    (start + length.mul_f64(jitter.clamp(0.0, 1.0))).min(latest)
}

/// Returns the pause after a number of failures in a row. Let's Encrypt allows five failed
/// validations of a name in an hour, so pauses after refusals grow by a factor of three from a
/// minute on: the sixth attempt comes after two hours. `asked` is the pause that the authority has
/// asked for.
pub(super) fn pause(
    kind: FailureKind,
    failures: u32,
    asked: Option<Duration>,
    jitter: f64,
) -> Duration {
    let (first, factor) = match kind {
        FailureKind::Unreachable => (Duration::from_secs(5), 2_u32),
        FailureKind::Refused => (Duration::from_secs(60), 3),
    };
    let growth = factor.saturating_pow(failures.saturating_sub(1));
    let pause = first.saturating_mul(growth).min(LONGEST_PAUSE);
    let pause = pause + pause.mul_f64(jitter.clamp(0.0, 1.0) / 4.0);
    // An authority that asks for a year is not believed, but for a week it is.
    let longest = Duration::from_secs(7 * 24 * 60 * 60);
    pause.max(asked.unwrap_or_default().min(longest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: u64 = 24 * 60 * 60;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn ninety_days_are_renewed_after_sixty() {
        let validity = Validity { from: at(0), to: at(90 * DAY) };
        assert_eq!(renewal(validity, 0.0), at(60 * DAY));
        assert_eq!(renewal(validity, 1.0), at(57 * DAY));
    }

    #[test]
    fn refusals_stay_within_the_limit_of_the_authority() {
        let seconds = |failures| pause(FailureKind::Refused, failures, None, 0.0).as_secs();
        assert_eq!([1, 2, 3, 4, 5].map(seconds), [60, 180, 540, 1_620, 4_860]);
        assert_eq!(seconds(u32::MAX), 6 * 60 * 60);
        let asked = Some(Duration::from_secs(100));
        assert_eq!(pause(FailureKind::Refused, 1, asked, 0.0).as_secs(), 100);
        let year = Some(Duration::from_secs(365 * DAY));
        assert_eq!(pause(FailureKind::Unreachable, 1, year, 0.0).as_secs(), 7 * DAY);
    }

    proptest! {
        #[test]
        fn renewals_come_in_time(
            from in 0..4_000_000_000_u64,
            life in 12..4_000_000_000_u64,
            start in 0..9_000_000_000_u64,
            length in 0..9_000_000_000_u64,
            jitter in 0.0..1.0,
        ) {
            let validity = Validity { from: at(from), to: at(from + life) };
            let renewal = renewal(validity, jitter);
            prop_assert!(validity.contains(renewal));
            prop_assert!(suggested(at(start), at(start + length), validity, jitter) < validity.to);
            // A window that ends before it starts is one of no length.
            let turned = suggested(at(start + length), at(start), validity, jitter);
            prop_assert!(turned <= at(start + length));
        }

        #[test]
        fn pauses_grow(failures in 1..100_u32, jitter in 0.0..1.0) {
            for kind in [FailureKind::Unreachable, FailureKind::Refused] {
                let now = pause(kind, failures, None, jitter);
                prop_assert!(now <= pause(kind, failures + 1, None, jitter));
                prop_assert!(now <= LONGEST_PAUSE + LONGEST_PAUSE / 4);
            }
        }
    }
}
