//! The client of channels, in a real browser: no message is lost or doubled, whatever happens to
//! the server and to the network.

use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tungstenite::WebSocket;

use crate::keep::crowd::{END, Publisher, publish, publish_to};
use crate::page::proxy::Network;
use crate::stage::{Running, Server, Site, free_port, until};
use crate::superpoll;
use superpoll_test_support::browser::{Tab, browser};
use superpoll_test_support::tokens::with_claims;

/// The secret by which tokens are signed.
const SECRET: &str = "a secret of at least thirty-two bytes";

/// The page that is served: it subscribes on demand, and remembers all that it is told.
const PAGE: &str = r#"<!doctype html>
<meta charset="utf-8">
<title>test</title>
<link rel="icon" href="data:,">
<body>
<script src="/_superpoll/client.js"></script>
<script>
"use strict";
let room;
const seen = [], states = [];
let missed = 0, tokens = 0;
// Returns a token that lasts for some seconds.
async function sign(secret, seconds, sub) {
  const bytes = text => new TextEncoder().encode(text);
  const code = text => btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  const exp = Math.floor(Date.now() / 1000) + seconds;
  const claims = { sub, info: { name: sub }, exp, superpoll: { subscribe: ["/secret", "/crowd"] } };
  const head = [{ alg: "HS256" }, claims].map(part => code(JSON.stringify(part))).join(".");
  const hmac = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", bytes(secret), hmac, false, ["sign"]);
  const mac = await crypto.subtle.sign("HMAC", key, bytes(head));
  return `${head}.${code(String.fromCharCode(...new Uint8Array(mac)))}`;
}
function start(options, path = "/news") {
  room = superpoll(path, message => seen.push(message.data), {
    onstate: (state, { transport }) => states.push(`${state} ${transport}`),
    onmissed: () => { missed += 1; },
    ...options,
  });
}
</script>
"#;

/// A server with a channel, a network before it, and a page behind that.
struct Scene {
    site: Site,
    port: u16,
    keeper: Option<Running>,
    network: Network,
    tab: Tab,
    _browser: superpoll_test_support::Running,
    _profile: tempfile::TempDir,
}

impl Scene {
    /// Opens the page. Returns `None`, and says so, without a browser.
    fn open(has_keeper: bool) -> Option<(Scene, Server)> {
        let Some(browser) = browser() else {
            println!("skipped: no Chromium to run the client in");
            return None;
        };
        let (site, port) = (Site::new(), free_port());
        site.write("www/page.html", PAGE);
        site.write(
            "server.toml",
            &format!(
                "[[listeners]]\naddress = \"127.0.0.1:{port}\"\n[[hosts]]\n[[hosts.routes]]\n\
                 path = \"/\"\nfiles = {{ root = \"www\" }}\n[[hosts.routes]]\npath = \"/news\"\n\
                 channel = {{ history = 10000 }}\n[[hosts.routes]]\npath = \"/rooms/{{room}}\"\n\
                 channel = {{}}\n[[hosts.routes]]\npath = \"/.well-known/mercure\"\n\
                 mercure = {{}}\n[[hosts.routes]]\npath = \"/secret\"\n\
                 channel = {{ history = 10000, subscribe = \"token\", token = {{ key = \"{SECRET}\", leeway = \"1s\" }} }}\n\
                 [[hosts.routes]]\npath = \"/crowd\"\nchannel = {{ history = 9, presence = true, \
                 presence_grace = \"2s\", subscribe = \"token\", token = {{ key = \"{SECRET}\" }} }}\n\
                 [[hosts.routes]]\npath = \"/closed\"\nchannel = {{ subscribe = \"nobody\" }}\n\
                 [[hosts.routes]]\npath = \"/slow\"\nrate = \"1/m\"\nchannel = {{}}\n\
                 [timeouts]\npark = \"50ms\"\nidle = \"10m\"\n"
            ),
        );
        let keeper = has_keeper.then(|| {
            let socket = site.path("keeper");
            let mut command = superpoll();
            command.arg("keep").arg("--listen").arg(&socket);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            let keeper = Running(command.spawn().unwrap());
            until("the keeper listens", || socket.exists());
            keeper
        });
        let network = Network::new(([127, 0, 0, 1], port).into());
        let profile = tempfile::tempdir().unwrap();
        let (_browser, tab) = Tab::open(browser, profile.path());
        let mut scene = Scene { site, port, keeper, network, tab, _browser, _profile: profile };
        let server = scene.serve(&[]);
        let url = format!("http://127.0.0.1:{}/page.html", scene.network.port);
        scene.tab.call("Page.navigate", json!({ "url": url }));
        scene.tab.until("typeof superpoll === 'function' && typeof start === 'function'");
        Some((scene, server))
    }

