//! Configurations that cannot be served: one line of explanation, and an exit status that says so.

use std::net::TcpListener;

use crate::stage::{Server, Site};
use crate::superpoll;

fn refused(site: &Site, arguments: &[&str]) -> String {
    let mut command = superpoll();
    command.arg("serve").args(arguments).current_dir(site.path("."));
    let output = command.output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{arguments:?} was not refused");
    assert!(output.status.code().is_some(), "{arguments:?}: {}", output.status);
    assert_eq!(line.lines().count(), 1, "{arguments:?}: {line}");
    assert!(line.starts_with("superpoll: "), "{arguments:?}: {line}");
    assert_eq!(output.stdout, b"", "{arguments:?}");
    line
}

#[test]
fn wrong_arguments_are_refused_in_one_line() {
    let site = Site::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let used = taken.local_addr().unwrap().to_string();
    let cases: [(&[&str], &str); 16] = [
        (&["--workers", "100000"], "100000 workers are more than there can be, expected 1 to 1024"),
        (&["--name", "a:80"], "--name: \"a:80\" is no host name: it has a port"),
        (&["nowhere"], "opening the folder nowhere to serve its files: No such file"),
        (&["www/small"], "opening the folder www/small to serve its files: Not a directory"),
        (&["-c", "nowhere.toml"], "cannot read the configuration nowhere.toml: No such file"),
        (&["-c", "www"], "cannot read the configuration www: Is a directory"),
        (&["--listen", &used], "in use (os error 98); choose another address"),
        (&["--listen", "192.0.2.1:0"], "listening on 192.0.2.1:0: Cannot assign"),
        (&["--listen", "unix:no/such/socket"], "listening on unix:no/such/socket: No such file"),
        (&["--listen", "nonsense"], "write HOST:PORT, [IPV6]:PORT, :PORT or unix:PATH"),
        (&["--listen", ":99999"], "a port is at most 65535"),
        (&["--nonsense"], "unexpected argument '--nonsense'"),
        (&["--workers", "0"], "--workers"),
        // And so on: each back-end that is made by name.
        (&["--backend", "kqueue"], "choose one of select, poll, epoll, adaptive, "),
        (&["www", "-c", "some.toml"], "cannot be used with"),
        (&["www", "another"], "unexpected argument 'another'"),
    ];
    for (arguments, part) in cases {
        let line = refused(&site, arguments);
        assert!(line.contains(part), "{arguments:?}: {line}");
    }
    drop(taken);
}

const HOST: &str = "\n[[hosts]]\n[[hosts.routes]]\nredirect = { to = \"/x\" }\n";
const LISTENER: &str = "[[listeners]]\naddress = \"127.0.0.1:0\"\n";

#[test]
fn a_wrong_configuration_is_reported_with_its_line_and_column() {
    let site = Site::new();
    site.write("garbage", "no PEM at all");
    site.certificate();
    let cases = [
        ("key = 1\n", "wrong.toml:1:1: unknown key `key`"),
        ("[[hosts]]\n[[hosts.routes]]\nredirect = { to = \"/x\" ", "wrong.toml:5:23: "),
        ("[[hosts]]\n[[hosts.routes]]\nredirect = { to = 5 }", "wrong.toml:5:19: "),
        (
            "[[hosts]]\n[[hosts.routes]]\nfiles = { root = \"no\" }",
            "wrong.toml:5:9: cannot read the folder no",
        ),
        ("[timeouts]\nheader = \"5 parsecs\"", "wrong.toml:4:10: \"5 parsecs\" is no duration"),
        (
            "[[hosts]]\n[[hosts.routes]]\nproxy = { upstream = \"app\" }",
            "wrong.toml:5:22: the upstream \"app\" is not defined",
        ),
        (
            "tls = { certificate = \"garbage\", key = \"cert.key\" }",
            "wrong.toml:3:23: garbage has no certificate",
        ),
        (
            "tls = { certificate = \"cert.pem\", key = \"no.key\" }",
            "wrong.toml:3:41: cannot read the private key no.key",
        ),
        (
            "[access_log]\npath = \"no/such/log\"",
            "wrong.toml:3:1: cannot write the log no/such/log",
        ),
        ("address = \"127.0.0.1:1\"", "wrong.toml:3:1: "),
    ];
    for (text, start) in cases {
        let rest = if text.contains("[[hosts]]") { "" } else { HOST };
        site.write("wrong.toml", &format!("{LISTENER}{text}{rest}"));
        for arguments in [&["-c", "wrong.toml"][..], &["-c", "wrong.toml", "--check"]] {
            let line = refused(&site, arguments);
            let rest = line.strip_prefix("superpoll: ").unwrap();
            let is_first = text == "key = 1\n";
            let start = if is_first { start.replace("1:1", "3:1") } else { start.to_owned() };
            assert!(rest.starts_with(&start), "{text}: {line}");
        }
    }
    std::fs::write(site.path("wrong.toml"), [0xff, 0xfe]).unwrap();
    assert!(refused(&site, &["-c", "wrong.toml"]).contains("byte 0 is not UTF-8"));
}

#[test]
fn each_mistake_is_a_line_of_its_own() {
    let site = Site::new();
    site.write("wrong.toml", "[timeouts]\nheader = \"long\"\nbody = \"longer\"\n");
    let mut command = superpoll();
    let output = command
        .args(["serve", "--check", "-c", "wrong.toml"])
        .current_dir(site.path("."))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let places: Vec<&str> = text.lines().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text.lines().count(), 3, "{text}");
    for place in ["wrong.toml:1:1", "wrong.toml:2:10", "wrong.toml:3:8"] {
        assert!(text.contains(place), "{places:?}: {text}");
    }
}

#[test]
fn a_right_configuration_is_checked_without_being_served() {
    let site = Site::new();
    site.certificate();
    let used = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = used.local_addr().unwrap();
    let text = format!(
        "[[listeners]]\naddress = \"{address}\"\ntls = {{ certificate = \"cert.pem\", key = \"cert.key\" }}\n\
         [[hosts]]\n[[hosts.routes]]\nfiles = {{ root = \"www\" }}\n[access_log]\npath = \"log\"\n"
    );
    let path = site.write("right.toml", &text);
    let mut command = superpoll();
    let output = command.args(["serve", "--check", "-c"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"superpoll: the configuration is right\n");
    assert_eq!(output.stderr, b"");
    assert!(!site.path("log").exists());
    // Metrics that only local clients can read are not a mistake, but may be unintended.
    for (more, notes) in [("[metrics]\n", true), ("[metrics]\npublic = true\n", false)] {
        let path = site.write("metrics.toml", &format!("{text}{more}"));
        let mut command = superpoll();
        let output = command.args(["serve", "--check", "-c"]).arg(path).output().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && told.starts_with("superpoll: the configuration is right\n")
        );
        assert_eq!(told.contains("public = true in [metrics]"), notes, "{told}");
    }
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let site = Site::new();
    let socket = format!("unix:{}", site.path("socket").display());
    let arguments = ["--listen", &*socket];
    let first = Server::start(&arguments);
    let line = refused(&site, &arguments);
    assert!(line.contains("in use"), "{line}");
    first.signal("KILL");
    first.ended();
    assert!(site.path("socket").exists());
    Server::start(&arguments).finish();
    assert!(!site.path("socket").exists());
    site.write("socket", "no socket");
    assert!(refused(&site, &arguments).contains("in use"));
}
