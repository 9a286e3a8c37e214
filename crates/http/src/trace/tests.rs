//! Ids, traces and `Via` against simple models, and the two ways against each other.

use std::net::IpAddr;
use std::rc::Rc;

use http::{HeaderMap, HeaderName, HeaderValue, Version};
use proptest::prelude::*;
use superpoll_config::Config;

use super::context::TraceContext;
use super::request_id::{self, LONGEST};
use super::via::Via;
use super::{RequestTrace, TraceRules};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn rules(tracing: &str) -> Rc<TraceRules> {
    let text =
        format!("[[listeners]]\naddress = \":1\"\nrelay = {{ to = \":2\" }}\n[tracing]\n{tracing}");
    let config = Config::parse("test", &text).unwrap_or_else(|error| panic!("{error}"));
    TraceRules::new(&config.tracing)
}

type Fields = Vec<(String, Vec<u8>)>;

fn begin(rules: &Rc<TraceRules>, client: &str, fields: &Fields) -> Rc<RequestTrace> {
    let client: IpAddr = client.parse().unwrap();
    rules.begin(Some(client), Version::HTTP_11, (&map(fields)).into())
}

fn one(name: &str, value: &str) -> Fields {
    vec![(name.to_owned(), value.as_bytes().to_vec())]
}

fn map(fields: &Fields) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, HeaderValue::from_bytes(value).unwrap());
    }
    headers
}

/// The fields of the forwarded request.
fn forwarded_map(trace: &RequestTrace, fields: &Fields) -> HeaderMap {
    let mut headers = map(fields);
    let passes = |name: &&HeaderName| trace.passes(name.as_str().as_bytes());
    let gone: Vec<HeaderName> = headers.keys().filter(|name| !passes(name)).cloned().collect();
    gone.iter().for_each(|name| drop(headers.remove(name)));
    trace.forwarded(|name, value| _ = headers.append(name, value.clone()));
    headers
}

/// The values of a field of the forwarded request.
fn forwarded(trace: &RequestTrace, fields: &Fields, name: &str) -> Vec<String> {
    let headers = forwarded_map(trace, fields);
    let values = headers.get_all(name).into_iter();
    values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
}