    fn at(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    fn serve(&self, arguments: &[&str]) -> Server {
        let mut command: Command = superpoll();
        command.args(["serve", "-c"]).arg(self.site.path("server.toml")).args(arguments);
        if self.keeper.is_some() {
            command.arg("--keeper").arg(self.site.path("keeper"));
        }
        Server::of(command, 1)
    }

    /// Subscribes, and waits until the subscription is open.
    fn start(&mut self, options: &str) {
        self.tab.evaluate(&format!("start({options}); true"));
        self.tab.until("states.at(-1)?.startsWith('open')");
    }

    /// Returns how often the subscription was in a state.
    fn count(&mut self, state: &str) -> u64 {
        self.tab
            .evaluate(&format!("states.filter(s => s.startsWith('{state}')).length"))
            .as_u64()
            .unwrap()
    }

    /// Waits until the subscription has been in a state more often than that.
    fn until_more(&mut self, state: &str, count: u64) {
        self.tab.until(&format!("states.filter(s => s.startsWith('{state}')).length > {count}"));
    }

    /// Waits until the page has received some more messages.
    fn until_more_seen(&mut self) {
        let many = self.seen().len() + 5;
        self.tab.until(&format!("seen.length > {many}"));
    }

    /// Waits until the page has this message.
    fn until_seen(&mut self, message: &str) {
        self.tab.until(&format!("seen.includes('{message}')"));
    }

    /// Returns all messages that the page has received.
    fn seen(&mut self) -> Vec<String> {
        let seen = self.tab.evaluate("seen");
        let text = |one: &Value| one.as_str().unwrap().to_owned();
        seen.as_array().unwrap().iter().map(text).collect()
    }

    /// Checks that the page has received each confirmed message once, in order, and each doubtful
    /// one at most once.
    fn check(&mut self, confirmed: &[String], doubtful: &[String]) {
        self.until_seen(END);
        let mut seen = self.seen();
        assert_eq!(seen.pop().as_deref(), Some(END));
        let mut once = seen.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), seen.len(), "a message came twice: {seen:?}");
        seen.retain(|message| !doubtful.contains(message));
        assert_eq!(seen, confirmed);
    }
}

fn a_cut_network(transport: &str) {
    let Some((mut scene, server)) = Scene::open(false) else { return };
    scene.start(&format!("{{ transports: ['{transport}'] }}"));
    let publisher = Publisher::start(scene.at());
    for _ in 0..5 {
        scene.until_more_seen();
        let waits = scene.count("waiting");
        scene.network.cut();
        // A browser repeats a request by itself whose connection is cut before the answer begins.
        if transport != "long-poll" {
            scene.until_more("waiting", waits);
        }
        scene.until_more_seen();
    }
    let (confirmed, doubtful) = publisher.end();
    assert!(doubtful.is_empty() && confirmed.len() > 25, "{doubtful:?}");
    scene.check(&confirmed, &[]);
    assert_eq!(scene.tab.evaluate("missed"), 0);
    drop(server);
}

fn breaks_anywhere(transport: &str) {
    let Some((mut scene, server)) = Scene::open(false) else { return };
    scene.start(&format!("{{ transports: ['{transport}'] }}"));
    // A long-poll gets all messages that wait for it in one answer, which has to get through.
    let longest = if transport == "long-poll" { 30_000 } else { 4000 };
    for seed in 0..3 {
        scene.network.break_by_itself(Some((seed, longest)));
        scene.network.cut();
        for number in 0..40 {
            let more = "x".repeat(number * 7 % 300);
            assert!(publish(scene.at(), &format!("{seed} {number} {more}")));
        }
        // A browser drops bytes that come together with the break. After some connections without a
        // message the client would wait long, were it not for the network's return.
        scene.tab.until(&format!(
            "if (states.at(-1)?.startsWith('waiting')) dispatchEvent(new Event('online')); \
             seen.length >= {}",
            40 * (seed + 1)
        ));
    }
    scene.network.break_by_itself(None);
    let expected: Vec<String> = (0..3)
        .flat_map(|seed| (0..40).map(move |number| (seed, number)))
        .map(|(seed, number)| format!("{seed} {number} {}", "x".repeat(number * 7 % 300)))
        .collect();
    assert!(publish(scene.at(), END));
    scene.check(&expected, &[]);
    assert_eq!(scene.tab.evaluate("missed"), 0);
    drop(server);
}

