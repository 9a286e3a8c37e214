//! The gateway on a thread of its own.

use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use superpoll_gateway::serve::Server;
use superpoll_gateway::{Config, Event, Level};
use superpoll_rt::{BackendKind, Runtime, time};
use superpoll_test_support::until;

/// The time after which a test that hangs fails.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Longer than lines of the access log are gathered before they are written.
pub(crate) const LOG_PERIOD: Duration = Duration::from_millis(300);

pub(crate) const MOST: [BackendKind; 2] = [BackendKind::Epoll, BackendKind::Adaptive];

/// All back-ends that this machine has.
pub(crate) fn all() -> Vec<BackendKind> {
    // A runtime for each of them would be the same, but its ring would interrupt this thread's
    // reads.
    BackendKind::available()
}

/// Set where clients are given all responses, also those whose lines would be passed on.
pub(crate) const ALL_GIVEN: &str = "SUPERPOLL_TEST_GIVEN";

/// A key of a proxy by which clients are given responses: those without a `Content-Type`, of which
/// it changes only those with the status 304, which get a `Vary`.
pub(crate) const GIVEN: &str = ", compress = true";

/// Returns the keys of a proxy by which the lines of responses are passed on, or are given.
pub(crate) fn way(lane: bool) -> &'static str {
    if lane { "" } else { GIVEN }
}

type Call = Box<dyn FnOnce(&Runtime, &mut Server) + Send>;

pub(crate) struct Gateway {
    pub address: String,
    events: Arc<Mutex<Vec<Event>>>,
    calls: Option<mpsc::Sender<Call>>,
    thread: Option<JoinHandle<()>>,
}

/// A configuration with one upstream of some servers.
pub(crate) fn config(servers: &[&str], upstream: &str, proxy: &str) -> String {
    let servers: Vec<_> =
        servers.iter().map(|address| format!("{{ address = \"{address}\" }}")).collect();
    whole(&format!("servers = [{}]\n{upstream}", servers.join(", ")), proxy, "")
}

pub(crate) fn whole(upstream: &str, proxy: &str, rest: &str) -> String {
    let are_given = std::env::var_os(ALL_GIVEN).is_some() && !proxy.contains(GIVEN);
    let way = way(!are_given);
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\n\
         proxy = {{ upstream = \"app\" {proxy}{way} }}\n{rest}\n[upstreams.app]\n{upstream}\n"
    )
}

impl Gateway {
    pub(crate) fn start(backend: BackendKind, text: &str) -> Gateway {
        let config = Config::parse("test", text).unwrap_or_else(|error| panic!("{error}"));
        let (calls, called) = mpsc::channel::<Call>();
        let (tell, told) = mpsc::channel();
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let heard = events.clone();
        let report = move |event: &Event| {
            assert!(event.level() < Level::Error, "{event}");
            heard.lock().unwrap().push(event.clone());
        };
        let thread = thread::spawn(move || {
            // Rings of tests that run at the same time share a limit of memory.
            let mut built = None;
            wait(|| {
                built = Runtime::builder().backend(backend).build().ok();
                built.is_some()
            });
            let runtime = built.unwrap();
            let mut server = Server::start(&runtime, &config, report).unwrap();
            tell.send(server.listening().next().unwrap().to_string()).unwrap();
            loop {
                let next = async {
                    loop {
                        match called.try_recv() {
                            Err(mpsc::TryRecvError::Empty) => {
                                time::sleep(Duration::from_millis(1)).await;
                            }
                            other => return other.ok(),
                        }
                    }
                };
                match runtime.block_on(next) {
                    Some(call) => call(&runtime, &mut server),
                    None => break,
                }
            }
            server.stop();
            let left = runtime.block_on(server.drained(LIMIT));
            assert_eq!(left, 0, "connections that do not end");
        });
        let address = told.recv().unwrap();
        Gateway { address, events, calls: Some(calls), thread: Some(thread) }
    }

    /// Calls a function where the server is.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Runtime, &mut Server) -> T + Send + 'static,
    ) -> T {
        let (tell, told) = mpsc::channel();
        let call: Call = Box::new(move |runtime, server| tell.send(call(runtime, server)).unwrap());
        self.calls.as_ref().unwrap().send(call).unwrap();
        told.recv_timeout(LIMIT).unwrap()
    }

    /// Lets this much time pass for the gateway: each of its timers that is due by then fires, in
    /// its turn, after everything that has arrived before.
    pub(crate) fn elapse(&self, duration: Duration) {
        self.call(move |runtime, _| {
            runtime.block_on(async {
                time::pause();
                time::sleep(duration).await;
                time::resume();
            });
        });
    }

    /// Returns its events so far: the kind, the words, and the reason and status of failures.
    pub(crate) fn told(&self) -> Vec<(&'static str, String, String)> {
        let told = |event: &Event| {
            let field = |name: &str| {
                let found = event.fields().iter().find(|(key, _)| *key == name);
                found.map_or_else(String::new, |(_, value)| {
                    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
                })
            };
            (event.name(), event.to_string(), format!("{} {}", field("reason"), field("status")))
        };
        self.events.lock().unwrap().iter().map(told).collect()
    }

    /// Returns its events of a kind so far.
    pub(crate) fn events_of(&self, kind: &str) -> Vec<Event> {
        let events = self.events.lock().unwrap();
        events.iter().filter(|event| event.name() == kind).cloned().collect()
    }

    /// Whether the servers of the upstream are up.
    pub(crate) fn up(&self) -> Vec<bool> {
        self.call(|_, server| {
            let group = &server.upstreams()["app"];
            group.members().iter().map(|server| group.is_up(server)).collect()
        })
    }

    /// Waits until servers are up and down as given.
    pub(crate) fn wait_for(&self, up: &[bool]) {
        wait(|| self.up() == up);
    }
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn wait(is_so: impl FnMut() -> bool) {
    until("the condition holds", is_so);
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.calls = None;
        if let Some(thread) = self.thread.take() {
            let outcome = thread.join();
            if !thread::panicking() {
                outcome.unwrap();
            }
        }
    }
}
