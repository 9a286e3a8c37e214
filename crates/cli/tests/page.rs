//! The live page in a real browser: Chromium without a window, driven by its own protocol.
//!
//! Skipped, and says so, where Chromium is not installed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

const PATIENCE: Duration = Duration::from_secs(60);

/// A process that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn browser() -> Option<&'static str> {
    let found = |name: &&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
    };
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(found)
}

/// A server on a port of the kernel's choice, and that port.
fn serve() -> (Running, u16) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_superpoll"))
        .args(["serve", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let port = line.trim().trim_end_matches('/').rsplit(':').next().unwrap().parse();
    (Running(child), port.unwrap_or_else(|_| panic!("it wrote {line:?}")))
}

/// One tab of a browser.
struct Tab {
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    number: u64,
    /// What the page has complained of.
    complaints: Vec<String>,
}

impl Tab {
    fn open(browser: &str, profile: &Path) -> (Running, Tab) {
        let child = Command::new(browser)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args(["--disable-dev-shm-usage", "--disable-background-networking"])
            .args(["--remote-debugging-port=0", "about:blank"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let child = Running(child);
        let end = Instant::now() + PATIENCE;
        let port = loop {
            let text = std::fs::read_to_string(profile.join("DevToolsActivePort"));
            if let Some(port) = text.ok().and_then(|text| text.lines().next()?.parse().ok()) {
                break port;
            }
            assert!(Instant::now() < end, "{browser} does not start");
            std::thread::sleep(Duration::from_millis(50));
        };
        let address = loop {
            if let Some(address) = tab_address(port) {
                break address;
            }
            assert!(Instant::now() < end, "{browser} opens no tab");
            std::thread::sleep(Duration::from_millis(50));
        };
        let (socket, _) = tungstenite::connect(address).unwrap();
        let MaybeTlsStream::Plain(stream) = socket.get_ref() else { panic!("it is plain") };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut tab = Tab { socket, number: 0, complaints: Vec::new() };
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            tab.call(domain, json!({}));
        }
        (child, tab)
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let call = json!({ "id": self.number, "method": method, "params": parameters });
        self.socket.send(Message::text(call.to_string())).unwrap();
        loop {
            let message = self.socket.read().unwrap();
            let Message::Text(text) = message else { continue };
            let value: Value = serde_json::from_str(&text).unwrap();
            if value["id"] == self.number {
                assert!(value["error"].is_null(), "{method}: {}", value["error"]);
                return value["result"].clone();
            }
            if ["Runtime.exceptionThrown", "Log.entryAdded"]
                .contains(&value["method"].as_str().unwrap_or(""))
            {
                self.complaints.push(value["params"].to_string());
            }
        }
    }

    fn evaluate(&mut self, expression: &str) -> Value {
        let result = self
            .call("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true }));
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    fn until(&mut self, expression: &str) {
        let end = Instant::now() + PATIENCE;
        while self.evaluate(expression) != true {
            let text = self.evaluate("document.body.innerText");
            assert!(Instant::now() < end, "{expression} is not so: {text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Where the first tab is driven.
fn tab_address(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    // The addresses that it lists are made of this host.
    write!(stream, "GET /json/list HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n").ok()?;
    // It keeps the connection, so its length tells where the list ends.
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        let line = line.to_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut text = vec![0; length];
    reader.read_exact(&mut text).ok()?;
    let list: Value = serde_json::from_slice(&text).ok()?;
    let is_page = |tab: &&Value| tab["type"] == "page";
    let tab = list.as_array()?.iter().find(is_page)?;
    Some(tab["webSocketDebuggerUrl"].as_str()?.to_owned())
}

#[test]
fn it_shows_what_happens_at_any_width_and_comes_back_by_itself() {
    let Some(browser) = browser() else {
        println!("skipped: no Chromium to show the live page in");
        return;
    };
    let profile = tempfile::tempdir().unwrap();
    let (server, port) = serve();
    let (_browser, mut tab) = Tab::open(browser, profile.path());
    for (width, dark) in [(1280, false), (400, true)] {
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500 });
        tab.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = if dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        tab.call("Emulation.setEmulatedMedia", features);
        tab.call("Page.navigate", json!({ "url": format!("http://127.0.0.1:{port}/_superpoll/") }));
        tab.until("Number(document.body?.dataset.looks || 0) >= 2");
        assert_eq!(tab.evaluate("document.getElementById('state').textContent"), "live");
        // Requests of this test are seen, and a connection that is idle is seen as parked.
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        tab.until("Number(document.querySelector('[data-name=parked] b').textContent) >= 1");
        let text = tab.evaluate("document.body.innerText");
        let text = text.as_str().unwrap();
        for expected in ["epoll_pwait2", "active/total ratio", "break-even", "tcp", "with a task"] {
            assert!(text.contains(expected), "{expected} is missing in {text}");
        }
        // Nothing sticks out at the side.
        let fits = "document.documentElement.scrollWidth <= window.innerWidth";
        assert_eq!(tab.evaluate(fits), true, "at {width}");
        let colour = tab.evaluate("getComputedStyle(document.body).backgroundColor");
        assert_eq!(colour == "rgb(21, 23, 26)", dark, "{colour}");
        let picture = tab.call("Page.captureScreenshot", json!({ "format": "png" }));
        assert!(picture["data"].as_str().unwrap().len() > 10_000);
        if let Some(folder) = std::env::var_os("SUPERPOLL_PICTURES") {
            let name = Path::new(&folder).join(format!("page-{width}.txt"));
            std::fs::write(name, picture["data"].as_str().unwrap()).unwrap();
        }
        // All that was asked for came from this server.
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
fn the_demonstration_tells_a_message_in_each_of_its_three_ways() {
    let Some(browser) = browser() else {
        println!("skipped: no Chromium to show the demonstration in");
        return;
    };
    let profile = tempfile::tempdir().unwrap();
    let (_server, port) = serve();
    let (_browser, mut tab) = Tab::open(browser, profile.path());
    for width in [1280, 400] {
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500 });
        tab.call("Emulation.setDeviceMetricsOverride", size);
        tab.call("Page.navigate", json!({ "url": format!("http://127.0.0.1:{port}/") }));
        let all = |says: &str| {
            format!(
                "[...document.querySelectorAll('.ways .state')].length === 3 && \
                 [...document.querySelectorAll('.ways .state')].every(e => e.textContent === '{says}')"
            )
        };
        tab.until(&all("0 messages"));
        tab.evaluate(
            "document.getElementById('text').value = 'to all of you'; \
             document.getElementById('send').requestSubmit(); true",
        );
        tab.until(&all("1 message"));
        let lists = "[...document.querySelectorAll('.ways ol')].every(e => e.innerText.includes('to all of you'))";
        assert_eq!(tab.evaluate(lists), true);
        let fits = "document.documentElement.scrollWidth <= window.innerWidth";
        assert_eq!(tab.evaluate(fits), true, "at {width}");
    }
    assert!(tab.complaints.is_empty(), "{:?}", tab.complaints);
}
