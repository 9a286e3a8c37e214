//! Another process: finding its statistics socket, and reading its lines.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use superpoll_gateway::telemetry::socket::{self, Failure, Request, SCHEMA, Snapshot};
use superpoll_rt::net::unix::UnixStream;

use super::printable::{printable, printable_value};

/// The most bytes of a snapshot; a longer line comes from another program.
const LONGEST: usize = 4 << 20;

/// The reason why there is nothing more to show.
#[derive(Debug)]
pub(crate) enum End {
    /// The process has closed the connection.
    Ended,
    /// An error, in words.
    Wrong(String),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Ended => f.write_str("the server has ended"),
            End::Wrong(what) => f.write_str(what),
        }
    }
}

impl Error for End {}

/// Returns the path of the socket that the user means: by a process's number, a path, or the only
/// one there is.
pub(crate) fn locate(meant: Option<&str>) -> Result<PathBuf, String> {
    let Some(meant) = meant else { return only(&socket::list()) };
    match meant.parse() {
        Ok(process) => socket::of_process(process).ok_or_else(|| {
            format!(
                "process {process} has no statistics socket in this user's folder; \
                 name the path that it was started with (--stats PATH)"
            )
        }),
        Err(_) => Ok(meant.into()),
    }
}

fn only(found: &[socket::ProcessSocket]) -> Result<PathBuf, String> {
    match found {
        [] => Err("no process of this user publishes statistics in the usual place; start \
                   `superpoll serve` or `superpoll proxy`, or name the path of a socket"
            .to_owned()),
        [one] => Ok(one.path.clone()),
        several => {
            let named =
                several.iter().map(|one| format!("{} ({})", one.process, one.path.display()));
            let (count, all) = (several.len(), named.collect::<Vec<_>>().join(", "));
            Err(format!("{count} processes publish statistics, name one of them: {all}"))
        }
    }
}

/// A connection to a statistics socket.
pub(crate) struct Source {
    stream: UnixStream,
    path: PathBuf,
    read: Vec<u8>,
    /// The number of bytes that were read and searched for a line end.
    searched: usize,
}

/// The version of a message, whatever its other contents.
#[derive(Deserialize)]
struct Version {
    schema: u32,
}

impl Source {
    /// Connects to the statistics socket at a path.
    pub(crate) async fn connect(path: &Path) -> Result<Source, End> {
        let failed = |error: std::io::Error| {
            End::Wrong(format!("connecting to the statistics socket {}: {error}", path.display()))
        };
        let stream = UnixStream::connect(path).await.map_err(failed)?;
        Ok(Source { stream, path: path.to_path_buf(), read: Vec::new(), searched: 0 })
    }

    /// Returns the number of the process at the other end, if it can be seen from here.
    pub(crate) fn process(&self) -> Option<u32> {
        let peer = self.stream.peer_credentials().ok()?;
        u32::try_from(peer.pid).ok().filter(|number| *number > 0)
    }

    /// Requests another interval.
    pub(crate) async fn ask(&mut self, interval_ms: u64) -> Result<(), End> {
        self.say(&Request { interval_ms }).await
    }

    /// Sends a line.
    pub(crate) async fn say(&mut self, line: &impl Serialize) -> Result<(), End> {
        let mut line = serde_json::to_vec(line).map_err(|error| End::Wrong(error.to_string()))?;
        line.push(b'\n');
        // A process that has closed the connection may have sent the reason.
        let _ = self.stream.write_all(&line).await;
        Ok(())
    }

    /// Returns the next line. Nothing is lost if this is dropped.
    pub(crate) async fn line(&mut self) -> Result<Vec<u8>, End> {
        loop {
            let new = &self.read[self.searched..];
            if let Some(end) = new.iter().position(|&byte| byte == b'\n') {
                let end = self.searched + end;
                let rest = self.read.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.read, rest);
                line.truncate(end);
                self.searched = 0;
                return Ok(line);
            }
            self.searched = self.read.len();
            if self.searched > LONGEST {
                let what = format!("it sends no statistics: a line of more than {LONGEST} bytes");
                return Err(self.wrong(&what));
            }
            let mut room = [0; 16 << 10];
            match self.stream.read(&mut room).await {
                Ok(0) => return Err(End::Ended),
                Ok(count) => self.read.extend_from_slice(&room[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return Err(End::Ended);
                }
                Err(error) => return Err(self.wrong(&error.to_string())),
            }
        }
    }

    /// Returns the next snapshot.
    pub(crate) async fn next(&mut self) -> Result<Snapshot, End> {
        let line = self.line().await?;
        self.understand(&line)
    }

    /// Decodes a line.
    pub(crate) fn understand(&self, line: &[u8]) -> Result<Snapshot, End> {
        let value = self.value(line)?;
        if let Ok(Failure { error, .. }) = serde_json::from_slice(line) {
            return Err(self.wrong(&error));
        }
        // The process that listens there may not be the expected one, and all texts are shown in a
        // terminal.
        serde_json::from_value(printable_value(value))
            .map_err(|error| self.wrong(&format!("its statistics cannot be read: {error}")))
    }

    /// Decodes a line of any kind, if it is of this version.
    pub(crate) fn value(&self, line: &[u8]) -> Result<Value, End> {
        match serde_json::from_slice::<Version>(line) {
            Ok(Version { schema: SCHEMA }) => {}
            Ok(Version { schema }) => {
                let what = format!(
                    "it sends statistics of version {schema}, and this program knows version \
                     {SCHEMA}; use the `superpoll` of that process"
                );
                return Err(self.wrong(&what));
            }
            Err(error) => return Err(self.wrong(&format!("it sends no statistics: {error}"))),
        }
        serde_json::from_slice(line)
            .map_err(|error| self.wrong(&format!("its statistics cannot be read: {error}")))
    }

    /// Returns an error whose words may come in part from the other process.
    pub(crate) fn wrong(&self, what: &str) -> End {
        let what = format!("reading from the statistics socket {}: {what}", self.path.display());
        End::Wrong(printable(&what))
    }
}

#[cfg(test)]
mod tests {
    use superpoll_gateway::telemetry::socket::ProcessSocket;

    use super::*;

    #[test]
    fn one_socket_is_meant_without_a_name_and_several_are_listed_in_one_line() {
        let found = |process: u32| ProcessSocket { process, path: format!("/x/{process}").into() };
        assert_eq!(only(&[found(7)]), Ok("/x/7".into()));
        assert!(only(&[]).unwrap_err().contains("no process of this user"));
        let several = only(&[found(7), found(8)]).unwrap_err();
        assert_eq!(several, "2 processes publish statistics, name one of them: 7 (/x/7), 8 (/x/8)");
        assert_eq!(locate(Some("a/b")), Ok("a/b".into()));
        // Linux has no process of this number.
        assert!(locate(Some("4294967295")).unwrap_err().contains("process 4294967295 has no"));
    }
}
