//! A master of Redis, its replica, and the sentinel that promotes the replica.

use std::path::Path;
use std::time::Duration;

use crate::cluster::redis::{PROCESS, PROGRAM, Redis, call, until};
use crate::error::{Doing, Result};
use crate::server::{Server, program};
use crate::sys::process;

/// The name of the master, for the sentinel.
const NAME: &str = "superpoll";

/// How long a replica may take to be in step, and a promotion.
const PATIENCE: Duration = Duration::from_secs(40);

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
             sentinel monitor {NAME} 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds {NAME} 500\n\
             sentinel failover-timeout {NAME} 3000\n",
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
        format!("redis+sentinel://127.0.0.1:{}/{NAME}/0", self.port)
    }

    /// Waits until the replica has everything and the sentinel knows it.
    fn until_in_step(&self) -> Result<()> {
        let [master, replica] = &self.pair;
        let port = replica.port.to_string();
        until("a replica of Redis is not in step", PATIENCE, || {
            let has = |answer: std::io::Result<String>, part: &str| {
                answer.is_ok_and(|answer| answer.contains(part))
            };
            let replicas = call(self.port, &["SENTINEL", "REPLICAS", NAME]);
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
        until("the sentinel does not promote the replica", PATIENCE, || {
            let master = call(self.port, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
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
