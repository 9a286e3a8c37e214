//! Syslog as the place of a log.
//!
//! To a socket of this machine a message is written as by syslog(3), without a time: journald and
//! rsyslog take the moment of arrival, and neither understands RFC 5424 there. Servers in the
//! network get RFC 5424, a datagram of UDP (RFC 5426) or a counted frame of TCP (RFC 6587) for each
//! line. The part before a line is written together with the line, so that it has the time of the
//! event; the thread that writes only divides lines into messages.
//!
//! A server that is away loses lines and nothing else. The thread connects at the first line, and
//! again whenever a message cannot be sent: a daemon that was restarted has another socket. It
//! waits at most [`PATIENCE`] for a step of a server that takes nothing.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::system::uname;
use superpoll_config::{Level, Syslog, SyslogServer};

/// The most bytes of a message, which is what rsyslog takes unless it is told otherwise.
pub(super) const LONGEST: usize = 8 * 1024;

/// The longest time for which a server may take nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// The longest name of a host in a message (RFC 5424, section 6).
const LONGEST_HOST: usize = 255;

/// The severity of a line (RFC 5424, section 6.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Severity {
    Error = 3,
    Warning = 4,
    Notice = 5,
    Info = 6,
}

impl From<Level> for Severity {
    fn from(level: Level) -> Severity {
        match level {
            Level::Info => Severity::Info,
            Level::Notice => Severity::Notice,
            Level::Warning => Severity::Warning,
            Level::Error => Severity::Error,
        }
    }
}

/// The part of a message before the line.
pub(super) struct Header {
    /// The number of the facility, in its place above the severity.
    facility: u8,
    /// Host, program and process, or program and process for the local form.
    origin: String,
    is_local: bool,
}

impl Header {
    pub(super) fn new(config: &Syslog) -> Header {
        let (tag, process) = (&config.tag, std::process::id());
        let is_local = matches!(config.server, SyslogServer::Unix(_));
        let origin = match is_local {
            true => format!("{tag}[{process}]:"),
            false => format!("{} {tag} {process}", host_name()),
        };
        Header { facility: config.facility.number() << 3, origin, is_local }
    }

    /// Appends the header of a line of a kind.
    pub(super) fn write(&self, out: &mut Vec<u8>, severity: Severity, at: SystemTime, kind: &str) {
        let (priority, origin) = (self.facility | severity as u8, &self.origin);
        // Writing to a vector cannot fail.
        let _ = match self.is_local {
            true => write!(out, "<{priority}>{origin} "),
            false => {
                let time = humantime::format_rfc3339_millis(at);
                write!(out, "<{priority}>1 {time} {origin} {kind} - ")
            }
        };
    }
}

/// Returns the name of this machine as messages can have it, or the hyphen that stands for none.
fn host_name() -> String {
    let name = uname();
    let name = name.nodename().to_string_lossy();
    let is_good =
        (1..=LONGEST_HOST).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic());
    if is_good { name.into_owned() } else { "-".to_owned() }
}

/// Returns the message of a line, which is cut if it is too long, and says so then.
fn message(line: &[u8]) -> Cow<'_, [u8]> {
    if line.len() <= LONGEST {
        return line.into();
    }
    let note = |kept: usize| format!("... ({} bytes cut)", line.len() - kept);
    let mut kept = LONGEST - note(0).len();
    // Not within a character of UTF-8.
    while line[kept] & 0xc0 == 0x80 {
        kept -= 1;
    }
    [&line[..kept], note(kept).as_bytes()].concat().into()
}

/// A connection with a syslog server.
enum Connection {
    Unix(UnixDatagram),
    Udp(UdpSocket),
    Tcp(TcpStream),
}

impl Connection {
    fn open(server: &SyslogServer) -> io::Result<Connection> {
        match server {
            SyslogServer::Unix(path) => unix(path).map(Connection::Unix),
            SyslogServer::Udp(host, port) => each(host, *port, udp).map(Connection::Udp),
            SyslogServer::Tcp(host, port) => each(host, *port, tcp).map(Connection::Tcp),
        }
    }

    /// Whether the server has closed the connection, so that whatever is written now is lost.
    fn is_closed(&self) -> bool {
        let Connection::Tcp(stream) = self else { return false };
        let looked = recv(stream, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        !matches!(looked, Ok((1.., _)) | Err(Errno::AGAIN | Errno::INTR))
    }
}

fn unix(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn udp(to: SocketAddr) -> io::Result<UdpSocket> {
    let socket = match to {
        SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)),
    }?;
    socket.connect(to)?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn tcp(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Returns a connection with the first address of a host that there is one with.
fn each<T>(host: &str, port: u16, connect: fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let mut error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match connect(address) {
            Ok(connection) => return Ok(connection),
            Err(failed) => error = failed,
        }
    }
    Err(error)
}

/// Returns the error of a server in words, where the kernel's are about the socket.
fn in_words(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            io::Error::new(io::ErrorKind::TimedOut, "the server takes no messages")
        }
        _ => error,
    }
}

