//! Engines next to a tokio runtime: a thread runs a `superpoll_rt::Runtime` with two engines, and
//! tokio's tasks await the results of tasks on the engines. The engines serve an echo, and tokio's
//! sockets are its clients.

use std::error::Error;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::thread;

use superpoll_rt::net::{TcpListener, TcpStream};
use superpoll_rt::tokio::Compat;
use superpoll_rt::{Handle, Runtime};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, split};
use tokio::sync::oneshot;

const CLIENTS: usize = 50;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (send_handle, handle) = oneshot::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let engines = thread::spawn(move || {
        let engines = NonZeroUsize::new(2).expect("two is not zero");
        let runtime = Runtime::builder().workers(engines).build()?;
        // Without a receiver there is nothing to do.
        let _ = send_handle.send(runtime.handle());
        // The first engine runs in this call, until the sender is used or dropped.
        let _ = runtime.block_on(stopped);
        superpoll_rt::Result::Ok(())
    });
    let handle = handle.await?;
    let address = handle.spawn(serve()).await??;

    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let handle = handle.clone();
        clients.push(tokio::spawn(client(handle, address, number)));
    }
    for client in clients {
        client.await??;
    }
    println!("{CLIENTS} clients of tokio, {} engines", handle.engines());
    drop(stop);
    engines.join().expect("the engines do not panic")?;
    Ok(())
}

/// Sends a message with a socket of tokio's, and another one with a task on an engine.
async fn client(handle: Handle, address: SocketAddr, number: usize) -> std::io::Result<()> {
    let text = format!("message {number:04}");
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    stream.write_all(text.as_bytes()).await?;
    let mut echoed = vec![0; text.len()];
    stream.read_exact(&mut echoed).await?;
    assert_eq!(echoed, text.as_bytes());

    let on_engine = handle.spawn(ask(address, text));
    assert!(on_engine.await.map_err(std::io::Error::other)??);
    Ok(())
}

/// Sends a message with a socket of the engine's.
async fn ask(address: SocketAddr, text: String) -> std::io::Result<bool> {
    let mut stream = Compat::new(TcpStream::connect(address).await?);
    stream.write_all(text.as_bytes()).await?;
    let mut echoed = vec![0; text.len()];
    stream.read_exact(&mut echoed).await?;
    Ok(echoed == text.as_bytes())
}

/// Starts an echo on the engine of the caller.
async fn serve() -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    superpoll_rt::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            superpoll_rt::spawn(async move {
                let (mut reader, mut writer) = split(Compat::new(stream));
                copy(&mut reader, &mut writer).await
            })
            .detach();
        }
    })
    .detach();
    Ok(address)
}
