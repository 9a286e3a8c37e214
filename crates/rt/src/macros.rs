//! The functions that the attributes [`main`](crate::main) and [`test`](crate::test) call.

use std::future::Future;
use std::num::NonZeroUsize;

use superpoll::BackendKind;

use crate::runtime::Builder;

/// Builds a runtime and blocks on a future.
pub fn block_on<F: Future>(builder: Builder, future: F) -> F::Output {
    match builder.build() {
        Ok(runtime) => runtime.block_on(future),
        Err(error) => panic!("building the runtime: {error}"),
    }
}

/// Returns the number of engines.
pub fn workers(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).expect("workers = 0: a runtime has one engine at least")
}

/// Returns the back-end of this name.
pub fn backend(name: &str) -> BackendKind {
    name.parse().unwrap_or_else(|error| panic!("backend = {name:?}: {error}"))
}
