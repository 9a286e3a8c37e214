//! The machine of an experiment: the facts that a reader needs to judge its numbers, without paths
//! or host names.

use serde::{Deserialize, Serialize};

/// The compiler of this build.
pub const RUSTC: &str = env!("SUPERPOLL_RUSTC");

/// The profile of this build: `dist`, `release`, `debug`, or `gate` (`.cargo/gate.toml`).
pub const PROFILE: &str = env!("SUPERPOLL_PROFILE");

/// Machine, kernel and program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// Version of this program.
    pub superpoll: String,
    /// The commit it was built from, if that was known.
    pub commit: Option<String>,
    /// The compiler it was built with.
    pub rustc: String,
    /// The profile it was built with; empty in records that do not have it.
    pub profile: String,
    /// The kernel's release.
    pub kernel: String,
    /// The processor.
    pub cpu: String,
    /// Processors this process may use.
    pub cores: usize,
    /// The most descriptors this process may open.
    pub descriptor_limit: u64,
    /// The mitigations that are active, as the kernel names them.
    pub mitigations: Vec<String>,
    /// Seconds since 1970.
    pub unix_time: u64,
    /// The same as a date (UTC).
    pub date: String,
    /// Threads of this process while it measured.
    pub threads: usize,
}

impl Environment {
    /// Looks around.
    pub fn here() -> Environment {
        let unix_time = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let commit = env!("SUPERPOLL_COMMIT");
        Environment {
            superpoll: env!("CARGO_PKG_VERSION").to_owned(),
            commit: (!commit.is_empty()).then(|| commit.to_owned()),
            rustc: RUSTC.to_owned(),
            profile: PROFILE.to_owned(),
            kernel: line("/proc/sys/kernel/osrelease").unwrap_or_default(),
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_default(),
            cores: processors(),
            descriptor_limit: superpoll::limits::nofile().1,
            mitigations: mitigations(),
            unix_time,
            date: date(unix_time),
            threads: threads(),
        }
    }

    /// One line for people.
    pub fn summary(&self) -> String {
        format!(
            "{}, {} cores, Linux {}, {}, {} thread{}",
            if self.cpu.is_empty() { "unknown processor" } else { &self.cpu },
            self.cores,
            self.kernel,
            self.rustc,
            self.threads,
            if self.threads == 1 { "" } else { "s" },
        )
    }
}

/// Returns the number of processors that this process may use.
fn processors() -> usize {
    rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count() as usize)
}

/// Returns the number of threads of this process.
fn threads() -> usize {
    field("/proc/self/status", "Threads").and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// The first line of a file.
pub fn line(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.lines().next()?.trim().to_owned())
}

/// The value of the first line `name: value` of a file.
pub fn field(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
}

/// Which weaknesses of the processor the kernel works around: each costs something per call.
fn mitigations() -> Vec<String> {
    let Ok(directory) = std::fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else {
        return Vec::new();
    };
    let mut all: Vec<String> = directory
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let says = std::fs::read_to_string(entry.path()).ok()?;
            let how = says.trim().strip_prefix("Mitigation: ")?;
            Some(format!("{}: {how}", entry.file_name().to_string_lossy()))
        })
        .collect();
    all.sort();
    all
}

/// A date of the proleptic Gregorian calendar from seconds since 1970.
fn date(unix_time: u64) -> String {
    // Years are counted from March, so that a leap day is the last of its year.
    let days = unix_time / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(951_868_800), "2000-03-01");
        assert_eq!(date(1_798_761_599), "2026-12-31");
        assert_eq!(date(1_798_761_600), "2027-01-01");
    }

    #[test]
    fn something_is_known_of_this_machine() {
        let here = Environment::here();
        assert!(here.cores >= 1 && here.descriptor_limit > 0 && here.threads >= 1);
        assert!(here.kernel.contains('.') && here.rustc.starts_with("rustc"));
        assert!(!here.summary().contains('/'));
    }
}
