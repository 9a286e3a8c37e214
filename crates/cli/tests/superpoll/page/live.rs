//! The live page of a server and its demonstration.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::json;

use crate::stage::{Server, Site, connect, free_port, get, response};
use crate::superpoll;
use superpoll_test_support::Running;
use superpoll_test_support::browser::{Tab, browser};

/// Starts a server on a port of the kernel's choice, and returns both.
fn serve() -> (Running, u16) {
    let mut child = superpoll()
        .args(["serve", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let port = line.trim().trim_end_matches('/').rsplit(':').next().unwrap().parse();
    (Running(child), port.unwrap_or_else(|_| panic!("it wrote {line:?}")))
}

/// Checks that the page has no part that is cut off, or has to be scrolled sideways.
fn is_whole(tab: &mut Tab, width: u32) {
    assert!(tab.fits(), "at {width}");
    let cut = "[...document.querySelectorAll('header, main, section, table, tr, td, dl, .big > div, .top')]\
               .filter(e => e.clientWidth > 0 && e.scrollWidth > e.clientWidth + 1)\
               .map(e => `${e.tagName} ${e.id} ${e.scrollWidth} > ${e.clientWidth}: ${e.innerText}`).join('; ')";
    assert_eq!(tab.evaluate(cut), "", "at {width}");
    let outside = "[...document.querySelectorAll('td, b, dd, button, input, svg')]\
                   .filter(e => e.clientWidth > 0 && (e.getBoundingClientRect().right > innerWidth || \
                   e.getBoundingClientRect().left < 0)).length";
    assert_eq!(tab.evaluate(outside), 0, "at {width}");
}

/// A configuration with a site, servers of which none is there, and channels.
fn configure(site: &Site, port: u16) -> PathBuf {
    let text = format!(
        "[[listeners]]
        address = \"127.0.0.1:{port}\"
        [upstreams.application]
        servers = [{{ address = \"127.0.0.1:{}\" }}]
        [[hosts]]
        names = [\"127.0.0.1\", \"localhost\"]
        [[hosts.routes]]
        files = {{ root = \"www\" }}
        [[hosts.routes]]
        path = \"/application\"
        proxy = {{ upstream = \"application\" }}
        [[hosts.routes]]
        path = \"/rooms/{{room}}\"
        channel = {{ publish = \"anyone\", history = 10 }}",
        free_port(),
    );
    site.write("server.toml", &text)
}

const COMPLAINTS: [&str; 2] = ["forwarding a request", "the server 127.0.0.1"];

#[test]
fn requests_servers_and_channels_are_readable_at_any_width_and_names_are_text() {
    let Some(browser) = browser() else {
        println!("skipped: no Chromium to show the live page in");
        return;
    };
    let (profile, site, port) = (tempfile::tempdir().unwrap(), Site::new(), free_port());
    let path = configure(&site, port);
    let server = Server::configured(&path, 1);
    let at = server.at(0);
    let (_browser, mut tab) = Tab::open(browser, profile.path());
    tab.resize(400, false);
    tab.call("Page.navigate", json!({ "url": format!("http://127.0.0.1:{port}/_superpoll/") }));
    tab.until("Number(document.body?.dataset.looks || 0) >= 1");
    let publish = |channel: &str| {
        let mut stream = connect(at);
        let head =
            format!("POST /rooms/{channel} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n");
        stream.write_all(format!("{head}Connection: close\r\n\r\nhi").as_bytes()).unwrap();
        let told = response(&mut stream);
        assert!(told.starts_with("HTTP/1.1 201"), "{told}");
    };
    let long = "x".repeat(240);
    for channel in ["%3Cimg%20src=x%20onerror=bad=1%3E", "%E2%80%AE%3Cscript%3Ebad=1", &long] {
        publish(channel);
    }
    for _ in 0..3 {
        assert!(get(&mut connect(at), "/missing").starts_with("HTTP/1.1 404"));
        assert!(get(&mut connect(at), "/application").starts_with("HTTP/1.1 502"));
    }
    tab.until("document.querySelectorAll('#channels tbody tr').length === 3");
    let text = tab.evaluate("document.body.innerText");
    let text = text.as_str().unwrap();
    for part in [
        "127.0.0.1(+1)/application",
        "/rooms/<img src=x onerror=bad=1>",
        "/rooms/\\u{202e}<script>bad=1",
        &long,
        "application 127.0.0.1:",
        "4xx/s",
        "under way",
        "subscribers",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    let elements = "document.querySelectorAll('td img, td script').length + (typeof bad === 'undefined' ? 0 : 1)";
    assert_eq!(tab.evaluate(elements), 0);
    // Rows stay the same elements: a selection stays, and nothing flickers.
    tab.evaluate(
        "row = document.querySelector('#routes tbody tr'); old = document.body.dataset.looks; true",
    );
    tab.until("Number(document.body.dataset.looks) >= Number(old) + 2");
    assert_eq!(
        tab.evaluate(
            "row.isConnected && row.parentNode === document.querySelector('#routes tbody')"
        ),
        true
    );
    for (width, dark) in [(320, true), (400, false), (400, true), (800, false), (1280, true)] {
        tab.resize(width, dark);
        is_whole(&mut tab, width);
        let shown = "[...document.querySelectorAll('#routes td')].every(e => e.getBoundingClientRect().width > 0)";
        assert_eq!(tab.evaluate(shown), true);
        assert!(tab.picture(&format!("requests-{width}-{dark}")) > 10_000);
    }
    // The trends are drawn.
    tab.until("document.querySelector('#routes svg polyline').getAttribute('points').split(' ').length >= 3");
    let filter = |text: &str| {
        format!("f = document.querySelector('input'); f.value = '{text}'; f.oninput(); true")
    };
    tab.evaluate(&filter("ROOMS/x"));
    assert_eq!(tab.evaluate("document.querySelectorAll('#channels tbody tr').length"), 1);
    assert_eq!(tab.evaluate("document.querySelectorAll('#routes tbody tr').length"), 0);
    tab.evaluate(&filter(""));
    // The other page, and back.
    tab.evaluate("document.getElementById('to-engines').click(); true");
    tab.until("!document.getElementById('page-engines').hidden && document.getElementById('page-requests').hidden");
    tab.evaluate("document.getElementById('to-requests').click(); true");
    tab.until("!document.getElementById('page-requests').hidden");
    server.finish_with(&COMPLAINTS);
    tab.until("document.getElementById('state').className === 'lost'");
    // Another server at this address has figures of its own.
    let server = Server::configured(&path, 1);
    tab.until("document.getElementById('state').textContent === 'live'");
    tab.until("document.querySelectorAll('#channels tbody tr').length === 0");
    assert!(get(&mut connect(server.at(0)), "/small").ends_with("0123456789"));
    tab.until("document.querySelectorAll('#routes tbody tr').length === 1");
    let known = |complaint: &&String| {
        !complaint.contains("ERR_CONNECTION") && !complaint.contains("WebSocket")
    };
    let unexpected: Vec<&String> = tab.complaints.iter().filter(known).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
    server.finish();
}

#[test]
fn the_page_shows_activity_at_any_width_and_reconnects_by_itself() {
    let Some(browser) = browser() else {
        println!("skipped: no Chromium to show the live page in");
        return;
    };
    let profile = tempfile::tempdir().unwrap();
    let (server, port) = serve();
    let (_browser, mut tab) = Tab::open(browser, profile.path());
    for (width, dark) in [(1280, false), (400, true)] {
        tab.resize(width, dark);
        let url = format!("http://127.0.0.1:{port}/_superpoll/?{width}#engines");
        tab.call("Page.navigate", json!({ "url": url }));
        tab.until("Number(document.body?.dataset.looks || 0) >= 2");
        assert_eq!(tab.evaluate("document.getElementById('state').textContent"), "live");
        // Requests of this test show, and an idle connection shows as parked.
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        tab.until("Number(document.querySelector('[data-name=parked] b').textContent) >= 1");
        let text = tab.evaluate("document.body.innerText");
        let text = text.as_str().unwrap();
        for expected in ["epoll_pwait2", "active/total ratio", "break-even", "tcp", "with a task"] {
            assert!(text.contains(expected), "{expected} is missing in {text}");
        }
        is_whole(&mut tab, width);
        let colour = tab.evaluate("getComputedStyle(document.body).backgroundColor");
        assert_eq!(colour == "rgb(21, 23, 26)", dark, "{colour}");
        assert!(tab.picture(&format!("page-{width}")) > 10_000);
        // All resources came from this server.
        let others = format!(
            "performance.getEntriesByType('resource').filter(e => !e.name.includes(':{port}/')).length"
        );
        assert_eq!(tab.evaluate(&others), 0);
    }
    assert!(tab.complaints.is_empty(), "{:?}", tab.complaints);
    drop(server);
    tab.until("document.getElementById('state').className === 'lost'");
}

#[test]
fn the_demonstration_shows_history_and_messages_in_each_of_its_three_ways() {
    let Some(browser) = browser() else {
        println!("skipped: no Chromium to show the demonstration in");
        return;
    };
    let profile = tempfile::tempdir().unwrap();
    let (_server, port) = serve();
    let (_browser, mut tab) = Tab::open(browser, profile.path());
    // A page that is opened later shows the history first.
    for (width, before) in [(1280, 0), (400, 1)] {
        tab.resize(width, false);
        tab.call("Page.navigate", json!({ "url": format!("http://127.0.0.1:{port}/") }));
        let all = |count: i32| {
            let says =
                if count == 1 { "1 message".to_owned() } else { format!("{count} messages") };
            format!(
                "[...document.querySelectorAll('.ways .state')].length === 3 && \
                 [...document.querySelectorAll('.ways .state')].every(e => e.textContent === '{says}')"
            )
        };
        let lists = |text: &str| {
            format!(
                "[...document.querySelectorAll('.ways ol')].every(e => e.innerText.includes('{text}'))"
            )
        };
        tab.until(&all(before));
        assert_eq!(tab.evaluate(&lists("sent at 1280")), before == 1);
        tab.evaluate(&format!(
            "document.getElementById('text').value = 'sent at {width}'; \
             document.getElementById('send').requestSubmit(); true",
        ));
        tab.until(&all(before + 1));
        assert_eq!(tab.evaluate(&lists(&format!("sent at {width}"))), true);
        assert!(tab.fits(), "at {width}");
    }
    // The snippet has the address of this channel, and its button copies or selects it.
    let snippet = tab.evaluate("document.getElementById('snippet').textContent");
    let channel = format!("\"http://127.0.0.1:{port}/demo/chat\"");
    assert!(snippet.as_str().unwrap().contains(&channel), "{snippet}");
    tab.evaluate("document.querySelector('[data-copy=snippet]').click(); true");
    tab.until("document.querySelector('[data-copy=snippet]').textContent !== 'Copy'");
    assert!(tab.complaints.is_empty(), "{:?}", tab.complaints);
}