fn a_crash(transport: &str) {
    let Some((mut scene, server)) = Scene::open(false) else { return };
    scene.start(&format!("{{ transports: ['{transport}'] }}"));
    for message in ["one", "two"] {
        assert!(publish(scene.at(), message));
    }
    scene.until_seen("two");
    let waits = scene.count("waiting");
    server.signal("KILL");
    drop(server.ended());
    scene.until_more("waiting", waits);
    let server = scene.serve(&[]);
    // Their ids are those of the first two, in another epoch.
    for message in ["three", "four", END] {
        assert!(publish(scene.at(), message));
    }
    let all = ["one", "two", "three", "four"].map(str::to_owned);
    scene.check(&all, &[]);
    assert!(scene.tab.evaluate("missed").as_u64() >= Some(1));
    drop(server);
}

fn a_succession(transport: &str) {
    let Some((mut scene, first)) = Scene::open(true) else { return };
    scene.start(&format!("{{ transports: ['{transport}'] }}"));
    let publisher = Publisher::start(scene.at());
    scene.until_more_seen();
    let second = scene.serve(&["--upgrade"]);
    assert!(first.ended().0.success());
    scene.until_more_seen();
    second.signal("KILL");
    drop(second.ended());
    let third = scene.serve(&[]);
    scene.until_more_seen();
    let (confirmed, doubtful) = publisher.end();
    scene.check(&confirmed, &doubtful);
    assert_eq!(scene.tab.evaluate("missed"), 0);
    drop(third);
}

#[test]
fn a_websocket_loses_nothing_when_the_network_is_cut() {
    a_cut_network("websocket");
}

#[test]
fn a_stream_of_events_loses_nothing_when_the_network_is_cut() {
    a_cut_network("sse");
}

#[test]
fn a_long_poll_loses_nothing_when_the_network_is_cut() {
    a_cut_network("long-poll");
}

#[test]
fn a_websocket_loses_nothing_wherever_it_breaks() {
    breaks_anywhere("websocket");
}

#[test]
fn a_stream_of_events_loses_nothing_wherever_it_breaks() {
    breaks_anywhere("sse");
}

#[test]
fn a_long_poll_loses_nothing_wherever_it_breaks() {
    breaks_anywhere("long-poll");
}

#[test]
fn a_websocket_goes_on_with_a_server_that_is_started_anew() {
    a_crash("websocket");
}

#[test]
fn a_stream_of_events_goes_on_with_a_server_that_is_started_anew() {
    a_crash("sse");
}

#[test]
fn a_long_poll_goes_on_with_a_server_that_is_started_anew() {
    a_crash("long-poll");
}

#[test]
fn a_websocket_loses_nothing_in_an_upgrade_and_a_crash_with_a_keeper() {
    a_succession("websocket");
}

#[test]
fn a_stream_of_events_loses_nothing_in_an_upgrade_and_a_crash_with_a_keeper() {
    a_succession("sse");
}

#[test]
fn a_long_poll_loses_nothing_in_an_upgrade_and_a_crash_with_a_keeper() {
    a_succession("long-poll");
}

/// Subscribes to the channel that counts users, as one of them.
fn enter(at: SocketAddr, name: &str) -> WebSocket<TcpStream> {
    let claims = json!({ "sub": name, "superpoll": { "subscribe": ["/crowd"] } });
    let url = format!("ws://{at}/crowd?token={}", with_claims(&claims, SECRET));
    tungstenite::client(url, TcpStream::connect(at).unwrap()).unwrap().0
}

