//! The figures of servers and of the process, in the metrics.

use std::time::Duration;

use superpoll_rt::BackendKind;

use crate::gateway::{Gateway, MOST, wait, whole};
use crate::origin::{Client, Origin, refuses};

/// The page that explains each family.
const PAGE: &str = include_str!("../../../../docs/metrics.md");

/// Returns the value of a sample, which is there at most once.
fn sample(text: &str, name: &str) -> Option<f64> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let values: Vec<f64> = lines.map(|value| value.parse().unwrap()).collect();
    assert!(values.len() <= 1, "{name}: {text}");
    values.first().copied()
}

/// Returns all metrics of a gateway.
pub(crate) fn metrics(gateway: &Gateway) -> String {
    let mut client = Client::connect(&gateway.address);
    client.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.reply().text().to_owned()
}

#[test]
fn each_server_of_an_upstream_has_its_state_and_its_requests() {
    let good = Origin::named("good");
    let (_gone, bad) = refuses();
    let servers =
        format!("servers = [{{ address = \"{}\" }}, {{ address = \"{bad}\" }}]", good.address);
    let gateway = Gateway::start(BackendKind::Epoll, &whole(&servers, "", "[metrics]\n"));
    let of = |text: &str, name: &str, server: &str| {
        let name = format!("superpoll_upstream_{name}{{upstream=\"app\",server=\"{server}\"}}");
        sample(text, &name).unwrap_or_else(|| panic!("no {name}: {text}"))
    };
    let text = metrics(&gateway);
    for server in [&good.address, &bad] {
        assert_eq!(of(&text, "up", server), 1.0);
        assert_eq!(of(&text, "requests_total", server), 0.0);
    }
    let mut client = Client::connect(&gateway.address);
    for _ in 0..30 {
        assert_eq!(client.get("/").text(), "good");
    }
    wait(|| of(&metrics(&gateway), "requests_active", &good.address) == 0.0);
    let text = metrics(&gateway);
    assert_eq!(of(&text, "requests_total", &good.address), 30.0);
    assert_eq!((of(&text, "up", &good.address), of(&text, "up", &bad)), (1.0, 0.0));
    let failures = of(&text, "failures_total", &bad);
    assert!(failures >= 2.0, "{text}");
    assert_eq!(of(&text, "requests_total", &bad), failures);
    assert_eq!(of(&text, "failures_total", &good.address), 0.0);
    // Each of them was sent to the other server.
    assert_eq!(
        (of(&text, "retries_total", &bad), of(&text, "retries_total", &good.address)),
        (failures, 0.0)
    );
    assert_eq!(of(&text, "response_duration_seconds_count", &good.address), 30.0);
    // A server that has not answered has no durations.
    assert!(
        !text.contains(&format!("duration_seconds_count{{upstream=\"app\",server=\"{bad}\"}}")),
        "{text}"
    );
    let opened = of(&text, "connections_opened_total", &good.address);
    assert_eq!(opened, good.connections() as f64);
    assert_eq!(of(&text, "connections_opened_total", &bad), 0.0);
    assert!(of(&text, "connections_idle", &good.address) >= 1.0, "{text}");
    assert!(of(&text, "connections_idle", &good.address) <= opened, "{text}");
}

