//! The requests, servers and channels of a process: rates between two snapshots, and quantiles.
//!
//! Rates are of the last interval. Quantiles are of the last [`WINDOW`] or of the last interval,
//! whichever is longer: the ninety-ninth percentile of the three requests of one second says
//! nothing. They come from the difference of two histograms. A count that has become less belongs
//! to another server, or to a configuration with fewer routes; then the figures begin again.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use superpoll_gateway::telemetry::traffic::{
    ChannelTraffic, Messages, Quantile, Requests, RouteTraffic, ServerTraffic, Traffic, quantile,
};

use super::model::REMEMBERED;

/// The time over which quantiles are taken, in nanoseconds.
const WINDOW: u64 = 10_000_000_000;

/// The time between two histograms that are remembered.
const STEP: u64 = 1_000_000_000;

/// Moments that are nearer to each other than this are the same moment: the age of figures is not
/// exact. The shortest interval is longer.
const SAME: u64 = 20_000_000;

/// The intervals of a row that are remembered for its trend.
const TREND: usize = 60;

/// Returns the growth of each count; `None` if one has become less.
fn growth<const N: usize>(before: [u64; N], now: [u64; N]) -> Option<[u64; N]> {
    let mut grown = [0; N];
    for index in 0..N {
        grown[index] = now[index].checked_sub(before[index])?;
    }
    Some(grown)
}

/// Counts at their last moments.
#[derive(Clone, Debug)]
struct Rates<const N: usize> {
    at_ns: u64,
    counts: [u64; N],
    rates: Option<[f64; N]>,
}

impl<const N: usize> Rates<N> {
    fn new(at_ns: u64, counts: [u64; N]) -> Rates<N> {
        Rates { at_ns, counts, rates: None }
    }

    /// Takes the counts of a later moment.
    fn take(&mut self, at_ns: u64, counts: [u64; N]) {
        if at_ns.abs_diff(self.at_ns) < SAME {
            return;
        }
        let Some(nanos) = at_ns.checked_sub(self.at_ns) else {
            *self = Rates::new(at_ns, counts);
            return;
        };
        let grown = growth(self.counts, counts);
        self.rates = grown.map(|grown| grown.map(|count| count as f64 * 1e9 / nanos as f64));
        (self.at_ns, self.counts) = (at_ns, counts);
    }
}

/// The histograms of the last while.
#[derive(Clone, Debug, Default)]
struct RecentHistograms {
    /// The oldest comes first.
    histograms: VecDeque<(u64, Vec<u64>)>,
}

impl RecentHistograms {
    fn take(&mut self, at_ns: u64, buckets: &[u64]) {
        let is_less = self.histograms.back().is_some_and(|(at, before)| {
            let mut pairs = before.iter().zip(buckets);
            at_ns < *at || before.len() != buckets.len() || pairs.any(|(before, now)| now < before)
        });
        if is_less {
            self.histograms.clear();
        }
        if let [.., (one, _), (other, _)] = *self.histograms.make_contiguous()
            && other - one < STEP
        {
            self.histograms.pop_back();
        }
        self.histograms.push_back((at_ns, buckets.to_vec()));
        let begin = at_ns.saturating_sub(WINDOW);
        while self.histograms.len() > 2 && self.histograms[1].0 <= begin {
            self.histograms.pop_front();
        }
    }

    /// Returns the histogram of the requests in this time.
    fn grown(&self) -> Vec<u64> {
        let (Some((_, first)), Some((_, last))) = (self.histograms.front(), self.histograms.back())
        else {
            return Vec::new();
        };
        last.iter().zip(first).map(|(last, first)| last.saturating_sub(*first)).collect()
    }

    fn quantiles(&self, bounds_ns: &[u64]) -> Quantiles {
        let grown = self.grown();
        let of = |part| quantile(bounds_ns, &grown, part);
        Quantiles { p50: of(0.5), p99: of(0.99) }
    }
}

/// The quantiles of the last while; none without requests.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Quantiles {
    pub p50: Option<Quantile>,
    pub p99: Option<Quantile>,
}

/// Requests of a route, or of all.
#[derive(Clone, Debug)]
pub(super) struct RequestTrack {
    rates: Rates<5>,
    window: RecentHistograms,
    pub quantiles: Quantiles,
    /// Requests a second in the last intervals.
    pub trend: VecDeque<f64>,
}

