//! The service for workers, and workers. Each has a thread here and a runtime of its own, and they
//! share nothing but sockets, as processes do.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::net::TcpStream;
use std::os::fd::{IntoRawFd, RawFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures_lite::StreamExt;
use rustix::fs::{MemfdFlags, memfd_create};
use superpoll_gateway::config::Log;
use superpoll_gateway::control::Subject;
use superpoll_gateway::processes::{Worker, WorkerNews, WorkerPlace};
use superpoll_gateway::serve::Server;
use superpoll_gateway::{Address, Config, ErrorLog, Inherited};
use superpoll_rt::{BackendKind, Runtime, time};
use superpoll_test_support::until;

use super::questions::{ServiceCall, ServiceCalls};
use super::service::{ProcessNews, WorkerService};
use super::state::SupervisorState;

/// The longest wait for a state.
const PATIENCE: Duration = Duration::from_secs(30);

/// A listener that a worker opens by itself: its supervisor does not know the address.
const OWN: &str = "[[listeners]]\naddress = \"127.0.0.2:0\"\n";

const NAP: Duration = Duration::from_millis(2);

fn text(addresses: &[&str], history: usize) -> String {
    let listeners = addresses.iter().map(|one| format!("[[listeners]]\naddress = \"{one}\"\n"));
    format!(
        "{}[metrics]\npath = \"/metrics\"\nready = \"/readyz\"\npublic = true\n\
         [[hosts]]\n[[hosts.routes]]\npath = \"/c\"\nchannel = {{ history = {history} }}\n",
        listeners.collect::<String>()
    )
}

fn config(text: &str) -> Config {
    Config::parse("test.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

/// A thread that ends when it is asked to.
struct Running {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(run: impl FnOnce(Arc<AtomicBool>) + Send + 'static) -> Running {
        let ends: Arc<AtomicBool> = Arc::default();
        let seen = ends.clone();
        Running { ends, thread: Some(std::thread::spawn(move || run(seen))) }
    }

    /// Ends the thread.
    ///
    /// # Panics
    ///
    /// If it has panicked.
    fn end(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

type Receiver<T> = futures_channel::mpsc::UnboundedReceiver<T>;

/// Makes the service of a state listen, and returns it with the ends of its queues.
fn service(
    runtime: &Runtime,
    state: SupervisorState,
    config: &Config,
) -> (Rc<WorkerService>, Receiver<ServiceCall>, Receiver<ProcessNews>) {
    let (calls, called) = futures_channel::mpsc::unbounded();
    let (told, news) = futures_channel::mpsc::unbounded();
    let calls = Arc::new(ServiceCalls(calls));
    let subject = Subject::of_workers(runtime.backend(), runtime.handle(), calls);
    let error_log = Arc::new(ErrorLog::open(&Log::default()).unwrap());
    let service = WorkerService::new(state, error_log, Arc::new(subject), told).unwrap();
    service.change(config, Inherited::default()).unwrap();
    (Rc::new(service), called, news)
}

/// A supervisor.
struct Boss {
    place: WorkerPlace,
    news: mpsc::Receiver<ProcessNews>,
    changes: mpsc::Sender<Config>,
    running: Running,
}

impl Boss {
    fn new(text: &str) -> Boss {
        let config = config(text);
        let (told, news) = mpsc::channel();
        let (changes, changed) = mpsc::channel::<Config>();
        let (placed, place) = mpsc::channel();
        let run = move |ends: Arc<AtomicBool>| {
            let runtime = Runtime::builder().backend(BackendKind::Epoll).build().unwrap();
            let state = SupervisorState::new().unwrap();
            let (service, calls, mut heard) = service(&runtime, state, &config);
            placed.send(service.place(0)).unwrap();
            runtime.block_on(async {
                service.start(calls).unwrap();
                while !ends.load(Ordering::Relaxed) {
                    if let Ok(Some(news)) = time::timeout(NAP, heard.next()).await {
                        // A test that has seen enough listens no more.
                        let _ = told.send(news);
                    }
                    if let Ok(config) = changed.try_recv() {
                        service.change(&config, Inherited::default()).unwrap();
                    }
                }
            });
        };
        let running = Running::start(run);
        Boss { place: place.recv().unwrap(), news, changes, running }
    }

    /// Returns the news of the next worker.
    fn hear(&self) -> Result<WorkerNews, String> {
        self.news.recv_timeout(PATIENCE).expect("the supervisor hears of a worker").1
    }

    /// Starts a worker, which listens on an address of its own as well.
    fn worker(&self, backend: BackendKind, slot: u32, text: &str) -> OneWorker {
        let place = WorkerPlace { slot, ..self.place.clone() };
        let config = config(&(OWN.to_owned() + text));
        let (told, heard) = mpsc::channel();
        let (changes, changed) = mpsc::channel::<Config>();
        let (lose, lost) = mpsc::channel();
        let run = move |ends: Arc<AtomicBool>| {
            let runtime = Runtime::builder().backend(backend).build().unwrap();
            let (mut worker, inherited) = runtime.block_on(Worker::join(&place)).unwrap();
            let server = Server::start_with(&runtime, &config, inherited, |_| {});
            let mut server = server.unwrap();
            let addresses: Vec<Address> = server.listening().cloned().collect();
            told.send(addresses).unwrap();
            worker.report_ready(&server);
            runtime.block_on(async {
                let mut is_lost = false;
                while !ends.load(Ordering::Relaxed) {
                    if is_lost {
                        time::sleep(NAP).await;
                    } else if time::timeout(NAP, worker.lost()).await.is_ok() {
                        is_lost = true;
                        // The test may have ended.
                        let _ = lose.send(());
                    }
                    if let Ok(config) = changed.try_recv() {
                        worker.refresh(&server).await.unwrap();
                        let outcome = server.change(&runtime, &config);
                        worker.report_reload(0, outcome.map_err(|error| error.to_string()));
                    }
                }
            });
        };
        let running = Running::start(run);
        let addresses = heard.recv_timeout(PATIENCE).expect("the worker serves");
        let [own, shared] = addresses.try_into().expect("two addresses");
        OneWorker { own, shared, changes, lost, running }
    }
}

struct OneWorker {
    own: Address,
    shared: Address,
    changes: mpsc::Sender<Config>,
    lost: mpsc::Receiver<()>,
    running: Running,
}

/// Sends a request on a connection of its own, and returns the response.
fn ask(address: &Address, request: &str) -> String {
    let Address::Tcp { host: Some(host), port } = address else { panic!("it is TCP") };
    let mut stream = TcpStream::connect((host.as_str(), *port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

fn get(address: &Address, target: &str) -> String {
    ask(address, &format!("GET {target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"))
}

fn publish(address: &Address, text: &str) -> String {
    let head = "POST /c HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: text/plain";
    let length = text.len();
    ask(address, &format!("{head}\r\ncontent-length: {length}\r\n\r\n{text}"))
}

fn until_ready(address: &Address) {
    let mut last = String::new();
    let end = Instant::now() + PATIENCE;
    while !last.starts_with("HTTP/1.1 200") {
        assert!(Instant::now() < end, "not ready in time: {last}");
        last = get(address, "/readyz");
    }
}

/// Returns the ids of all messages that a worker has.
fn ids(address: &Address) -> Vec<u64> {
    let response = get(address, "/c?after=0");
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{response}");
    let json: serde_json::Value = serde_json::from_str(body).unwrap();
    let messages = json["messages"].as_array().unwrap();
    messages.iter().map(|message| message["id"].as_u64().unwrap()).collect()
}

/// Returns the value of a sample of the counters.
fn sample(metrics: &str, name: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// Waits until the counters are as wanted. The counters of a worker that does not run for a second
/// are left out, or are those of a moment before.
fn until_metrics(address: &Address, is_so: impl Fn(&str) -> bool) {
    let mut metrics = String::new();
    let end = Instant::now() + PATIENCE;
    while !is_so(&metrics) {
        assert!(Instant::now() < end, "not in time: {metrics}");
        metrics = get(address, "/metrics");
    }
}

#[test]
fn workers_have_one_channel_one_address_and_one_sum_of_counters() {
    for backend in BackendKind::ALL {
        let text = text(&["127.0.0.1:0"], 50);
        let boss = Boss::new(&text);
        let workers: Vec<OneWorker> =
            (0..3).map(|slot| boss.worker(backend, slot, &text)).collect();
        let mut own = BTreeSet::new();
        for _ in &workers {
            let Ok(WorkerNews::Ready { fronts, .. }) = boss.hear() else { panic!("ready") };
            assert!(own.insert(fronts[0].clone()) && fronts.len() == 2, "{fronts:?}");
        }
        let address = workers[0].shared.clone();
        assert!(workers.iter().all(|worker| worker.shared == address));
        workers.iter().for_each(|worker| until_ready(&worker.own));
        // Whichever worker takes a message, all have it, with the same number.
        for number in 1..=30 {
            let to = match number % 4 {
                0 => &address,
                which => &workers[which - 1].own,
            };
            let answer = publish(to, &format!("message {number}"));
            assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
            assert!(answer.contains(&format!("\"id\":{number}")), "{answer}");
        }
        for worker in &workers {
            until("all messages", || ids(&worker.own).len() == 30);
            assert!(ids(&worker.own).into_iter().eq(1..=30));
        }
        until_metrics(&address, |metrics| {
            let accepted = |slot: usize| {
                let name = format!("superpoll_connections_accepted_total{{engine=\"{slot}.0\"}}");
                sample(metrics, &name).is_some_and(|count| count >= 7.0)
            };
            (0..3).all(accepted)
                && sample(metrics, "superpoll_broker_up") == Some(1.0)
                && sample(metrics, "superpoll_broker_published_total") == Some(30.0)
        });
        for mut worker in workers {
            worker.running.end();
        }
    }
}

#[test]
fn a_worker_that_ends_takes_no_message_with_it_and_the_next_one_has_all() {
    let text = text(&["127.0.0.1:0"], 50);
    let boss = Boss::new(&text);
    let mut first = boss.worker(BackendKind::Adaptive, 0, &text);
    let address = first.shared.clone();
    until_ready(&address);
    for number in 1..=5 {
        assert!(publish(&address, &number.to_string()).starts_with("HTTP/1.1 201"));
    }
    first.running.end();
    // The socket stays with the supervisor: this client waits for the next worker.
    let waiting = {
        let address = address.clone();
        std::thread::spawn(move || get(&address, "/c?after=0"))
    };
    let second = boss.worker(BackendKind::Adaptive, 0, &text);
    assert_eq!(second.shared, address);
    let all = waiting.join().unwrap();
    until_ready(&second.own);
    assert_eq!(ids(&second.own), [1, 2, 3, 4, 5]);
    let end = publish(&address, "after");
    assert!(end.contains("\"id\":6"), "{end}");
    assert!(all.starts_with("HTTP/1.1 200") || all.starts_with("HTTP/1.1 503"), "{all}");
}

#[test]
fn a_new_configuration_opens_and_closes_addresses_on_all_workers() {
    let before = text(&["127.0.0.1:0"], 50);
    let boss = Boss::new(&before);
    let workers: Vec<OneWorker> =
        (0..2).map(|slot| boss.worker(BackendKind::Epoll, slot, &before)).collect();
    for _ in &workers {
        assert!(matches!(boss.hear(), Ok(WorkerNews::Ready { .. })));
    }
    let address = workers[0].shared.clone();
    // A port that is free now.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let after = text(&[&free.to_string()], 50);
    boss.changes.send(config(&after)).unwrap();
    until("the supervisor listens", || TcpStream::connect(free).is_ok());
    for worker in &workers {
        worker.changes.send(config(&(OWN.to_owned() + &after))).unwrap();
    }
    for _ in &workers {
        let news = boss.hear();
        assert!(matches!(news, Ok(WorkerNews::Reloaded { outcome: Ok(()), .. })), "{news:?}");
    }
    until_ready(&free.to_string().parse().unwrap());
    let Address::Tcp { port, .. } = address else { panic!("it is TCP") };
    until("the address before is closed", || TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn workers_learn_that_there_is_no_supervisor_any_more() {
    let text = text(&["127.0.0.1:0"], 50);
    let mut boss = Boss::new(&text);
    let worker = boss.worker(BackendKind::Epoll, 0, &text);
    until_ready(&worker.own);
    boss.running.end();
    // Messages are refused from now on, and not accepted by one process alone.
    let answer = publish(&worker.own, "alone");
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    worker.lost.recv_timeout(PATIENCE).expect("the worker learns of it");
}

#[test]
fn a_worker_that_fails_says_why() {
    let text = text(&["127.0.0.1:0"], 50);
    let boss = Boss::new(&text);
    let place = boss.place.clone();
    assert_eq!(place.to_string().parse(), Ok(place.clone()));
    Runtime::new().unwrap().block_on(Worker::report_failure(&place, "no reason"));
    let (process, news) = boss.news.recv_timeout(PATIENCE).unwrap();
    assert_eq!(process, std::process::id());
    assert_eq!(news.unwrap_err(), "no reason");
}

#[test]
fn the_next_program_has_the_sockets_the_name_and_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("http");
    let text = text(&["127.0.0.1:0", &format!("unix:{}", socket.display())], 3);
    let config = config(&text);
    let runtime = Runtime::builder().backend(BackendKind::Epoll).build().unwrap();
    let before = service(&runtime, SupervisorState::new().unwrap(), &config);
    let fronts = before.0.fronts(&config);
    let file = before.0.leave(vec![(0, 7), (1, 8)]).unwrap();
    let (name, number) = file.variable();
    assert_eq!(name, SupervisorState::VARIABLE);
    // As if the program was replaced: nothing is closed, and nothing runs.
    let place = before.0.place(3);
    std::mem::forget((before, file));
    let state = SupervisorState::from_number(number.parse().unwrap()).unwrap();
    assert_eq!(state.workers, [(0, 7), (1, 8)]);
    let after = service(&runtime, state, &config);
    assert_eq!(after.0.place(3), place);
    assert_eq!(after.0.fronts(&config), fronts);
    let tcp = fronts[0].strip_prefix("http://").unwrap().trim_end_matches('/');
    assert!(TcpStream::connect(tcp).is_ok());
    assert!(socket.exists());
    drop(after);
    assert!(!socket.exists(), "the file is this program's now");
}

#[test]
fn a_number_that_is_no_file_and_a_state_of_another_form_are_errors() {
    assert!(SupervisorState::from_number(RawFd::MAX).is_err());
    let own = SupervisorState::PROTOCOL;
    for protocol in [None, Some(own), Some(own + 1)] {
        let mut file = File::from(memfd_create("x", MemfdFlags::empty()).unwrap());
        file.write_all(&protocol.map_or_else(Vec::new, |one| one.to_le_bytes().to_vec())).unwrap();
        file.rewind().unwrap();
        let number = file.into_raw_fd();
        let Err(error) = SupervisorState::from_number(number) else { panic!("it is no state") };
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        let is_other = error.to_string().contains("another version");
        assert_eq!(is_other, protocol != Some(own), "{error}");
    }
}
