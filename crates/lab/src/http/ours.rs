//! Our runtime below hyper, on the requested back-end.

use std::io;
use std::net::TcpListener;

use superpoll::BackendKind;

use crate::error::{Error, Result};
use crate::http::hello;
use crate::server::{Control, program};

pub(super) fn serve(
    listener: TcpListener,
    control: &mut Control,
    backend: BackendKind,
) -> Result<()> {
    let failed = |source: io::Error| Error::system("setting our runtime up", source);
    program::serve(backend, control, |runtime| {
        let listener = superpoll_rt::net::TcpListener::from_std(listener).map_err(failed)?;
        runtime
            .try_block_on(async { superpoll_rt::spawn(accept(listener)).detach() })
            .map_err(Error::from)
    })
}

async fn accept(listener: superpoll_rt::net::TcpListener) {
    // A client without a connection gets no answer, which the load generator notices.
    while let Ok((stream, _)) = listener.accept().await {
        if stream.set_nodelay(true).is_ok() {
            superpoll_rt::spawn(hello::serve(stream)).detach();
        }
    }
}
