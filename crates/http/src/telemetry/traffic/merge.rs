//! Sums over the processes of a server, and the bounds of a snapshot.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

use rustix::process::{Pid, test_kill_process};

use super::{
    CHANNELS, ChannelName, ChannelTraffic, Messages, ROUTES, Requests, RouteTraffic, SERVERS,
    ServerTraffic, Traffic, shortened,
};

/// Adds the counts of two histograms.
fn add_buckets(sum: &mut Vec<u64>, more: &[u64]) {
    if sum.len() < more.len() {
        sum.resize(more.len(), 0);
    }
    sum.iter_mut().zip(more).for_each(|(count, more)| *count += more);
}

impl Requests {
    /// Adds the requests of another process or route.
    pub fn add(&mut self, other: &Requests) {
        self.responses.iter_mut().zip(other.responses).for_each(|(count, more)| *count += more);
        add_buckets(&mut self.durations, &other.durations);
        self.nanoseconds = self.nanoseconds.wrapping_add(other.nanoseconds);
    }

    fn count(&self) -> u64 {
        self.responses.iter().sum()
    }
}

impl Messages {
    /// Adds the counts of another channel or process.
    pub fn add(&mut self, other: &Messages) {
        self.subscribers += other.subscribers;
        self.published += other.published;
        self.delivered += other.delivered;
        self.dropped += other.dropped;
        self.disconnected += other.disconnected;
    }
}

impl ServerTraffic {
    fn add(&mut self, other: &ServerTraffic) {
        self.processes += other.processes;
        self.processes_up += other.processes_up;
        self.condition = self.condition.max(other.condition);
        self.requests += other.requests;
        self.failures += other.failures;
        self.retries += other.retries;
        self.active += other.active;
        self.idle += other.idle;
        self.dials += other.dials;
        add_buckets(&mut self.durations, &other.durations);
        self.nanoseconds = self.nanoseconds.wrapping_add(other.nanoseconds);
    }
}

/// Adds each of `more` to the one of the same name, or puts it behind all.
fn add_by_name<T, N: Hash + Eq>(
    all: &mut Vec<T>,
    more: Vec<T>,
    name: impl Fn(&T) -> N,
    add: impl Fn(&mut T, &T),
) {
    let mut known: HashMap<N, usize> =
        all.iter().enumerate().map(|(index, one)| (name(one), index)).collect();
    for one in more {
        match known.get(&name(&one)) {
            Some(&index) => add(&mut all[index], &one),
            None => {
                known.insert(name(&one), all.len());
                all.push(one);
            }
        }
    }
}

impl Traffic {
    /// Adds the traffic of another process.
    pub(super) fn add(&mut self, other: Traffic) {
        if self.bounds_ns.is_empty() {
            self.bounds_ns = other.bounds_ns;
        }
        self.total.add(&other.total);
        let name = |route: &RouteTraffic| (route.host.clone(), route.path.clone());
        add_by_name(&mut self.routes, other.routes, name, |route, other| {
            route.requests.add(&other.requests);
        });
        let name = |server: &ServerTraffic| (server.upstream.clone(), server.server.clone());
        add_by_name(&mut self.servers, other.servers, name, ServerTraffic::add);
        let (channels, more) = (&mut self.channels, other.channels);
        channels.age_ns = channels.age_ns.max(more.age_ns);
        channels.total.add(&more.total);
        // Each process has most of the channels, as their subscribers are anywhere.
        channels.count = channels.count.max(more.count);
        channels.has_all &= more.has_all;
        let name = |channel: &ChannelTraffic| (channel.host.clone(), channel.name.clone());
        add_by_name(&mut channels.top, more.top, name, |channel, other| {
            channel.messages.add(&other.messages);
        });
        self.routes_left_out += other.routes_left_out;
        self.servers_left_out += other.servers_left_out;
    }

