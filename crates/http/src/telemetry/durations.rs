//! Histograms of durations, and those of the requests of each route.
//!
//! A duration counts in one bucket and in a sum, so that counting is two additions; a reader makes
//! the cumulative buckets of Prometheus. The bounds are fixed: they go from half a millisecond,
//! which is slow for a file, to the ten seconds after which users have left. The requests of a
//! route have a histogram for each engine, which no other thread writes, and for each class of
//! status. Their memory is bounded by the configuration: 712 bytes a route and engine, with the
//! counts of requests that were refused (`RefusalCounts`).

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::Response;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use serde::{Deserialize, Serialize};
use superpoll_rt::time;

use super::counters::{self, RefusalCounts, RefusalStates};
use super::families::{self, Labels};
use super::traffic::{Requests, RouteTraffic};
use crate::body::Body;
use crate::rules::{Reason, Refused};

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000 * MICROSECOND;
const SECOND: u64 = 1_000 * MILLISECOND;

/// The upper bounds of the buckets, in nanoseconds. Longer durations count in a bucket of their
/// own.
pub const BOUNDS: [u64; 14] = [
    500 * MICROSECOND,
    MILLISECOND,
    2_500 * MICROSECOND,
    5 * MILLISECOND,
    10 * MILLISECOND,
    25 * MILLISECOND,
    50 * MILLISECOND,
    100 * MILLISECOND,
    250 * MILLISECOND,
    500 * MILLISECOND,
    SECOND,
    2_500 * MILLISECOND,
    5 * SECOND,
    10 * SECOND,
];

/// The classes of status, by the first digit.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// A histogram of durations, which any thread may count in.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    /// The sum of all durations, in nanoseconds: enough for 584 years of requests.
    sum: AtomicU64,
}

impl Histogram {
    /// Counts a duration.
    pub(crate) fn count(&self, took: Duration) {
        let seconds = took.as_secs().saturating_mul(SECOND);
        let nanos = seconds.saturating_add(u64::from(took.subsec_nanos()));
        let bucket = BOUNDS.iter().position(|bound| nanos <= *bound).unwrap_or(BOUNDS.len());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Returns the counts of now.
    pub fn state(&self) -> HistogramState {
        let buckets = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        HistogramState { buckets, nanoseconds: self.sum.load(Ordering::Relaxed) }
    }
}

/// The counts of a histogram at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HistogramState {
    buckets: Vec<u64>,
    nanoseconds: u64,
}

impl HistogramState {
    fn is_empty(&self) -> bool {
        self.buckets.iter().all(|count| *count == 0)
    }

    fn add(&mut self, other: &HistogramState) {
        self.buckets.resize(BOUNDS.len() + 1, 0);
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(count, more)| *count += more);
        self.nanoseconds = self.nanoseconds.wrapping_add(other.nanoseconds);
    }

    /// Returns the counts of the buckets, and the sum of all durations in nanoseconds.
    pub fn into_parts(self) -> (Vec<u64>, u64) {
        (self.buckets, self.nanoseconds)
    }

    /// Returns the counts by the upper bounds in seconds, as the encoder wants them.
    fn by_bound(&self) -> Vec<(f64, u64)> {
        let bounds = BOUNDS.iter().map(|nanos| *nanos as f64 / 1e9).chain([f64::INFINITY]);
        bounds.zip(self.buckets.iter().copied()).collect()
    }
}

/// Writes a family of histograms, each with its labels; none where nothing was counted.
pub fn write_histograms<'a>(
    (name, help): (&str, &str),
    histograms: impl Iterator<Item = (Labels, &'a HistogramState)>,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let unit = Some(&Unit::Seconds);
    let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Histogram)?;
    for (labels, state) in histograms.filter(|(_, state)| !state.is_empty()) {
        let (sum, count) = (state.nanoseconds as f64 / 1e9, state.buckets.iter().sum());
        let mut family = family.encode_family(&labels)?;
        family.encode_histogram::<[(&str, &str); 0]>(sum, count, &state.by_bound(), None)?;
    }
    Ok(())
}

/// The durations of one engine's requests to a route, by class of status, and those that were
/// refused.
#[derive(Debug, Default)]
pub struct RequestDurations {
    /// The path of the route in the configuration; empty for requests that have no route.
    path: Arc<str>,
    classes: [Histogram; CLASSES.len()],
    refusals: RefusalCounts,
}

impl RequestDurations {
    fn count(&self, status: u16, took: Duration) {
        let class = usize::from(status / 100).clamp(1, CLASSES.len());
        self.classes[class - 1].count(took);
    }

    /// Sets the reasons for which requests to the route may be refused.
    pub fn expect_refusals(&self, reasons: impl Iterator<Item = Reason>) {
        self.refusals.expect(reasons);
    }

    /// Counts a request that is refused, and returns the response.
    #[inline]
    pub fn refused(&self, refused: Refused) -> Response<Body> {
        self.refusals.count(refused.reason);
        refused.response
    }
}

