//! The command's output: results on the standard output, and everything else on standard error.

use std::fmt;
use std::io::Write;

use crate::error::{Doing, Result};

/// The name of the command, before each line on standard error.
pub(crate) const PROGRAM: &str = "superpoll-lab";

/// Prints a line on the standard output, as `println!` does, but returns the error.
#[macro_export]
macro_rules! say {
    ($($text:tt)+) => {
        $crate::say::print(format_args!("{}\n", format_args!($($text)+)))
    };
}

/// Prints on the standard output.
pub(crate) fn print(text: impl fmt::Display) -> Result<()> {
    let mut output = std::io::stdout().lock();
    write!(output, "{text}").and_then(|()| output.flush()).doing("writing to the standard output")
}

/// Reports a difference from the request, on standard error.
pub(crate) fn note(text: &str) {
    eprintln!("{PROGRAM}: {text}");
}
