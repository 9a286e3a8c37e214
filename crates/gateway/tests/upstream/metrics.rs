//! The figures of servers and of the process, in the metrics.

use superpoll_rt::BackendKind;

use crate::gateway::{Gateway, wait, whole};
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

fn metrics(gateway: &Gateway) -> String {
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

/// The limit of descriptors, as the process may have it now.
fn most_descriptors() -> f64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap() as f64
}
