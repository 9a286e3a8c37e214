//! The program `superpoll`.

use std::process::ExitCode;

fn main() -> ExitCode {
    superpoll_cli::main()
}