fn is_new(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[test]
fn an_id_is_chosen_by_trusted_clients_only() {
    let trusting = rules("request_id = { trust = [\"10.0.0.0/8\", \"::1\"] }");
    for (client, is_kept) in [
        ("10.1.2.3", true),
        ("::ffff:10.1.2.3", true),
        ("::1", true),
        ("11.1.2.3", false),
        ("::2", false),
    ] {
        for name in ["x-request-id", "X-Request-ID"] {
            let fields = one(name, "mine-1");
            let trace = begin(&trusting, client, &fields);
            let id = trace.id().unwrap();
            assert_eq!(id == "mine-1", is_kept, "{client} {id}");
            assert!(is_kept || is_new(&id), "{id}");
            assert_eq!(forwarded(&trace, &fields, "x-request-id").join("|"), id);
            // A route that trusts the proxy in front takes the id on.
            trace.believe();
            assert_eq!(trace.id().as_deref(), Some("mine-1"));
        }
    }
    // A field under another name that some servers take for it goes, too.
    let fields = one("x_request_id", "mine-1");
    let trace = begin(&rules("request_id = true"), "10.1.2.3", &fields);
    trace.believe();
    assert!(is_new(&trace.id().unwrap()));
    assert_eq!(forwarded(&trace, &fields, "x_request_id"), Vec::<String>::new());
    let own = rules("request_id = { field = \"My_Id\", trust = [\"0.0.0.0/0\"] }");
    let fields = [one("my-id", "a"), one("my_id", "b")].concat();
    let trace = begin(&own, "10.1.2.3", &fields);
    assert_eq!(forwarded(&trace, &fields, "my_id"), ["b"]);
    assert_eq!(forwarded(&trace, &fields, "my-id"), Vec::<String>::new());
}

#[test]
fn an_id_that_could_harm_a_log_or_a_head_is_replaced() {
    let rules = rules("request_id = { trust = [\"0.0.0.0/0\"] }");
    let longest = "a".repeat(LONGEST);
    for good in
        ["a", "Root=1-67891233-abcdef012345678912345678", "018f:a.b_c~d/e+f=@", longest.as_str()]
    {
        assert_eq!(begin(&rules, "1.2.3.4", &one("x-request-id", good)).id().unwrap(), good);
    }
    let too_long = "a".repeat(LONGEST + 1);
    for bad in [
        "", "a b", "a\"b", "a\\b", "a\tb", "a,b", "a;b", "\u{e4}", "{a}", "<a>", "a'b", "$a",
        &*too_long,
    ] {
        let trace = begin(&rules, "1.2.3.4", &one("x-request-id", bad));
        trace.believe();
        let id = trace.id().unwrap();
        assert!(is_new(&id), "{bad:?} {id}");
    }
    let twice = [one("x-request-id", "a"), one("x-request-id", "b")].concat();
    assert!(is_new(&begin(&rules, "1.2.3.4", &twice).id().unwrap()));
}

#[test]
fn no_two_requests_have_the_same_new_id_or_trace() {
    let rules = rules("request_id = true\ntrace = true");
    let mut seen = std::collections::HashSet::new();
    let other = || {
        let rules = self::rules("request_id = true\ntrace = true");
        let new = || begin(&rules, "1.2.3.4", &Fields::new());
        let ids = |trace: Rc<RequestTrace>| [trace.id().unwrap(), trace.trace_id().unwrap()];
        (0..1000).map(|_| ids(new())).collect::<Vec<_>>()
    };
    let engine = std::thread::spawn(other);
    for _ in 0..1000 {
        let trace = begin(&rules, "1.2.3.4", &Fields::new());
        assert!(seen.insert(trace.id().unwrap()));
        assert!(seen.insert(trace.trace_id().unwrap()));
    }
    for id in engine.join().unwrap().concat() {
        assert!(is_new(&id) && seen.insert(id));
    }
}

#[test]
fn a_request_that_waits_keeps_as_little_as_documented() {
    // Two ids, each with the count of its owners, and the counts of this.
    let most = size_of::<RequestTrace>() + 2 * (LONGEST + 32) + 2 * size_of::<usize>();
    assert!(most <= 512, "{most}");
}

#[test]
fn a_valid_trace_goes_on_and_any_other_begins_anew() {
    let rules = rules("trace = true");
    let state = one("tracestate", "vendor=1");
    let sent = |parent: &[&str]| {
        let parents = parent.iter().flat_map(|value| one("traceparent", value));
        let fields: Fields = parents.chain(state.clone()).collect();
        let trace = begin(&rules, "1.2.3.4", &fields);
        let parents = forwarded(&trace, &fields, "traceparent");
        assert_eq!(parents.len(), 1, "{parents:?}");
        assert_eq!(parents[0][3..35], trace.trace_id().unwrap());
        (parents[0].clone(), forwarded(&trace, &fields, "tracestate"))
    };
    for (good, flags) in [
        (PARENT.to_owned(), "01"),
        (PARENT.replace("-01", "-00"), "00"),
        (PARENT.replace("-01", "-03"), "03"),
        // Flags without a meaning are sent as 0, and later versions as 00.
        (PARENT.replace("-01", "-ff"), "03"),
        (PARENT.replacen("00-", "cc-", 1), "01"),
        (format!("{}-more", PARENT.replacen("00-", "cc-", 1)), "01"),
    ] {
        let (parent, kept) = sent(&[&good]);
        assert_eq!(kept, ["vendor=1"], "{good}");
        assert_eq!((&parent[..36], &parent[53..]), (&*format!("00-{}-", &good[3..35]), flags));
        assert_ne!(parent[36..52], good[36..52], "the parent is this server");
    }
    for bad in [
        "",
        "00",
        &PARENT[..54],
        &format!("{PARENT}-"),
        &format!("{PARENT}-more"),
        &format!("{PARENT}0"),
        &format!("{}0", PARENT.replacen("00-", "cc-", 1)),
        &PARENT.replacen("00-", "ff-", 1),
        &PARENT.to_uppercase(),
        &PARENT.replace("4bf9", "4bF9"),
        &PARENT.replace("4bf9", "4bg9"),
        &PARENT.replace('-', "_"),
        &PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "00000000000000000000000000000000"),
        &PARENT.replace("00f067aa0ba902b7", "0000000000000000"),
        &format!("{PARENT}, {PARENT}"),
        " 0-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x",
    ] {
        let (parent, kept) = sent(&[bad]);
        assert_eq!(kept, Vec::<String>::new(), "{bad}");
        assert!(!parent.contains("4bf92f3577b34da6"), "{bad}");
        assert!(parent.starts_with("00-") && parent.ends_with("-01"), "{parent}");
    }
    for many in [&[][..], &[PARENT, PARENT]] {
        let (parent, kept) = sent(many);
        assert_eq!(kept, Vec::<String>::new());
        assert!(!parent.contains("4bf92f3577b34da6"));
    }
}

