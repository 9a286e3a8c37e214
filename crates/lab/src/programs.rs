//! Programs of other projects: where they are installed, and the versions that they report.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::sys::process;

/// The time that a program may take to print its version.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the path of a program in the search path, or in the folders of administrators' programs.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Returns the first line that a program prints, on either output, when called with these
/// arguments; `None` if it is not installed, fails, or takes too long.
pub(crate) fn first_line(name: &str, arguments: &[&str]) -> Option<String> {
    let mut text = tempfile::tempfile().ok()?;
    let copy = |file: &File| file.try_clone().ok();
    let mut command = Command::new(find(name)?);
    command.args(arguments).stdin(Stdio::null()).stdout(copy(&text)?).stderr(copy(&text)?);
    let (child, ..) = process::spawn(&mut command).ok()?;
    let begun = Instant::now();
    while !child.has_ended() {
        if begun.elapsed() > PATIENCE {
            return None;
        }
        process::sleep(1_000_000);
    }
    let mut said = String::new();
    text.rewind().and_then(|()| text.read_to_string(&mut said)).ok()?;
    said.lines().next().map(|line| line.trim().to_owned())
}

/// Returns the version of a package of Debian's; `None` if it is not installed, or there are no
/// such packages here.
pub(crate) fn package_version(package: &str) -> Option<String> {
    let line = first_line("dpkg-query", &["-W", "-f=${Version}\\n", package])?;
    Some(line).filter(|line| line.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_the_search_path_and_asked() {
        assert!(find("sh").is_some() && find("no-such-program-here").is_none());
        assert!(first_line("ls", &["--version"]).unwrap().contains("ls"));
        assert!(first_line("no-such-program-here", &["-v"]).is_none());
    }
}
