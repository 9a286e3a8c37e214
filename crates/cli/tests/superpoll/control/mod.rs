//! The built commands `superpoll reload`, `upgrade`, `drain`, `status` and `init`, with servers and
//! proxies at work.

mod drain;
mod init;
mod operate;
mod reload;
mod reload_aside;
mod reopen_logs;
mod status;
mod targets;
mod upgrade;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::stage::{Server, Site, free_port, run, until};
use crate::superpoll;

/// Returns a command to the server at a socket.
fn command(name: &str, at: &Path, arguments: &[&str]) -> Command {
    let mut command = superpoll();
    command.arg(name).arg(at).args(arguments);
    command
}

/// Starts a command that waits.
fn begin(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs a command that must fail with status 1 and without output. Returns its complaint.
fn refused(command: &mut Command) -> String {
    refusal(&command.output().unwrap())
}

fn refusal(output: &Output) -> String {
    let [told, errors] = [&output.stdout, &output.stderr].map(|one| String::from_utf8_lossy(one));
    assert_eq!(output.status.code(), Some(1), "{told}{errors}");
    assert!(told.is_empty() && errors.starts_with("superpoll: "), "{told}{errors}");
    errors.into_owned()
}

/// Returns the state of the server at a socket.
fn status(at: &Path) -> Value {
    let text = run(&mut command("status", at, &["--json"]));
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// A server with a configuration file, and its statistics socket.
struct Stage {
    site: Site,
    port: u16,
    stats: PathBuf,
}

impl Stage {
    fn new() -> Stage {
        let site = Site::new();
        let stats = site.path("stats");
        Stage { site, port: free_port(), stats }
    }

    /// Writes the configuration, with more settings of the server and more sections.
    fn configure(&self, server: &str, more: &str) -> PathBuf {
        let port = self.port;
        self.site.write(
            "server.toml",
            &format!(
                "[server]
                stats = \"stats\"
                workers = 1
                {server}
                [[listeners]]
                address = \"127.0.0.1:{port}\"
                [[hosts]]
                [[hosts.routes]]
                files = {{ root = \"www\" }}
                {more}"
            ),
        )
    }

    /// Starts it with this many processes, all of which serve.
    fn start(&self, processes: usize) -> Server {
        self.start_with(processes, "")
    }

    /// The same with more sections.
    fn start_with(&self, processes: usize, more: &str) -> Server {
        let path = self.configure(&format!("processes = {processes}"), more);
        let server = Server::configured(&path, 1);
        if processes > 1 {
            until("all workers serve", || self.serving() == processes);
        }
        server
    }

    /// Returns how many workers serve.
    fn serving(&self) -> usize {
        let status = status(&self.stats);
        let workers = status["processes"].as_array().unwrap().iter();
        workers.filter(|worker| worker["state"] == "serving").count()
    }

    fn command(&self, name: &str, arguments: &[&str]) -> Command {
        command(name, &self.stats, arguments)
    }
}
