//! `superpoll reload`.

use std::cell::RefCell;
use std::error::Error;
use std::path::Path;

use superpoll_gateway::telemetry::socket::{CommandAnswer, ServerCommand};

use super::{LastSeen, converse, say, unexpected};

/// Makes a server read its configuration again, and prints the outcome.
pub(super) async fn reload(path: &Path, seen: &RefCell<LastSeen>) -> Result<(), Box<dyn Error>> {
    let (_, reply) = converse(path, &ServerCommand::Reload.into(), seen).await?;
    let CommandAnswer::Done(outcome) = &reply.answer else { return Err(unexpected(&reply)) };
    for note in &outcome.notes {
        eprintln!("superpoll: {note}");
    }
    say(&format!("process {} {}", reply.process, outcome.message))
}
