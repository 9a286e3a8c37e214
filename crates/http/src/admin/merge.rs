//! One report of several processes.

use std::collections::BTreeMap;

use super::operation::Operation;
use super::report::{ChannelList, ChannelReport, Refusal, Report, ServerReport, UpstreamReport};

/// Merges the answers of the workers to one operation.
///
/// # Errors
///
/// The refusal of the first worker that has refused the operation; if no worker has answered.
pub fn merge(
    operation: &Operation,
    answers: Vec<Result<Report, Refusal>>,
) -> Result<Report, Refusal> {
    let mut reports = Vec::new();
    for answer in answers {
        reports.push(answer?);
    }
    let mut reports = reports.into_iter();
    let Some(mut all) = reports.next() else {
        return Err(Refusal::unavailable("no worker has answered in time"));
    };
    for report in reports {
        match (&mut all, report) {
            (Report::Upstreams(all), Report::Upstreams(more)) => add_upstreams(all, more),
            (Report::Connections(all), Report::Connections(more)) => {
                all.total += more.total;
                all.connections.extend(more.connections);
            }
            (Report::Channels(all), Report::Channels(more)) => add_channels(all, more),
            (Report::Closed(all), Report::Closed(more)) => *all += more,
            (Report::Reopened(all), Report::Reopened(more)) => all.add(more),
            // All others are the same everywhere.
            _ => {}
        }
    }
    match (&mut all, operation) {
        (Report::Connections(list), Operation::Connections(query)) => list.shorten(query.limit),
        (Report::Channels(list), Operation::Channels(query))
            if list.channels.len() > query.limit =>
        {
            list.channels.truncate(query.limit);
            list.next = list.channels.last().map(|channel| channel.key.clone());
        }
        _ => {}
    }
    Ok(all)
}

/// While a configuration is taken on, workers may know different upstreams.
fn add_upstreams(all: &mut Vec<UpstreamReport>, more: Vec<UpstreamReport>) {
    for upstream in more {
        match all.iter_mut().find(|known| known.name == upstream.name) {
            Some(known) => {
                for server in upstream.servers {
                    let found = known
                        .servers
                        .iter_mut()
                        .find(|one| one.address == server.address && one.name == server.name);
                    match found {
                        Some(known) => add_server(known, &server),
                        None => known.servers.push(server),
                    }
                }
            }
            None => all.push(upstream),
        }
    }
    all.sort_by(|one, next| one.name.cmp(&next.name));
}

fn add_server(known: &mut ServerReport, more: &ServerReport) {
    known.healthy |= more.healthy;
    known.healthy_in += more.healthy_in;
    known.processes += more.processes;
    known.active += more.active;
    known.requests += more.requests;
    known.failures += more.failures;
    known.idle_connections += more.idle_connections;
}

/// Each process has subscribers of its own, and the same messages: those of the process that is
/// ahead are counted.
fn add_channels(all: &mut ChannelList, more: ChannelList) {
    // A process with more to come has as many as are asked for, so that the keys of others after
    // its last one are beyond the limit.
    let end = [&*all, &more].iter().filter_map(|list| list.next.clone()).min();
    let mut channels: BTreeMap<String, ChannelReport> = BTreeMap::new();
    for channel in std::mem::take(&mut all.channels).into_iter().chain(more.channels) {
        match channels.get_mut(&channel.key) {
            None => drop(channels.insert(channel.key.clone(), channel)),
            Some(known) => {
                let subscribers = known.subscribers + channel.subscribers;
                if (channel.last_id, channel.bytes) > (known.last_id, known.bytes) {
                    *known = channel;
                }
                known.subscribers = subscribers;
            }
        }
    }
    *all = ChannelList { channels: channels.into_values().collect(), next: end };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::operation::ChannelQuery;
    use super::*;

    fn channel(key: u8, subscribers: u64) -> ChannelReport {
        let (key, route) = (format!("/{key:03}"), "/{name}".to_owned());
        ChannelReport { key, route, subscribers, last_id: 1, messages: 1, bytes: 1 }
    }

    /// Lists the channels of a process as it does itself.
    fn list(channels: &BTreeMap<String, ChannelReport>, query: &ChannelQuery) -> ChannelList {
        let after = query.after.as_deref().unwrap_or("");
        let mut rest = channels.values().filter(|channel| channel.key.as_str() > after);
        let channels: Vec<_> = rest.by_ref().take(query.limit).cloned().collect();
        let next = rest.next().and(channels.last()).map(|channel| channel.key.clone());
        ChannelList { channels, next }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

        /// All pages together have each channel once, with the subscribers of all processes.
        #[test]
        fn pages_of_several_processes_lose_and_repeat_no_channel(
            all in prop::collection::vec(prop::collection::btree_map(0_u8..40, 0_u64..9, 0..20), 1..5),
            limit in 1_usize..9,
        ) {
            let mut expected: BTreeMap<String, u64> = BTreeMap::new();
            let mut processes = Vec::new();
            for process in &all {
                let mut channels = BTreeMap::new();
                for (key, subscribers) in process {
                    let channel = channel(*key, *subscribers);
                    *expected.entry(channel.key.clone()).or_default() += subscribers;
                    channels.insert(channel.key.clone(), channel);
                }
                processes.push(channels);
            }
            let mut found: Vec<(String, u64)> = Vec::new();
            let mut after = None;
            loop {
                let query = ChannelQuery { after: after.clone(), limit };
                let answers = processes.iter().map(|one| Ok(Report::Channels(list(one, &query))));
                let answers = answers.collect();
                let Ok(Report::Channels(page)) = merge(&Operation::Channels(query), answers) else {
                    panic!("it is a list")
                };
                prop_assert!(page.channels.len() <= limit);
                found.extend(page.channels.into_iter().map(|one| (one.key, one.subscribers)));
                let Some(next) = page.next else { break };
                prop_assert!(Some(&next) > after.as_ref(), "the pages go on");
                after = Some(next);
            }
            prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn servers_are_summed_and_a_refusal_of_one_is_that_of_all() {
        let server = |address: &str, healthy| ServerReport {
            address: address.to_owned(),
            name: None,
            state: super::super::ServerState::Up,
            healthy,
            healthy_in: u32::from(healthy),
            processes: 1,
            weight: 1,
            configured_weight: 1,
            active: 2,
            requests: 3,
            failures: 1,
            idle_connections: 4,
        };
        let report =
            |servers| Ok(Report::Upstreams(vec![UpstreamReport { name: "a".to_owned(), servers }]));
        let answers = vec![
            report(vec![server("x", true)]),
            report(vec![server("x", false), server("y", true)]),
        ];
        let Ok(Report::Upstreams(all)) = merge(&Operation::Upstreams, answers) else {
            panic!("they are upstreams")
        };
        let [x, y] = &all[0].servers[..] else { panic!("{all:?}") };
        assert_eq!((x.healthy, x.healthy_in, x.processes, x.requests), (true, 1, 2, 6));
        assert_eq!((y.processes, y.active, y.address.as_str()), (1, 2, "y"));
        let refused = vec![report(Vec::new()), Err(Refusal::invalid("no"))];
        assert_eq!(merge(&Operation::Upstreams, refused), Err(Refusal::invalid("no")));
        assert!(merge(&Operation::Upstreams, Vec::new()).is_err());
    }
}
