//! A client of the statistics socket of another process: a request of HTTP/1.1, and its response.
//!
//! The process that listens there may not be the expected one, and all its texts are shown in a
//! terminal: they are made [printable](crate::printable), and no response is read without end.

use std::io;
use std::path::{Path, PathBuf};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use http::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use superpoll_gateway::control::{ApiRequest, Snapshot};
use superpoll_gateway::telemetry::snapshot::SCHEMA;
use superpoll_http1::{
    After, Asked, BodyReader, FieldName, FieldValue, Framing, Limits, Method, Progress, Response,
    Room, Target, Writer, response,
};
use superpoll_rt::net::unix::UnixStream;

use super::process::ServerProcess;
use crate::printable::{map_texts, printable, printable_lines, printable_value};

/// The most bytes of a response, or of a line of it.
const LONGEST: usize = 4 << 20;

/// The beginning of the field `Server`.
const NAME: &str = "superpoll/";

/// The reason why there is nothing more to show.
#[derive(thiserror::Error, Debug)]
pub(crate) enum End {
    /// The process has closed the connection.
    #[error("the server has ended")]
    Ended,
    /// An error, in words.
    #[error("{0}")]
    Wrong(String),
}

/// The head of a response, as far as it matters.
struct Head {
    status: StatusCode,
    /// The version of the server.
    version: String,
    body: BodyReader,
}

/// A request that was sent, and its response.
pub(crate) struct Exchange {
    stream: UnixStream,
    path: PathBuf,
    /// The signal that has the effect of the request.
    signal: Option<&'static str>,
    /// The process that answers, if it can be seen from here.
    pub process: Option<ServerProcess>,
    /// The bytes of the response that are not decoded yet.
    read: Vec<u8>,
    head: Option<Head>,
    /// The data of the body that was not returned yet.
    data: Vec<u8>,
    /// The number of bytes of the data that were searched for a line end.
    searched: usize,
}

/// Returns the signal that makes a server of another version do the same.
fn signal(target: &str) -> Option<&'static str> {
    match target.split('?').next() {
        Some("/api/reload") => Some("HUP"),
        Some("/api/upgrade") => Some("USR2"),
        Some("/api/drain") => Some("TERM"),
        Some("/api/reopen-logs") => Some("USR1"),
        _ => None,
    }
}

/// Returns the bytes of a request.
fn text(request: &ApiRequest) -> Option<Vec<u8>> {
    let method = Method::new(request.method.as_str())?;
    let target = Target::new(method, &request.target).ok()?;
    let mut text = Vec::new();
    let host = FieldValue::from_static("localhost");
    let mut writer = Writer::request(&mut text, method, target, host);
    let framing = match request.body.len() as u64 {
        0 => Framing::None,
        length => {
            let json = FieldValue::from_static("application/json");
            writer.field(FieldName::from_static("content-type"), json);
            Framing::Length(length)
        }
    };
    let mut body = writer.body(framing, After::Closes);
    body.piece(request.body.as_bytes(), &mut text).ok()?;
    body.end(&mut text);
    Some(text)
}

impl Exchange {
    /// Sends a request to the process that listens at a path.
    pub(crate) async fn begin(path: &Path, request: &ApiRequest) -> Result<Exchange, End> {
        let failed = |error: io::Error| {
            End::Wrong(format!("connecting to the statistics socket {}: {error}", path.display()))
        };
        let text = text(request).ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
        let mut stream = UnixStream::connect(path).await.map_err(failed)?;
        let peer = stream.peer_credentials().ok().and_then(|peer| u32::try_from(peer.pid).ok());
        let process = peer.filter(|number| *number > 0).map(ServerProcess::new);
        // A process that has closed the connection may have sent the reason.
        let _ = stream.write_all(&text).await;
        let (path, signal) = (path.to_path_buf(), signal(&request.target));
        let (read, head, data, searched) = (Vec::new(), None, Vec::new(), 0);
        Ok(Exchange { stream, path, signal, process, read, head, data, searched })
    }