    /// Leaves out whatever is more than a snapshot may have.
    pub fn limit(&mut self) {
        for route in &mut self.routes {
            route.host = shortened(std::mem::take(&mut route.host));
            route.path = shortened(std::mem::take(&mut route.path));
        }
        if self.routes.len() > ROUTES {
            self.routes.sort_by_key(|route| std::cmp::Reverse(route.requests.count()));
            self.routes_left_out += self.routes.len() - ROUTES;
            self.routes.truncate(ROUTES);
        }
        for server in &mut self.servers {
            server.upstream = shortened(std::mem::take(&mut server.upstream));
            server.server = shortened(std::mem::take(&mut server.server));
        }
        if self.servers.len() > SERVERS {
            let is_up = |server: &ServerTraffic| server.processes_up >= server.processes;
            self.servers.sort_by_key(|server| (is_up(server), std::cmp::Reverse(server.requests)));
            self.servers_left_out += self.servers.len() - SERVERS;
            self.servers.truncate(SERVERS);
        }
        let channels = &mut self.channels;
        sort(&mut channels.top);
        channels.has_all &= channels.top.len() <= CHANNELS;
        channels.top.truncate(CHANNELS);
        for channel in &mut channels.top {
            channel.host = shortened(std::mem::take(&mut channel.host));
            channel.name = shortened(std::mem::take(&mut channel.name));
        }
    }
}

/// Sorts channels by their subscribers and messages, and by name.
fn sort(channels: &mut [ChannelTraffic]) {
    channels.sort_by(|one, other| {
        let order = other.messages.cmp(&one.messages);
        order.then_with(|| (&one.host, &one.name).cmp(&(&other.host, &other.name)))
    });
}

impl ChannelTraffic {
    fn channel_name(&self) -> ChannelName {
        ChannelName { host: self.host.clone(), name: self.name.clone() }
    }
}

/// The traffic of the processes of a server, as each of them last said.
#[derive(Debug, Default)]
pub struct Processes {
    last: BTreeMap<u32, Traffic>,
    /// The channels that the processes are asked for by name.
    wanted: Vec<ChannelName>,
}

