//! Our runtime, with a task for each connection.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll::batch::{Arrivals, BatchReader, Outcome};
use superpoll::diagnostics::Stats;
use superpoll::{BackendKind, Builder, Events, Interest, Key, Mode, Watch, call};
use superpoll_rt::net::TcpStream;

use crate::echo::drain::echo_by;
use crate::echo::load::{Connections, EVENTS};
use crate::error::{Error, Result};
use crate::server::{Control, Counts, program};

pub(crate) fn serve(
    connections: Connections,
    control: &mut Control,
    backend: BackendKind,
) -> Result<()> {
    let failed = |source: io::Error| Error::system("setting our runtime up", source);
    program::serve(backend, control, |runtime| {
        runtime.try_block_on(async {
            for socket in connections.sockets {
                let stream = TcpStream::from_std(socket.into()).map_err(failed)?;
                superpoll_rt::spawn(echo(stream, connections.room)).detach();
            }
            Ok(())
        })?
    })
}

async fn echo(mut stream: TcpStream, room: usize) {
    let mut buffer = vec![0; room];
    // A connection that breaks is missed by the load generator.
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

// Our poller, with reads and writes by its inlined calls: the loop that its user would write.

pub(crate) fn serve_polled(
    connections: Connections,
    control: &mut Control,
    builder: Builder,
) -> Result<()> {
    let mut poller = builder.build()?;
    let mut buffer = vec![0; connections.room];
    let watch = Watch::new(Interest::READABLE).mode(Mode::Auto);
    let questions = control.questions()?;
    let asked = poller.register(&questions, watch)?;
    let mut sockets: Vec<Option<(Key, OwnedFd)>> = Vec::new();
    for socket in connections.sockets {
        let key = poller.register(&socket, watch)?;
        let place = key.index() as usize;
        if place >= sockets.len() {
            sockets.resize_with(place + 1, || None);
        }
        sockets[place] = Some((key, socket));
    }
    let mut open = sockets.iter().flatten().count();
    poller.flush();
    control.ready()?;
    let mut events = Events::with_limit(EVENTS);
    while open > 0 {
        poller.wait(&mut events, None)?;
        for event in &events {
            let key = event.key();
            if key == asked {
                match call::read(&questions, &mut [0]) {
                    Ok(1) => control.counted(counts(poller.stats()))?,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    _ => return Ok(()),
                }
                continue;
            }
            let socket = &mut sockets[key.index() as usize];
            if socket.as_ref().is_some_and(|(_, socket)| !answer(socket, &mut buffer)) {
                poller.deregister(key)?;
                *socket = None;
                open -= 1;
            }
        }
        if let Some((_, error)) = events.refusals().first() {
            return Err(Error::usage(error.to_string()));
        }
    }
    Ok(())
}

fn counts(Stats { calls, .. }: Stats) -> Counts {
    Counts { waits: calls.waits(), epoll_ctl: calls.epoll_ctl(), ..Counts::default() }
}

/// Echoes the bytes that can be read; returns whether the connection goes on.
fn answer(socket: impl AsFd, buffer: &mut [u8]) -> bool {
    let read = |buffer: &mut [u8]| call::read(&socket, buffer).map_err(|error| error.kind());
    echo_by(buffer, read, |bytes| call::send(&socket, bytes).ok())
}

// Our batch reader, which returns events together with their bytes.

pub(super) fn serve_read(
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
                        control.counted(counts(reader.stats()))?;
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