/// All transports of a page, each with two tabs of one user, through a crash.
#[test]
fn a_page_knows_who_is_there() {
    let Some((mut scene, server)) = Scene::open(true) else { return };
    let (first, mut bob) = (scene.at(), Vec::new());
    bob.push(enter(first, "bob"));
    scene.tab.evaluate(&format!(
        "window.told = []; \
         window.rooms = ['websocket', 'sse', 'long-poll'].flatMap(transport => [1, 2].map(() => \
           superpoll('/crowd', message => seen.push(message), {{ \
             transports: [transport], token: () => sign('{SECRET}', 600, transport), \
             onpresence: ({{ type, user }}) => told.push(`${{type}} ${{user}}`) }}))); true"
    ));
    let are = |names: &str| {
        format!("rooms.every(room => [...room.members.keys()].sort().join() === '{names}')")
    };
    // A long-poll sees who is there, and is not there itself.
    scene.tab.until(&are("bob,sse,websocket"));
    assert_eq!(scene.tab.evaluate("rooms[0].members.get('sse')"), json!({ "name": "sse" }));
    bob.push(enter(first, "bob"));
    bob.push(enter(first, "cid"));
    scene.tab.until(&are("bob,cid,sse,websocket"));
    drop(bob.pop());
    drop(bob.pop());
    scene.tab.until(&are("bob,sse,websocket"));
    server.signal("KILL");
    drop(server.ended());
    let server = scene.serve(&[]);
    drop(bob.pop());
    scene.tab.until(&are("sse,websocket"));
    let told = scene.tab.evaluate("told.filter(one => /^leave (sse|websocket)$/.test(one))");
    assert_eq!(told, json!([]));
    assert_eq!(scene.tab.evaluate("seen"), json!([]), "these are no messages");
    drop(server);
}

/// The browser's own client of server-sent events, as pages use it with hubs of Mercure.
#[test]
fn an_event_source_follows_a_hub_through_a_cut_network_an_upgrade_and_a_crash() {
    let Some((mut scene, first)) = Scene::open(true) else { return };
    scene.tab.evaluate(
        "window.source = new EventSource('/.well-known/mercure?topic=/a&topic=' \
         + encodeURIComponent('/b/{id}')); \
         source.onmessage = event => seen.push(event.data); \
         source.addEventListener('added', event => seen.push(`added ${event.data}`)); \
         source.onopen = () => states.push('open event-source'); true",
    );
    scene.tab.until("states.length > 0");
    let update = |scene: &Scene, form: &str| {
        until("an update is published", || publish_to(scene.at(), "/.well-known/mercure", form));
    };
    update(&scene, "topic=/a&data=1");
    update(&scene, "topic=/b/7&data=2&type=added&id=urn:x:2");
    update(&scene, "topic=/c&data=not+for+it");
    scene.until_seen("added 2");
    // It comes back with the id of its last update.
    scene.network.cut();
    update(&scene, "topic=/a&data=3");
    scene.until_seen("3");
    let second = scene.serve(&["--upgrade"]);
    assert!(first.ended().0.success());
    update(&scene, "topic=/b/8&data=4&topic=/a");
    scene.until_seen("4");
    second.signal("KILL");
    drop(second.ended());
    let third = scene.serve(&[]);
    update(&scene, "topic=/a&data=5");
    scene.until_seen("5");
    assert_eq!(scene.seen(), ["1", "added 2", "3", "4", "5"]);
    drop(third);
}

#[test]
fn what_does_not_get_through_is_replaced_by_the_next_transport() {
    let Some((mut scene, _server)) = Scene::open(false) else { return };
    scene.network.block(&["upgrade: websocket"]);
    scene.start("{}");
    assert_eq!(scene.tab.evaluate("states.at(-1)"), "open sse");
    assert!(publish(scene.at(), "by events"));
    scene.until_seen("by events");
    scene.network.block(&["upgrade: websocket", "accept: text/event-stream"]);
    scene.network.cut();
    scene.tab.until("states.at(-1) === 'open long-poll'");
    assert!(publish(scene.at(), "by long-poll"));
    scene.until_seen("by long-poll");
    assert_eq!(scene.seen(), ["by events", "by long-poll"]);
}

