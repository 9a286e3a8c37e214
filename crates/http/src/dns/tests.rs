//! Look-ups next to a server of DNS that writes its messages by itself, and answers of all kinds.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use superpoll_rt::Runtime;

use super::message::Query;
use super::oracle::check_answer;
use super::system::{Settings, SystemFiles};
use super::*;

#[path = "../../../gateway/tests/upstream/nameserver.rs"]
mod nameserver;

use nameserver::{
    A, AAAA, Asked, FORMAT_ERROR, NO_SUCH_NAME, NameServer, Record as ZoneRecord, SERVER_FAILURE,
    SRV, a, aaaa, cname, srv,
};

const LIMIT: Duration = Duration::from_secs(30);

fn resolver(server: &NameServer) -> Resolver {
    Resolver::new(Some(vec![server.address]), Some(LIMIT), Family::Auto)
}

fn run<T: 'static>(future: impl Future<Output = T> + 'static) -> T {
    Runtime::new().unwrap().block_on(future)
}

fn addresses_by(resolver: Resolver, name: &'static str) -> Outcome<Vec<IpAddr>> {
    run(async move { resolver.addresses(name, &[]).await })
}

fn addresses(server: &NameServer, name: &'static str) -> Outcome<Vec<IpAddr>> {
    addresses_by(resolver(server), name)
}

fn found(list: &[&str], seconds: u64) -> Outcome<Vec<IpAddr>> {
    let records = list.iter().map(|text| text.parse().unwrap()).collect();
    Ok(Found::whole(records, Duration::from_secs(seconds)))
}

fn zone(records: &[ZoneRecord]) -> NameServer {
    NameServer::of_zone(Arc::new(Mutex::new(records.to_vec())))
}

#[test]
fn all_addresses_come_with_the_shortest_time_to_live() {
    let server = zone(&[
        a("app.test", 30, [10, 0, 0, 2]),
        a("App.Test", 20, [10, 0, 0, 1]),
        a("app.test", 40, [10, 0, 0, 2]),
        aaaa("app.test", 30, "fd00::1"),
        aaaa("six.test", 5, "fd00::6"),
        a("other.test", 30, [10, 0, 0, 9]),
    ]);
    assert_eq!(addresses(&server, "app.test"), found(&["10.0.0.1", "10.0.0.2"], 20));
    // A name without IPv4 addresses has those of IPv6.
    assert_eq!(addresses(&server, "six.test."), found(&["fd00::6"], 5));
    let of = |family| {
        addresses_by(Resolver::new(Some(vec![server.address]), Some(LIMIT), family), "app.test")
    };
    assert_eq!(of(Family::Ipv6), found(&["fd00::1"], 30));
    assert_eq!(of(Family::Both), found(&["10.0.0.1", "10.0.0.2", "fd00::1"], 20));
    assert_eq!(of(Family::Ipv4), found(&["10.0.0.1", "10.0.0.2"], 20));
    // The time for which an absence holds is in the record of the zone.
    let absent = Err(LookupError::Absent(Duration::from_secs(7)));
    assert_eq!(addresses(&server, "none.test"), absent);
    let only_v6 = Resolver::new(Some(vec![server.address]), Some(LIMIT), Family::Ipv6);
    assert_eq!(addresses_by(only_v6, "other.test"), absent);
}

#[test]
fn aliases_are_followed_and_nothing_else_in_an_answer_counts() {
    let server = NameServer::start(|asked| {
        let answer = match asked.name.as_str() {
            "app.test" => asked.answer(&[
                a("evil.test", 1, [6, 6, 6, 6]),
                cname("app.test", 50, "b.test"),
                a("c.test", 40, [10, 0, 0, 3]),
                cname("b.test", 30, "C.test"),
                a("app.test.evil.test", 1, [6, 6, 6, 6]),
                srv("c.test", 1, [1, 1, 1], "evil.test"),
            ]),
            "loop.test" => asked
                .answer(&[cname("loop.test", 1, "pool.test"), cname("pool.test", 1, "loop.test")]),
            _ => asked.answer(&[a("evil.test", 1, [6, 6, 6, 6])]),
        };
        vec![answer]
    });
    assert_eq!(addresses(&server, "app.test"), found(&["10.0.0.3"], 30));
    let error = addresses(&server, "loop.test").unwrap_err().to_string();
    assert!(error.ends_with("has answered too many aliases"), "{error}");
    assert!(matches!(addresses(&server, "foreign.test"), Err(LookupError::Absent(_))));
}