/// The requests of a route on all engines.
#[derive(Debug)]
pub(crate) struct RouteRequests {
    /// The host's names, separated by commas.
    host: String,
    /// The path in the configuration; empty for requests that have no route.
    path: String,
    engines: Vec<Arc<RequestDurations>>,
}

impl RouteRequests {
    /// Creates the counts of a route for this many engines.
    fn new(host: String, path: &str, engines: usize) -> Arc<RouteRequests> {
        let shared: Arc<str> = path.into();
        let of_engine = || RequestDurations { path: shared.clone(), ..RequestDurations::default() };
        let engines = (0..engines).map(|_| Arc::new(of_engine())).collect();
        Arc::new(RouteRequests { host, path: path.to_owned(), engines })
    }

    /// Returns the durations of an engine's requests. There is an engine of this number.
    pub(crate) fn of_engine(&self, engine: usize) -> &Arc<RequestDurations> {
        &self.engines[engine]
    }
}

/// The requests of all routes of a configuration.
#[derive(Clone, Debug, Default)]
pub struct RequestCounts {
    routes: Arc<[Arc<RouteRequests>]>,
}

/// The name by which the counts of a route continue in another configuration.
#[derive(Eq, Hash)]
struct RouteKey<'a> {
    host: &'a str,
    path: &'a str,
}

impl PartialEq for RouteKey<'_> {
    fn eq(&self, other: &Self) -> bool {
        #[cfg(test)]
        tests::COMPARED.with(|compared| compared.set(compared.get() + 1));
        self.host == other.host && self.path == other.path
    }
}

impl RequestCounts {
    /// Returns the counts for routes by their hosts and paths. Those of a route that was there
    /// before continue, and the counts of other ones end. Routes of a host with the same path count
    /// together.
    pub fn collect<'a>(
        routes: impl Iterator<Item = (String, &'a str)>,
        engines: usize,
        before: &RequestCounts,
    ) -> RequestCounts {
        let mut known = HashMap::with_capacity(before.routes.len());
        for route in &*before.routes {
            known.entry(RouteKey { host: &route.host, path: &route.path }).or_insert(route);
        }
        let without_route = (String::new(), "");
        let mut all: Vec<Arc<RouteRequests>> = Vec::new();
        let mut new = HashMap::<(String, &str), Arc<RouteRequests>>::new();
        for (host, path) in routes.chain([without_route]) {
            let known = known.get(&RouteKey { host: &host, path }).copied().cloned();
            all.push(known.unwrap_or_else(|| {
                let place = new.entry((host, path));
                let host = place.key().0.clone();
                place.or_insert_with(|| RouteRequests::new(host, path, engines)).clone()
            }));
        }
        RequestCounts { routes: all.into() }
    }

    /// Returns an engine's counts of each route in their order, and last the counts of requests
    /// that have none.
    pub fn of_engine(&self, engine: usize) -> Vec<Arc<RequestDurations>> {
        self.routes.iter().map(|route| route.of_engine(engine).clone()).collect()
    }

    /// Returns the counts of now, summed over the engines.
    pub fn states(&self, process: Option<u32>) -> Vec<RouteDurations> {
        let of = |route: &Arc<RouteRequests>| {
            let mut classes: [HistogramState; CLASSES.len()] = Default::default();
            let mut refusals = RefusalStates::default();
            for engine in &route.engines {
                let histograms = classes.iter_mut().zip(&engine.classes);
                histograms.for_each(|(sum, histogram)| sum.add(&histogram.state()));
                refusals.add(&engine.refusals);
            }
            let (host, path) = (route.host.clone(), route.path.clone());
            RouteDurations { process, host, path, classes, refusals }
        };
        let mut seen = HashSet::new();
        let each = self.routes.iter().filter(|route| seen.insert(Arc::as_ptr(route)));
        each.map(of).collect()
    }

    /// Returns the requests of each route so far.
    pub fn traffic(&self) -> Vec<RouteTraffic> {
        let of = |route: RouteDurations| RouteTraffic {
            requests: requests(&route.classes),
            host: route.host,
            path: route.path,
        };
        self.states(None).into_iter().map(of).collect()
    }
}

/// Returns the requests of all classes.
fn requests(classes: &[HistogramState; CLASSES.len()]) -> Requests {
    let mut durations = HistogramState::default();
    classes.iter().for_each(|class| durations.add(class));
    let responses = std::array::from_fn(|class| classes[class].buckets.iter().sum());
    let (durations, nanoseconds) = durations.into_parts();
    Requests { responses, durations, nanoseconds }
}

/// The durations of a route's requests at one moment.
#[derive(Debug, Serialize, Deserialize)]
pub struct RouteDurations {
    /// The place of the process that says so among the workers, if there are several.
    process: Option<u32>,
    host: String,
    path: String,
    classes: [HistogramState; CLASSES.len()],
    refusals: RefusalStates,
}

