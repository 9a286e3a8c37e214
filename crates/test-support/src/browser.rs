//! Chromium without a window, driven by its own protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

use crate::{PATIENCE, Running, find};

/// Returns the name of the browser, if it is installed.
pub fn browser() -> Option<&'static str> {
    let found = |name: &&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
    };
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(found)
}

/// One tab of a browser.
pub struct Tab {
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    number: u64,
    /// The errors that the page has logged.
    pub complaints: Vec<String>,
}

impl Tab {
    /// Opens a tab in a browser with a folder for its profile.
    ///
    /// # Panics
    ///
    /// If the browser does not start.
    pub fn open(browser: &str, profile: &Path) -> (Running, Tab) {
        Tab::open_with(browser, profile, &[])
    }

    /// Opens a tab in a browser with further arguments.
    ///
    /// # Panics
    ///
    /// If the browser does not start.
    pub fn open_with(browser: &str, profile: &Path, arguments: &[&str]) -> (Running, Tab) {
        let child = Command::new(browser)
            .args(arguments)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args(["--disable-dev-shm-usage", "--disable-background-networking"])
            .args(["--remote-debugging-port=0", "about:blank"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let child = Running(child);
        let port = find("the browser starts", || {
            let text = std::fs::read_to_string(profile.join("DevToolsActivePort")).ok()?;
            text.lines().next()?.parse().ok()
        });
        let address = find("the browser opens a tab", || tab_address(port));
        let (socket, _) = tungstenite::connect(address).unwrap();
        let MaybeTlsStream::Plain(stream) = socket.get_ref() else { panic!("it is plain") };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut tab = Tab { socket, number: 0, complaints: Vec::new() };
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            tab.call(domain, json!({}));
        }
        (child, tab)
    }

    /// Calls a method of the DevTools protocol, and returns the result.
    ///
    /// # Panics
    ///
    /// If the browser answers with an error, or not in time.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
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

    fn attempt(&mut self, expression: &str) -> Value {
        self.call("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true }))
    }

    /// Returns the value of an expression of JavaScript in the page.
    ///
    /// # Panics
    ///
    /// If the expression throws.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let result = self.attempt(expression);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Shows pages at this width, light or dark.
    pub fn resize(&mut self, width: u32, dark: bool) {
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = if dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", features);
    }

    /// Returns whether no part of the page sticks out at the side.
    pub fn fits(&mut self) -> bool {
        self.evaluate("document.documentElement.scrollWidth <= window.innerWidth") == true
    }

    /// Takes a picture of the page, and leaves it in the folder that `SUPERPOLL_PICTURES` names, if
    /// any. Returns its length.
    ///
    /// # Panics
    ///
    /// If there is no picture, or no such folder.
    pub fn picture(&mut self, name: &str) -> usize {
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let data = picture["data"].as_str().unwrap();
        if let Some(folder) = std::env::var_os("SUPERPOLL_PICTURES") {
            std::fs::write(Path::new(&folder).join(format!("{name}.txt")), data).unwrap();
        }
        data.len()
    }

    /// Waits until an expression of JavaScript is true.
    ///
    /// # Panics
    ///
    /// If it is not within [`PATIENCE`].
    pub fn until(&mut self, expression: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            // A page that is not loaded yet lacks the elements, which is an exception.
            let result = self.attempt(expression);
            if result["result"]["value"] == true {
                return;
            }
            if Instant::now() > end {
                let text = self.evaluate("document.body?.innerText");
                // What a page of these tests has of its subscription.
                let noted = self.attempt("JSON.stringify([states.slice(-9), seen.length])");
                panic!("{expression} is not so: {result}, {text}, {}", noted["result"]["value"]);
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

/// Returns the address of the first tab's debugger.
fn tab_address(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    // The addresses that it lists contain this host.
    write!(stream, "GET /json/list HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n").ok()?;
    // The server keeps the connection open, so the length of the list tells where the list ends.
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
