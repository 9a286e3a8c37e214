//! `superpoll import`: a configuration from that of another server.
//!
//! The result is a start, not a promise. Each line names the lines that it comes from, and each
//! directive that cannot be expressed, or that needs nothing here, is a comment with its place. The
//! server accepts the output if the files that it names exist.
//!
//! | part | files |
//! |---|---|
//! | directives, and reading files with bounds | `directive.rs`, `source.rs` |
//! | the tables that are written, with places and comments | `output.rs`, `upstreams.rs` |
//! | the syntax and the meaning of nginx | `nginx/` |
//! | the syntax and the meaning of Caddyfiles | `caddy/` |

mod caddy;
mod directive;
mod nginx;
mod output;
mod source;
#[cfg(test)]
mod tests;
mod upstreams;

use std::error::Error;
use std::fs::File;
use std::io::{Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use output::Tally;

/// The exit status if a directive could not be imported.
const INCOMPLETE: u8 = 3;

/// A server whose configuration is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Format {
    /// nginx.conf, or a file of sites-available
    Nginx,
    /// A Caddyfile
    Caddy,
}

/// Options of `import`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// The other server
    #[arg(value_enum)]
    server: Format,
    /// Its configuration
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The file to write, which must not be there yet [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Returns the text of the configuration, and the numbers of directives by their outcomes.
fn import(server: Format, file: &Path) -> Result<(String, Tally), Box<dyn Error>> {
    let (directives, mut output) = match server {
        Format::Nginx => nginx::import(file)?,
        Format::Caddy => caddy::import(file)?,
    };
    output.add_vanished(&directives);
    let text = output.settle(&directives)?;
    Ok((text, Tally::of(&directives)))
}

/// Writes the configuration, and the sum on standard error.
pub(crate) fn run(options: &Options) -> Result<ExitCode, Box<dyn Error>> {
    let (text, tally) = import(options.server, &options.file)?;
    match &options.output {
        Some(path) => {
            let cannot = |error| format!("writing {}: {error}", path.display());
            let mut file = File::create_new(path).map_err(cannot)?;
            file.write_all(text.as_bytes()).map_err(cannot)?;
            writeln!(stdout(), "superpoll: wrote {}", path.display())?;
        }
        None => stdout().write_all(text.as_bytes())?,
    }
    writeln!(stderr(), "superpoll: {tally}")?;
    Ok(match tally.not_imported {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(INCOMPLETE),
    })
}
