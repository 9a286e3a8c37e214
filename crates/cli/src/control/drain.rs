//! `superpoll drain`.

use std::cell::RefCell;
use std::error::Error;
use std::path::Path;

use superpoll_gateway::telemetry::socket::{CommandAnswer, ServerCommand};

use super::{LastSeen, converse, not_answering, say, unexpected};
use crate::quantity;
use crate::stats::source::End;

/// Ends a server, and prints its connections and requests until its process has ended.
pub(super) async fn drain(path: &Path, seen: &RefCell<LastSeen>) -> Result<(), Box<dyn Error>> {
    let (mut conversation, reply) = converse(path, &ServerCommand::Drain.into(), seen).await?;
    let CommandAnswer::Done(_) = &reply.answer else { return Err(unexpected(&reply)) };
    let mut known = None;
    loop {
        match conversation.next().await {
            Ok(reply) => {
                let CommandAnswer::Progress(now) = &reply.answer else {
                    return Err(unexpected(&reply));
                };
                if known.replace(now.clone()).as_ref() != Some(now) {
                    let mut line = quantity::open_work(now.connections, now.requests);
                    let missing = &now.missing_processes;
                    if !missing.is_empty() {
                        line = format!("{line}, without those of {}", not_answering(missing));
                    }
                    say(&format!("process {}: {line}", reply.process))?;
                    seen.borrow_mut().last = Some(line);
                }
            }
            Err(End::Ended) => break,
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(process) = &conversation.process {
        process.ended().await;
    }
    say(&format!("process {} has ended", reply.process))
}
