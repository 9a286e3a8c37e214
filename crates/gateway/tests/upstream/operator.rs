//! Servers that an operator takes out and weighs, while requests come.

use std::num::NonZeroU32;
use std::sync::mpsc;

use serde_json::Value;
use superpoll_gateway::Config;
use superpoll_rt::BackendKind;

use crate::gateway::{Gateway, LIMIT, all, wait, whole};
use crate::origin::{Client, Origin};

const ADMIN: &str = "[metrics]\n[admin]\naddress = \"127.0.0.1:0\"\n";

fn servers(origins: &[&Origin]) -> String {
    let servers: Vec<_> =
        origins.iter().map(|origin| format!("{{ address = \"{}\" }}", origin.address)).collect();
    format!("servers = [{}]", servers.join(", "))
}

/// Returns the address of the admin listener.
fn admin(gateway: &Gateway) -> String {
    gateway.call(|_, server| server.listening().nth(1).unwrap().to_string())
}

/// Makes the admin listener change a server.
fn set(admin: &str, server: &str, change: &str) -> Value {
    let mut client = Client::connect(admin);
    let length = change.len();
    client.send(format!(
        "PATCH /api/upstreams/app/servers/{server} HTTP/1.1\r\nHost: localhost\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{change}"
    ));
    let reply = client.reply();
    assert_eq!(reply.status, 200, "{}", reply.text());
    serde_json::from_str(reply.text()).unwrap()
}

fn get(admin: &str, path: &str) -> String {
    let mut client = Client::connect(admin);
    client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    let reply = client.reply();
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.text().to_owned()
}

/// A server that answers requests for `/slow` when it is told to.
fn slow_server() -> (Origin, mpsc::Sender<()>) {
    let (release, released) = mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let slow = Origin::start(move |line| {
        loop {
            let seen = line.request()?;
            if seen.line().contains("/slow") {
                released.lock().unwrap().recv_timeout(LIMIT).unwrap();
            }
            line.answer("slow")?;
        }
    });
    (slow, release)
}

#[test]
fn a_server_that_is_set_down_gets_no_request_and_those_under_way_end_as_usual() {
    for backend in all() {
        let (slow, release) = slow_server();
        let other = Origin::named("other");
        let text = whole(&servers(&[&slow, &other]), "", ADMIN);
        let gateway = Gateway::start(backend, &text);
        let admin = admin(&gateway);
        // It is the first server's turn.
        let mut waits = Client::connect(&gateway.address);
        waits.send("GET /slow HTTP/1.1\r\nHost: a.example\r\n\r\n");
        wait(|| !slow.seen().is_empty());
        let told = set(&admin, &slow.address, "{\"state\":\"down\"}");
        let server = &told["upstreams"][0]["servers"][0];
        assert_eq!((&server["state"], &server["active"]), (&"down".into(), &1.into()), "{told}");
        let mut client = Client::connect(&gateway.address);
        for _ in 0..20 {
            assert_eq!(client.get("/").text(), "other");
        }
        let up = format!("superpoll_upstream_up{{upstream=\"app\",server=\"{}\"}} 0", slow.address);
        assert!(get(&admin, "/metrics").contains(&up));
        release.send(()).unwrap();
        assert_eq!(waits.reply().text(), "slow");
        assert_eq!(slow.seen().len(), 1);
        // The connection of that client goes on, elsewhere.
        assert_eq!(waits.get("/").text(), "other");
        set(&admin, &other.address, "{\"state\":\"drain\"}");
        let reply = client.get("/");
        assert_eq!(reply.status, 503, "{backend:?}: {}", reply.text());
        set(&admin, &slow.address, "{\"state\":\"up\"}");
        for _ in 0..5 {
            assert_eq!(client.get("/").text(), "slow");
        }
        set(&admin, &other.address, "{\"state\":\"up\"}");
        let told = gateway.told();
        assert_eq!(told.iter().filter(|(name, ..)| *name == "upstream-set").count(), 4, "{told:?}");
    }
}