impl RequestTrack {
    fn new(at_ns: u64, requests: &Requests) -> RequestTrack {
        let mut window = RecentHistograms::default();
        window.take(at_ns, &requests.durations);
        RequestTrack {
            rates: Rates::new(at_ns, requests.responses),
            window,
            quantiles: Quantiles::default(),
            trend: VecDeque::new(),
        }
    }

    fn take(&mut self, at_ns: u64, requests: &Requests, bounds_ns: &[u64], remembered: usize) {
        let is_later = at_ns > self.rates.at_ns;
        self.rates.take(at_ns, requests.responses);
        self.window.take(at_ns, &requests.durations);
        self.quantiles = self.window.quantiles(bounds_ns);
        if let (Some(rate), true) = (self.requests(), is_later) {
            remember(&mut self.trend, rate, remembered);
        }
    }

    /// Returns the requests so far.
    pub(super) fn total(&self) -> u64 {
        self.rates.counts.iter().sum()
    }

    /// Returns the responses of a class so far, by the first digit of their status.
    pub(super) fn count(&self, class: usize) -> u64 {
        self.rates.counts.get(class.wrapping_sub(1)).copied().unwrap_or(0)
    }

    /// Returns the requests a second.
    pub(super) fn requests(&self) -> Option<f64> {
        self.rates.rates.map(|rates| rates.iter().sum())
    }

    /// Returns the responses of a class a second.
    pub(super) fn class(&self, class: usize) -> Option<f64> {
        self.rates.rates.and_then(|rates| rates.get(class.wrapping_sub(1)).copied())
    }
}

fn remember(history: &mut VecDeque<f64>, value: f64, most: usize) {
    if history.len() == most {
        history.pop_front();
    }
    history.push_back(value);
}

/// A route.
#[derive(Clone, Debug)]
pub(super) struct Route {
    /// All of the host's names and the path, which make it the same route.
    key: String,
    pub name: String,
    pub track: RequestTrack,
}

/// A server of an upstream.
#[derive(Clone, Debug)]
pub(super) struct Server {
    /// The upstream and the address.
    pub name: String,
    pub now: ServerTraffic,
    rates: Rates<2>,
    window: RecentHistograms,
    pub quantiles: Quantiles,
}

impl Server {
    /// Returns the requests a second.
    pub(super) fn requests(&self) -> Option<f64> {
        self.rates.rates.map(|[requests, _]| requests)
    }

    /// Returns the failures a second.
    pub(super) fn failures(&self) -> Option<f64> {
        self.rates.rates.map(|[_, failures]| failures)
    }
}

/// A channel, or all of them.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    key: String,
    pub name: String,
    pub now: Messages,
    rates: Rates<3>,
}

fn counts(messages: &Messages) -> [u64; 3] {
    [messages.published, messages.delivered, messages.dropped]
}

impl Channel {
    fn new((key, name): (String, String), at_ns: u64, now: Messages) -> Channel {
        Channel { key, name, now, rates: Rates::new(at_ns, counts(&now)) }
    }

    fn take(&mut self, at_ns: u64, now: Messages) {
        self.now = now;
        self.rates.take(at_ns, counts(&now));
    }

    /// Returns the messages that are published a second.
    pub(super) fn published(&self) -> Option<f64> {
        self.rates.rates.map(|rates| rates[0])
    }

    /// Returns the messages that subscribers get a second.
    pub(super) fn delivered(&self) -> Option<f64> {
        self.rates.rates.map(|rates| rates[1])
    }

    /// Returns the messages that slow subscribers do not get, a second.
    pub(super) fn dropped(&self) -> Option<f64> {
        self.rates.rates.map(|rates| rates[2])
    }

    /// Returns the channels of all that are not among `shown`.
    fn rest(&self, count: usize, shown: &[Channel]) -> Channel {
        let sum = |of: fn(&Messages) -> u64| -> u64 { shown.iter().map(|one| of(&one.now)).sum() };
        let now = Messages {
            subscribers: self.now.subscribers.saturating_sub(sum(|one| one.subscribers)),
            published: self.now.published.saturating_sub(sum(|one| one.published)),
            delivered: self.now.delivered.saturating_sub(sum(|one| one.delivered)),
            dropped: self.now.dropped.saturating_sub(sum(|one| one.dropped)),
            disconnected: 0,
        };
        let rates = self.rates.rates.map(|all| {
            std::array::from_fn(|index| {
                let shown = shown.iter().filter_map(|one| Some(one.rates.rates?[index]));
                (all[index] - shown.sum::<f64>()).max(0.0)
            })
        });
        let name = format!("({} other channels)", count.saturating_sub(shown.len()));
        let rates = Rates { at_ns: self.rates.at_ns, counts: counts(&now), rates };
        Channel { key: String::new(), name, now, rates }
    }
}