/// The socket of a log whose place is a syslog server.
pub(super) struct SyslogSocket {
    server: SyslogServer,
    connection: Option<Connection>,
}

impl SyslogSocket {
    /// Creates the socket of a server, which is connected with the first line.
    pub(super) fn new(server: SyslogServer) -> SyslogSocket {
        SyslogSocket { server, connection: None }
    }

    /// Sends each line as a message. An error comes with the number of lines that were lost.
    pub(super) fn send(&mut self, lines: &[u8]) -> Result<(), (u64, io::Error)> {
        let messages: Vec<_> =
            lines.split_inclusive(|byte| *byte == b'\n').map(without_end).collect();
        let sent = match self.server {
            SyslogServer::Tcp(..) => self.send_frames(&messages),
            _ => self.send_datagrams(&messages),
        };
        sent.map_err(|(lost, error)| (lost, in_words(error)))
    }

    /// Returns the connection; a new one if there is none that is open.
    fn connected(&mut self) -> io::Result<&mut Connection> {
        let open = self.connection.take().filter(|connection| !connection.is_closed());
        let connection = match open {
            Some(connection) => connection,
            None => Connection::open(&self.server)?,
        };
        Ok(self.connection.insert(connection))
    }

    fn send_datagrams(&mut self, messages: &[&[u8]]) -> Result<(), (u64, io::Error)> {
        let mut earlier = None;
        for (at, line) in messages.iter().enumerate() {
            match self.send_datagram(&message(line)) {
                Ok(None) => {}
                Ok(Some(error)) => earlier = Some((earlier.map_or(1, |(lost, _)| lost + 1), error)),
                Err(error) => {
                    let lost = earlier.map_or(0, |(lost, _)| lost);
                    return Err((lost + (messages.len() - at) as u64, error));
                }
            }
        }
        earlier.map_or(Ok(()), Err)
    }

    /// Sends a datagram. Returns the error by which an earlier one was lost, if the kernel has one:
    /// it learns that a port of UDP is closed from the answer to a datagram that it has sent.
    fn send_datagram(&mut self, message: &[u8]) -> io::Result<Option<io::Error>> {
        let had_connection = self.connection.is_some();
        let error = match self.try_datagram(message) {
            Ok(()) => return Ok(None),
            Err(error) => error,
        };
        let is_full = error.kind() == io::ErrorKind::WouldBlock;
        if matches!(self.connection, Some(Connection::Udp(_)))
            && error.kind() == io::ErrorKind::ConnectionRefused
        {
            return self.try_datagram(message).map(|()| Some(error));
        }
        if is_full || !had_connection {
            return Err(error);
        }
        // The daemon was restarted, or the machine has other addresses now.
        self.connection = None;
        self.try_datagram(message).map(|()| None)
    }

    fn try_datagram(&mut self, message: &[u8]) -> io::Result<()> {
        loop {
            let sent = match self.connected()? {
                Connection::Unix(socket) => socket.send(message),
                Connection::Udp(socket) => socket.send(message),
                Connection::Tcp(_) => return Err(io::ErrorKind::Unsupported.into()),
            };
            match sent {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                sent => return sent.map(drop),
            }
        }
    }

    fn send_frames(&mut self, messages: &[&[u8]]) -> Result<(), (u64, io::Error)> {
        let mut had_connection = self.connection.is_some();
        let mut from = 0;
        loop {
            let error = match self.try_frames(&messages[from..]) {
                Ok(()) => return Ok(()),
                Err((sent, error)) => {
                    from += sent;
                    error
                }
            };
            // The server would take the rest of a frame that was cut for the head of the next one.
            self.connection = None;
            let is_slow = error.kind() == io::ErrorKind::WouldBlock;
            if is_slow || !std::mem::take(&mut had_connection) {
                return Err(((messages.len() - from) as u64, error));
            }
        }
    }

    /// Writes a frame for each message. An error comes with the number of frames that were written.
    fn try_frames(&mut self, messages: &[&[u8]]) -> Result<(), (usize, io::Error)> {
        let Connection::Tcp(stream) = self.connected().map_err(|error| (0, error))? else {
            return Err((0, io::ErrorKind::Unsupported.into()));
        };
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for line in messages {
            let message = message(line);
            bytes.extend_from_slice(format!("{} ", message.len()).as_bytes());
            bytes.extend_from_slice(&message);
            ends.push(bytes.len());
        }
        let mut written = 0;
        while written < bytes.len() {
            let error = match stream.write(&bytes[written..]) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(count) => {
                    written += count;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            return Err((ends.partition_point(|end| *end <= written), error));
        }
        Ok(())
    }
}

fn without_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}