#[test]
fn answers_to_other_questions_are_passed_over() {
    let server = NameServer::start(|asked| {
        let good = asked.answer(&[a("app.test", 30, [10, 0, 0, 1])]);
        let evil = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = asked.answer(&[a("app.test", 30, [6, 6, 6, 6])]);
            change(&mut bytes);
            bytes
        };
        vec![
            // Another number, no answer at all, another operation, another name, type, and class.
            evil(&|bytes| bytes[1] ^= 1),
            evil(&|bytes| bytes[2] &= 0x7f),
            evil(&|bytes| bytes[2] |= 0x08),
            evil(&|bytes| bytes[13] ^= 2),
            evil(&|bytes| bytes[23] = 28),
            evil(&|bytes| bytes[25] = 3),
            // No question, more records than there is room for, and an end that is too early.
            evil(&|bytes| bytes[5] = 0),
            evil(&|bytes| bytes[6] = 255),
            evil(&|bytes| bytes.truncate(bytes.len() - 1)),
            Vec::new(),
            vec![0xff; 600],
            good,
        ]
    });
    assert_eq!(addresses(&server, "app.test"), found(&["10.0.0.1"], 30));
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn a_truncated_answer_is_asked_for_by_tcp() {
    let many: Vec<_> = (0..200).map(|last| a("app.test", 30, [10, 0, 0, last])).collect();
    let server = NameServer::start(move |asked| {
        vec![match asked.by_tcp {
            true => asked.answer(&many),
            false => asked.truncated(),
        }]
    });
    let found = addresses(&server, "app.test").unwrap();
    assert_eq!(found.records.len(), MOST_ADDRESSES);
    assert_eq!(found.records[63], IpAddr::from([10, 0, 0, 63]));
    let asked: Vec<_> = server.asked().iter().map(|asked| asked.by_tcp).collect();
    assert_eq!(asked, [false, true]);
}

#[test]
fn a_server_that_knows_no_extensions_is_asked_without_them() {
    for has_question in [true, false] {
        let server = NameServer::start(move |asked| {
            vec![match asked.is_extended {
                true => {
                    let mut bytes = asked.message(FORMAT_ERROR, 0, &[]);
                    if !has_question {
                        bytes.truncate(12);
                        bytes[4..].fill(0);
                    }
                    bytes
                }
                false => asked.answer(&[a("app.test", 30, [10, 0, 0, 1])]),
            }]
        });
        assert_eq!(addresses(&server, "app.test"), found(&["10.0.0.1"], 30));
        let asked = server.asked();
        assert_eq!(asked.len(), 2);
        // Each question has a number of its own; equal ones are one chance in 65536.
        assert!(asked[0].is_extended && !asked[1].is_extended);
    }
}

