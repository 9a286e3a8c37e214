//! Several servers with one broker: a real server of Redis, which is skipped where there is none.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use superpoll_gateway::Config;
use superpoll_gateway::serve::Server;
use superpoll_rt::{BackendKind, Runtime};
use tungstenite::client::IntoClientRequest;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Error, Message};

use crate::clients::{
    Event, Events, address, ask, field, is_missed, messages, next, post, publish, socket,
};
use crate::stage::{Answer, BACKENDS, PATIENCE, Stage};
use superpoll_test_support::tokens;

/// A server of Redis on a Unix socket.
struct Redis {
    folder: tempfile::TempDir,
    process: Child,
    options: Vec<&'static str>,
}

impl Redis {
    /// Starts a server with further options, if it is installed.
    fn start(options: &[&'static str]) -> Option<Redis> {
        let folder = tempfile::tempdir().unwrap();
        let Ok(process) = Redis::command(&folder.path().join("redis.sock"), options).spawn() else {
            eprintln!("skipped: the program redis-server is not there");
            return None;
        };
        let redis = Redis { folder, process, options: options.to_vec() };
        redis.until_ready();
        Some(redis)
    }

    fn command(socket: &std::path::Path, options: &[&'static str]) -> Command {
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(socket).args(options);
        command.current_dir(socket.parent().unwrap()).stdout(Stdio::null());
        command
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    fn until_ready(&self) {
        let end = Instant::now() + PATIENCE;
        let answers = || {
            let answer = self.try_call(&["PING"])?;
            (answer.starts_with("PONG") || answer.contains("NOAUTH")).then_some(())
        };
        while answers().is_none() {
            assert!(Instant::now() < end, "redis-server does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn try_call(&self, words: &[&str]) -> Option<String> {
        let mut command = Command::new("redis-cli");
        let output = command.arg("-s").arg(self.socket()).args(words).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn call(&self, words: &[&str]) -> String {
        self.try_call(words).unwrap()
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn start_again(&mut self) {
        self.process = Redis::command(&self.socket(), &self.options).spawn().unwrap();
        self.until_ready();
    }

    /// Starts a server that listens on a port, too, and returns the port.
    fn on_port(options: &[&'static str]) -> Option<(Redis, &'static str)> {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port: &str = free.local_addr().unwrap().port().to_string().leak();
        drop(free);
        let all = [&["--bind", "127.0.0.1", "--port", port], options].concat();
        Some((Redis::start(&all)?, port))
    }

    fn signal(&self, name: &str) {
        let number = self.process.id().to_string();
        assert!(Command::new("kill").args([name, &number]).status().unwrap().success());
    }

    /// A configuration with a channel at `/c` that has further options.
    fn text(&self, options: &str) -> String {
        self.text_with("", options)
    }

    fn text_with(&self, login: &str, options: &str) -> String {
        format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n[metrics]\nready = \"/readyz\"\npublic = true\n\
             [broker]\nurl = \"redis+unix://{login}{}\"\npublish = \"2s\"\n\
             [timeouts]\npark = \"40ms\"\n\
             [[hosts]]\n[[hosts.routes]]\npath = \"/c\"\nchannel = {{ broker = true, {options} }}\n",
            self.socket().display()
        )
    }

    fn stage(&self, backend: BackendKind, options: &str) -> Stage {
        Stage::new(backend, 1, &self.text(options))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Answers a request of one connection.
fn get(stage: &Stage, target: &str) -> Answer {
    let mut client = stage.connect();
    client.send(format!("GET {target} HTTP/1.1\r\nhost: a\r\n\r\n"));
    client.answer()
}

fn until_ready(stage: &Stage, status: u16) {
    let end = Instant::now() + PATIENCE;
    while get(stage, "/readyz").status != status {
        assert!(Instant::now() < end, "the server does not answer {status}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A subscriber by `superpoll.v1`.
fn json_socket(stage: &Stage, query: &str) -> tungstenite::WebSocket<std::net::TcpStream> {
    let mut request = format!("ws://{}/c{query}", address(stage)).into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "superpoll.v1".parse().unwrap());
    let stream = std::net::TcpStream::connect(address(stage)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    tungstenite::client::client(request, stream).unwrap().0
}

fn frame(socket: &mut tungstenite::WebSocket<std::net::TcpStream>) -> serde_json::Value {
    serde_json::from_str(&next(socket)).unwrap()
}

#[test]
fn all_servers_have_the_same_messages_with_the_same_ids() {
    let Some(redis) = Redis::start(&[]) else { return };
    for backend in BACKENDS {
        redis.call(&["FLUSHALL"]);
        let [one, other] = [(); 2].map(|()| redis.stage(backend, ""));
        until_ready(&one, 200);
        until_ready(&other, 200);
        let (mut events, start) = Events::new(&other, "", "");
        let (mut plain, _) = socket(&other, "");
        let mut json = json_socket(&other, "");
        let begun = frame(&mut json);
        let mut poll = other.connect();
        ask(&mut poll, "?after=0");
        other.until(|engine| &engine.parked, 4);
        assert_eq!(publish(&one, "first"), 1);
        assert_eq!(messages(&poll.answer()), [(1, "first".to_owned())], "{backend:?}");
        assert_eq!(events.message(), (1, "first".to_owned()));
        assert_eq!(next(&mut plain), "first");
        let message = frame(&mut json);
        assert_eq!((&message["id"], &message["data"]), (&1.into(), &"first".into()));
        // A subscriber publishes, and everybody gets it as one of all.
        plain.send(Message::text("second")).unwrap();
        assert_eq!(next(&mut plain), "second");
        assert_eq!(events.message(), (2, "second".to_owned()));
        assert_eq!(frame(&mut json)["id"], 2);
        json.send(Message::text(r#"{"data":"third","key":"k"}"#)).unwrap();
        let (mut confirmed, mut came) = (false, false);
        while !(confirmed && came) {
            let frame = frame(&mut json);
            confirmed |= frame["key"] == "k";
            came |= frame["data"] == "third";
        }
        assert_eq!(publish(&other, "fourth"), 4);
        // Whoever comes to a server that has less than another waits, and gets what follows.
        let epoch = start.split_once('-').unwrap().1;
        assert_eq!(begun["epoch"], epoch);
        let mut ahead = one.connect();
        ask(&mut ahead, &format!("?after=5-{epoch}"));
        let (mut events, _) = Events::new(&one, "", &format!("last-event-id: 5-{epoch}\r\n"));
        one.until(|engine| &engine.parked, 2);
        assert_eq!(publish(&other, "fifth"), 5);
        assert_eq!(publish(&other, "sixth"), 6);
        assert_eq!(messages(&ahead.answer()), [(6, "sixth".to_owned())], "{backend:?}");
        assert_eq!(events.message(), (6, "sixth".to_owned()));
        let all = get(&one, "/c?after=0");
        assert_eq!(messages(&all).len(), 6);
        assert_eq!(field(&get(&one, "/c?info=1"), "channel-epoch"), epoch);
    }
}

#[test]
fn the_servers_count_users_together() {
    let Some(redis) = Redis::start(&[]) else { return };
    let options = format!(
        "presence = true, presence_grace = \"50ms\", subscribe = \"token\", {}",
        tokens::rule("")
    );
    let [one, other] = [(); 2].map(|()| redis.stage(BackendKind::Epoll, &options));
    let query = |name: &str| {
        let channels = serde_json::json!({ "subscribe": ["*"] });
        let claims = serde_json::json!({ "sub": name, "info": 7, "superpoll": channels });
        format!("?token={}", tokens::with_claims(&claims, tokens::SECRET))
    };
    let (mut first, _) = Events::new(&one, &query("ada"), "");
    let mut told = || {
        let event = std::iter::repeat_with(|| first.next().unwrap()).find(|one| !one.is_comment);
        let Event { kind, data, .. } = event.unwrap();
        format!("{kind} {data}")
    };
    assert_eq!(told(), r#"join {"user":"ada","info":7,"users":1}"#);
    let bob = [socket(&one, &query("bob")).0, socket(&other, &query("bob")).0];
    assert_eq!(told(), r#"join {"user":"bob","info":7,"users":2}"#);
    // Another server has another tab.
    let (_tab, _) = socket(&other, &query("ada"));
    let listed = |stage: &Stage| {
        let answer = get(stage, &format!("/c{}&info=1&members=1", query("eve")));
        let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        (json["members"].clone(), json["users"].clone(), json["last"].clone())
    };
    let ada = serde_json::json!({ "user": "ada", "info": 7 });
    let both = serde_json::json!([ada, { "user": "bob", "info": 7 }]);
    for stage in [&one, &other] {
        assert_eq!(listed(stage), (both.clone(), 2.into(), 2.into()));
    }
    for one in bob {
        drop(one);
        std::thread::sleep(Duration::from_millis(60));
    }
    assert_eq!(told(), r#"leave {"user":"bob","users":1}"#);
    for stage in [&one, &other] {
        assert_eq!(listed(stage), (serde_json::json!([ada]), 1.into(), 3.into()));
    }
    // The broker forgets everything: the servers tell it again.
    redis.call(&["FLUSHALL"]);
    let end = Instant::now() + PATIENCE;
    while listed(&other).0 != serde_json::json!([ada]) {
        assert!(Instant::now() < end, "the users are not told again");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_repeated_publication_is_found_on_every_server() {
    let Some(redis) = Redis::start(&[]) else { return };
    let [one, other] = [(); 2].map(|()| redis.stage(BackendKind::Epoll, ""));
    let publish = |stage: &Stage, data: &str| {
        let mut client = stage.connect();
        let length = data.len();
        client.send(format!(
            "POST /c HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\nchannel-ttl: 60\r\n\
             content-length: {length}\r\n\r\n{data}"
        ));
        client.answer()
    };
    let first = publish(&one, "x");
    assert_eq!(first.status, 201);
    // The message's time to live begins with each publication, and makes no other message of it.
    std::thread::sleep(Duration::from_millis(1100));
    let again = publish(&other, "x");
    assert_eq!((again.status, field(&again, "channel-next")), (200, "1"));
    assert_eq!(publish(&other, "y").status, 422);
    assert_eq!(redis.call(&["XLEN", "superpoll:{/c}"]).trim(), "2", "its beginning, and one");
}

/// Every kind of subscriber learns that messages are lost, once.
#[test]
fn an_emptied_broker_is_told_to_all_subscribers() {
    let Some(redis) = Redis::start(&[]) else { return };
    for backend in BACKENDS {
        redis.call(&["FLUSHALL"]);
        let [one, other] = [(); 2].map(|()| redis.stage(backend, ""));
        until_ready(&one, 200);
        until_ready(&other, 200);
        publish(&one, "before");
        let (mut events, start) = Events::new(&other, "?after=0", "");
        assert_eq!(events.message().1, "before");
        let (mut plain, _) = socket(&other, "?after=0");
        assert_eq!(next(&mut plain), "before");
        let mut json = json_socket(&other, "?after=0");
        assert_eq!(frame(&mut json)["id"], 0);
        assert_eq!(frame(&mut json)["data"], "before");
        let mut poll = other.connect();
        ask(&mut poll, "?after=1");
        other.until(|engine| &engine.parked, 4);
        redis.call(&["FLUSHALL"]);
        assert_eq!(publish(&one, "after"), 1, "{backend:?}");
        let answer = poll.answer();
        assert_eq!((messages(&answer), is_missed(&answer)), (vec![(1, "after".to_owned())], true));
        let missed = events.next().unwrap();
        assert_eq!(missed.kind, "missed", "{missed:?}");
        let Event { id, data, .. } = events.next().unwrap();
        assert_eq!(data, "after");
        assert_ne!(id.split_once('-').unwrap().1, start.split_once('-').unwrap().1);
        let place = frame(&mut json);
        assert_eq!((&place["id"], &place["missed"]), (&0.into(), &true.into()), "{place}");
        assert_eq!(frame(&mut json)["data"], "after");
        match plain.read() {
            Ok(Message::Close(Some(frame))) => assert_eq!(frame.code, CloseCode::Restart),
            found => panic!("{backend:?}: {found:?}"),
        }
        assert!(matches!(plain.read(), Err(Error::ConnectionClosed)));
        // Those who went on get what comes, once.
        publish(&other, "next");
        assert_eq!(events.message().1, "next");
        assert_eq!(frame(&mut json)["data"], "next");
    }
}

#[test]
fn a_broker_that_ends_and_starts_again_loses_nothing() {
    let Some(mut redis) = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]) else {
        return;
    };
    let [one, other] = [(); 2].map(|()| redis.stage(BackendKind::Adaptive, ""));
    until_ready(&one, 200);
    until_ready(&other, 200);
    let (mut events, _) = Events::new(&other, "", "");
    let (mut plain, _) = socket(&one, "");
    for round in 0..3 {
        let text = format!("{round}");
        publish(&one, &text);
        assert_eq!(events.message().1, text);
        assert_eq!(next(&mut plain), text);
        redis.kill();
        let mut client = one.connect();
        client.send("POST /c HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx");
        let refused = client.answer();
        assert_eq!((refused.status, field(&refused, "retry-after")), (503, "1"));
        let said = String::from_utf8(refused.body).unwrap();
        until_ready(&one, 503);
        let metrics = String::from_utf8(get(&one, "/metrics").body).unwrap();
        assert!(metrics.contains("\nsuperpoll_broker_up 0\n"), "{metrics}");
        redis.start_again();
        until_ready(&one, 200);
        until_ready(&other, 200);
        if said.contains("may be published or not") {
            // It was sent before the connection was known to be closed, and was not carried out.
            assert_eq!(redis.call(&["XLEN", "superpoll:{/c}"]).trim(), (round + 2).to_string());
        } else {
            assert!(said.contains("nothing was published"), "{said}");
        }
    }
    let mut client = other.connect();
    assert_eq!(post(&mut client, "end"), 4);
    assert_eq!(events.message(), (4, "end".to_owned()));
    assert_eq!(next(&mut plain), "end");
}

#[test]
fn what_was_written_by_no_server_is_left_out_and_told() {
    let Some(redis) = Redis::start(&[]) else { return };
    let stage = redis.stage(BackendKind::Epoll, "");
    until_ready(&stage, 200);
    publish(&stage, "one");
    let (mut events, start) = Events::new(&stage, "?after=0", "");
    assert_eq!(events.message().1, "one");
    stage.until(|engine| &engine.parked, 1);
    let epoch = u64::from_str_radix(start.split_once('-').unwrap().1, 16).unwrap();
    redis.call(&["XADD", "superpoll:{/c}", &format!("{epoch}-2"), "name", "value"]);
    assert_eq!(events.next().unwrap().kind, "missed");
    assert_eq!(publish(&stage, "three"), 3);
    assert_eq!(events.message(), (3, "three".to_owned()));
    let metrics = String::from_utf8(get(&stage, "/metrics").body).unwrap();
    assert!(metrics.contains("\nsuperpoll_broker_entries_unreadable_total 1\n"), "{metrics}");
}

#[test]
fn a_broker_that_cannot_be_used_keeps_a_server_from_starting() {
    let Some(redis) = Redis::start(&["--requirepass", "secret"]) else { return };
    let starts = |text: &str| {
        let config = Config::parse("test.toml", text).unwrap_or_else(|error| panic!("{error}"));
        let runtime = Runtime::new().unwrap();
        let started = Server::start(&runtime, &config, |_| {});
        started.map(drop).map_err(|error| error.to_string())
    };
    for login in ["", ":wrong@", "nobody:x@"] {
        let error = starts(&redis.text_with(login, "")).unwrap_err();
        assert!(error.starts_with("the broker redis+unix://"), "{error}");
        assert!(!error.contains("wrong@") && !error.contains('\n'), "{error}");
    }
    assert_eq!(starts(&redis.text_with(":secret@", "")), Ok(()));
    let call =
        |words: &[&str]| redis.call(&[&["-a", "secret", "--no-auth-warning"], words].concat());
    call(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let error = starts(&redis.text_with(":secret@", "")).unwrap_err();
    assert!(error.contains("allkeys-lru") && error.contains("expected noeviction"), "{error}");
    // A broker that is away may come.
    drop(redis);
    let nowhere = "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
                   [broker]\nurl = \"redis+unix:///nowhere/redis.sock\"\n\
                   [[hosts]]\n[[hosts.routes]]\npath = \"/c\"\nchannel = { broker = true }\n";
    assert_eq!(starts(nowhere), Ok(()));
}

/// The rights that the documentation names are enough.
#[test]
fn a_user_with_few_rights_is_enough() {
    let Some(redis) = Redis::start(&[]) else { return };
    let rights = "on >secret ~superpoll:* resetchannels +@read +@write +@scripting +@connection \
                  +info +wait +time +client|unblock";
    let words: Vec<&str> =
        ["ACL", "SETUSER", "superpoll"].into_iter().chain(rights.split(' ')).collect();
    assert_eq!(redis.call(&words).trim(), "OK");
    let stage = Stage::new(BackendKind::Epoll, 1, &redis.text_with("superpoll:secret@", ""));
    until_ready(&stage, 200);
    assert_eq!(publish(&stage, "x"), 1);
    let metrics = String::from_utf8(get(&stage, "/metrics").body).unwrap();
    assert!(metrics.contains("\nsuperpoll_broker_up 1\n"), "{metrics}");
}

/// A full broker refuses messages, and says so; readers stay.
#[test]
fn a_full_broker_is_told_to_publishers() {
    let Some(redis) = Redis::start(&[]) else { return };
    let stage = redis.stage(BackendKind::Epoll, "");
    until_ready(&stage, 200);
    publish(&stage, "x");
    redis.call(&["CONFIG", "SET", "maxmemory", "1"]);
    let mut client = stage.connect();
    client.send("POST /c HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx");
    let refused = client.answer();
    let said = String::from_utf8_lossy(&refused.body).into_owned();
    assert_eq!((refused.status, field(&refused, "retry-after")), (503, "10"), "{said}");
    assert!(said.contains("no memory left"), "{said}");
    redis.call(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(publish(&stage, "y"), 2);
}

/// Hubs of Mercure, too: an update of one is an update of all.
/// Publishes a message with a key, and returns the answer.
fn publish_once(stage: &Stage, key: &str) -> Answer {
    let mut client = stage.connect();
    client.send(format!(
        "POST /c HTTP/1.1\r\nhost: a\r\nidempotency-key: {key}\r\ncontent-length: 1\r\n\r\nx"
    ));
    client.answer()
}

#[test]
fn a_message_is_confirmed_when_replicas_have_it() {
    let Some((master, port)) = Redis::on_port(&[]) else { return };
    let text = master.text("").replace("publish = \"2s\"", "publish = \"2s\"\nreplicas = 1");
    let stage = Stage::new(BackendKind::Epoll, 1, &text);
    until_ready(&stage, 200);
    let is_short = |answer: Answer| {
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(answer.status == 503 && said.contains("too few copies"), "{answer:?}");
    };
    is_short(publish_once(&stage, "first"));
    let Some(replica) = Redis::start(&["--replicaof", "127.0.0.1", port]) else { return };
    let end = Instant::now() + PATIENCE;
    // It is there once, whatever its publisher was told.
    loop {
        let answer = publish_once(&stage, "first");
        if answer.status == 200 {
            assert_eq!(field(&answer, "channel-next"), "1");
            break;
        }
        is_short(answer);
        assert!(Instant::now() < end, "the replica gets nothing");
    }
    assert_eq!(publish_once(&stage, "second").status, 201);
    replica.signal("-STOP");
    is_short(publish_once(&stage, "third"));
    replica.signal("-CONT");
    let answer = publish_once(&stage, "third");
    assert_eq!((answer.status, field(&answer, "channel-next")), (200, "3"));
}

#[test]
fn a_broker_with_tls() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let write = |name: &str, text: &str| -> &'static str {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned().leak()
    };
    let certificate = write("cert.pem", &made.cert.pem());
    let key = write("cert.key", &made.signing_key.serialize_pem());
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port: &str = free.local_addr().unwrap().port().to_string().leak();
    drop(free);
    let options = [
        "--bind",
        "127.0.0.1",
        "--tls-port",
        port,
        "--tls-cert-file",
        certificate,
        "--tls-key-file",
        key,
        "--tls-ca-cert-file",
        certificate,
        "--tls-auth-clients",
        "no",
    ];
    let Some(redis) = Redis::start(&options) else { return };
    let unix = format!("redis+unix://{}", redis.socket().display());
    let tls = |ca: &str| {
        let url = format!("rediss://localhost:{port}\"\nca = \"{ca}");
        redis.text("").replace(&unix, &url)
    };
    for backend in BACKENDS {
        redis.call(&["FLUSHALL"]);
        let [one, other] = [(); 2].map(|()| Stage::new(backend, 1, &tls(certificate)));
        until_ready(&other, 200);
        let (mut events, _) = Events::new(&other, "", "");
        assert_eq!(publish(&one, "first"), 1);
        assert_eq!(events.message(), (1, "first".to_owned()), "{backend:?}");
    }
    let stranger = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let wrong = tls(write("other.pem", &stranger.cert.pem()));
    let config = Config::parse("test.toml", &wrong).unwrap();
    let runtime = Runtime::builder().backend(BackendKind::Epoll).build().unwrap();
    let error = Server::start(&runtime, &config, |_| {}).unwrap_err().to_string();
    assert!(error.contains("certificate") && !error.contains('\n'), "{error}");
}

#[test]
fn hubs_of_mercure_share_their_updates() {
    let Some(redis) = Redis::start(&[]) else { return };
    let text = redis.text("").replace(
        "path = \"/c\"\nchannel = { broker = true,  }",
        "path = \"/.well-known/mercure\"\nmercure = { broker = true, publish = \"anyone\" }",
    );
    let [one, other] = [(); 2].map(|()| Stage::new(BackendKind::Epoll, 1, &text));
    until_ready(&one, 200);
    until_ready(&other, 200);
    let mut client = other.connect();
    client.send(
        "GET /.well-known/mercure?topic=t HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n\r\n",
    );
    let (mut events, _) = Events::answered(client);
    other.until(|engine| &engine.parked, 1);
    for (number, topic) in ["t", "u", "t"].into_iter().enumerate() {
        let form = format!("topic={topic}&data=update+{number}&id=urn%3A{number}&type=kind");
        let mut client = one.connect();
        client.send(format!(
            "POST /.well-known/mercure HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\
             content-type: application/x-www-form-urlencoded\r\n\r\n{form}",
            form.len()
        ));
        let answer = client.answer();
        assert_eq!((answer.status, &answer.body[..]), (200, format!("urn:{number}").as_bytes()));
    }
    for number in [0, 2] {
        let event = events.next().unwrap();
        assert_eq!((event.kind.as_str(), event.id), ("kind", format!("urn:{number}")));
        assert_eq!(event.data, format!("update {number}"));
    }
}
