//! Our batch reader, which returns events together with their bytes.

use std::os::fd::OwnedFd;

use superpoll::batch::{Arrivals, BatchReader, Outcome};
use superpoll::{BackendKind, call};

use crate::echo::connections::{Connections, EVENTS};
use crate::error::{Error, Result};
use crate::server::{Control, Counts};

pub(super) fn serve(
    connections: Connections,
    control: &mut Control,
    kind: BackendKind,
) -> Result<()> {
    let mut reader = BatchReader::with_backend(kind)?.buffer_size(connections.room);
    let asked =
        reader.register(OwnedFd::from(control.questions()?)).map_err(|refused| refused.error)?;
    for socket in connections.sockets {
        reader.register(socket).map_err(|refused| refused.error)?;
    }
    reader.flush();
    control.ready()?;
    let mut arrivals = Arrivals::with_limit(EVENTS);
    // The line to the parent is one of the entries.
    while reader.len() > 1 {
        reader.wait(&mut arrivals, None)?;
        for arrival in &arrivals {
            let key = arrival.key();
            let goes_on = match (arrival.outcome(), reader.get(key)) {
                (Outcome::Bytes(bytes), _) if key == asked => {
                    for _ in bytes {
                        control.counted(counts(&reader))?;
                    }
                    true
                }
                (Outcome::Bytes(bytes), Some(socket)) => {
                    call::send(socket, bytes).ok() == Some(bytes.len())
                }
                _ if key == asked => return Ok(()),
                _ => false,
            };
            if !goes_on {
                drop(reader.deregister(key)?);
            }
        }
        if let Some((_, error)) = arrivals.refusals().first() {
            return Err(Error::usage(error.to_string()));
        }
    }
    Ok(())
}

fn counts(reader: &BatchReader<OwnedFd>) -> Counts {
    let calls = reader.stats().calls;
    Counts { waits: calls.waits(), epoll_ctl: calls.epoll_ctl(), ..Counts::default() }
}