/// The traffic of a process.
#[derive(Clone, Debug)]
pub(super) struct TrafficModel {
    /// The requests of all routes.
    pub total: RequestTrack,
    pub routes: Vec<Route>,
    pub routes_left_out: usize,
    pub servers: Vec<Server>,
    pub servers_left_out: usize,
    /// The channels with the most subscribers, and the rest of them in one.
    pub channels: Vec<Channel>,
    /// All channels.
    pub messages: Channel,
    /// How many channels there are.
    pub channel_count: usize,
    /// Failed responses a second in the last intervals.
    pub errors: VecDeque<f64>,
    /// Messages a second that subscribers got in the last intervals.
    pub delivered: VecDeque<f64>,
}

/// Puts a name together from the names of a host, separated by commas, and a path.
fn located(hosts: &str, path: &str) -> String {
    let mut names = hosts.split(',');
    let first = names.next().unwrap_or_default();
    let others = match names.count() {
        0 => String::new(),
        count => format!("(+{count})"),
    };
    let path = if path.is_empty() { "(no route)" } else { path };
    format!("{first}{others}{path}")
}

/// Returns the key by which a route or a channel continues from snapshot to snapshot. Control
/// characters are escaped in both parts.
fn key(hosts: &str, path: &str) -> String {
    format!("{hosts}\n{path}")
}

/// Returns the rows of a snapshot: each continues with the one that had its name, or is new. Of two
/// with one name only one does.
fn next_rows<T, R, N: Hash + Eq>(
    before: Vec<R>,
    names_before: impl Fn(&R) -> N,
    now: Vec<T>,
    name: impl Fn(&T) -> N,
    next: impl Fn(Option<R>, T) -> R,
) -> Vec<R> {
    let mut known: HashMap<N, R> =
        before.into_iter().map(|row| (names_before(&row), row)).collect();
    now.into_iter().map(|one| next(known.remove(&name(&one)), one)).collect()
}

impl TrafficModel {
    /// Begins with a snapshot that was taken so many nanoseconds after the start of the process.
    pub(super) fn new(at_ns: u64, traffic: Traffic) -> TrafficModel {
        let channels_at = at_ns.saturating_sub(traffic.channels.age_ns);
        let mut model = TrafficModel {
            total: RequestTrack::new(at_ns, &traffic.total),
            routes: Vec::new(),
            routes_left_out: 0,
            servers: Vec::new(),
            servers_left_out: 0,
            channels: Vec::new(),
            messages: Channel::new(Default::default(), channels_at, traffic.channels.total),
            channel_count: 0,
            errors: VecDeque::new(),
            delivered: VecDeque::new(),
        };
        model.take(at_ns, traffic);
        model
    }

    /// Takes a later snapshot.
    pub(super) fn take(&mut self, at_ns: u64, traffic: Traffic) {
        let Traffic { bounds_ns, total, routes, servers, channels, .. } = traffic;
        self.routes_left_out = traffic.routes_left_out;
        self.servers_left_out = traffic.servers_left_out;
        let is_later = at_ns > self.total.rates.at_ns;
        self.total.take(at_ns, &total, &bounds_ns, REMEMBERED);
        if let (Some(client), Some(server), true) =
            (self.total.class(4), self.total.class(5), is_later)
        {
            remember(&mut self.errors, client + server, REMEMBERED);
        }
        let key = |route: &RouteTraffic| self::key(&route.host, &route.path);
        let route = |known: Option<Route>, route: RouteTraffic| match known {
            Some(mut known) => {
                known.track.take(at_ns, &route.requests, &bounds_ns, TREND);
                known
            }
            None => Route {
                key: key(&route),
                name: located(&route.host, &route.path),
                track: RequestTrack::new(at_ns, &route.requests),
            },
        };
        let before = std::mem::take(&mut self.routes);
        self.routes = next_rows(before, |row| row.key.clone(), routes, key, route);
        self.take_servers(at_ns, &bounds_ns, servers);
        let channels_at = at_ns.saturating_sub(channels.age_ns);
        self.messages.take(channels_at, channels.total);
        if let (Some(delivered), true) = (self.messages.delivered(), is_later) {
            remember(&mut self.delivered, delivered, REMEMBERED);
        }
        self.channel_count = channels.count;
        let key = |channel: &ChannelTraffic| self::key(&channel.host, &channel.name);
        let channel = |known: Option<Channel>, channel: ChannelTraffic| match known {
            Some(mut known) => {
                known.take(channels_at, channel.messages);
                known
            }
            None => {
                let names = (key(&channel), located(&channel.host, &channel.name));
                Channel::new(names, channels_at, channel.messages)
            }
        };
        let before = std::mem::take(&mut self.channels);
        self.channels = next_rows(before, |row| row.key.clone(), channels.top, key, channel);
    }