    /// Reads more of the response. Nothing is lost if this is dropped.
    async fn read_more(&mut self) -> Result<(), End> {
        let mut room = [0; 16 << 10];
        match self.stream.read(&mut room).await {
            Ok(0) => Err(End::Ended),
            Ok(count) => {
                self.read.extend_from_slice(&room[..count]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Err(End::Ended),
            Err(error) => Err(self.wrong(&error.to_string())),
        }
    }

    /// Waits for the head of the response.
    pub(crate) async fn head(&mut self) -> Result<(), End> {
        while self.head.is_none() {
            let mut scratch = Vec::new();
            let mut room = Room::new(&mut scratch);
            let len = match response(&self.read, Asked::default(), &Limits::DEFAULT, &mut room) {
                Err(_) => return Err(self.stranger().await),
                Ok(None) => {
                    self.read_more().await?;
                    continue;
                }
                Ok(Some(Response::Interim(head))) => head.len,
                Ok(Some(Response::Final(head) | Response::Switches(head))) => {
                    let server = head.fields.value("server").map(|value| value.as_bytes());
                    let server = String::from_utf8_lossy(server.unwrap_or_default());
                    let Some(version) = server.strip_prefix(NAME) else {
                        return Err(self.wrong("the program that answers is no superpoll"));
                    };
                    let (version, body) = (printable(version), BodyReader::new(head.framing));
                    self.head = Some(Head { status: head.status, version, body });
                    head.len
                }
            };
            self.read.drain(..len);
        }
        Ok(())
    }

    /// Reads more data of the body; `false` at its end. Nothing is lost if this is dropped.
    async fn read_data(&mut self) -> Result<bool, End> {
        self.head().await?;
        loop {
            let Some(head) = &mut self.head else { return Ok(false) };
            if head.body.is_over() {
                return Ok(false);
            }
            let step = head.body.step(&self.read).map(|piece| {
                self.data.extend_from_slice(&self.read[piece.data.clone()]);
                (piece.data.len(), piece.used, piece.progress)
            });
            let (count, used, progress) = step.map_err(|error| self.wrong(&error.to_string()))?;
            self.read.drain(..used);
            if self.data.len() > LONGEST {
                return Err(self.wrong(&format!("its answer has more than {LONGEST} bytes")));
            }
            if count > 0 {
                return Ok(true);
            }
            if progress == Progress::More
                && let Err(end) = self.read_more().await
            {
                let is_over = self.head.as_mut().is_some_and(|head| head.body.end().is_ok());
                return if is_over { Ok(false) } else { Err(end) };
            }
        }
    }

    /// Returns the body, an object of JSON as it came, or the error in it.
    pub(crate) async fn value(&mut self) -> Result<Value, End> {
        while self.read_data().await? {}
        let read = serde_json::from_slice(&self.data);
        let value: Value =
            read.map_err(|error| self.wrong(&format!("its answer is no JSON: {error}")))?;
        let Some(Head { status, .. }) = &self.head else { return Err(End::Ended) };
        if status.is_success() {
            return Ok(value);
        }
        let error = value.get("error").and_then(Value::as_str);
        let error = error.map_or_else(|| format!("the answer is {status}"), printable_lines);
        let is_unknown = matches!(
            *status,
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
        );
        let remedy = if is_unknown { self.remedy() } else { String::new() };
        Err(End::Wrong(format!("{error}{remedy}")))
    }

    /// Returns the body.
    pub(crate) async fn answer<T: DeserializeOwned>(&mut self) -> Result<T, End> {
        let value = self.value().await?;
        self.understand(value)
    }

    /// Returns the meaning of a body or a line.
    pub(crate) fn understand<T: DeserializeOwned>(&self, value: Value) -> Result<T, End> {
        serde_json::from_value(map_texts(value, printable_lines)).map_err(|error| {
            self.wrong(&format!("its answer cannot be read: {error}{}", self.remedy()))
        })
    }

    /// Returns the next line of the body. Nothing is lost if this is dropped.
    pub(crate) async fn line(&mut self) -> Result<Vec<u8>, End> {
        self.head().await?;
        if self.head.as_ref().is_none_or(|head| !head.status.is_success()) {
            return Err(self.value().await.err().unwrap_or(End::Ended));
        }
        loop {
            let new = &self.data[self.searched..];
            if let Some(end) = new.iter().position(|&byte| byte == b'\n') {
                let end = self.searched + end;
                let rest = self.data.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.data, rest);
                line.truncate(end);
                self.searched = 0;
                return Ok(line);
            }
            self.searched = self.data.len();
            if !self.read_data().await? {
                return Err(End::Ended);
            }
        }
    }

    /// Returns the next line of the body as a snapshot.
    pub(crate) async fn snapshot(&mut self) -> Result<Snapshot, End> {
        let line = self.line().await?;
        self.read_snapshot(&line)
    }

    /// Decodes a snapshot.
    pub(crate) fn read_snapshot(&self, line: &[u8]) -> Result<Snapshot, End> {
        /// The version of a snapshot, whatever its other contents.
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        let unreadable = |error| self.wrong(&format!("its statistics cannot be read: {error}"));
        let Version { schema } = serde_json::from_slice(line).map_err(unreadable)?;
        if schema != SCHEMA {
            let what = format!(
                "it sends statistics of version {schema}, and this program knows version \
                 {SCHEMA}; use the `superpoll` of that process"
            );
            return Err(self.wrong(&what));
        }
        let value = serde_json::from_slice(line).map_err(unreadable)?;
        serde_json::from_value(printable_value(value)).map_err(unreadable)
    }

    /// Returns the error for a program that does not speak HTTP. A server of an early version takes
    /// the request for a wrong line, and sends lines of JSON to a silent client.
    async fn stranger(&mut self) -> End {
        let mut value = self.line_of_json().await;
        if value.get("schema").is_some()
            && value.get("version").is_none()
            && let Ok(stream) = UnixStream::connect(&self.path).await
        {
            (self.stream, self.read) = (stream, Vec::new());
            let told = self.line_of_json().await;
            value = if told.get("version").is_some() { told } else { value };
        }
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        match (text("version"), text("error")) {
            (Some(version), _) => End::Wrong(self.instead(version)),
            (None, Some(error)) => self.wrong(&format!("it does not speak HTTP/1.1: {error}")),
            (None, None) => self.wrong("it does not speak HTTP/1.1"),
        }
    }

    /// Returns the first line that arrives.
    async fn line_of_json(&mut self) -> Value {
        while !self.read.contains(&b'\n') && self.read.len() < LONGEST {
            if self.read_more().await.is_err() {
                break;
            }
        }
        let line = self.read.split(|byte| *byte == b'\n').next().unwrap_or_default();
        serde_json::from_slice(line).map(printable_value).unwrap_or_default()
    }

    /// Returns the end of an error that another version of the server may be the reason for.
    fn remedy(&self) -> String {
        match &self.head {
            Some(head) if head.version != env!("CARGO_PKG_VERSION") => {
                format!("; {}", self.instead(&head.version))
            }
            _ => String::new(),
        }
    }

    /// Returns the remedy where a server has another version than this program.
    fn instead(&self, version: &str) -> String {
        let number = self.process.as_ref().map(|process| process.number.to_string());
        let number = number.unwrap_or_else(|| "PID".to_owned());
        let signal = self.signal.map(|signal| format!(", or kill -{signal} {number}"));
        format!(
            "process {number} is superpoll {version}, which speaks another protocol; use the \
             `superpoll` of that process{}",
            signal.unwrap_or_default()
        )
    }

    /// Returns an error whose words may come in part from the other process.
    fn wrong(&self, what: &str) -> End {
        let what = format!("reading from the statistics socket {}: {what}", self.path.display());
        End::Wrong(printable(&what))
    }
}