/// Two routes, one of which takes the lane where it can, on a host with a name; and one that has a
/// slow server.
const ROUTES: &str = "
    [[listeners]]
    address = \"127.0.0.1:0\"
    [metrics]
    [[hosts]]
    names = [\"b.example\", \"a.example\"]
    [[hosts.routes]]
    proxy = { upstream = \"app\" }
    [[hosts.routes]]
    path = \"/whole\"
    proxy = { upstream = \"app\", compress = true }
    [[hosts.routes]]
    path = \"/slow\"
    proxy = { upstream = \"slow\" }
    [[hosts.routes]]
    path = \"/gone\"
    redirect = { to = \"/\", status = 301 }
";

/// Returns the buckets of a histogram by their bounds, the last of which is all.
fn buckets(text: &str, labels: &str) -> Vec<(String, f64)> {
    let name = "superpoll_http_request_duration_seconds_bucket{le=\"";
    let lines = text.lines().filter_map(|line| line.strip_prefix(name)?.split_once("\","));
    let fits = lines.filter_map(|(bound, rest)| {
        let value = rest.strip_prefix(labels)?.strip_prefix("} ")?;
        Some((bound.to_owned(), value.parse().unwrap()))
    });
    fits.collect()
}

#[test]
fn requests_are_timed_by_host_route_and_class() {
    let good = Origin::named("good");
    let delay = Duration::from_millis(60);
    let slow = Origin::start(move |line| {
        while let Ok(seen) = line.request() {
            line.note(&seen);
            std::thread::sleep(delay);
            line.answer("late")?;
        }
        Ok(())
    });
    let servers = format!(
        "[upstreams.app]\nservers = [{{ address = \"{}\" }}]\n\
         [upstreams.slow]\nservers = [{{ address = \"{}\" }}]\n",
        good.address, slow.address
    );
    for backend in MOST {
        let gateway = Gateway::start(backend, &format!("{ROUTES}{servers}"));
        let mut client = Client::connect(&gateway.address);
        let mut ask = |path: &str, host: &str| {
            client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            client.reply().status
        };
        for (path, count, status) in
            [("/", 5, 200), ("/whole/x", 4, 200), ("/slow", 3, 200), ("/gone/x", 2, 301)]
        {
            (0..count).for_each(|_| assert_eq!(ask(path, "a.example"), status, "{path}"));
        }
        assert_eq!(ask("/", "c.example"), 421);
        let text = metrics(&gateway);
        let of = |route: &str, class: &str| {
            let labels =
                format!("host=\"a.example,b.example\",route=\"{route}\",class=\"{class}\"");
            let name = "superpoll_http_request_duration_seconds";
            let all = sample(&text, &format!("{name}_count{{{labels}}}"))?;
            let sum = sample(&text, &format!("{name}_sum{{{labels}}}")).unwrap();
            let buckets = buckets(&text, &labels);
            assert_eq!(buckets.len(), 15, "{text}");
            assert!(buckets.is_sorted_by(|one, next| one.1 <= next.1), "{buckets:?}");
            assert_eq!(buckets.last(), Some(&("+Inf".to_owned(), all)));
            Some((all, sum, buckets))
        };
        for (route, class, count) in [
            ("/", "2xx", 5.0),
            ("/whole", "2xx", 4.0),
            ("/slow", "2xx", 3.0),
            ("/gone", "3xx", 2.0),
        ] {
            let (all, sum, _) = of(route, class).unwrap_or_else(|| panic!("{route}: {text}"));
            assert_eq!(all, count, "{backend:?} {route}: {text}");
            assert!(sum > 0.0);
        }
        assert!(of("/", "5xx").is_none() && of("/gone", "2xx").is_none(), "{text}");
        let (_, sum, buckets) = of("/slow", "2xx").unwrap();
        assert!(sum >= 3.0 * delay.as_secs_f64(), "{sum}");
        let below = buckets.iter().find(|(bound, _)| bound == "0.05").unwrap();
        assert_eq!(below.1, 0.0, "{text}");
        let misdirected =
            "superpoll_http_request_duration_seconds_count{host=\"\",route=\"\",class=\"4xx\"}";
        assert_eq!(sample(&text, misdirected), Some(1.0), "{text}");
    }
}

#[test]
fn requests_count_for_their_route_across_reloads() {
    let good = Origin::named("good");
    let with = |path: &str| {
        format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n[metrics]\n[[hosts]]\n[[hosts.routes]]\n\
             proxy = {{ upstream = \"app\" }}\n[[hosts.routes]]\npath = \"{path}\"\n\
             redirect = {{ to = \"/\" }}\n[upstreams.app]\nservers = [{{ address = \"{}\" }}]\n",
            good.address
        )
    };
    let gateway = Gateway::start(BackendKind::Epoll, &with("/a"));
    let address = gateway.address.clone();
    let count = |route: &str, class: &str| {
        let labels = format!("host=\"\",route=\"{route}\",class=\"{class}\"");
        sample(
            &metrics(&gateway),
            &format!("superpoll_http_request_duration_seconds_count{{{labels}}}"),
        )
    };
    let mut client = Client::connect(&address);
    assert_eq!((client.get("/").status, client.get("/a").status), (200, 308));
    assert_eq!((count("/", "2xx"), count("/a", "3xx")), (Some(1.0), Some(1.0)));
    let next = with("/b").replace("127.0.0.1:0", &address);
    gateway.call(move |runtime, server| {
        server.change(runtime, &superpoll_gateway::Config::parse("test", &next).unwrap()).unwrap();
    });
    assert_eq!((client.get("/").status, client.get("/b").status), (200, 308));
    assert_eq!((count("/", "2xx"), count("/b", "3xx")), (Some(2.0), Some(1.0)));
    assert_eq!(count("/a", "3xx"), None);
}

/// Refused requests count by route and reason, with one sample for each reason that is possible.
#[test]
fn refused_requests_count_by_route_and_reason() {
    let hash = "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA";
    let origin = Origin::named("x");
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[metrics]\n\
         [[hosts]]\nnames = [\"a.example\"]\ndeny = [\"10.0.0.0/8\"]\n\
         [[hosts.routes]]\npath = \"/rate\"\nrate = \"1/m burst 2\"\nproxy.upstream = \"app\"\n\
         [[hosts.routes]]\npath = \"/users\"\nproxy.upstream = \"app\"\n\
         basic_auth = {{ users = {{ joe = \"{hash}\" }}, failures = \"1/m burst 2\" }}\n\
         [[hosts]]\nnames = [\"b.example\"]\ndeny = [\"127.0.0.1\"]\n\
         [[hosts.routes]]\npath = \"/none\"\nproxy.upstream = \"app\"\n\
         [[hosts]]\nnames = [\"c.example\"]\n[[hosts.routes]]\nproxy.upstream = \"app\"\n\
         [upstreams.app]\nservers = [{{ address = \"{}\" }}]\n",
        origin.address
    );
    let gateway = Gateway::start(BackendKind::Epoll, &text);
    let mut client = Client::connect(&gateway.address);
    let mut ask = |host: &str, path: &str, fields: &str| {
        client.send(format!("GET {path} HTTP/1.1\r\nhost: {host}.example\r\n{fields}\r\n"));
        client.reply().status
    };
    let (joe, wrong) = ("Basic am9lOnNlY3JldA==", "Basic am9lOndyb25n");
    let (joe, wrong) = (format!("authorization: {joe}\r\n"), format!("authorization: {wrong}\r\n"));
    let statuses: Vec<_> = (0..5).map(|_| ask("a", "/rate", "")).collect();
    assert_eq!(statuses, [200, 200, 429, 429, 429]);
    let users = [&*joe, "", &wrong, &wrong, &wrong, &joe];
    assert_eq!(users.map(|fields| ask("a", "/users", fields)), [200, 401, 401, 401, 429, 200]);
    assert_eq!((ask("b", "/none", ""), ask("b", "/else", ""), ask("c", "/", "")), (403, 403, 200));
    let text = metrics(&gateway);
    let mut counted: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("superpoll_http_requests_refused_total"))
        .collect();
    counted.sort_unstable();
    let route = |host: &str, path: &str, reason: &str, count: u32| {
        format!("{{host=\"{host}\",route=\"{path}\",reason=\"{reason}\"}} {count}")
    };
    let mut expected = vec![
        route("", "", "address", 1),
        route("a.example", "/rate", "address", 0),
        route("a.example", "/rate", "rate", 3),
        route("a.example", "/users", "address", 0),
        route("a.example", "/users", "no-password", 1),
        route("a.example", "/users", "wrong-password", 2),
        route("a.example", "/users", "password-rate", 1),
        route("a.example", "/users", "password-queue", 0),
        route("b.example", "/none", "address", 1),
    ];
    expected.sort_unstable();
    assert_eq!(counted, expected);
}

#[test]
fn the_process_the_version_and_the_last_reload_are_there() {
    let origin = Origin::named("x");
    let servers = format!("servers = [{{ address = \"{}\" }}]", origin.address);
    let gateway = Gateway::start(BackendKind::Adaptive, &whole(&servers, "", "[metrics]\n"));
    let text = metrics(&gateway);
    let version = env!("CARGO_PKG_VERSION");
    let build = format!("superpoll_build_info{{version=\"{version}\",backend=\"adaptive\"}}");
    assert_eq!(sample(&text, &build), Some(1.0));
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let unexplained: Vec<_> =
        families.filter(|name| !PAGE.contains(&format!("`{name}`"))).collect();
    assert!(unexplained.is_empty(), "docs/metrics.md lacks {unexplained:?}");
    let at = |name: &str| sample(&text, name).unwrap_or_else(|| panic!("no {name}: {text}"));
    assert!(at("process_cpu_seconds_total") > 0.0);
    assert!(at("process_resident_memory_bytes") > 100_000.0);
    assert!(at("process_virtual_memory_bytes") >= at("process_resident_memory_bytes"));
    assert_eq!(at("process_max_fds"), most_descriptors());
    // The kernel says how many there are since Linux 6.2.
    if let Some(open) = sample(&text, "process_open_fds") {
        assert!(open > 3.0 && open < at("process_max_fds"), "{open}");
    }
    assert_eq!(at("process_start_time_seconds"), at("superpoll_start_time_seconds"));
    assert_eq!(at("superpoll_config_last_reload_successful"), 1.0);
    let taken_on = at("superpoll_config_last_reload_success_timestamp_seconds");
    assert!(taken_on >= at("process_start_time_seconds"), "{text}");
    gateway.call(|_, server| server.note_reload(false));
    let text = metrics(&gateway);
    assert_eq!(sample(&text, "superpoll_config_last_reload_successful"), Some(0.0));
    let stays = sample(&text, "superpoll_config_last_reload_success_timestamp_seconds");
    assert_eq!(stays, Some(taken_on));
    gateway.call(|_, server| server.note_reload(true));
    let text = metrics(&gateway);
    assert_eq!(sample(&text, "superpoll_config_last_reload_successful"), Some(1.0));
}

#[test]
fn the_dashboard_asks_for_metrics_that_are_there() {
    let dashboard: serde_json::Value =
        serde_json::from_str(include_str!("../../../../docs/grafana/superpoll.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let mut known = 0;
    for target in targets {
        let expression = target["expr"].as_str().unwrap();
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        for name in expression.split(|letter| !is_part(letter)) {
            if !["superpoll_", "process_"].iter().any(|first| name.starts_with(first)) {
                continue;
            }
            let family = ["_bucket", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let family = family.unwrap_or(name);
            assert!(PAGE.contains(&format!("`{family}`")), "{expression}");
            known += 1;
        }
    }
    assert!(known > 30, "{known}");
}

/// The limit of descriptors, as the process may have it now.
fn most_descriptors() -> f64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap() as f64
}