#[test]
fn the_next_server_is_asked_if_one_fails_and_failure_is_no_absence() {
    let fails = NameServer::start(|asked| vec![asked.message(SERVER_FAILURE, 0, &[])]);
    let works = zone(&[a("app.test", 30, [10, 0, 0, 1])]);
    // A socket that is connected elsewhere refuses, which the kernel reports at once, and keeps
    // others from its port.
    let elsewhere = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    elsewhere.connect(fails.address).unwrap();
    let gone = elsewhere.local_addr().unwrap();
    let servers = vec![gone, fails.address, works.address];
    let all = Resolver::new(Some(servers), Some(LIMIT), Family::Auto);
    assert_eq!(addresses_by(all, "app.test"), found(&["10.0.0.1"], 30));
    match addresses(&fails, "app.test") {
        Err(LookupError::Failed(why)) => assert!(why.contains("ServerFailure"), "{why}"),
        other => panic!("{other:?}"),
    }
    // Two attempts and one before.
    assert_eq!(fails.asked().len(), 3);
    let silent = NameServer::start(|_| Vec::new());
    let soon = Some(Duration::from_millis(20));
    let resolver = Resolver::new(Some(vec![silent.address]), soon, Family::Auto);
    match addresses_by(resolver, "app.test") {
        Err(LookupError::Failed(why)) => assert!(why.contains("no answer in time"), "{why}"),
        other => panic!("{other:?}"),
    }
    match addresses(&works, "a..b.test") {
        // Empty labels are no mistake of the library's.
        Err(LookupError::Absent(_)) => {}
        other => panic!("{other:?}"),
    }
    let long: &'static str = "x".repeat(64).leak();
    match addresses(&works, long) {
        Err(LookupError::Failed(why)) => assert!(why.contains("is no name of DNS"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn known_addresses_stand_in_for_a_family_that_fails() {
    let server = NameServer::start(|asked| {
        let fails = asked.name == "none.test" || asked.kind == AAAA;
        vec![match asked.name.as_str() {
            _ if fails => asked.message(SERVER_FAILURE, 0, &[]),
            "six.test" => asked.answer(&[]),
            _ => asked.answer(&[a("app.test", 30, [10, 0, 0, 1])]),
        }]
    });
    let of = |name: &'static str, known: &[&str]| {
        let known: Vec<IpAddr> = known.iter().map(|text| text.parse().unwrap()).collect();
        let both = Resolver::new(Some(vec![server.address]), Some(LIMIT), Family::Both);
        run(async move { both.addresses(name, &known).await })
    };
    // The time to live is that of the family that has answered, and the failure is told.
    let part = |list: &[&str], seconds| {
        let found = found(list, seconds).unwrap();
        let failed = Some(format!("{} has answered ServerFailure", server.address));
        Ok(Found { failed, ..found })
    };
    let known = ["10.0.0.7", "fd00::7"];
    assert_eq!(of("app.test", &known), part(&["10.0.0.1", "fd00::7"], 30));
    assert_eq!(of("app.test", &[]), part(&["10.0.0.1"], 30));
    assert_eq!(of("six.test", &known), part(&["fd00::7"], 7));
    // Without any answer, and without an address, the look-up has failed as a whole.
    for (name, known) in [("none.test", &known[..]), ("six.test", &known[..1])] {
        assert!(matches!(of(name, known), Err(LookupError::Failed(_))), "{name}");
    }
}

#[test]
fn services_have_priorities_weights_and_ports() {
    let server = zone(&[
        srv("_http._tcp.test", 30, [20, 1, 8080], "b.test"),
        srv("_http._tcp.test", 25, [10, 5, 80], "A.test"),
        srv("_none._tcp.test", 30, [0, 0, 0], ""),
    ]);
    let services = |name: &'static str| {
        let resolver = resolver(&server);
        run(async move { resolver.services(name).await })
    };
    let one = |priority, target: &str, port, weight| Service {
        priority,
        target: target.to_owned(),
        port,
        weight,
    };
    let records = vec![one(10, "a.test", 80, 5), one(20, "b.test", 8080, 1)];
    let expected = Found::whole(records, Duration::from_secs(25));
    assert_eq!(services("_http._tcp.test"), Ok(expected));
    assert!(matches!(services("_none._tcp.test"), Err(LookupError::Absent(_))));
    assert!(matches!(services("_other._tcp.test"), Err(LookupError::Absent(_))));
}

#[test]
fn the_files_of_the_system_are_read_as_the_c_library_reads_them() {
    let text = "# comment\nnameserver 10.0.0.1 # first\nnameserver bad\nnameserver fd00::53\n\
                domain ignored.test\nsearch a.test. b.test\nnameserver 10.0.0.4\nnameserver 10.0.0.5\n\
                options ndots:2 timeout:99 attempts:0 rotate what:ever use-vc\nsortlist x\n\u{0}";
    let settings = Settings::parse(text);
    let servers: Vec<_> = settings.servers.iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["10.0.0.1:53", "[fd00::53]:53", "10.0.0.4:53"]);
    assert_eq!((settings.limit.as_secs(), settings.attempts, settings.only_tcp), (30, 1, true));
    assert_eq!(settings.candidates("x.y"), ["x.y.a.test", "x.y.b.test", "x.y"]);
    assert_eq!(settings.candidates("x.y.z"), ["x.y.z", "x.y.z.a.test", "x.y.z.b.test"]);
    assert_eq!(settings.candidates("x."), ["x"]);
    let empty = Settings::parse("");
    assert_eq!(empty.servers, ["127.0.0.1:53".parse().unwrap()]);
    assert_eq!((empty.limit.as_secs(), empty.attempts, empty.only_tcp), (5, 2, false));
    assert_eq!(empty.candidates("x"), ["x"]);
    let link = Settings::parse("nameserver fe80::1%3\nnameserver fe80::1%eth0");
    assert_eq!(link.servers, ["[fe80::1%3]:53".parse().unwrap()]);
}

/// A resolver of a system whose files are ours.
fn of_system(folder: &std::path::Path, hosts: &str) -> Resolver {
    let files =
        SystemFiles { resolv_conf: folder.join("resolv.conf"), hosts: folder.join("hosts") };
    // No server of DNS is there at port 9; the port is not part of the file's format.
    std::fs::write(&files.resolv_conf, "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        .unwrap();
    std::fs::write(&files.hosts, hosts).unwrap();
    Resolver { servers: None, limit: Some(LIMIT), family: Family::Auto, files }
}

#[test]
fn the_file_of_hosts_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = "10.1.1.1 one App.Local # app.local\nfd00::5 app.local\n# 10.9.9.9 app.local\n\
                 nonsense app.local\n10.1.1.2\tapp.local\n";
    let of = |name| addresses_by(of_system(folder.path(), hosts), name);
    assert_eq!(of("app.local"), found(&["10.1.1.1", "10.1.1.2"], 10));
    assert_eq!(of("ONE."), found(&["10.1.1.1"], 10));
    let six = Resolver { family: Family::Ipv6, ..of_system(folder.path(), hosts) };
    assert_eq!(addresses_by(six, "app.local"), found(&["fd00::5"], 10));
    // Servers that are given know names without the file.
    let server = zone(&[]);
    let given = Resolver { servers: Some(vec![server.address]), ..of_system(folder.path(), hosts) };
    assert!(matches!(addresses_by(given, "app.local"), Err(LookupError::Absent(_))));
}

#[test]
fn a_domain_of_the_search_list_that_fails_hides_no_name() {
    let zone =
        [a("db.app.test", 30, [10, 0, 0, 1]), srv("_x._tcp.app.test", 30, [1, 1, 80], "db.test")];
    let server = NameServer::start(move |asked| match asked.name.ends_with("broken.test") {
        true => vec![asked.message(SERVER_FAILURE, 0, &[])],
        false => vec![asked.answer_of(&zone)],
    });
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &'static str| {
        let mut settings = Settings::parse("search broken.test\noptions ndots:5 attempts:1");
        settings.servers = vec![server.address];
        let resolver = of_system(folder.path(), "");
        run(async move { resolver.addresses_by(&settings, name, &[]).await })
    };
    assert_eq!(of("db.app.test"), found(&["10.0.0.1"], 30));
    // Where nothing is found, the failure counts: the name may be there.
    assert!(matches!(of("none.invalid"), Err(LookupError::Failed(_))));
    let services = {
        let mut settings = Settings::parse("search broken.test\noptions ndots:5 attempts:1");
        settings.servers = vec![server.address];
        run(async move { services_by(&settings, "_x._tcp.app.test").await })
    };
    assert_eq!(services.unwrap().records.len(), 1);
}