/// A reload that changes the upstream makes another one of it, and the operator who waits for the
/// last request before a server is stopped sees those of the one before.
#[test]
fn requests_under_way_are_counted_after_a_reload_as_well() {
    let (slow, release) = slow_server();
    let upstream = |weight: u32| {
        let server = format!("{{ address = \"{}\", weight = {weight} }}", slow.address);
        whole(&format!("servers = [{server}]"), "", ADMIN)
    };
    let gateway = Gateway::start(BackendKind::Epoll, &upstream(1));
    let admin = admin(&gateway);
    let active = || {
        let told: Value = serde_json::from_str(&get(&admin, "/api/upstreams/app")).unwrap();
        let listed = told["servers"][0]["active"].as_u64().unwrap();
        let metrics = get(&admin, "/metrics");
        let labels = format!("{{upstream=\"app\",server=\"{}\"}} ", slow.address);
        let line = metrics.lines().find_map(|line| {
            line.strip_prefix("superpoll_upstream_requests_active")?.strip_prefix(&labels)
        });
        assert_eq!(line.unwrap().parse::<u64>().unwrap(), listed, "{metrics}");
        listed
    };
    let mut clients = Vec::new();
    for round in 1..=3_u64 {
        let mut waits = Client::connect(&gateway.address);
        waits.send("GET /slow HTTP/1.1\r\nHost: a.example\r\n\r\n");
        clients.push(waits);
        wait(|| slow.seen().len() as u64 == round);
        assert_eq!(active(), round);
        let text = upstream(1 + round as u32);
        gateway.call(move |runtime, server| {
            server.change(runtime, &Config::parse("test", &text).unwrap()).unwrap();
        });
        assert_eq!(active(), round, "after the reload");
    }
    (0..clients.len()).for_each(|_| release.send(()).unwrap());
    for mut client in clients {
        assert_eq!(client.reply().text(), "slow");
    }
    wait(|| active() == 0);
}

#[test]
fn a_weight_counts_from_the_next_request_on_until_it_is_taken_back() {
    let (one, other) = (Origin::named("one"), Origin::named("other"));
    let gateway = Gateway::start(BackendKind::Epoll, &whole(&servers(&[&one, &other]), "", ADMIN));
    let admin = admin(&gateway);
    let mut client = Client::connect(&gateway.address);
    let mut share =
        |requests: usize| (0..requests).filter(|_| client.get("/").text() == "one").count();
    assert_eq!(share(10), 5);
    let told = set(&admin, &one.address, "{\"weight\":4}");
    let server = &told["upstreams"][0]["servers"][0];
    assert_eq!((&server["weight"], &server["configured_weight"]), (&4.into(), &1.into()));
    assert_eq!(share(50), 40);
    set(&admin, &one.address, "{\"weight\":null}");
    assert_eq!(share(10), 5);
}

#[test]
fn what_is_set_outlives_configurations_that_have_the_server_and_no_others() {
    let (one, other) = (Origin::named("one"), Origin::named("other"));
    let both = servers(&[&one, &other]);
    let gateway = Gateway::start(BackendKind::Epoll, &whole(&both, "", ADMIN));
    let admin = admin(&gateway);
    let change = |upstream: &str| {
        let text = whole(upstream, "", ADMIN);
        let config = Config::parse("test", &text).unwrap();
        gateway.call(move |runtime, server| server.change(runtime, &config).unwrap());
    };
    set(&admin, &one.address, "{\"state\":\"down\",\"weight\":3}");
    let mut client = Client::connect(&gateway.address);
    // The same group, another group with the server, and one in which it has another weight.
    let weighed = both.replacen("\" }", "\", weight = 9 }", 1);
    for upstream in [both.clone(), format!("{both}\nkeep_alive = 1"), weighed] {
        change(&upstream);
        for _ in 0..5 {
            assert_eq!(client.get("/").text(), "other", "{upstream}");
        }
        let list: Value = serde_json::from_str(&get(&admin, "/api/upstreams/app")).unwrap();
        let server = &list["servers"][0];
        assert_eq!((&server["state"], &server["weight"]), (&"down".into(), &3.into()), "{list}");
    }
    change(&servers(&[&other]));
    assert_eq!(client.get("/").text(), "other");
    change(&both);
    let list: Value = serde_json::from_str(&get(&admin, "/api/upstreams/app")).unwrap();
    let server = &list["servers"][0];
    assert_eq!((&server["state"], &server["weight"]), (&"up".into(), &1.into()), "{list}");
    assert!((0..10).any(|_| client.get("/").text() == "one"));
    // A configuration that is refused changes nothing.
    set(&admin, &one.address, "{\"state\":\"down\"}");
    let wrong = whole(&servers(&[&other]), "", "").replace("127.0.0.1:0", "192.0.2.1:1");
    let wrong = Config::parse("test", &wrong).unwrap();
    gateway.call(move |runtime, server| server.change(runtime, &wrong).unwrap_err());
    for _ in 0..5 {
        assert_eq!(client.get("/").text(), "other");
    }
}