/// Whether there is a process of this number.
pub fn exists(process: u32) -> bool {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    // A refusal says that there is one.
    pid.is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

impl Processes {
    /// Returns the channels that the processes have to be asked for by name, next to those that
    /// they tell of by themselves: [`CHANNELS`] at most.
    pub fn wanted(&self) -> Vec<ChannelName> {
        self.wanted.clone()
    }

    /// Takes the answers of processes, by their numbers, and returns the sum over all of them. A
    /// process that has not answered counts with its last answer. A channel is left out until all
    /// processes have told of it.
    pub fn sum(&mut self, answers: impl IntoIterator<Item = (u32, Traffic)>) -> Traffic {
        self.sum_of(answers, exists)
    }

    fn sum_of(
        &mut self,
        answers: impl IntoIterator<Item = (u32, Traffic)>,
        exists: impl Fn(u32) -> bool,
    ) -> Traffic {
        let mut last = std::mem::take(&mut self.last);
        self.last.extend(answers);
        last.retain(|process, _| !self.last.contains_key(process) && exists(*process));
        self.last.append(&mut last);
        let mut all = self.last.values();
        let mut sum = all.next().cloned().unwrap_or_default();
        all.for_each(|traffic| sum.add(traffic.clone()));
        let top = &mut sum.channels.top;
        sort(top);
        let asked = std::mem::take(&mut self.wanted);
        if sum.channels.has_all {
            // All have told of all.
            return sum;
        }
        self.wanted = top.iter().take(CHANNELS).map(ChannelTraffic::channel_name).collect();
        let asked: HashSet<ChannelName> = asked.into_iter().collect();
        let partial: Vec<HashSet<ChannelName>> = self
            .last
            .values()
            .filter(|traffic| !traffic.channels.has_all)
            .map(|traffic| traffic.channels.top.iter().map(ChannelTraffic::channel_name).collect())
            .collect();
        top.retain(|channel| {
            let name = channel.channel_name();
            asked.contains(&name) && partial.iter().all(|told| told.contains(&name))
        });
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::super::NAME;
    use super::super::ServerCondition;
    use super::*;

    fn requests(ok: u64, failed: u64) -> Requests {
        Requests {
            responses: [0, ok, 0, 0, failed],
            durations: vec![ok, failed],
            nanoseconds: 1000 * (ok + failed),
        }
    }

    fn route(path: &str, ok: u64) -> RouteTraffic {
        RouteTraffic { host: "a".to_owned(), path: path.to_owned(), requests: requests(ok, 1) }
    }

    fn server(address: &str, is_up: bool, requests: u64) -> ServerTraffic {
        ServerTraffic {
            upstream: "u".to_owned(),
            server: address.to_owned(),
            processes: 1,
            processes_up: u32::from(is_up),
            requests,
            active: 2,
            durations: vec![requests, 0],
            ..ServerTraffic::default()
        }
    }

    fn channel(name: &str, subscribers: u64) -> ChannelTraffic {
        let messages = Messages { subscribers, published: 1, ..Messages::default() };
        ChannelTraffic { host: "a".to_owned(), name: name.to_owned(), messages }
    }

    fn traffic(routes: &[(&str, u64)], servers: &[(&str, bool)], top: &[(&str, u64)]) -> Traffic {
        let mut traffic = Traffic { bounds_ns: vec![5], ..Traffic::default() };
        for (path, ok) in routes {
            traffic.total.add(&requests(*ok, 1));
            traffic.routes.push(route(path, *ok));
        }
        traffic.servers = servers.iter().map(|(name, is_up)| server(name, *is_up, 7)).collect();
        traffic.channels.top = top.iter().map(|(name, count)| channel(name, *count)).collect();
        traffic.channels.count = top.len();
        traffic.channels.has_all = true;
        traffic
    }

    #[test]
    fn processes_are_summed_by_name_and_histograms_by_bucket() {
        let mut sum = traffic(&[("/", 3), ("/a", 1)], &[("x", true), ("y", false)], &[("c", 5)]);
        sum.add(traffic(
            &[("/a", 4), ("/b", 2)],
            &[("x", false), ("y", false)],
            &[("d", 6), ("c", 4)],
        ));
        let found: Vec<_> = sum
            .routes
            .iter()
            .map(|route| (&*route.path, route.requests.durations.clone()))
            .collect();
        assert_eq!(found, [("/", vec![3, 1]), ("/a", vec![5, 2]), ("/b", vec![2, 1])]);
        assert_eq!(sum.total, requests(10, 4));
        let states: Vec<String> = sum.servers.iter().map(ServerTraffic::state).collect();
        assert_eq!(states, ["up in 1 of 2", "down"]);
        assert_eq!((sum.servers[0].requests, sum.servers[0].active), (14, 4));
        let state = |is_up, condition| ServerTraffic { condition, ..server("z", is_up, 1) }.state();
        assert_eq!(state(true, ServerCondition::Up), "up");
        assert_eq!(state(true, ServerCondition::SlowStart), "slow start");
        assert_eq!(state(false, ServerCondition::Ejected), "ejected");
        // A program that tells no conditions.
        assert_eq!(state(false, ServerCondition::Up), "down");
        let mut one = server("z", true, 1);
        one.add(&ServerTraffic { condition: ServerCondition::Paused, ..server("z", false, 1) });
        assert_eq!(
            (one.condition, one.state()),
            (ServerCondition::Paused, "up in 1 of 2".to_owned())
        );
        sum.limit();
        assert_eq!(sum.channels.top[0].messages.subscribers, 9);
        assert_eq!((&*sum.channels.top[0].name, sum.channels.count), ("c", 2));
    }

    #[test]
    fn a_process_that_does_not_answer_keeps_its_counts_until_it_has_ended() {
        let mut processes = Processes::default();
        let of = |ok| traffic(&[("/", ok)], &[], &[]);
        let responses = |sum: &Traffic| sum.total.responses[1];
        assert_eq!(responses(&processes.sum_of([(1, of(100)), (2, of(10))], |_| true)), 110);
        assert_eq!(responses(&processes.sum_of([(2, of(11))], |_| true)), 111);
        assert_eq!(responses(&processes.sum_of([(1, of(103)), (2, of(11))], |_| true)), 114);
        // The first one has ended, and another one has its place.
        assert_eq!(responses(&processes.sum_of([(2, of(12)), (3, of(1))], |one| one != 1)), 13);
        assert_eq!(processes.last.len(), 2);
        assert!(exists(std::process::id()) && !exists(0) && !exists(u32::MAX));
    }

    /// The counts of a channel in one process, which only grow.
    type Figures = BTreeMap<String, u64>;

    /// Answers as a process does: with the channels that have the most subscribers here, and those
    /// that it is asked for.
    fn answer(figures: &Figures, most: usize, wanted: &[ChannelName]) -> Traffic {
        let mut all: Vec<(&str, u64)> =
            figures.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        all.truncate(most);
        let has_all = all.len() == figures.len();
        for ChannelName { name, .. } in wanted.iter().filter(|_| !has_all) {
            if !all.iter().any(|(known, _)| known == name) {
                all.push((name, figures.get(name).copied().unwrap_or(0)));
            }
        }
        let mut traffic = traffic(&[], &[], &all);
        traffic.channels.count = figures.len();
        traffic.channels.has_all = has_all;
        traffic
    }

    /// Processes tell of some of their channels each, and sometimes of none: no sum that is shown
    /// lacks the counts of a process.
    #[test]
    fn the_counts_of_a_channel_are_those_of_all_processes_or_it_is_not_shown() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let mut shown = 0;
        for _ in 0..60 {
            let (count, most) = (1 + next(300), 1 + next(40) as usize);
            let mut figures: Vec<Figures> = vec![Figures::new(); 1 + next(4) as usize];
            // The counts of each process at the time of its last answer.
            let mut known: Vec<Option<Figures>> = vec![None; figures.len()];
            let mut processes = Processes::default();
            for _ in 0..30 {
                for figures in &mut figures {
                    for _ in 0..next(60) {
                        *figures.entry(next(count).to_string()).or_default() += next(9);
                    }
                }
                let wanted = processes.wanted();
                assert!(wanted.len() <= CHANNELS);
                let mut answers = Vec::new();
                for (process, figures) in figures.iter().enumerate() {
                    if next(6) > 0 {
                        known[process] = Some(figures.clone());
                        answers.push((process as u32, answer(figures, most, &wanted)));
                    }
                }
                let sum = processes.sum_of(answers, |_| true);
                for ChannelTraffic { name, messages, .. } in &sum.channels.top {
                    let of = |figures: &Figures| figures.get(name).copied().unwrap_or(0);
                    let expected: u64 = known.iter().flatten().map(of).sum();
                    assert_eq!(messages.subscribers, expected, "{name}");
                    shown += 1;
                }
            }
        }
        assert!(shown > 10_000, "{shown} sums were shown");
    }

    #[test]
    fn a_snapshot_is_bounded_and_says_how_much_is_left_out() {
        let count = ROUTES + 7;
        let down = count.div_ceil(100);
        let mut all = Traffic { bounds_ns: vec![u64::MAX; 14], ..Traffic::default() };
        for number in 0..count {
            // Each byte of these takes six in JSON.
            let name = format!("{number}{}", "\u{1}".repeat(1000));
            let mut one = route(&name, number as u64);
            one.host = name.clone();
            one.requests.durations = vec![u64::MAX; 15];
            one.requests.responses[0] = number as u64;
            one.requests.nanoseconds = u64::MAX;
            all.routes.push(one);
            let mut one = server(&name, number % 100 != 0, number as u64);
            one.upstream = name.clone();
            one.durations = vec![u64::MAX; 15];
            all.servers.push(one);
            all.channels.top.push(channel(&name, number as u64));
        }
        all.limit();
        assert_eq!((all.routes.len(), all.routes_left_out), (ROUTES, 7));
        assert_eq!((all.servers.len(), all.servers_left_out), (SERVERS, count - SERVERS));
        assert_eq!(all.channels.top.len(), CHANNELS);
        // The most busy ones stay, and all servers that are down.
        assert_eq!(all.routes[0].requests.responses[1], count as u64 - 1);
        assert_eq!(all.servers.iter().filter(|one| one.processes_up == 0).count(), down);
        assert_eq!(all.channels.top[0].messages.subscribers, count as u64 - 1);
        assert!(
            all.routes.iter().all(|route| route.path.len() <= NAME && route.path.ends_with('…'))
        );
        // `superpoll top` takes lines of 4 MiB.
        let bytes = serde_json::to_vec(&all).unwrap().len();
        assert!(bytes < 3 << 20, "{bytes} bytes");
    }

    #[test]
    fn names_are_cut_between_characters() {
        assert_eq!(shortened("é".repeat(128)), "é".repeat(128));
        let cut = shortened("é".repeat(129));
        assert!(cut.len() <= NAME && cut.ends_with('…') && cut.starts_with('é'), "{cut}");
    }
}
