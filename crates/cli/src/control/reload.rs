//! `superpoll reload`.

use std::cell::RefCell;
use std::error::Error;
use std::path::Path;

use superpoll_gateway::telemetry::socket::{Answer, Command};

use super::{Progress, converse, say, unexpected};

/// Makes a server read its configuration anew, and prints the outcome.
pub(super) async fn reload(
    path: &Path,
    progress: &RefCell<Progress>,
) -> Result<(), Box<dyn Error>> {
    let (_, reply) = converse(path, Command::Reload, progress).await?;
    let Answer::Done(outcome) = &reply.answer else { return Err(unexpected(&reply)) };
    for note in &outcome.notes {
        eprintln!("superpoll: {note}");
    }
    say(&format!("process {} {}", reply.process, outcome.message))
}
