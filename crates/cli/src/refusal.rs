//! Command lines that cannot be parsed.

use std::process::ExitCode;

use clap::error::ErrorKind;

/// Prints help and version as clap does, any other error in one line, and returns the exit code.
pub fn refuse(program: &str, error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        let _ = error.print();
        return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
    }
    let text = error.to_string();
    let cause = text.split("\n\n").next().unwrap_or(&text);
    let line = cause.split_whitespace().collect::<Vec<_>>().join(" ");
    eprintln!("{program}: {} (see --help)", line.trim_start_matches("error: "));
    ExitCode::from(2)
}