#[test]
fn traces_of_some_clients_go_on() {
    let rules = rules("trace = { trust = [\"10.0.0.0/8\"] }");
    let fields = [one("traceparent", PARENT), one("tracestate", "a=b")].concat();
    for (client, goes_on) in [("10.1.2.3", true), ("11.1.2.3", false)] {
        let trace = begin(&rules, client, &fields);
        assert_eq!(trace.trace_id().unwrap() == PARENT[3..35], goes_on, "{client}");
        assert_eq!(forwarded(&trace, &fields, "tracestate").len(), usize::from(goes_on));
    }
}

#[test]
fn as_many_traces_are_recorded_as_configured() {
    let recorded = |sample: u8| {
        let flags = (0..10_000).map(|_| TraceContext::new(sample).unwrap().to_string());
        flags.filter(|text| text.ends_with("-01")).count()
    };
    assert_eq!(recorded(100), 10_000);
    // Five thousand, and more than ten times the deviation to each side.
    let half = recorded(50);
    assert!((4_400..5_600).contains(&half), "{half}");
    let few = recorded(1);
    assert!((1..300).contains(&few), "{few}");
}

#[test]
fn a_server_is_found_by_its_whole_name() {
    let via = Via::new("edge.example:80");
    let is_in = |values: &[&str]| via.is_in(values.iter().map(|value| value.as_bytes()));
    for there in [
        &["1.1 edge.example:80"][..],
        &["HTTP/1.1 edge.example:80"],
        &["1.0 a, 1.1\tEdge.Example:80  (some, words)"],
        &["1.0 a", "2.0 b,1.1   edge.example:80"],
        &["1.1 a (1.1 b, (c) \\) d), 1.1 edge.example:80,"],
        &[",, 1.1 edge.example:80(x)"],
        // A comment without an end hides nothing.
        &["1.1 a (, 1.1 edge.example:80"],
    ] {
        assert!(is_in(there), "{there:?}");
    }
    for elsewhere in [
        &[][..],
        &[""],
        &["1.1 edge.example"],
        &["1.1 edge.example:8080"],
        &["1.1 an-edge.example:80"],
        &["1.1 edge.example:80.org"],
        &["edge.example:80"],
        &["edge.example:80 a"],
        &["1.1 a edge.example:80"],
        &["1.1 a (, 1.1 edge.example:80)"],
        &["1.1 a (\\), 1.1 edge.example:80)"],
        &["1.1 edge", ".example:80"],
    ] {
        assert!(!is_in(elsewhere), "{elsewhere:?}");
    }
}

fn a_field() -> impl Strategy<Value = (String, Vec<u8>)> {
    let name = prop::sample::select(vec![
        "x-request-id",
        "X-Request-Id",
        "traceparent",
        "Traceparent",
        "tracestate",
        "via",
        "x-other",
        "x-request-idx",
    ]);
    let value = prop_oneof![
        Just(PARENT.to_owned()),
        Just("a=b,c=d".to_owned()),
        Just("1.1 gate, 1.0 b (c)".to_owned()),
        "[0-9a-f-]{0,60}",
        "[ -~]{0,40}",
    ];
    (name, value).prop_map(|(name, value)| (name.to_owned(), value.trim().as_bytes().to_vec()))
}

