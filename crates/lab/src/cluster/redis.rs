//! A server of Redis, with a connection for commands.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{Doing, Result};
use crate::server::program::{PROCESS, until};
use crate::server::{Server, program};
use crate::sys::process;

/// The programs, the server's first, and the package of Debian's that has them.
pub(super) const PROGRAM: &str = "redis-server";
pub(super) const CLIENT: &str = "redis-cli";
pub(super) const PACKAGE: &str = "redis-server";

/// How long it may take to start.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a command may take.
const ANSWER: &str = "5s";

/// A server of Redis.
#[derive(Debug)]
pub(super) struct Redis {
    /// Its port.
    pub port: u16,
    folder: PathBuf,
    server: Option<Server>,
}

impl Redis {
    /// Starts a server with its files in a folder of its own below this one. It writes each message
    /// to the disk before it confirms it. `arguments` are further ones.
    pub(super) fn start(folder: &Path, arguments: &[&str]) -> Result<Redis> {
        let port = program::free_port()?;
        let folder = folder.join(format!("redis-{port}"));
        std::fs::create_dir(&folder).doing("making a folder for Redis")?;
        let mut redis = Redis { port, folder, server: None };
        redis.start_again(arguments)?;
        Ok(redis)
    }

    /// Starts it again on its port, with its data.
    pub(super) fn start_again(&mut self, arguments: &[&str]) -> Result<()> {
        let (port, folder) = (self.port.to_string(), self.folder.to_string_lossy().into_owned());
        let own = ["--port", &port, "--dir", &folder, "--save", "", "--appendonly", "yes"];
        let further = ["--appendfsync", "always", "--protected-mode", "no", "--bind", "127.0.0.1"];
        let all = [&own[..], &further, arguments].concat();
        let is_there = || self.call(&["PING"]).is_ok_and(|answer| answer == "PONG");
        let server = program::until_there("Redis", PROCESS, PROGRAM, &all, PATIENCE, is_there)?;
        self.server = Some(server);
        Ok(())
    }

    /// Sends a command on a connection of its own, and returns the answer as text: the elements of
    /// a list in a line each.
    pub(super) fn call(&self, words: &[&str]) -> io::Result<String> {
        call(self.port, words)
    }

    /// Kills it, and waits until it has ended.
    pub(super) fn kill(&mut self) {
        self.server = None;
    }

    /// Stops it, or lets it continue.
    pub(super) fn stop(&self, is_stopped: bool) -> Result<()> {
        let Some(server) = &self.server else { return Ok(()) };
        let signal = if is_stopped { Signal::SIGSTOP } else { Signal::SIGCONT };
        // It has not been waited for, so the number cannot mean another process.
        kill(Pid::from_raw(server.pid()), signal)
            .map_err(io::Error::from)
            .doing("stopping Redis, or letting it continue")
    }
}

/// Sends a command to the server at this port of the loopback address, by Redis' own client.
pub(super) fn call(port: u16, words: &[&str]) -> io::Result<String> {
    let output = Command::new("timeout")
        .args([ANSWER, CLIENT, "-p", &port.to_string()])
        .args(words)
        .stdin(Stdio::null())
        .output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    let answer = text(&output.stdout);
    match (output.status.success(), is_error(&answer)) {
        (true, false) => Ok(answer),
        (true, true) => Err(io::Error::other(format!("Redis refused {words:?}: {answer}"))),
        (false, _) => Err(io::Error::other(format!("{CLIENT}: {}", text(&output.stderr)))),
    }
}

/// Returns whether an answer is an error: a word in capitals, then the text. Before version 7, the
/// client has no option that makes it fail.
fn is_error(answer: &str) -> bool {
    let kind = answer.split_once(' ').map_or("", |(kind, _)| kind);
    !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_uppercase())
}

// A master of Redis, its replica, and the sentinel that promotes the replica.

/// The name of the master, for the sentinel.
const MASTER: &str = "superpoll";

