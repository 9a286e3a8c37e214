//! Channels over one connection of HTTP/2, as a browser uses them.

use serde_json::json;

use crate::stage::{Server, Site, until};
use superpoll_test_support::browser::{Tab, browser};

const TEXT: &str = "
    [[listeners]]
    address = \"127.0.0.1:0\"
    tls = { certificate = \"cert.pem\", key = \"cert.key\" }
    [access_log]
    path = \"log\"
    [[hosts]]
    [[hosts.routes]]
    files = { root = \"www\" }
    [[hosts.routes]]
    path = \"/news\"
    channel = { history = 10 }";

#[test]
fn a_page_has_its_websocket_and_its_events_on_the_connection_that_it_came_by() {
    let Some(browser) = browser() else {
        println!("skipped: no Chromium to open a WebSocket");
        return;
    };
    let site = Site::new();
    site.certificate();
    site.write(
        "www/page.html",
        "<!doctype html><title>a</title><link rel=icon href='data:,'><body>a page</body>",
    );
    let server = Server::configured(&site.write("server.toml", TEXT), 1);
    let at = server.at(0);
    let profile = tempfile::tempdir().unwrap();
    let arguments = ["--ignore-certificate-errors"];
    let (_browser, mut tab) = Tab::open_with(browser, profile.path(), &arguments);
    tab.call("Page.navigate", json!({ "url": format!("https://{at}/page.html") }));
    tab.until("document.body?.innerText.includes('a page')");
    tab.evaluate(&format!(
        "window.got = []; window.read = []; \
         window.socket = new WebSocket('wss://{at}/news'); \
         socket.onmessage = event => got.push(event.data); \
         window.events = new EventSource('/news'); \
         events.onmessage = event => read.push(event.data); true"
    ));
    tab.until("socket.readyState === 1 && events.readyState === 1");
    tab.evaluate("socket.send('by WebSocket'); true");
    tab.until("got.length === 1 && read.length === 1");
    tab.evaluate("fetch('/news', { method: 'POST', body: 'by POST' }); true");
    tab.until("got.length === 2 && read.length === 2");
    assert_eq!(tab.evaluate("got.join()"), "by WebSocket,by POST");
    assert_eq!(tab.evaluate("read.join()"), "by WebSocket,by POST");
    // Another WebSocket needs no connection either.
    tab.evaluate(&format!("window.other = new WebSocket('wss://{at}/news?after=0'); true"));
    tab.until("other.readyState === 1");
    tab.evaluate("socket.close(1000); window.gone = 0; socket.onclose = e => gone = e.code; true");
    tab.until("gone === 1000");
    tab.evaluate("other.close(1000); other.onclose = e => gone = -e.code; true");
    tab.until("gone === -1000");
    assert!(tab.complaints.is_empty(), "{:?}", tab.complaints);
    let log = site.path("log");
    let lines = || std::fs::read_to_string(&log).unwrap_or_default();
    let count = |text: &str| lines().lines().filter(|line| line.contains(text)).count();
    until("both are logged at their end", || {
        let one = |path: &str| count(&format!("\"CONNECT https://{at}{path} HTTP/2.0\" 200")) == 1;
        one("/news") && one("/news?after=0")
    });
    assert_eq!(count("HTTP/1.1"), 0, "{}", lines());
}
