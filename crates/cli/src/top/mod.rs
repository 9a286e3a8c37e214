//! `superpoll top`: the requests, servers, channels and engines of a running server or proxy.
//!
//! With `--once` they are printed as text. The screen that follows them (`live`) needs a library
//! for terminals: it is the feature `top`.

#[cfg(feature = "top")]
mod live;
#[cfg(any(test, not(feature = "top")))]
mod without_live;

// Text shows less than the screen.
#[cfg_attr(not(feature = "top"), allow(dead_code))]
mod figures;
mod model;
mod text;
#[cfg_attr(not(feature = "top"), allow(dead_code))]
mod traffic;

use std::error::Error;
use std::io::{Write, stdout};
use std::path::Path;
use std::time::Duration;

use superpoll::BackendKind;
use superpoll_gateway::control::{ApiRequest, INTERVALS};
use superpoll_rt::{Runtime, time};

use crate::control::ServerName;
use crate::control::client::{End, Exchange};
use crate::control::target::{Meant, locate};
use crate::printable::printable_json;
#[cfg(feature = "top")]
use live::follow;
use model::Model;
#[cfg(not(feature = "top"))]
use without_live::follow;

/// How long a process may take to send its first snapshot, beyond the interval.
const PATIENCE: Duration = Duration::from_secs(10);

/// Options of `top`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub name: ServerName,
    /// Print the figures once, without a terminal, and end
    #[arg(long)]
    pub once: bool,
    /// Print the snapshot of the process unchanged, as an object of JSON in one line
    #[arg(long, requires = "once")]
    pub json: bool,
    /// The time over which rates are taken
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: u64,
}

/// Parses an interval, and returns it in milliseconds.
fn interval(text: &str) -> Result<u64, String> {
    let duration = crate::proxy::seconds(text)?;
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if INTERVALS.contains(&millis) {
        Ok(millis)
    } else {
        Err("expected 0.05 to 60 seconds".to_owned())
    }
}

/// Shows figures once, or until the user quits or there is nothing more to show.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    if options.once {
        return runtime()?.try_block_on(once(options))?;
    }
    follow(options)
}

fn runtime() -> Result<Runtime, Box<dyn Error>> {
    // A few descriptors: choosing a back-end is not worth the effort.
    Ok(Runtime::builder().backend(BackendKind::Epoll).build()?)
}

/// Prints once: the snapshot as it is, or text with the rates of an interval.
async fn once(options: &Options) -> Result<(), Box<dyn Error>> {
    let path = &locate(options.name.get(), Meant::Any).await?;
    let tells = async {
        let mut stream = Exchange::begin(path, &ApiRequest::snapshots(options.interval)).await?;
        if options.json {
            let line = stream.line().await?;
            stream.read_snapshot(&line)?;
            return Ok(printable_json(&line));
        }
        let mut model = Model::default();
        for _ in 0..2 {
            model.take(stream.snapshot().await?);
        }
        Ok::<_, End>(text::write(&model).into_bytes())
    };
    let patience = patience(options.interval);
    let mut told = time::timeout(patience, tells).await.map_err(|_| silent(path, patience))??;
    if options.json {
        told.push(b'\n');
    }
    stdout().write_all(&told)?;
    Ok(())
}

/// Returns how long a process may take to send its first snapshot.
fn patience(interval_ms: u64) -> Duration {
    PATIENCE + Duration::from_millis(interval_ms)
}

/// Returns the error for a process that takes longer.
fn silent(path: &Path, patience: Duration) -> String {
    let (path, seconds) = (path.display(), patience.as_secs());
    format!("the process at {path} has sent nothing for {seconds} seconds; it is busy or stopped")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_given_in_seconds() {
        assert_eq!(interval("0.05"), Ok(50));
        assert_eq!(interval("60"), Ok(60_000));
        for wrong in ["0", "0.049", "61", "-1", "soon", "1e99"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
