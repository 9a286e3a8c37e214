//! io_uring as a C programmer uses it.

use crate::echo::connections::Connections;
use crate::error::{Error, Result};
use crate::server::Control;
use crate::sys::uring::echo::Echo;

/// Returns why it cannot run here.
pub(crate) fn refusal() -> Option<String> {
    let refused = Echo::new(&[], 512).err()?;
    Some(format!("a ring with provided buffers: {refused}"))
}

pub(crate) fn serve(connections: Connections, control: &mut Control) -> Result<()> {
    let failed = |source| Error::system("serving with an io_uring", source);
    let mut echo = Echo::new(&connections.sockets, connections.room).map_err(failed)?;
    control.ready()?;
    while echo.is_open() {
        echo.turn().map_err(failed)?;
    }
    Ok(())
}