/// The fields of a map, in an order that does not depend on that of different names.
fn sorted(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
        .collect();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

fn pair(name: &HeaderName, value: &HeaderValue) -> (String, Vec<u8>) {
    (name.as_str().to_owned(), value.as_bytes().to_vec())
}

proptest! {
    /// Lines are left out and appended to the effect that a map is changed.
    #[test]
    fn both_ways_make_the_same_changes(
        fields in prop::collection::vec(a_field(), 0..6),
        tracing in prop::sample::select(vec![
            "request_id = true",
            "request_id = { respond = false, trust = [\"1.2.3.4\"] }",
            "trace = true",
            "via = \"gate\"",
            "request_id = { trust = [\"1.2.3.4\"] }\ntrace = { sample = \"50%\" }\nvia = \"gate\"",
        ]),
        believes in any::<bool>(),
    ) {
        let rules = rules(tracing);
        let trace = begin(&rules, "1.2.3.4", &fields);
        if believes {
            trace.believe();
        }
        // Each of these is there once, whatever has arrived.
        for (name, is_ours) in [("x-request-id", "request_id"), ("traceparent", "trace")] {
            if tracing.contains(&format!("{is_ours} =")) {
                prop_assert_eq!(forwarded(&trace, &fields, name).len(), 1);
            }
        }
        let lower = |name: &str| name.to_ascii_lowercase();
        let mut marked = map(&fields);
        trace.mark(&mut marked);
        trace.add_via(Version::HTTP_11, &mut marked);
        let passed = fields.iter().filter(|(name, _)| !trace.replaces(lower(name).as_bytes()));
        let mut by_lane: Fields = passed.cloned().collect();
        trace.via_of_response(Version::HTTP_11, |name, value| by_lane.push(pair(name, value)));
        trace.mark_of_response(|name, value| by_lane.push(pair(name, value)));
        prop_assert_eq!(sorted(&marked), sorted(&map(&by_lane)));
    }

    /// An id that is kept is the one that the client has sent, and harmless.
    #[test]
    fn an_id_is_harmless(value in prop::collection::vec(any::<u8>(), 0..140)) {
        match request_id::valid([&value[..]].into_iter()) {
            None => {}
            Some(id) => {
                prop_assert_eq!(id.as_bytes(), &value[..]);
                prop_assert!(value.len() <= LONGEST && !value.is_empty());
                prop_assert!(value.iter().all(|byte| byte.is_ascii_graphic()));
                let unsafe_bytes = b"\"\\',;<>{}()[]$&|`*?!#%^";
                prop_assert!(!value.iter().any(|byte| unsafe_bytes.contains(byte)));
            }
        }
    }

    /// A model that takes the field apart at its hyphens.
    #[test]
    fn a_trace_is_read_as_by_a_model(
        parts in prop::collection::vec("[0-9a-fA-Fg]{0,3}|[0-9a-f]{2}|[0-9a-f]{16}|[0-9a-f]{32}|0{32}|0{16}|ff", 0..6),
    ) {
        let value = parts.join("-");
        let is_hex = |text: &str, length: usize| {
            text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let is_valid = match &parts[..] {
            [version, trace, parent, flags, rest @ ..] => {
                is_hex(version, 2) && version != "ff" && is_hex(trace, 32) && is_hex(parent, 16)
                    && is_hex(flags, 2)
                    && trace.bytes().any(|byte| byte != b'0')
                    && parent.bytes().any(|byte| byte != b'0')
                    && (rest.is_empty() || version != "00")
            }
            _ => false,
        };
        let read = TraceContext::parse([value.as_bytes()].into_iter());
        prop_assert_eq!(read.is_some(), is_valid, "{}", value);
        if let Some(read) = read {
            prop_assert_eq!(read.trace_id(), &parts[1][..]);
        }
    }

    /// A list made of servers, with comments in between, has exactly those servers.
    #[test]
    fn via_is_read_as_it_was_written(
        servers in prop::collection::vec(("1\\.[01]|2|HTTP/1\\.1", "[a-c]{1,3}", "| \\([a-c, ]{0,4}\\)| \\(x, 1\\.1 [a-c]{1,3} y\\)"), 0..5),
        name in "[a-c]{1,3}",
    ) {
        let texts: Vec<String> = servers
            .iter()
            .map(|(version, name, comment)| format!("{version} {name}{comment}"))
            .collect();
        let is_there = servers.iter().any(|(_, known, _)| *known == name);
        let via = Via::new(&name);
        prop_assert_eq!(via.is_in([texts.join(", ").as_bytes()].into_iter()), is_there);
        prop_assert_eq!(via.is_in(texts.iter().map(|text| text.as_bytes())), is_there);
    }
}