impl RouteDurations {
    fn labels(&self) -> Labels {
        families::labels([("host", &*self.host), ("route", &*self.path)], self.process)
    }

    fn labels_of_class(&self, class: &str) -> Labels {
        let own = [("host", &*self.host), ("route", &*self.path), ("class", class)];
        families::labels(own, self.process)
    }

    /// Writes the durations of all routes, and their refusals.
    pub fn write(routes: &[RouteDurations], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let all = routes.iter().flat_map(|route| {
            let classes = CLASSES.iter().zip(&route.classes);
            classes.map(|(class, state)| (route.labels_of_class(class), state))
        });
        let help = "Time from the head of a request to the head of its response";
        write_histograms(("http_request_duration", help), all, encoder)?;
        let all = routes.iter().map(|route| (route.labels(), &route.refusals));
        counters::write_refusals(all, encoder)
    }
}

/// A request under way, whose duration counts for a route when its response begins.
pub struct RequestTimer {
    begun: Instant,
    counts_in: Arc<RequestDurations>,
}

impl RequestTimer {
    /// Begins with a request that has arrived now.
    pub fn begin(counts_in: &Arc<RequestDurations>) -> RequestTimer {
        RequestTimer { begun: time::now(), counts_in: counts_in.clone() }
    }

    /// Counts the request for another route.
    #[inline]
    pub fn counts_in(&mut self, counts_in: &Arc<RequestDurations>) {
        self.counts_in = counts_in.clone();
    }

    /// Returns the path of the route that the request counts for; empty if it has none.
    #[inline]
    pub fn route(&self) -> &Arc<str> {
        &self.counts_in.path
    }

    /// Counts the request: the head of its response is there.
    #[inline]
    pub fn answered(&self, status: u16) {
        self.counts_in.count(status, time::now() - self.begun);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// The comparisons of names of routes on this thread.
        pub(super) static COMPARED: Cell<u64> = const { Cell::new(0) };
    }

    #[test]
    fn the_counts_of_many_routes_are_found_without_comparing_all_with_all() {
        let paths: Vec<String> = (0..3_000).map(|index| format!("/{index}")).collect();
        let routes = || paths.iter().map(|path| ("h".to_owned(), path.as_str()));
        let before = RequestCounts::collect(routes(), 1, &RequestCounts::default());
        COMPARED.set(0);
        let after = RequestCounts::collect(routes().rev(), 1, &before);
        // One for each route, and some for equal hashes.
        assert!((3_001..9_000).contains(&COMPARED.get()), "{} comparisons", COMPARED.get());
        let last = &after.routes[..3_000];
        assert!(last.iter().rev().zip(&*before.routes).all(|(one, other)| Arc::ptr_eq(one, other)));
    }

    #[test]
    fn a_duration_counts_in_the_bucket_of_the_next_bound() {
        for (nanos, expected) in [
            (0, 0),
            (500_000, 0),
            (500_001, 1),
            (1_000_000, 1),
            (2_499_999, 2),
            (10_000_000_000, 13),
            (10_000_000_001, 14),
            (u64::MAX, 14),
        ] {
            let histogram = Histogram::default();
            histogram.count(Duration::from_nanos(nanos));
            let state = histogram.state();
            assert_eq!(state.buckets.iter().position(|count| *count == 1), Some(expected));
            assert_eq!((state.buckets.iter().sum::<u64>(), state.nanoseconds), (1, nanos));
        }
    }

    #[test]
    fn counts_go_on_for_routes_that_stay_and_sum_over_engines() {
        let routes =
            |paths: &'static [&'static str]| paths.iter().map(|path| ("h".to_owned(), *path));
        let first = RequestCounts::collect(routes(&["/", "/a"]), 2, &RequestCounts::default());
        for engine in 0..2 {
            let of_engine = first.of_engine(engine);
            of_engine[1].count(204, Duration::from_millis(3));
            of_engine[2].count(404, Duration::from_millis(1));
        }
        let next = RequestCounts::collect(routes(&["/b", "/a"]), 2, &first);
        let states = next.states(Some(4));
        let paths: Vec<_> = states.iter().map(|route| (&*route.host, &*route.path)).collect();
        assert_eq!(paths, [("h", "/b"), ("h", "/a"), ("", "")]);
        assert!(states[0].classes.iter().all(|class| class.is_empty() && class.nanoseconds == 0));
        assert_eq!(states[1].classes[1].nanoseconds, 6_000_000);
        assert_eq!(states[2].classes[3].buckets[1], 2);
        let traffic = next.traffic();
        assert_eq!(traffic[1].requests.responses, [0, 2, 0, 0, 0]);
        assert_eq!(
            (traffic[1].requests.durations[3], traffic[1].requests.nanoseconds),
            (2, 6_000_000)
        );
        assert_eq!((&*traffic[2].path, traffic[2].requests.responses[3]), ("", 2));
    }
}