fn asked(kind: u16) -> Asked {
    let query = Query { id: 7, name: "app.test", kind: kind_of(kind) };
    let bytes = query.encode(true).unwrap();
    Asked::parse(&bytes, false).unwrap()
}

fn kind_of(kind: u16) -> Kind {
    match kind {
        A => Kind::V4,
        AAAA => Kind::V6,
        _ => Kind::Service,
    }
}

/// The records that an answer has for a name, by a reader that is as simple as can be.
fn model(records: &[ZoneRecord], kind: u16) -> Vec<(u16, Vec<u8>)> {
    let mut name = "app.test".to_owned();
    for _ in 0..=16 {
        let of: Vec<_> = records.iter().filter(|record| record.0 == name).collect();
        let found: Vec<_> = of.iter().filter(|record| record.1 == kind).collect();
        if !found.is_empty() {
            return found.iter().map(|record| (record.1, record.3.clone())).collect();
        }
        let Some(alias) = of.iter().rev().find(|record| record.1 == nameserver::CNAME) else {
            return Vec::new();
        };
        name = read_name(&alias.3);
    }
    Vec::new()
}

fn read_name(mut bytes: &[u8]) -> String {
    let mut labels = Vec::new();
    while let [length, rest @ ..] = bytes
        && *length > 0
    {
        let (label, after) = rest.split_at(usize::from(*length));
        labels.push(String::from_utf8(label.to_vec()).unwrap());
        bytes = after;
    }
    labels.join(".")
}

fn data(record: &Record) -> (u16, Vec<u8>) {
    match record {
        Record::Address(IpAddr::V4(address)) => (A, address.octets().to_vec()),
        Record::Address(IpAddr::V6(address)) => (AAAA, address.octets().to_vec()),
        Record::Service(service) => {
            let numbers = [service.priority, service.weight, service.port];
            (SRV, srv("", 0, numbers, &service.target).3)
        }
    }
}

