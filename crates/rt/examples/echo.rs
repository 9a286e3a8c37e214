//! Sends its input back.
//!
//! Try it with `cargo run --example echo -- --listen 127.0.0.1:7000` and `nc 127.0.0.1 7000`.

use futures_lite::io::copy;
use superpoll_rt::spawn;

mod options;

fn main() -> std::process::ExitCode {
    options::run("Sends back what it receives over TCP.", async |listener| {
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            spawn(async move {
                // A client that goes away is no failure of the server.
                let _ = copy(&stream, &stream).await;
            })
            .detach();
        }
    })
}