#[test]
fn the_first_subscriber_of_a_name_makes_its_channel_and_misses_nothing_of_it() {
    let Some((mut scene, _server)) = Scene::open(false) else { return };
    for transport in ["websocket", "sse", "long-poll"] {
        let room = format!("/rooms/{transport}");
        scene.tab.evaluate("states.length = seen.length = 0; true");
        scene.tab.evaluate(&format!("start({{ transports: ['{transport}'] }}, '{room}'); true"));
        scene.tab.until("states.at(-1)?.startsWith('open') && Boolean(room.position)");
        // The connection is lost before the first message.
        scene.network.cut();
        assert!(publish_to(scene.at(), &room, "first"));
        scene.until_seen("first");
        scene.tab.evaluate("room.close(); true");
    }
}

#[test]
fn whatever_a_message_has_in_it_arrives() {
    let Some((mut scene, _server)) = Scene::open(false) else { return };
    // Line ends, a field's name and bytes that are no text are what a stream of events treats
    // specially; a long message comes in several pieces, which cut characters.
    let sent = "['', ' a\\nb\\n', ':c', 'data: d', 'event', '\\u2028\\u2029', '\\0\\\\\"', 'ä'.repeat(20000)]";
    for transport in ["websocket", "sse", "long-poll"] {
        scene.tab.evaluate(&format!(
            "states.length = seen.length = 0; start({{ transports: ['{transport}'] }}, '/rooms/{transport}'); true"
        ));
        scene.tab.until("states.at(-1)?.startsWith('open') && Boolean(room.position)");
        scene.tab.evaluate(&format!(
            "(async () => {{ \
                 for (const text of {sent}) await room.publish(text); \
                 await room.publish(new Uint8Array([0, 10, 13, 255])); \
                 await room.publish('last', {{ event: 'added', key: 'k' }}); \
                 await room.publish('last', {{ event: 'added', key: 'k' }}); \
             }})(); true"
        ));
        scene.until_seen("last");
        let is_same = format!(
            "JSON.stringify(seen) === JSON.stringify([...{sent}, new Uint8Array([0, 10, 13, 255]), 'last'])"
        );
        assert_eq!(scene.tab.evaluate(&is_same), true, "{transport}");
        scene.tab.evaluate("room.close(); true");
    }
}

#[test]
fn a_subscription_that_ends_with_its_token_goes_on_with_the_next_one() {
    let Some((mut scene, _server)) = Scene::open(false) else { return };
    let transports = ["websocket", "sse", "long-poll"];
    for transport in transports {
        // The first token is not valid.
        scene.tab.evaluate(&format!(
            "{{ let count = 0; superpoll('/secret', message => seen.push(`{transport} ${{message.data}}`), {{ \
                 transports: ['{transport}'], \
                 token: () => sign((count += 1) === 1 ? 'another secret' : '{SECRET}', 1), \
                 onstate: (state, {{ error }}) => states.push(`${{state}} {transport} ${{error?.status}}`), \
             }}); }} true"
        ));
        scene.tab.until(&format!("states.includes('open {transport} undefined')"));
        assert_eq!(
            scene.tab.evaluate(&format!("states.includes('waiting {transport} 401')")),
            true
        );
    }
    let mut count = 0;
    let opened = |transport: &str| {
        format!("states.filter(s => s === 'open {transport} undefined').length >= 4")
    };
    // Messages come all the time, until each subscription has ended three times.
    until("each subscription has ended three times", || {
        if transports.iter().all(|transport| scene.tab.evaluate(&opened(transport)) == true) {
            return true;
        }
        assert!(publish_to(scene.at(), "/secret", &count.to_string()));
        count += 1;
        // Subscriptions are to end between messages, too.
        std::thread::sleep(Duration::from_millis(20));
        false
    });
    scene.tab.until(&format!("seen.length >= {}", 3 * count));
    let seen = scene.seen();
    for transport in transports {
        let own: Vec<&str> =
            seen.iter().filter_map(|one| one.strip_prefix(transport)?.strip_prefix(' ')).collect();
        let expected: Vec<String> = (0..count).map(|number| number.to_string()).collect();
        assert_eq!(own, expected, "{transport}");
    }
}

