//! Questions and answers of DNS (RFC 1035), in the format of the crate `simple_dns`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use simple_dns::rdata::{OPT, RData};
use simple_dns::{
    CLASS, Name, OPCODE, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, ResourceRecord, TYPE,
};
use superpoll_config::is_host_name;

/// The largest answer by UDP that is asked for: it fits into one packet on common networks.
pub(super) const UDP_SIZE: u16 = 1232;

/// The length of the header of a message.
const HEADER: usize = 12;

/// The least length of a record: the root as its name, type, class, time to live, and length.
const RECORD: usize = 11;

/// The most aliases that are followed.
const MOST_ALIASES: usize = 16;

/// A kind of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// IPv4 addresses.
    V4,
    /// IPv6 addresses.
    V6,
    /// Servers of a service.
    Service,
}

impl Kind {
    fn question(self) -> QTYPE {
        QTYPE::TYPE(match self {
            Kind::V4 => TYPE::A,
            Kind::V6 => TYPE::AAAA,
            Kind::Service => TYPE::SRV,
        })
    }
}

/// A server of a service.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Service {
    /// Servers with the lowest number come first.
    pub priority: u16,
    /// The name of the server.
    pub target: String,
    pub port: u16,
    /// The share among the servers of the same priority.
    pub weight: u16,
}

/// A record that was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Record {
    Address(IpAddr),
    Service(Service),
}

/// A question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Query<'a> {
    pub id: u16,
    pub name: &'a str,
    pub kind: Kind,
}

/// An answer to a question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    /// The records, and the seconds for which they hold.
    Records(Vec<Record>, u32),
    /// There are none, for so many seconds.
    Absent(Option<u32>),
    /// The answer does not fit into a datagram.
    Truncated,
    /// The server does not understand the question.
    FormatError,
    /// The server does not answer the question, by this code.
    Refused(String),
}

impl Query<'_> {
    /// Writes the question. An extended one allows longer answers (RFC 6891).
    ///
    /// # Errors
    ///
    /// The name cannot be one of DNS.
    pub(super) fn encode(&self, is_extended: bool) -> Result<Vec<u8>, String> {
        let bad = |error| format!("{:?} is no name of DNS: {error}", self.name);
        let name = Name::new(self.name).map_err(bad)?;
        let mut packet = Packet::new_query(self.id);
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
        let class = QCLASS::CLASS(CLASS::IN);
        packet.questions.push(Question::new(name, self.kind.question(), class, false));
        if is_extended {
            *packet.opt_mut() =
                Some(OPT { opt_codes: Vec::new(), udp_packet_size: UDP_SIZE, version: 0 });
        }
        packet.build_bytes_vec().map_err(bad)
    }

    /// Reads an answer. `None`: the bytes do not answer this question.
    pub(super) fn decode(&self, bytes: &[u8]) -> Option<Reply> {
        let (header, _) = bytes.split_first_chunk::<HEADER>()?;
        let count = |at: usize| usize::from(u16::from_be_bytes([header[at], header[at + 1]]));
        // The numbers in the header decide how much memory the parser takes.
        let records = count(6) + count(8) + count(10);
        let is_truncated = header[2] & 0x02 != 0;
        if count(4) > 1 || (records * RECORD > bytes.len() && !is_truncated) {
            return None;
        }
        // The question alone: a truncated answer may end anywhere behind it.
        let mut asked = bytes.to_vec();
        asked[6..HEADER].fill(0);
        let asked = Packet::parse(&asked).ok()?;
        let is_reply = asked.has_flags(PacketFlag::RESPONSE)
            && asked.opcode() == OPCODE::StandardQuery
            && asked.id() == self.id;
        if !is_reply {
            return None;
        }
        let name = Name::new(self.name).ok()?;
        match asked.questions.as_slice() {
            [question]
                if question.qname == name
                    && question.qtype == self.kind.question()
                    && question.qclass == QCLASS::CLASS(CLASS::IN) => {}
            // Servers that do not know extensions may repeat nothing of a question that has them.
            [] if asked.rcode() == RCODE::FormatError => return Some(Reply::FormatError),
            _ => return None,
        }
        if is_truncated {
            return Some(Reply::Truncated);
        }
        let packet = Packet::parse(bytes).ok()?;
        Some(match packet.rcode() {
            RCODE::NoError => self.records(&packet, name),
            RCODE::NameError => Reply::Absent(negative_ttl(&packet)),
            RCODE::FormatError | RCODE::BADVERS => Reply::FormatError,
            other => Reply::Refused(format!("{other:?}")),
        })
    }

    /// Collects the records of the name, or of the one that its aliases lead to.
    fn records<'p>(&self, packet: &'p Packet<'p>, mut name: Name<'p>) -> Reply {
        let of = |name: &Name<'_>, record: &&ResourceRecord<'_>| {
            record.class == CLASS::IN && record.name == *name
        };
        let mut ttl = u32::MAX;
        for _ in 0..=MOST_ALIASES {
            let mut records = Vec::new();
            let mut alias = None;
            for record in packet.answers.iter().filter(|record| of(&name, record)) {
                let found = match (&record.rdata, self.kind) {
                    (RData::A(a), Kind::V4) => {
                        Some(Record::Address(Ipv4Addr::from(a.address).into()))
                    }
                    (RData::AAAA(a), Kind::V6) => {
                        Some(Record::Address(Ipv6Addr::from(a.address).into()))
                    }
                    (RData::SRV(srv), Kind::Service) => host_name(&srv.target).map(|target| {
                        let (priority, weight, port) = (srv.priority, srv.weight, srv.port);
                        Record::Service(Service { priority, target, port, weight })
                    }),
                    (RData::CNAME(to), _) => {
                        alias = Some(to.0.clone());
                        None
                    }
                    _ => continue,
                };
                ttl = ttl.min(seconds(record.ttl));
                records.extend(found);
            }
            if !records.is_empty() {
                return Reply::Records(records, ttl);
            }
            match alias {
                Some(alias) => name = alias,
                None => return Reply::Absent(negative_ttl(packet)),
            }
        }
        Reply::Refused("too many aliases".to_owned())
    }
}

/// Returns a time to live: a negative one is zero (RFC 2181, section 8).
fn seconds(ttl: u32) -> u32 {
    if ttl > i32::MAX as u32 { 0 } else { ttl }
}

/// Returns the seconds for which the absence of records holds (RFC 2308, section 5).
fn negative_ttl(packet: &Packet<'_>) -> Option<u32> {
    let of = |record: &ResourceRecord<'_>| match &record.rdata {
        RData::SOA(soa) => Some(seconds(record.ttl).min(soa.minimum)),
        _ => None,
    };
    packet.name_servers.iter().find_map(of)
}

/// Returns the text of a name that can be a server's; the root is none.
fn host_name(name: &Name<'_>) -> Option<String> {
    let text = name.to_string().to_ascii_lowercase();
    is_host_name(&text).then_some(text)
}