/// How long a replica may take to be in step, and a promotion.
const PROMOTION: Duration = Duration::from_secs(40);

/// How long messages are published that the replica will lack.
const LAG_NS: u64 = 300_000_000;

/// The two servers of Redis and their sentinel.
#[derive(Debug)]
pub(super) struct Watched {
    /// The master, and the replica.
    pair: [Redis; 2],
    port: u16,
    _sentinel: Server,
}

impl Watched {
    /// Starts all three.
    pub(super) fn start(folder: &Path) -> Result<Watched> {
        let master = Redis::start(folder, &[])?;
        let replica = Redis::start(folder, &of(&master.port.to_string()))?;
        let port = program::free_port()?;
        let file = folder.join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {:?}\nprotected-mode no\n\
             sentinel monitor {MASTER} 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds {MASTER} 500\n\
             sentinel failover-timeout {MASTER} 3000\n",
            folder.to_string_lossy(),
            master.port
        );
        std::fs::write(&file, text).doing("writing the configuration of the sentinel")?;
        let arguments = [&*file.to_string_lossy(), "--sentinel"];
        let (sentinel, _) = program::begin("the sentinel", PROCESS, PROGRAM, &arguments)?;
        let watched = Watched { pair: [master, replica], port, _sentinel: sentinel };
        watched.until_in_step()?;
        Ok(watched)
    }

    /// Returns the address of the master for servers.
    pub(super) fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/{MASTER}/0", self.port)
    }

    /// Waits until the replica has everything and the sentinel knows it.
    fn until_in_step(&self) -> Result<()> {
        let [master, replica] = &self.pair;
        let port = replica.port.to_string();
        until("a replica of Redis is not in step", PROMOTION, || {
            let has = |answer: std::io::Result<String>, part: &str| {
                answer.is_ok_and(|answer| answer.contains(part))
            };
            let replicas = call(self.port, &["SENTINEL", "REPLICAS", MASTER]);
            let is_known = replicas.is_ok_and(|answer| {
                answer.lines().any(|line| line == port)
                    && answer.contains("master-link-status\nok")
                    && answer.contains("flags\nslave\n")
            });
            Ok(is_known
                && has(master.call(&["INFO", "replication"]), "state=online")
                && has(replica.call(&["INFO", "replication"]), "master_link_status:up"))
        })
    }

    /// Kills the master while the replica lacks the last messages, and waits until the replica is
    /// the master.
    pub(super) fn promote(&mut self) -> Result<()> {
        let [master, replica] = &mut self.pair;
        // What is on its way to a replica that is stopped would still be read: it must connect
        // again, and cannot.
        replica.stop(true)?;
        master.call(&["CLIENT", "KILL", "TYPE", "replica"]).doing("cutting a replica off")?;
        process::sleep(LAG_NS);
        master.kill();
        replica.stop(false)?;
        let port = replica.port.to_string();
        until("the sentinel does not promote the replica", PROMOTION, || {
            let master = call(self.port, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]);
            let role = replica.call(&["ROLE"]);
            Ok(master.is_ok_and(|address| address.lines().any(|line| line == port))
                && role.is_ok_and(|role| role.starts_with("master")))
        })
    }

    /// Starts the killed master as the replica of the present one.
    pub(super) fn mend(&mut self) -> Result<()> {
        self.pair.swap(0, 1);
        let [master, replica] = &mut self.pair;
        replica.start_again(&of(&master.port.to_string()))?;
        self.until_in_step()
    }
}

fn of(port: &str) -> [&str; 3] {
    ["--replicaof", "127.0.0.1", port]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_from_answers() {
        for error in ["ERR unknown command", "LOADING Redis is loading", "MISCONF no\nwrites"] {
            assert!(is_error(error), "{error}");
        }
        for answer in ["", "OK", "PONG", "3", "master\n0", "# Replication\nrole:master"] {
            assert!(!is_error(answer), "{answer}");
        }
    }
}