/// A server as the model has it: what is set, whether it is healthy, and the weight in use.
#[derive(Clone, Copy, Debug)]
struct Modelled {
    state: &'static str,
    weight: u32,
}

#[test]
fn any_changes_have_the_effect_of_the_model() {
    let names = ["a", "b", "c"];
    let origins = names.map(Origin::named);
    let upstream = servers(&origins.each_ref());
    let gateway = Gateway::start(BackendKind::Epoll, &whole(&upstream, "", ADMIN));
    let admin = admin(&gateway);
    let mut model = [Modelled { state: "up", weight: 1 }; 3];
    let mut client = Client::connect(&gateway.address);
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) % below
    };
    for round in 0..150 {
        let index = usize::try_from(random(3)).unwrap();
        let states = ["up", "down", "drain"];
        let wanted = states[usize::try_from(random(3)).unwrap()];
        let weight = NonZeroU32::new(u32::try_from(random(4)).unwrap());
        let server = &mut model[index];
        let weight_text = weight.map_or_else(|| "null".to_owned(), |weight| weight.to_string());
        let change = match random(4) {
            0 => {
                server.weight = weight.map_or(1, NonZeroU32::get);
                format!("{{\"weight\":{weight_text}}}")
            }
            1 => {
                (server.state, server.weight) = (wanted, weight.map_or(1, NonZeroU32::get));
                format!("{{\"weight\":{weight_text},\"state\":\"{wanted}\"}}")
            }
            2 => {
                server.state = wanted;
                format!("{{\"state\":\"{wanted}\"}}")
            }
            _ => {
                let text = whole(&format!("{upstream}\nkeep_alive = {round}"), "", ADMIN);
                let config = Config::parse("test", &text).unwrap();
                gateway.call(move |runtime, server| server.change(runtime, &config).unwrap());
                String::new()
            }
        };
        if !change.is_empty() {
            set(&admin, &origins[index].address, &change);
        }
        let list: Value = serde_json::from_str(&get(&admin, "/api/upstreams/app")).unwrap();
        for (listed, server) in list["servers"].as_array().unwrap().iter().zip(&model) {
            let found = (&listed["state"], &listed["weight"]);
            assert_eq!(found, (&server.state.into(), &server.weight.into()), "{round} {model:?}");
        }
        let up = |server: &&Modelled| server.state == "up";
        let sum: u32 = model.iter().filter(up).map(|server| server.weight).sum();
        if sum == 0 {
            assert_eq!(client.get("/").status, 503, "{round} {model:?}");
            continue;
        }
        // A server that is out gets nothing, and each other one gets something in some rounds of
        // turns: credit that was earned under other weights is spent in one.
        let mut seen = [0; 3];
        for _ in 0..sum * 4 {
            let reply = client.get("/");
            seen[names.iter().position(|name| *name == reply.text()).unwrap()] += 1;
        }
        for (server, seen) in model.iter().zip(seen) {
            assert_eq!(seen > 0, server.state == "up", "{round} {model:?} {seen}");
        }
    }
}
