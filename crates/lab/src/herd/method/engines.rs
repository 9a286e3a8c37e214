//! Our runtime in one process: engines that serve one address together, in each of the four ways
//! that [`Listeners`] offers. The fourth, handing over, exists only here: between processes,
//! descriptors would have to be passed.

use std::io;
use std::num::NonZeroUsize;

use superpoll_rt::net::{Listeners, Spread};
use superpoll_rt::{BackendKind, Handle, Runtime};

/// Serves indefinitely with `engines` engines; returns only on an error. `ready` gets the port,
/// `accepted` the number of the engine.
pub(crate) fn stand(
    engines: usize,
    backend: BackendKind,
    spread: Spread,
    ready: impl FnOnce(u16),
    accepted: impl Fn(usize) + Clone + Send + 'static,
) -> io::Result<()> {
    let engines = NonZeroUsize::new(engines).unwrap_or(NonZeroUsize::MIN);
    let runtime = Runtime::builder().backend(backend).workers(engines).build()?;
    let handle = runtime.handle();
    let address = std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0));
    let listeners = Listeners::serve(&handle, address, spread, move |stream, _| {
        drop(stream);
        if let Some(engine) = Handle::current().ok().and_then(|handle| handle.engine()) {
            accepted(engine);
        }
        std::future::ready(())
    })?;
    let serve = async {
        // An engine that runs this later task has begun to listen.
        for engine in 0..handle.engines() {
            let seen = handle.spawn_on(engine, async {}).map_err(io::Error::from)?;
            seen.await.map_err(|error| io::Error::other(error.to_string()))?;
        }
        ready(listeners.local_addr().port());
        std::future::pending::<io::Result<()>>().await
    };
    runtime.try_block_on(serve)?
}
