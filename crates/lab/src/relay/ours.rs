//! Our relay in a process of its own, which says what it has called when it is asked.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use futures_lite::AsyncReadExt;
use superpoll::BackendKind;
use superpoll_gateway::relay::{self, Relay};
use superpoll_rt::{AsyncFd, Runtime};

use crate::error::{Error, Result};
use crate::server::Control;

/// Calls by name, since the relay's start.
pub type Calls = BTreeMap<String, u64>;

/// The line on which a relay is asked for its calls.
#[derive(Debug)]
pub struct Counted(BufReader<UnixStream>);

impl Counted {
    /// Both ends of it: to ask, and for [`serve`].
    pub fn new() -> Result<(Counted, UnixStream)> {
        let pair = UnixStream::pair();
        let (own, theirs) = pair.map_err(|e| Error::system("making a line to a relay", e))?;
        Ok((Counted(BufReader::new(own)), theirs))
    }

    /// What it has called so far.
    pub fn calls(&mut self) -> Result<Calls> {
        let failed = |e| Error::system("asking a relay for its calls", e);
        self.0.get_mut().write_all(b"?").map_err(failed)?;
        let mut line = String::new();
        self.0.read_line(&mut line).map_err(failed)?;
        serde_json::from_str(&line).map_err(|e| failed(e.into()))
    }
}

/// The names of the kernel's calls, where those of the counters say more.
fn name(counter: &str) -> &str {
    match counter {
        "epoll_ctl_add" | "epoll_ctl_mod" | "epoll_ctl_del" => "epoll_ctl",
        "select" => "pselect6",
        "waker_read" => "read",
        "waker_write" => "write",
        "eventfd" => "eventfd2",
        "epoll_create" => "epoll_create1",
        other => other,
    }
}

fn calls_of(runtime: &Runtime) -> Calls {
    let mut calls = Calls::new();
    let stats = runtime.stats();
    let polled = stats.iter().flat_map(|engine| engine.poller.calls.by_name());
    for (counter, count) in polled.chain(relay::calls().by_name()) {
        *calls.entry(name(counter).to_owned()).or_default() += count;
    }
    calls
}

/// Relays from a port to another for ever.
pub fn serve(
    backend: BackendKind,
    speculative: bool,
    [port, origin]: [u16; 2],
    line: UnixStream,
    control: &mut Control,
) -> Result<()> {
    let said = |error: superpoll_rt::Error| Error::usage(error.to_string());
    let failed = |source| Error::system("setting our relay up", source);
    let runtime = Runtime::builder().backend(backend).build().map_err(said)?;
    let address = |port| format!("127.0.0.1:{port}").parse();
    let (Ok(listen), Ok(to)) = (address(port), address(origin)) else {
        return Err(Error::usage("the loopback address is none"));
    };
    let options = relay::Options { speculative, ..relay::Options::default() };
    // Who is not relayed gets no answer, which the load notices.
    let relay = Relay::start(&runtime, &listen, &to, options, |_| {});
    let _relay = relay.map_err(|error| Error::usage(error.to_string()))?;
    let mut questions = AsyncFd::new(line.try_clone().map_err(failed)?).map_err(failed)?;
    let mut answers = line;
    control.ready()?;
    loop {
        let asked = runtime.block_on(async { questions.read_exact(&mut [0]).await });
        asked.map_err(said)?.map_err(failed)?;
        let text = serde_json::to_string(&calls_of(&runtime)).unwrap_or_default() + "\n";
        answers.write_all(text.as_bytes()).map_err(failed)?;
    }
}
