//! A question's way to one server: by UDP, and by TCP where an answer does not fit into a datagram.

use std::future::poll_fn;
use std::io::{self, Error, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;

use futures_io::{AsyncRead, AsyncWrite};
use ring::rand::{SecureRandom, SystemRandom};
use superpoll_rt::net::{TcpStream, UdpSocket};
use superpoll_rt::time::timeout;

use super::message::{Kind, Query, Reply};
use super::system::Settings;

/// The room for an answer by UDP. More was not asked for, and a longer one is cut off and passed
/// over.
const ROOM: usize = 4096;

/// Asks a server. Each way of asking has the limit of the settings.
pub(super) async fn ask(
    server: SocketAddr,
    name: &str,
    kind: Kind,
    settings: &Settings,
) -> io::Result<Reply> {
    let mut is_extended = true;
    loop {
        // A new number for each question: an answer that comes late answers no other one.
        let query = Query { id: random_id()?, name, kind };
        let question = query.encode(is_extended);
        let question = question.map_err(|why| Error::new(ErrorKind::InvalidInput, why))?;
        let reply = match settings.only_tcp {
            true => Reply::Truncated,
            false => within(settings, by_udp(server, &query, &question)).await?,
        };
        let reply = match reply {
            Reply::Truncated => within(settings, by_tcp(server, &query, &question)).await?,
            reply => reply,
        };
        match reply {
            // A server that does not know extensions is asked once more without them.
            Reply::FormatError if is_extended => is_extended = false,
            reply => return Ok(reply),
        }
    }
}

fn random_id() -> io::Result<u16> {
    let mut bytes = [0; 2];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Error::other("the system has no random numbers"))?;
    Ok(u16::from_ne_bytes(bytes))
}

async fn within<T>(
    settings: &Settings,
    future: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    match timeout(settings.limit, future).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Error::new(ErrorKind::TimedOut, "no answer in time")),
    }
}

async fn by_udp(server: SocketAddr, query: &Query<'_>, question: &[u8]) -> io::Result<Reply> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // The kernel chooses a port at random, and passes on datagrams of this server only.
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut room = vec![0; ROOM];
    loop {
        let length = socket.recv(&mut room).await?;
        if let Some(reply) = query.decode(&room[..length]) {
            return Ok(reply);
        }
    }
}

async fn by_tcp(server: SocketAddr, query: &Query<'_>, question: &[u8]) -> io::Result<Reply> {
    let mut stream = TcpStream::connect_addr(server).await?;
    let length = u16::try_from(question.len());
    let length = length.map_err(|_| Error::from(ErrorKind::InvalidInput))?;
    let mut message = length.to_be_bytes().to_vec();
    message.extend_from_slice(question);
    let mut rest = &message[..];
    while !rest.is_empty() {
        match poll_fn(|cx| Pin::new(&mut stream).poll_write(cx, rest)).await? {
            0 => return Err(ErrorKind::WriteZero.into()),
            count => rest = &rest[count..],
        }
    }
    let mut length = [0; 2];
    read_exact(&mut stream, &mut length).await?;
    let mut answer = vec![0; u16::from_be_bytes(length).into()];
    read_exact(&mut stream, &mut answer).await?;
    let what = "the answer is not one to the question";
    let reply = query.decode(&answer).filter(|reply| *reply != Reply::Truncated);
    reply.ok_or_else(|| Error::new(ErrorKind::InvalidData, what))
}

async fn read_exact(stream: &mut TcpStream, bytes: &mut [u8]) -> io::Result<()> {
    let mut at = 0;
    while at < bytes.len() {
        match poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, &mut bytes[at..])).await? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => at += count,
        }
    }
    Ok(())
}
