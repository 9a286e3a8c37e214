//! Starts the built command, as a user would.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Output;

use crate::program::program;

/// Options of every experiment that keep it short.
pub(crate) const SMALL: [&str; 5] = ["--quick", "--seconds", "0.1", "--repetitions", "1"];

pub(crate) use crate::program::lab;

/// Runs the command in a folder.
pub(crate) fn run(folder: &Path, arguments: &[&str]) -> Output {
    lab().current_dir(folder).args(arguments).output().unwrap()
}

/// Runs a command that must succeed, and returns its output.
pub(crate) fn succeed(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must be refused, and returns the one line with the reason.
pub(crate) fn refused(arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), arguments);
    assert!(!output.status.success(), "{arguments:?} was not refused");
    assert!(output.stdout.is_empty(), "{arguments:?} printed results");
    let errors = reason(&output);
    assert!(errors.starts_with("superpoll-lab: "), "{errors}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{arguments:?} left files");
    errors
}

/// Returns the one line with the reason of a failure. Optional programs that are absent here have a
/// line each before it.
pub(crate) fn reason(output: &Output) -> String {
    let errors = String::from_utf8(output.stderr.clone()).unwrap();
    let is_reason = |line: &&str| !line.contains(" left out: no `");
    let lines: Vec<&str> = errors.lines().filter(is_reason).collect();
    assert_eq!(lines.len(), 1, "{errors}");
    lines[0].to_owned()
}

/// Runs the command in a folder as a user who may have this many processes and threads. The
/// superuser has no such limit. So a superuser starts the command as another user, and opens the
/// folder to that user.
pub(crate) fn limited(folder: &Path, tasks: usize, arguments: &str) -> Output {
    let mut everybody = std::fs::metadata(folder).unwrap().permissions();
    everybody.set_mode(0o777);
    std::fs::set_permissions(folder, everybody).unwrap();
    // The folder that it was built in may not be open to other users.
    std::fs::copy(lab().get_program(), folder.join("superpoll-lab")).unwrap();
    let mut command = program("bash");
    command.current_dir(folder);
    command.args(["-c", &format!("ulimit -u {tasks} && exec ./superpoll-lab {arguments}")]);
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        // Each caller gets another user, since the limit counts all processes of a user.
        let user = 61_000 + std::process::id() % 1000 * 4 + u32::from(arguments.contains("herd"));
        command.uid(user).gid(user);
    }
    command.output().unwrap()
}