    fn take_servers(&mut self, at_ns: u64, bounds_ns: &[u64], servers: Vec<ServerTraffic>) {
        let named = |server: &ServerTraffic| format!("{} {}", server.upstream, server.server);
        let server = |known: Option<Server>, now: ServerTraffic| {
            let counts = [now.requests, now.failures];
            let mut next = known.unwrap_or_else(|| Server {
                name: named(&now),
                rates: Rates::new(at_ns, counts),
                window: RecentHistograms::default(),
                quantiles: Quantiles::default(),
                now: ServerTraffic::default(),
            });
            next.rates.take(at_ns, counts);
            next.window.take(at_ns, &now.durations);
            next.quantiles = next.window.quantiles(bounds_ns);
            next.now = now;
            next
        };
        let before = std::mem::take(&mut self.servers);
        self.servers = next_rows(before, |row| row.name.clone(), servers, named, server);
    }

    /// Returns all channels that are not in the list as one; `None` if there are none.
    pub(super) fn other_channels(&self) -> Option<Channel> {
        (self.channel_count > self.channels.len())
            .then(|| self.messages.rest(self.channel_count, &self.channels))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1000 * MS;

    fn requests(ok: u64, missing: u64, failed: u64) -> Requests {
        let all = ok + missing + failed;
        // Nine of ten take about a millisecond.
        let slow = all / 10;
        Requests {
            responses: [0, ok, 0, missing, failed],
            durations: vec![0, all - slow, 0, slow],
            nanoseconds: all * MS,
        }
    }

    /// Returns the traffic after so many seconds, the same in each of them.
    pub(crate) fn traffic(routes: usize, servers: usize, channels: usize, seconds: u64) -> Traffic {
        let mut traffic = Traffic {
            bounds_ns: vec![500_000, MS, 5 * MS, 25 * MS],
            total: Requests { durations: vec![0; 5], ..Requests::default() },
            ..Traffic::default()
        };
        for number in 0..routes {
            let busy = seconds * 10 * (routes - number) as u64;
            let mut requests = requests(busy * 10, busy, if number == 1 { seconds } else { 0 });
            requests.durations.push(0);
            let total = &mut traffic.total;
            total.responses.iter_mut().zip(requests.responses).for_each(|(sum, one)| *sum += one);
            total.durations.iter_mut().zip(&requests.durations).for_each(|(sum, one)| *sum += one);
            let path = if number == 0 { "/".to_owned() } else { format!("/api/{number}") };
            traffic.routes.push(RouteTraffic { host: "example.org".to_owned(), path, requests });
        }
        traffic.routes.push(RouteTraffic {
            requests: Requests { durations: vec![0; 5], ..Requests::default() },
            ..RouteTraffic::default()
        });
        for number in 0..servers {
            traffic.servers.push(ServerTraffic {
                upstream: "app".to_owned(),
                server: format!("10.0.0.{number}:8080"),
                processes: 1,
                processes_up: u32::from(number != 1),
                requests: seconds * 100,
                failures: if number == 1 { seconds * 2 } else { 0 },
                active: 3,
                durations: vec![0, 0, seconds * 100, 0, 0],
                ..ServerTraffic::default()
            });
        }
        let mut total = Messages::default();
        for number in 0..channels {
            let subscribers = 1000 * (channels - number) as u64;
            let messages = Messages {
                subscribers,
                published: 5 * seconds,
                delivered: 5 * seconds * subscribers,
                dropped: if number == 0 { seconds } else { 0 },
                disconnected: 0,
            };
            total.subscribers += messages.subscribers;
            total.published += messages.published;
            total.delivered += messages.delivered;
            total.dropped += messages.dropped;
            let name = format!("/rooms/{number}");
            traffic.channels.top.push(ChannelTraffic { host: String::new(), name, messages });
        }
        traffic.channels.total = total;
        traffic.channels.count = channels;
        traffic
    }

    fn model(seconds: u64) -> TrafficModel {
        let mut model = TrafficModel::new(SECOND, traffic(3, 2, 2, 1));
        (2..=seconds).for_each(|at| model.take(at * SECOND, traffic(3, 2, 2, at)));
        model
    }

    #[test]
    fn rates_and_quantiles_are_of_the_time_in_between() {
        let mut model = model(3);
        let busy = &model.routes[0];
        assert_eq!((&*busy.name, busy.track.requests()), ("example.org/", Some(330.0)));
        assert_eq!((busy.track.class(4), busy.track.class(5)), (Some(30.0), Some(0.0)));
        assert_eq!((busy.track.total(), busy.track.count(2)), (990, 900));
        assert_eq!(model.routes[1].track.class(5), Some(1.0));
        assert_eq!(model.routes[3].name, "(no route)");
        let quantiles = busy.track.quantiles;
        assert_eq!(quantiles.p50.unwrap().to_string(), "778us");
        assert_eq!(quantiles.p99.unwrap().to_string(), "23ms");
        assert_eq!(model.routes[3].track.quantiles, Quantiles::default());
        assert_eq!(model.total.requests(), Some(661.0));
        let down = &model.servers[1];
        assert_eq!((down.now.state(), down.failures()), ("down".to_owned(), Some(2.0)));
        assert_eq!(
            (down.requests(), down.quantiles.p50.unwrap().to_string()),
            (Some(100.0), "3ms".into())
        );
        let channel = &model.channels[0];
        assert_eq!((channel.published(), channel.dropped()), (Some(5.0), Some(1.0)));
        assert_eq!(channel.delivered(), Some(10_000.0));
        assert_eq!(model.delivered, [15_000.0, 15_000.0]);
        assert!(model.other_channels().is_none());
        // Channels that are not in the list are the difference.
        let mut next = traffic(3, 2, 2, 4);
        next.channels.top.pop();
        next.channels.count = 40;
        model.take(4 * SECOND, next);
        let rest = model.other_channels().unwrap();
        assert_eq!((&*rest.name, rest.now.subscribers), ("(39 other channels)", 1000));
        assert_eq!((rest.published(), rest.delivered()), (Some(5.0), Some(5000.0)));
    }

    #[test]
    fn counts_that_become_less_begin_anew_and_never_show_a_burst() {
        let mut model = model(5);
        // Another server has the socket, which has run for longer.
        model.take(6 * SECOND, traffic(3, 2, 2, 2));
        assert_eq!((model.total.requests(), model.routes[0].track.requests()), (None, None));
        assert_eq!(model.routes[0].track.quantiles, Quantiles::default());
        model.take(7 * SECOND, traffic(3, 2, 2, 3));
        assert_eq!(model.total.requests(), Some(661.0));
        // It has just begun.
        model.take(SECOND, traffic(3, 2, 2, 4));
        assert_eq!(model.total.requests(), None);
        // A route that is new has no rate yet, whatever its counts.
        model.take(2 * SECOND, traffic(4, 2, 2, 5));
        assert_eq!(model.routes[3].track.requests(), None);
    }

    #[test]
    fn quantiles_are_of_ten_seconds_at_most_and_few_histograms_are_remembered() {
        let mut model = TrafficModel::new(0, traffic(1, 1, 1, 0));
        let at = |number: u64| number * 50 * MS;
        for number in 1..1000 {
            model.take(at(number), traffic(1, 1, 1, number));
            let histograms = &model.routes[0].track.window.histograms;
            assert!(histograms.len() <= 13, "{}", histograms.len());
            let (first, last) = (histograms.front().unwrap().0, histograms.back().unwrap().0);
            assert_eq!(last, at(number));
            let expected = at(number).min(WINDOW);
            assert!(last - first >= expected && last - first <= expected + 2 * STEP);
        }
        assert_eq!(model.routes[0].track.trend.len(), TREND);
        // Without requests for longer than that there is nothing to show.
        for number in 1000..1300 {
            model.take(at(number), traffic(1, 1, 1, 999));
        }
        assert_eq!(model.routes[0].track.quantiles, Quantiles::default());
        assert_eq!(model.routes[0].track.requests(), Some(0.0));
    }

    #[test]
    fn names_are_put_together() {
        assert_eq!(located("a,b,c", "/x"), "a(+2)/x");
        assert_eq!(located("", "/x"), "/x");
        assert_eq!(located("", ""), "(no route)");
    }
}
