//! Channels over encrypted connections of HTTP/1.1, as a browser without HTTP/2 uses them.

use std::net::TcpStream;

use serde_json::json;

use crate::stage::{Server, Site, connect, get, until};
use superpoll_test_support::browser::{Tab, browser};

const TEXT: &str = "
    [server]
    workers = 1
    [[listeners]]
    address = \"127.0.0.1:0\"
    tls = { certificate = \"cert.pem\", key = \"cert.key\" }
    [[listeners]]
    address = \"127.0.0.1:0\"
    [[hosts]]
    [[hosts.routes]]
    files = { root = \"www\" }
    [[hosts.routes]]
    path = \"/news\"
    channel = { history = 10, publish = \"anyone\" }
    [metrics]
    [timeouts]
    park = \"50ms\"";

/// Returns the number of connections that are parked.
fn parked(metrics: &mut TcpStream) -> usize {
    let text = get(metrics, "/metrics");
    let (_, rest) = text.split_once("superpoll_connections_parked{engine=\"0\"} ").unwrap();
    rest.split('.').next().unwrap().parse().unwrap()
}

#[test]
fn a_page_with_a_websocket_and_events_goes_on_after_its_connections_were_parked() {
    let Some(browser) = browser() else {
        println!("skipped: no Chromium to open an encrypted page");
        return;
    };
    let site = Site::new();
    site.certificate();
    site.write(
        "www/page.html",
        "<!doctype html><title>a</title><link rel=icon href='data:,'><body>a page</body>",
    );
    let server = Server::configured(&site.write("server.toml", TEXT), 2);
    let at = server.at(0);
    let mut metrics = connect(server.at(1));
    let profile = tempfile::tempdir().unwrap();
    let arguments = ["--ignore-certificate-errors", "--disable-http2"];
    let (_browser, mut tab) = Tab::open_with(browser, profile.path(), &arguments);
    tab.call("Page.navigate", json!({ "url": format!("https://{at}/page.html") }));
    tab.until("document.body?.innerText.includes('a page')");
    assert_eq!(
        tab.evaluate("performance.getEntriesByType('navigation')[0].nextHopProtocol"),
        "http/1.1"
    );
    tab.evaluate(&format!(
        "window.got = []; window.read = []; \
         window.socket = new WebSocket('wss://{at}/news'); \
         socket.onmessage = event => got.push(event.data); \
         window.events = new EventSource('/news'); \
         events.onmessage = event => read.push(event.data); true"
    ));
    tab.until("socket.readyState === 1 && events.readyState === 1");
    for round in 1..4 {
        until("both are parked", || parked(&mut metrics) >= 2);
        let publish = match round {
            1 => "socket.send('1'); true",
            _ => "fetch('/news', { method: 'POST', body: `${got.length + 1}` }); true",
        };
        tab.evaluate(publish);
        tab.until(&format!("got.length === {round} && read.length === {round}"));
    }
    assert_eq!(tab.evaluate("got.join()"), "1,2,3");
    assert_eq!(tab.evaluate("read.join()"), "1,2,3");
    tab.evaluate("socket.onclose = event => window.code = event.code; socket.close(1000); true");
    tab.until("window.code === 1000");
    assert!(tab.complaints.is_empty(), "{:?}", tab.complaints);
    server.finish();
}
