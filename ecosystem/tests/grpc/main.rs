//! gRPC through the gateway: clients of HTTP/2 over TLS, servers of HTTP/2 without it, with the
//! libraries of Rust (tonic) and of Go.

mod calls;
mod gateway;
mod go;
mod resets;
mod service;

use std::time::{Duration, Instant};

/// The time after which a test that waits fails.
const LIMIT: Duration = Duration::from_secs(20);

/// Waits for a state.
async fn until(what: &str, mut is_there: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_there() {
        assert!(begun.elapsed() < LIMIT, "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Runs a test on threads of tokio, with a limit of time.
fn run(test: impl Future<Output = ()>) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let bounded = async { tokio::time::timeout(6 * LIMIT, test).await.expect("it hangs") };
    runtime.block_on(bounded);
    runtime.shutdown_background();
}
