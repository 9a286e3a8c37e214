//! Our relay and our HTTP proxy, each in a process of its own, which reports its system calls on
//! request.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use futures_lite::AsyncReadExt;
use superpoll::BackendKind;
use superpoll_gateway::Config;
use superpoll_gateway::relay::{self, Relay};
use superpoll_gateway::serve::Server;
use superpoll_rt::{AsyncFd, Runtime};

use crate::error::{Error, Result};
use crate::server::Control;

/// Calls by name, since the relay's start.
pub(super) type Calls = BTreeMap<String, u64>;

/// The socket through which a relay reports its calls.
#[derive(Debug)]
pub(super) struct Counted(BufReader<UnixStream>);

impl Counted {
    /// Creates both ends of the socket: for the parent, and for [`serve`].
    pub(super) fn new() -> Result<(Counted, UnixStream)> {
        let pair = UnixStream::pair();
        let (own, theirs) = pair.map_err(|e| Error::system("making a line to a relay", e))?;
        Ok((Counted(BufReader::new(own)), theirs))
    }

    /// Returns the relay's calls so far.
    pub(super) fn calls(&mut self) -> Result<Calls> {
        let failed = |e| Error::system("asking a relay for its calls", e);
        self.0.get_mut().write_all(b"?").map_err(failed)?;
        let mut line = String::new();
        self.0.read_line(&mut line).map_err(failed)?;
        serde_json::from_str(&line).map_err(|e| failed(e.into()))
    }
}

/// Returns the kernel's name for a counted call; the counter's own name may be more detailed.
pub(crate) fn kernel_name(counter: &str) -> &str {
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

/// Returns the calls of a runtime's engines, for their pollers and for their other work.
fn calls_of(runtime: &Runtime, is_http: bool) -> Calls {
    let mut calls = Calls::new();
    let mut add = |(counter, count): (&'static str, u64)| {
        *calls.entry(kernel_name(counter).to_owned()).or_default() += count;
    };
    let stats = runtime.stats();
    stats.iter().flat_map(|engine| engine.poller.calls.by_name()).for_each(&mut add);
    match is_http {
        // The server uses the sockets of the runtime, and the relay its own.
        true => stats.iter().flat_map(|engine| engine.calls.by_name()).for_each(&mut add),
        false => relay::calls().by_name().for_each(&mut add),
    }
    calls
}

/// The settings of one of our relays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub backend: BackendKind,
    pub speculative: bool,
    /// The port on which it listens, and the port to which it leads.
    pub ports: [u16; 2],
    /// An HTTP proxy that keeps this many connections to its server; a relay of bytes if `None`.
    pub pool: Option<usize>,
}

fn said(error: impl std::fmt::Display) -> Error {
    Error::usage(error.to_string())
}

/// Relays from one port to another indefinitely.
pub(super) fn serve(setting: Setting, line: UnixStream, control: &mut Control) -> Result<()> {
    let builder = Runtime::builder().backend(setting.backend);
    match setting.pool {
        Some(pool) => {
            let runtime = builder.speculative(setting.speculative).build().map_err(said)?;
            let config = configuration(setting.ports, pool)?;
            // A client that is not served gets no answer, which the load notices.
            let _server = Server::start(&runtime, &config, |_| {}).map_err(said)?;
            answer(&runtime, true, line, control)
        }
        None => {
            let runtime = builder.build().map_err(said)?;
            let [listen, to] = setting.ports.map(|port| format!("127.0.0.1:{port}").parse());
            let (Ok(listen), Ok(to)) = (listen, to) else {
                return Err(Error::usage("the loopback address is none"));
            };
            let speculative = setting.speculative;
            let options = relay::Options { speculative, ..relay::Options::default() };
            let _relay = Relay::start(&runtime, &listen, &to, options, |_| {}).map_err(said)?;
            answer(&runtime, false, line, control)
        }
    }
}

/// Builds the configuration that `superpoll serve -c` would get. Clients may be silent during the
/// turns of other relays.
fn configuration([port, origin]: [u16; 2], pool: usize) -> Result<Config> {
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:{port}\"\n\
         [[hosts]]\n[[hosts.routes]]\nproxy = {{ upstream = \"origin\" }}\n\
         [upstreams.origin]\nservers = [{{ address = \"127.0.0.1:{origin}\" }}]\n\
         keep_alive = {pool}\n[timeouts]\nidle = \"24h\"\nheader = \"24h\"\n"
    );
    Config::parse("relay", &text).map_err(said)
}

/// Runs the runtime, and reports its calls on each request.
fn answer(runtime: &Runtime, is_http: bool, line: UnixStream, control: &mut Control) -> Result<()> {
    let failed = |source| Error::system("setting our relay up", source);
    let mut questions = AsyncFd::new(line.try_clone().map_err(failed)?).map_err(failed)?;
    let mut answers = line;
    control.ready()?;
    loop {
        let asked = runtime.block_on(async { questions.read_exact(&mut [0]).await });
        asked.map_err(said)?.map_err(failed)?;
        let calls = calls_of(runtime, is_http);
        let text = serde_json::to_string(&calls).unwrap_or_default() + "\n";
        answers.write_all(text.as_bytes()).map_err(failed)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_of_the_proxy_is_right() {
        let config = configuration([1234, 5678], 64).unwrap();
        assert_eq!(config.listeners[0].address.to_string(), "127.0.0.1:1234");
        let origin = &config.upstreams["origin"];
        assert_eq!(origin.servers[0].address.to_string(), "127.0.0.1:5678");
        assert_eq!(origin.keep_alive, 64);
    }
}
