//! A WebSocket server that sends every message back: tungstenite on this runtime.
//!
//! Pings are answered, and a close frame with another. Try it with
//! `cargo run --example ws_echo -- --listen 127.0.0.1:9000` and, in a browser's console,
//! `ws = new WebSocket("ws://127.0.0.1:9000"); ws.onmessage = m => console.log(m.data)`.

use async_tungstenite::accept_async_with_config;
use async_tungstenite::tungstenite::Error;
use async_tungstenite::tungstenite::protocol::WebSocketConfig;
use futures_lite::StreamExt;
use superpoll_rt::net::TcpStream;
use superpoll_rt::spawn;

mod options;

fn main() -> std::process::ExitCode {
    options::run("Sends back each WebSocket message.", async |listener| {
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            spawn(async move {
                // The library has reported a violation of the protocol to the client, if it still
                // listens.
                let _ = echo(stream).await;
            })
            .detach();
        }
    })
}

async fn echo(stream: TcpStream) -> Result<(), Error> {
    // A read buffer of 128 KiB for each connection is much for clients that are mostly quiet.
    let config = WebSocketConfig::default().read_buffer_size(4096).write_buffer_size(4096);
    let mut socket = accept_async_with_config(stream, Some(config)).await?;
    while let Some(message) = socket.next().await {
        let message = message?;
        // The library answers pings and close frames by itself.
        if message.is_text() || message.is_binary() {
            socket.send(message).await?;
        }
    }
    Ok(())
}
