//! Lists of servers next to a model, and services whose targets are known in part.

use proptest::prelude::*;
use superpoll_config::Config;

use super::*;
use crate::upstream::group::tests::choose;

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

fn found(ip: u8, origin: &str, weight: u32, level: u32) -> Found {
    Found {
        address: address(&format!("10.0.0.{ip}:80")),
        origin: Some(address(origin)),
        weight,
        level,
    }
}

/// A group with two names and a server between them that is always there.
fn group() -> Arc<Group> {
    let servers = ["a.test:80", "10.0.0.3:80", "b.test:80"]
        .map(|server| format!("{{ address = \"{server}\" }}"))
        .join(", ");
    let text = format!(
        "[[listeners]]\naddress = \":1\"\nrelay = {{ to = \":2\" }}\n[upstreams.a]\nservers = [{servers}]\n"
    );
    let config = Config::parse("test", &text).unwrap();
    Group::new("a", &config.upstreams["a"], None, Arc::new(|_: &Event| {})).unwrap()
}

#[derive(Clone, Debug)]
struct Step {
    slot: usize,
    ips: Vec<(u8, u32, u32)>,
    failing: Option<usize>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ips = proptest::collection::vec((1..6_u8, 1..4_u32, 0..2_u32), 0..5);
    let step = (any::<bool>(), ips, proptest::option::of(0..6_usize)).prop_map(
        |(is_second, ips, failing)| Step { slot: if is_second { 2 } else { 0 }, ips, failing },
    );
    proptest::collection::vec(step, 1..30)
}

proptest! {
    #[test]
    fn lists_follow_names_and_servers_keep_their_state(steps in steps()) {
        let group = group();
        // The servers of each place, the first of each address, with the failures that each has
        // had.
        let fixed = Found { address: address("10.0.0.3:80"), origin: None, weight: 1, level: 0 };
        let mut model = [Vec::new(), vec![fixed], Vec::new()];
        let mut failures = std::collections::HashMap::new();
        let mut version = group.version();
        for Step { slot, ips, failing } in steps {
            let origin = if slot == 0 { "a.test:80" } else { "b.test:80" };
            let ips = ips.into_iter();
            let new: Vec<_> =
                ips.map(|(ip, weight, level)| found(ip, origin, weight, level)).collect();
            let before = group.members();
            let is_same = model[slot] == new;
            model[slot].clone_from(&new);
            let change = group.install(slot, new);
            let list = group.members();
            prop_assert_eq!(group.version() > version, !is_same);
            version = group.version();
            let mut expected: Vec<&Found> = Vec::new();
            for found in model.iter().flatten() {
                if !expected.iter().any(|known| known.address == found.address) {
                    expected.push(found);
                }
            }
            let is = |server: &Arc<crate::upstream::GroupServer>, found: &Found| {
                let same = server.address == found.address && server.origin == found.origin;
                same && server.weight() == found.weight && server.level() == found.level
            };
            prop_assert_eq!(list.len(), expected.len());
            prop_assert!(list.iter().zip(&expected).all(|(server, found)| is(server, found)));
            // A server is new or known, and a known one keeps what has happened to it.
            let key = |server: &crate::upstream::GroupServer| {
                (server.address.to_string(), server.origin.as_ref().map(ToString::to_string))
            };
            for server in list.iter() {
                let is_known = before.iter().any(|known| key(known) == key(server));
                let is_new = change.new.iter().any(|new| new.id == server.id);
                prop_assert_eq!(is_known, !is_new);
                let counted = if is_known { failures.get(&key(server)).copied() } else { None };
                let has = server.failures.load(Ordering::Relaxed);
                prop_assert_eq!(has, counted.unwrap_or_default());
                failures.insert(key(server), has);
                prop_assert!(!server.is_gone());
            }
            for server in before.iter() {
                let is_left = list.iter().any(|kept| kept.id == server.id);
                let is_gone = change.gone.iter().any(|gone| gone.id == server.id);
                prop_assert_eq!(is_left, !is_gone);
                prop_assert_eq!(server.is_gone(), is_gone);
            }
            if let Some(server) = failing.and_then(|index| list.get(index)) {
                group.failed(server);
                *failures.get_mut(&key(server)).unwrap() += 1;
            }
            // As long as servers of the first level are up, no other one is chosen.
            let mut credit = vec![0; list.len()];
            if let Some(chosen) = choose(&group, &mut credit, &[]) {
                let up = list.iter().filter(|server| group.is_up(server));
                let least = up.map(|server| server.level()).min();
                let is_first = Some(list[chosen].level()) == least;
                prop_assert!(is_first || least.is_none());
            } else {
                prop_assert!(list.is_empty());
            }
        }
    }
}

