//! A chat over TCP: each line that a client sends goes to all other clients.
//!
//! Its memory has a bound: a line has at most 4 KiB, and a client for which more than 64 lines wait
//! is disconnected, so that a slow client costs the others nothing. SIGTERM and ctrl-C end the chat
//! gracefully: no client is accepted any more, all hear of it, what waits for them is written, and
//! their connections are closed.
//!
//! Try it with `cargo run --example chat -- --listen 127.0.0.1:7000` and `nc 127.0.0.1 7000`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use async_channel::{Receiver, Sender, bounded};
use futures_lite::future::or;
use futures_lite::io::BufReader;
use futures_lite::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use superpoll_rt::net::{TcpListener, TcpStream};
use superpoll_rt::signal::{SignalKind, ctrl_c, signal};
use superpoll_rt::time::timeout;
use superpoll_rt::{JoinSet, yield_now};

mod options;

/// The longest line, in bytes.
const LONGEST: u64 = 4096;

/// How many lines may wait for a client.
const WAITING: usize = 64;

/// How long clients may take to read what is left when the chat ends.
const PATIENCE: Duration = Duration::from_secs(5);

fn main() -> std::process::ExitCode {
    options::run("Sends each line to all other clients, over TCP.", serve)
}

async fn serve(listener: TcpListener) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut end = Box::pin(or(async move { terminate.recv().await }, ctrl_c()));
    let (chat, mut clients) = (Rc::new(Chat::default()), JoinSet::new());
    loop {
        let accept = async { listener.accept().await.map(Some) };
        // The first future is asked first.
        let Some((stream, _)) = or(async { (&mut end).await.map(|()| None) }, accept).await? else {
            break;
        };
        clients.spawn(talk(chat.clone(), stream));
        while let Some(Some(_)) = futures_lite::future::poll_once(clients.join_next()).await {}
    }
    drop(listener);
    chat.say_to_all_but(None, "the chat is over\n".into());
    chat.rooms.take();
    let ended = async { while clients.join_next().await.is_some() {} };
    // Dropping the set ends those who have not read in time.
    let _ = timeout(PATIENCE, ended).await;
    println!("the chat is over");
    Ok(())
}

/// The clients, and where lines for them go.
#[derive(Default)]
struct Chat {
    rooms: RefCell<BTreeMap<u64, Sender<Rc<str>>>>,
    next: Cell<u64>,
}

impl Chat {
    fn join(&self) -> (u64, Receiver<Rc<str>>) {
        let (sender, receiver) = bounded(WAITING);
        let number = self.next.replace(self.next.get() + 1);
        self.rooms.borrow_mut().insert(number, sender);
        (number, receiver)
    }

    /// Passes a line on. A client without room for it loses its channel, which ends its task.
    fn say_to_all_but(&self, speaker: Option<u64>, line: Rc<str>) {
        self.rooms
            .borrow_mut()
            .retain(|number, room| Some(*number) == speaker || room.try_send(line.clone()).is_ok());
    }
}

/// Serves a client until it leaves, is too slow, or the chat is over.
async fn talk(chat: Rc<Chat>, stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (number, lines) = chat.join();
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let listen = async {
        let mut line = String::new();
        while (&mut reader).take(LONGEST).read_line(&mut line).await? > 0 {
            if !line.ends_with('\n') {
                break;
            }
            chat.say_to_all_but(Some(number), line.as_str().into());
            line.clear();
            // The others have their turn to write, however much this client says at once.
            yield_now().await;
        }
        Ok(())
    };
    let tell = async {
        while let Ok(line) = lines.recv().await {
            writer.write_all(line.as_bytes()).await?;
        }
        Ok(())
    };
    let ended = or(listen, tell).await;
    chat.rooms.borrow_mut().remove(&number);
    ended
}