/// A server that refuses a page would refuse it forever, and with a thousand pages be busy with
/// that.
#[test]
fn a_subscription_that_is_refused_ends_and_says_so() {
    let Some((mut scene, _server)) = Scene::open(false) else { return };
    for transport in ["websocket", "sse", "long-poll"] {
        // No token; one that is not valid, twice; and a channel that is closed.
        for (path, options, tries, status) in [
            ("/secret", "", 1, 401),
            ("/secret", "token: () => sign('a secret of another application!', 60)", 2, 401),
            ("/closed", "token: () => 'token'", 1, 403),
        ] {
            scene.tab.evaluate(&format!(
                "states.length = 0; room = superpoll('{path}', () => {{}}, {{ \
                     transports: ['{transport}', 'long-poll'], {options}{} \
                     onstate: (state, {{ transport, error }}) => \
                         states.push(`${{state}} ${{transport}} ${{error?.status}}`), \
                 }}); true",
                if options.is_empty() { "" } else { "," }
            ));
            let refused = format!("refused {transport} {status}");
            scene.tab.until(&format!("states.includes('{refused}')"));
            // Nothing begins again, neither by itself nor with the network, and the end is no
            // other.
            scene.tab.evaluate("dispatchEvent(new Event('online')); room.close(); true");
            scene
                .tab
                .evaluate("superpoll('/news', () => {}, { onstate: s => states.push(s) }); true");
            scene.tab.until("states.includes('open')");
            let states = scene.tab.evaluate(&format!(
                "[states.filter(s => s === 'connecting {transport} undefined').length, \
                  states.filter(s => /^(refused|closed) /.test(s)).join()]"
            ));
            assert_eq!(states, json!([tries, refused]), "{path} {options}");
        }
    }
}

#[test]
fn the_client_waits_as_long_as_the_server_says() {
    let Some((mut scene, _server)) = Scene::open(false) else { return };
    // The page's clock of waits tells them, and runs faster.
    scene.tab.evaluate(
        "window.waits = []; { const real = setTimeout; window.setTimeout = \
             (then, time) => { waits.push(time); return real(then, 0); }; } true",
    );
    // The first request opens the subscription, and later ones come too soon.
    scene.tab.evaluate("start({ transports: ['long-poll'] }, '/slow'); true");
    scene.tab.until("states.filter(s => s.startsWith('waiting')).length >= 1 && waits.length >= 1");
    // Without Retry-After, the first wait takes at most a second.
    let first = scene.tab.evaluate("waits[0]").as_f64().unwrap();
    assert!(first > 1000.0 && first <= 61_000.0, "{first}");
    scene.tab.evaluate("room.close(); true");
}

#[test]
fn a_page_publishes_begins_where_it_was_and_ends_when_it_closes() {
    let Some((mut scene, _server)) = Scene::open(false) else { return };
    scene.start("{ transports: ['sse'], token: async () => `token${tokens += 1}` }");
    // The answer and the message come on two streams, in any order.
    scene.tab.evaluate("room.publish('from the page').then(({ id }) => window.published = id); 0");
    scene.tab.until("seen.includes('from the page') && window.published === 1");
    // The token of each request was asked for when it was needed.
    for (request, token) in [("get /news", "token1"), ("post /news", "token2")] {
        let heads = scene.network.heads(request);
        assert!(heads[0].contains(&format!("authorization: bearer {token}")), "{heads:?}");
    }
    scene.network.cut();
    scene.until_more("open", 1);
    let heads = scene.network.heads("accept: text/event-stream");
    assert!(heads.last().unwrap().contains("authorization: bearer token"), "{heads:?}");
    assert_ne!(heads.first(), heads.last());

    scene.tab.evaluate("room.close(); true");
    assert_eq!(scene.tab.evaluate("states.at(-1)"), "closed undefined");
    assert!(publish(scene.at(), "after the end"));
    // Another subscription begins where the first one was.
    scene.tab.evaluate("const place = room.position; start({ after: place }); true");
    scene.until_seen("after the end");
    assert!(publish(scene.at(), END));
    scene.until_seen(END);
    assert_eq!(scene.seen(), ["from the page", "after the end", END]);
    // The module is the same client.
    scene.tab.evaluate(
        "import('/_superpoll/client.mjs').then(it => { \
             document.title = String(it.default === it.superpoll && it.superpoll.length); \
         }); true",
    );
    scene.tab.until("document.title === '2'");
}
