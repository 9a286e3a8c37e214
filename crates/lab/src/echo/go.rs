//! Go's netpoll with a goroutine for each connection: a separate program (`go/main.go`), which the
//! server's process executes.

use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;

use crate::echo::load::Connections;
use crate::error::{Error, Result};
use crate::go::Program;
use crate::server::Control;
use crate::sys::descriptor;

/// The server.
pub(super) static PROGRAM: Program = Program::new("echo", include_str!("go/main.go"));

/// Executes the program, which reports on the line whether it is ready. Returns only if that fails.
pub(super) fn serve(connections: Connections, control: &mut Control) -> Result<()> {
    let mut command = PROGRAM.command()?;
    let failed = |e| Error::system("starting an echo server in Go", e);
    let line = control.questions()?;
    let keep = |fd: RawFd| descriptor::keep_on_exec(fd).map(|()| fd.to_string());
    let sockets = connections.sockets.iter().map(|socket| keep(socket.as_raw_fd()));
    let sockets = sockets.collect::<std::io::Result<Vec<String>>>().map_err(failed)?;
    let line = keep(line.as_raw_fd()).map_err(failed)?;
    Err(failed(command.args([line, connections.room.to_string(), sockets.join(",")]).exec()))
}
