//! With BPF. Where that is not permitted, by a library that a program loads which is started here,
//! or by tracing.

use std::error::Error;
use std::time::Duration;

use superpoll_watch::{Method, Subject, Watch};

use super::recording::{self, Prepared};

/// How long a process that runs already is traced at most, as that slows it.
const SAMPLE: Duration = Duration::from_secs(2);

/// Attaches to the subject, or prepares to start a program. Names the substitute for BPF.
///
/// # Errors
///
/// The process cannot be watched, or there is no BPF, and tracing is not possible.
pub(super) fn attach(
    subject: Subject,
    program: Option<&String>,
    options: &recording::Options,
) -> Result<(Watch, Option<Prepared>), Box<dyn Error>> {
    if let Some(path) = options.file() {
        return options.attach(subject, path).map(|(watch, recording)| (watch, Some(recording)));
    }
    let shortage = match Watch::attach(subject) {
        Ok(watch) => return Ok((watch, None)),
        Err(error) if error.is_shortage_of_bpf() && subject != Subject::All => error,
        Err(error) => return Err(error.into()),
    };
    let mut not_preloaded = String::new();
    match program.map(|program| Watch::preload(program.as_ref())) {
        Some(Ok(watch)) => {
            eprintln!(
                "superpoll: a library that the program loads counts its calls; those that do not \
                 go through the C library are not seen: {shortage}"
            );
            return Ok((watch, None));
        }
        Some(Err(error)) => not_preloaded = format!("; {error}"),
        None => {}
    }
    let watch = Watch::trace(subject)?;
    let slower = watch.overhead().as_nanos() as f64 / 1e3;
    let what = match subject {
        Subject::Process(process) => format!("process {process} is traced for two seconds at most"),
        _ => "the program is traced".to_owned(),
    };
    eprintln!(
        "superpoll: {what}, and each of its system calls takes {slower:.1} us longer: \
         {shortage}{not_preloaded}"
    );
    Ok((watch, None))
}

/// How long to watch.
pub(super) fn limit(watch: &Watch, subject: Subject, wanted: Option<Duration>) -> Option<Duration> {
    match subject {
        Subject::Process(_) if watch.method() == Method::Ptrace => {
            Some(wanted.unwrap_or(SAMPLE).min(SAMPLE))
        }
        _ => wanted,
    }
}