proptest! {
    #[test]
    fn answers_have_the_records_that_a_model_finds(
        picks in proptest::collection::vec((0..4_usize, 0..4_usize, 0..4_usize, 0..100_u32), 0..24),
        kind in prop_oneof![Just(A), Just(AAAA), Just(SRV)],
    ) {
        let names = ["app.test", "b.test", "c.test", "d.test"];
        let records: Vec<_> = picks
            .iter()
            .map(|&(owner, form, to, ttl)| {
                let (owner, number) = (names[owner], u8::try_from(to).unwrap());
                match form {
                    0 => a(owner, ttl, [10, 0, 0, number]),
                    1 => aaaa(owner, ttl, &format!("fd00::{number}")),
                    2 => cname(owner, ttl, names[to]),
                    _ => srv(owner, ttl, [number.into(), 1, 80], names[to]),
                }
            })
            .collect();
        let query = Query { id: 7, name: "app.test", kind: kind_of(kind) };
        let bytes = asked(kind).answer(&records);
        let expected = model(&records, kind);
        match query.decode(&bytes) {
            Some(Reply::Records(found, ttl)) => {
                prop_assert_eq!(found.iter().map(data).collect::<Vec<_>>(), expected);
                prop_assert!(ttl < 100);
            }
            Some(Reply::Absent(_) | Reply::Refused(_)) => {
                prop_assert!(expected.is_empty(), "{expected:?}");
            }
            other => prop_assert!(false, "{other:?}"),
        }
        // A message that is cut off is no answer, and one with another number neither.
        for end in 0..bytes.len() {
            prop_assert_eq!(query.decode(&bytes[..end]), None);
        }
        let other = Query { id: 8, ..query };
        prop_assert_eq!(other.decode(&bytes), None);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
        flips in proptest::collection::vec((0..200_usize, any::<u8>()), 0..6),
        is_good in any::<bool>(),
    ) {
        if is_good {
            bytes = asked(A).answer(&[
                cname("app.test", 1, "b.test"),
                a("b.test", 1, [1, 2, 3, 4]),
                srv("b.test", 1, [1, 2, 3], "c.test"),
            ]);
        }
        for (at, by) in flips {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= by;
            }
        }
        for form in 0..3 {
            check_answer(&bytes, form);
        }
        // Behind a question that is right, whatever the records are.
        for form in 4..7 {
            check_answer(&bytes, form);
            check_answer(&bytes[bytes.len().min(26)..], form);
        }
    }

    #[test]
    fn records_behind_a_question_count_within_their_bounds(
        records in proptest::collection::vec((0..4_usize, 0..6_usize, any::<u32>(), any::<u8>()), 0..15),
        flips in proptest::collection::vec((0..400_usize, any::<u8>()), 0..3),
    ) {
        let names = ["app.test", "b.test", "x", "*.test"];
        for (form, kind) in [(4, A), (5, AAAA), (6, SRV)] {
            let records: Vec<_> = records
                .iter()
                .map(|&(owner, of, ttl, number)| match of {
                    0 => cname(names[owner], ttl, names[usize::from(number) % 4]),
                    1 | 2 => a(names[owner], ttl, [10, 0, 0, number]),
                    3 => aaaa(names[owner], ttl, &format!("fd00::{number:x}")),
                    _ => srv(names[owner], ttl, [1, number.into(), 80], names[usize::from(number) % 4]),
                })
                .collect();
            let message = asked(kind).answer(&records);
            // The header and the question are those of the check.
            let count = u8::try_from(records.len()).unwrap();
            let mut bytes = vec![count];
            bytes.extend_from_slice(&message[26..]);
            let answers = check_answer(&bytes, form);
            prop_assert!(answers || records.is_empty(), "{records:?}");
            for &(at, by) in &flips {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= by;
                }
            }
            check_answer(&bytes, form);
        }
    }

    #[test]
    fn settings_of_any_text_have_servers_and_bounds(text in "(nameserver |search |options |[a-z0-9.:# \n]{1,12}){0,40}") {
        let settings = Settings::parse(&text);
        prop_assert!((1..=3).contains(&settings.servers.len()));
        prop_assert!((1..=5).contains(&settings.attempts));
        let names = settings.candidates("app");
        prop_assert!(names.contains(&"app".to_owned()) && names.len() <= 33);
        let _ = settings.hosts("app");
    }
}

#[test]
fn an_answer_that_there_is_no_such_name_may_have_no_time() {
    let query = Query { id: 7, name: "app.test", kind: Kind::V4 };
    let bytes = asked(A).message(NO_SUCH_NAME, 0, &[a("b.test", 1, [1, 1, 1, 1])]);
    assert_eq!(query.decode(&bytes), Some(Reply::Absent(None)));
    // A time that would be negative is none (RFC 2181).
    let bytes = asked(A).answer(&[a("app.test", 1 << 31, [1, 1, 1, 1])]);
    assert!(matches!(query.decode(&bytes), Some(Reply::Records(_, 0))));
}
