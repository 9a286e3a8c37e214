//! Writes the manual pages and the completions for shells that packages install:
//! `cargo run -p superpoll-cli --example manual -- FOLDER`.
//!
//! They are made from the command line itself (`superpoll_cli::command`), so they have each command
//! and option with the text of its help. The libraries that write them are dependencies of tests
//! and examples alone: the server does not carry them, and a package that is built without them has
//! the same program.
//!
//! | file | content |
//! |---|---|
//! | `man1/superpoll.1`, `man1/superpoll-serve.1`, ... | a page for each command (`commands.rs`) |
//! | `man5/superpoll.toml.5` | every key of a configuration, from `docs/superpoll.toml` (`configuration.rs`) |
//! | `completions/superpoll.bash`, `_superpoll`, `superpoll.fish` | completions for bash, zsh and fish |

mod commands;
mod configuration;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap_complete::Shell;

/// The configuration with every key, in a checkout.
const CONFIGURATION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/superpoll.toml");

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(folder), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: manual FOLDER");
        return ExitCode::from(2);
    };
    match write_all(&PathBuf::from(folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("manual: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write_all(folder: &Path) -> Result<(), Box<dyn Error>> {
    for (name, page) in commands::pages(superpoll_cli::command()) {
        write(&folder.join("man1").join(format!("{name}.1")), page.as_bytes())?;
    }
    let text = fs::read_to_string(CONFIGURATION)
        .map_err(|error| format!("reading {CONFIGURATION}: {error}"))?;
    let page = configuration::page(&text)
        .map_err(|line| format!("{CONFIGURATION}: neither comment, table nor key: {line}"))?;
    write(&folder.join("man5/superpoll.toml.5"), page.as_bytes())?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let mut completions = Vec::new();
        let mut command = commands::visible(superpoll_cli::command());
        clap_complete::generate(shell, &mut command, "superpoll", &mut completions);
        let name = match shell {
            Shell::Zsh => "_superpoll".to_owned(),
            shell => format!("superpoll.{shell}"),
        };
        write(&folder.join("completions").join(name), &completions)?;
    }
    Ok(())
}

/// Writes a file, and makes its folder if need be.
fn write(path: &Path, content: &[u8]) -> Result<(), Box<dyn Error>> {
    let failed = |error| format!("writing {}: {error}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    Ok(fs::write(path, content).map_err(failed)?)
}
