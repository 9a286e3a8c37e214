//! The live page of a server and its demonstration.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::json;

use crate::browser::{Running, Tab, browser};
use crate::program::superpoll;

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
        tab.call("Page.navigate", json!({ "url": format!("http://127.0.0.1:{port}/_superpoll/") }));
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
        assert!(tab.fits(), "at {width}");
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
