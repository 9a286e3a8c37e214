//! With BPF, or by tracing the program where BPF is not permitted.

use std::error::Error;
use std::time::Duration;

use superpoll_watch::{Subject, Watch};

use super::recording::{self, Recording};

/// How long a process that runs already is traced at most, as that slows it.
const SAMPLE: Duration = Duration::from_secs(2);

/// Attaches to the subject. Tracing is told before it begins.
///
/// # Errors
///
/// The process cannot be watched, or there is no BPF, and tracing is not possible.
pub(super) fn attach(
    subject: Subject,
    options: &recording::Options,
) -> Result<(Watch, Option<Recording>), Box<dyn Error>> {
    if let Some(path) = options.file() {
        return options.attach(subject, path).map(|(watch, recording)| (watch, Some(recording)));
    }
    let shortage = match Watch::attach(subject) {
        Ok(watch) => return Ok((watch, None)),
        Err(error) if error.is_shortage_of_bpf() && subject != Subject::All => error,
        Err(error) => return Err(error.into()),
    };
    let watch = Watch::trace(subject)?;
    let slower = watch.overhead().as_nanos() as f64 / 1e3;
    let what = match subject {
        Subject::Process(process) => format!("process {process} is traced for two seconds at most"),
        _ => "the program is traced".to_owned(),
    };
    eprintln!(
        "superpoll: {what}, and each of its system calls takes {slower:.1} us longer: {shortage}"
    );
    Ok((watch, None))
}

/// How long to watch.
pub(super) fn limit(watch: &Watch, subject: Subject, wanted: Option<Duration>) -> Option<Duration> {
    match subject {
        Subject::Process(_) if watch.is_traced() => Some(wanted.unwrap_or(SAMPLE).min(SAMPLE)),
        _ => wanted,
    }
}
