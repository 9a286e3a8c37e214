//! A server of DNS for tests, by UDP and TCP on one port, that writes its messages by itself.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

pub(crate) const A: u16 = 1;
pub(crate) const CNAME: u16 = 5;
pub(crate) const SOA: u16 = 6;
pub(crate) const AAAA: u16 = 28;
pub(crate) const SRV: u16 = 33;

pub(crate) const FORMAT_ERROR: u8 = 1;
pub(crate) const SERVER_FAILURE: u8 = 2;
pub(crate) const NO_SUCH_NAME: u8 = 3;

/// A record: its name, type, time to live, and data.
pub(crate) type Record = (String, u16, u32, Vec<u8>);

/// A question, and the way by which it has come.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub id: u16,
    pub name: String,
    pub kind: u16,
    pub by_tcp: bool,
    pub is_extended: bool,
    question: Vec<u8>,
}

/// Writes a name.
pub(crate) fn name(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for label in text.split('.').filter(|label| !label.is_empty()) {
        out.push(u8::try_from(label.len()).unwrap());
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    out
}

pub(crate) fn a(owner: &str, ttl: u32, address: [u8; 4]) -> Record {
    (owner.to_owned(), A, ttl, Ipv4Addr::from(address).octets().to_vec())
}

pub(crate) fn aaaa(owner: &str, ttl: u32, address: &str) -> Record {
    let address: Ipv6Addr = address.parse().unwrap();
    (owner.to_owned(), AAAA, ttl, address.octets().to_vec())
}

pub(crate) fn cname(owner: &str, ttl: u32, to: &str) -> Record {
    (owner.to_owned(), CNAME, ttl, name(to))
}

pub(crate) fn srv(owner: &str, ttl: u32, numbers: [u16; 3], target: &str) -> Record {
    let mut data: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
    data.extend(name(target));
    (owner.to_owned(), SRV, ttl, data)
}

impl Asked {
    /// Reads a question.
    pub(crate) fn parse(bytes: &[u8], by_tcp: bool) -> Option<Asked> {
        let id = u16::from_be_bytes([*bytes.first()?, *bytes.get(1)?]);
        let mut labels = Vec::new();
        let mut at = 12;
        loop {
            let length = usize::from(*bytes.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            labels.push(String::from_utf8_lossy(bytes.get(at..at + length)?).into_owned());
            at += length;
        }
        let kind = u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]);
        let is_extended = *bytes.get(11)? > 0;
        let question = bytes.get(12..at + 4)?.to_vec();
        Some(Asked { id, name: labels.join("."), kind, by_tcp, is_extended, question })
    }

    /// Writes an answer with a code and records; `flags` are added to those of an answer.
    pub(crate) fn message(&self, code: u8, flags: u16, answers: &[Record]) -> Vec<u8> {
        let mut out = self.id.to_be_bytes().to_vec();
        out.extend((0x8180 | flags | u16::from(code)).to_be_bytes());
        let authority = u16::from(answers.is_empty() && flags == 0);
        for count in [1, u16::try_from(answers.len()).unwrap(), authority, 0] {
            out.extend(count.to_be_bytes());
        }
        out.extend_from_slice(&self.question);
        let mut record = |(owner, kind, ttl, data): &Record| {
            out.extend(name(owner));
            out.extend(kind.to_be_bytes());
            out.extend(1_u16.to_be_bytes());
            out.extend(ttl.to_be_bytes());
            out.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
            out.extend_from_slice(data);
        };
        answers.iter().for_each(&mut record);
        if authority > 0 {
            let mut soa = [name("ns.test"), name("admin.test")].concat();
            for number in [1_u32, 60, 60, 60, 7] {
                soa.extend(number.to_be_bytes());
            }
            record(&("test".to_owned(), SOA, 9, soa));
        }
        out
    }

    /// Writes a plain answer.
    pub(crate) fn answer(&self, answers: &[Record]) -> Vec<u8> {
        self.message(0, 0, answers)
    }

    /// Writes an answer that is too long for a datagram.
    pub(crate) fn truncated(&self) -> Vec<u8> {
        self.message(0, 0x0200, &[])
    }

    /// Writes an answer with those of the records that were asked for, or that there is no such
    /// name.
    pub(crate) fn answer_of(&self, zone: &[Record]) -> Vec<u8> {
        let is_name = |record: &&Record| record.0.eq_ignore_ascii_case(&self.name);
        let of: Vec<_> =
            zone.iter().filter(is_name).filter(|record| record.1 == self.kind).cloned().collect();
        match zone.iter().any(|record| is_name(&record)) {
            true => self.answer(&of),
            false => self.message(NO_SUCH_NAME, 0, &[]),
        }
    }
}

/// A server of DNS.
pub(crate) struct NameServer {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    ended: Arc<AtomicBool>,
}

impl NameServer {
    /// Starts a server that answers each question with some messages.
    pub(crate) fn start(
        answer: impl Fn(&Asked) -> Vec<Vec<u8>> + Send + Sync + 'static,
    ) -> NameServer {
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
            // The port may be taken for TCP.
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()) {
                break (udp, tcp);
            }
        };
        let address = udp.local_addr().unwrap();
        let (asked, ended): (Arc<Mutex<Vec<Asked>>>, Arc<AtomicBool>) = Default::default();
        let server = NameServer { address, asked: asked.clone(), ended: ended.clone() };
        let answer = Arc::new(answer);
        let (also, also_asked, also_ended) = (answer.clone(), asked.clone(), ended.clone());
        thread::spawn(move || {
            let mut room = [0; 2048];
            while let Ok((length, from)) = udp.recv_from(&mut room) {
                if also_ended.load(Ordering::SeqCst) {
                    return;
                }
                let Some(question) = Asked::parse(&room[..length], false) else { continue };
                also_asked.lock().unwrap().push(question.clone());
                for message in also(&question) {
                    let _ = udp.send_to(&message, from);
                }
            }
        });
        thread::spawn(move || {
            while let Ok((mut stream, _)) = tcp.accept() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let mut length = [0; 2];
                let _ = stream.read_exact(&mut length);
                let mut room = vec![0; u16::from_be_bytes(length).into()];
                let _ = stream.read_exact(&mut room);
                let Some(question) = Asked::parse(&room, true) else { continue };
                asked.lock().unwrap().push(question.clone());
                for message in answer(&question) {
                    let length = u16::try_from(message.len()).unwrap();
                    let _ = stream.write_all(&length.to_be_bytes());
                    let _ = stream.write_all(&message);
                }
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
        server
    }

    /// Starts a server of some records, which may change.
    pub(crate) fn of_zone(zone: Arc<Mutex<Vec<Record>>>) -> NameServer {
        NameServer::start(move |asked| vec![asked.answer_of(&zone.lock().unwrap())])
    }

    /// Returns the questions so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let _ = UdpSocket::bind("127.0.0.1:0").and_then(|udp| udp.send_to(&[0], self.address));
        let _ = TcpStream::connect(self.address);
    }
}