#[test]
fn a_target_that_cannot_be_looked_up_keeps_its_addresses() {
    let service = |priority, target: &str, weight| Service {
        priority,
        target: target.to_owned(),
        port: 80,
        weight,
    };
    let services = [service(5, "a.test", 0), service(5, "b.test", 7), service(9, "c.test", 1)];
    let ips = |lasts: &[u8]| lasts.iter().map(|last| IpAddr::from([10, 0, 0, *last])).collect();
    let good = |lasts: &[u8], seconds| {
        let (records, ttl) = (ips(lasts), Duration::from_secs(seconds));
        Ok(crate::dns::Found { records, ttl, failed: None })
    };
    let failed = || Err(LookupError::Failed("silence".to_owned()));
    let absent = || Err(LookupError::Absent(Duration::from_secs(3)));
    let known = BTreeMap::from([("b.test".to_owned(), ips(&[2]))]);
    let join = |outcomes: [Result<_, _>; 3], known: &BTreeMap<_, _>| {
        let names = ["a.test", "b.test", "c.test"].map(str::to_owned);
        let looked_up = names.into_iter().zip(outcomes).collect();
        of_service(&services, Duration::from_secs(60), looked_up, known, 2)
    };
    let all = join([good(&[1, 4], 50), good(&[2], 40), good(&[3], 60)], &known).unwrap();
    let expected = vec![
        found(1, "a.test:80", 2, 0),
        found(4, "a.test:80", 2, 0),
        found(2, "b.test:80", 14, 0),
        found(3, "c.test:80", 2, 1),
    ];
    let whole = |servers: &[Found], seconds, failed: Option<&str>| {
        let (ttl, failed) = (Duration::from_secs(seconds), failed.map(str::to_owned));
        LookedUp { servers: servers.to_vec(), ttl, failed }
    };
    assert_eq!(all, whole(&expected, 40, None));
    // One that fails keeps what is known, and is told; one that is gone has nothing.
    let part = join([good(&[1, 4], 50), failed(), absent()], &known).unwrap();
    assert_eq!(part, whole(&expected[..3], 3, Some("silence")));
    // So is a family of a target that fails.
    let mut half = good(&[2], 40);
    half.iter_mut().for_each(|found| found.failed = Some("no IPv6".to_owned()));
    let part = join([good(&[1, 4], 50), half, good(&[3], 60)], &known).unwrap();
    assert_eq!(part, whole(&expected, 40, Some("no IPv6")));
    assert_eq!(join([failed(), failed(), absent()], &BTreeMap::new()), {
        Err(LookupError::Failed("silence".to_owned()))
    });
    assert_eq!(join([absent(), absent(), absent()], &known), {
        Err(LookupError::Absent(Duration::from_secs(3)))
    });
    let known = by_target(&expected);
    assert_eq!(known["a.test"], [IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 4])]);
}

#[test]
fn pauses_after_failures_grow_up_to_a_bound() {
    let dns = Dns { min_ttl: Duration::from_secs(1), ..Dns::default() };
    let pauses =
        [1, 2, 3, 5, 6, 40, u32::MAX].map(|failures| pause_after(failures, &dns).as_secs());
    assert_eq!(pauses, [1, 2, 4, 16, 30, 30, 30]);
    let long = Dns { min_ttl: Duration::from_secs(60), ..Dns::default() };
    assert_eq!(pause_after(3, &long).as_secs(), 60);
}
