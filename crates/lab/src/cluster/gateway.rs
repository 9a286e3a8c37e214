//! A server with a channel in Redis: `superpoll serve`, as a user starts it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cluster::namespace::Namespace;
use crate::cluster::redis::{PROCESS, until};
use crate::cluster::{CHANNEL, LOCAL};
use crate::error::{Doing, Result};
use crate::server::{Server, program};

/// How long it may take to be ready.
const PATIENCE: Duration = Duration::from_secs(30);

/// The path that says whether it is ready.
const READY: &str = "/readyz";

/// A server, which may have been killed.
#[derive(Debug)]
pub(super) struct Gateway {
    address: SocketAddr,
    file: PathBuf,
    namespace: Option<Namespace>,
    server: Option<Server>,
}

impl Gateway {
    /// Starts a server at an address, with the broker at this URL.
    pub(super) fn start(
        folder: &Path,
        address: SocketAddr,
        url: &str,
        namespace: Option<Namespace>,
    ) -> Result<Gateway> {
        let file = folder.join(format!("server-{}-{}.toml", address.ip(), address.port()));
        let text = format!(
            "[broker]\nurl = \"{url}\"\npublish = \"5s\"\n\
             [metrics]\npublic = true\nready = \"{READY}\"\n\
             [[listeners]]\naddress = \"{address}\"\n[[hosts]]\n\
             [[hosts.routes]]\npath = \"{CHANNEL}\"\n\
             channel = {{ broker = true, history = 10000, publish = \"anyone\" }}\n\
             [[hosts.routes]]\npath = \"{LOCAL}\"\nchannel = {{ history = 10000 }}\n"
        );
        std::fs::write(&file, text).doing("writing the configuration of a server")?;
        let mut gateway = Gateway { address, file, namespace, server: None };
        gateway.start_again()?;
        Ok(gateway)
    }

    /// Starts it again at its address.
    pub(super) fn start_again(&mut self) -> Result<()> {
        let file = self.file.to_string_lossy();
        let server = match &self.namespace {
            None => {
                program::superpoll(
                    "superpoll serve",
                    PROCESS,
                    &["serve", "--workers", "1", "-c", &file],
                )?
                .0
            }
            Some(namespace) => {
                let command = program::command()?;
                let command = command.to_string_lossy();
                let words =
                    [&namespace.words()[..], &[&*command, "serve", "--workers", "1", "-c", &file]]
                        .concat();
                program::begin("superpoll serve", PROCESS, words[0], &words[1..])?.0
            }
        };
        self.server = Some(server);
        Ok(())
    }

    /// Kills it, and waits until it has ended.
    pub(super) fn kill(&mut self) {
        self.server = None;
    }

    /// Waits until it says that it is ready.
    pub(super) fn until_ready(&self) -> Result<()> {
        until("a server is not ready", PATIENCE, || Ok(self.is_ready()))
    }

    fn is_ready(&self) -> bool {
        let answer = TcpStream::connect(self.address).and_then(|mut stream| {
            stream.set_read_timeout(Some(Duration::from_secs(2)))?;
            let request =
                format!("GET {READY} HTTP/1.1\r\nhost: cluster\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map(|_| answer)
        });
        answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 "))
    }

    /// Returns the processor time that it has used, in nanoseconds.
    pub(super) fn processor_time(&self) -> Result<u64> {
        self.server.as_ref().map_or(Ok(0), Server::processor_time)
    }

    /// Returns the network namespace in which it runs.
    pub(super) fn namespace(&self) -> Option<&Namespace> {
        self.namespace.as_ref()
    }
}
