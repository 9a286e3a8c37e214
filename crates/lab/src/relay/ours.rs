//! Our relay and our HTTP proxy, each in a process of its own, which reports its system calls on
//! request.

use superpoll::BackendKind;
use superpoll_gateway::Config;
use superpoll_gateway::relay::{self, Relay};
use superpoll_gateway::serve::Server;
use superpoll_rt::Runtime;

use crate::error::{Error, Result};
use crate::server::{Calls, Control, runtime};

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
    /// An HTTP proxy rather than a relay of bytes.
    pub is_http: bool,
}

fn said(error: impl std::fmt::Display) -> Error {
    Error::usage(error.to_string())
}

/// Relays from one port to another indefinitely.
pub(super) fn serve(setting: Setting, control: &mut Control) -> Result<()> {
    let Setting { backend, speculative, ports, is_http } = setting;
    let builder = Runtime::builder().backend(backend);
    let calls = |runtime: &Runtime| calls_of(runtime, is_http);
    if is_http {
        let config = configuration(ports)?;
        // A client that is not served gets no answer, which the load notices.
        let start = |runtime: &Runtime| Server::start(runtime, &config, |_| {}).map_err(said);
        return runtime::serve_on(builder.speculative(speculative), control, start, calls);
    }
    let [listen, to] = ports.map(|port| format!("127.0.0.1:{port}").parse());
    let (Ok(listen), Ok(to)) = (listen, to) else {
        return Err(Error::usage("the loopback address is none"));
    };
    let options = relay::Options { speculative, ..relay::Options::default() };
    let start =
        |runtime: &Runtime| Relay::start(runtime, &listen, &to, options, |_| {}).map_err(said);
    runtime::serve_on(builder, control, start, calls)
}

/// Builds the configuration that `superpoll serve -c` would get. Clients may be silent during the
/// turns of other relays; everything else is the default.
fn configuration([port, origin]: [u16; 2]) -> Result<Config> {
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:{port}\"\n\
         [[hosts]]\n[[hosts.routes]]\nproxy = {{ upstream = \"origin\" }}\n\
         [upstreams.origin]\nservers = [{{ address = \"127.0.0.1:{origin}\" }}]\n\
         [timeouts]\nidle = \"24h\"\nheader = \"24h\"\n"
    );
    Config::parse("relay", &text).map_err(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_of_the_proxy_is_right() {
        let config = configuration([1234, 5678]).unwrap();
        assert_eq!(config.listeners[0].address.to_string(), "127.0.0.1:1234");
        let origin = &config.upstreams["origin"];
        assert_eq!(origin.servers[0].address.to_string(), "127.0.0.1:5678");
        // As many as the load has connections, at least.
        assert!(origin.keep_alive >= 128, "{}", origin.keep_alive);
    }
}
