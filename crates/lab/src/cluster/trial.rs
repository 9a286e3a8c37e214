//! All faults in turn, round by round.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::budget::Budget;
use crate::cluster::crowd::{Order, Position, Report};
use crate::cluster::publisher::{Load, Published, Publisher};
use crate::cluster::site::{self, Site};
use crate::cluster::{CHANNEL, Fault, Options, SERVERS, redis};
use crate::error::{Error, Result};
use crate::findings::{Findings, Named, Row};
use crate::options::{self, Output};
use crate::record::Record;
use crate::sys::process;
use crate::{channel, rivals, run};

/// Messages a second that all subscribers together receive.
const RECEIVED: usize = 30_000;

/// The shortest pause between two messages of a publisher, in milliseconds.
const PERIOD_MS: u64 = 50;

/// Publishers hang up before the answer once in so many messages.
const HANG_UP_EVERY: u64 = 3;

/// Descriptors that a server needs in addition to its connections.
const RESERVE: usize = 256;

/// The checked options.
#[derive(Debug)]
struct Plan {
    faults: Vec<Fault>,
    subscribers: usize,
    rounds: usize,
    period_ms: u64,
    stop: Duration,
    /// How long messages are published before the fault, for how long from then on at least, and
    /// how long after its end at least.
    before: Duration,
    from_then: Duration,
    after: Duration,
    /// Messages of the measurements of delay and of processor time.
    delays: u64,
    publications: u64,
    notes: Vec<String>,
}

fn plan(options: &Options) -> Result<Plan> {
    let is_quick = options.output.quick;
    let known = |fault: &Fault| fault.name();
    let mut faults = options::named(&options.faults, &Fault::ALL, known, |_| true, "no fault")?;
    let asked = options.subscribers.unwrap_or(if is_quick { 150 } else { 3000 });
    let rounds = options.output.repetitions.unwrap_or(if is_quick { 1 } else { 3 });
    if asked == 0 {
        return Err(Error::usage("--subscribers 0 measures nothing: give 1 or more"));
    }
    let mut notes = Vec::new();
    // While one server is away, each of the others may have all subscribers.
    let most = (2 * channel::most_pairs()).saturating_sub(RESERVE).max(1);
    if asked > most {
        let limit = superpoll::limits::nofile().1;
        notes.push(format!(
            "{most} subscribers instead of {asked}: the limit of {limit} descriptors leaves no more"
        ));
    }
    let subscribers = asked.min(most);
    if faults.contains(&Fault::Partition)
        && let Some(reason) = site::refusal()
    {
        faults.retain(|fault| *fault != Fault::Partition);
        notes.push(format!("partition left out: {reason}"));
        if faults.is_empty() {
            return Err(Error::usage(format!("partition is not possible: {reason}")));
        }
    }
    let spread = (subscribers * SERVERS * 1000).div_ceil(RECEIVED) as u64;
    let seconds = |full: f64| Duration::from_secs_f64(if is_quick { full / 2.0 } else { full });
    Ok(Plan {
        faults,
        subscribers,
        rounds,
        period_ms: spread.max(PERIOD_MS),
        stop: Duration::from_secs(if is_quick { 3 } else { 10 }),
        before: seconds(1.0),
        from_then: seconds(3.0),
        after: seconds(2.0),
        delays: if is_quick { 15 } else { 100 },
        publications: if is_quick { 300 } else { 3000 },
        notes,
    })
}

pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    let plan = plan(options)?;
    let missing =
        [redis::PROGRAM, redis::CLIENT].into_iter().find(|one| rivals::find(one).is_none());
    if let Some(program) = missing {
        return Err(Error::usage(format!(
            "{program} is missing, which this experiment needs for its messages: install the package {} (Debian)",
            redis::PACKAGE
        )));
    }
    let output = Output { repetitions: Some(plan.rounds), ..options.output.clone() };
    let budget = Budget::of_sizes(&output, vec![1; plan.faults.len()], 55.0, 600.0);
    let blocks = plan.faults.len() * plan.rounds;
    let frame = run::Run::new("cluster", &output, plan.notes.clone(), blocks, budget);
    let mut run = Run { plan: &plan, frame, findings: Findings::default() };
    for &fault in &plan.faults {
        if run.frame.budget.point() {
            let measured = run.fault(fault);
            run.frame.budget.keep(measured)?;
        }
    }
    let own = [
        ("faults", json!(plan.faults.iter().map(|fault| fault.name()).collect::<Vec<_>>())),
        ("subscribers", json!(plan.subscribers)),
        ("servers", json!(SERVERS)),
        ("rounds", json!(plan.rounds)),
        ("rate_ms", json!(plan.period_ms)),
        ("stop_seconds", json!(plan.stop.as_secs())),
        ("redis", json!(rivals::first_line(redis::PROGRAM, &["--version"]))),
    ];
    Ok(run.frame.record(own, run.findings.rows()))
}

/// A run under way.
struct Run<'a> {
    plan: &'a Plan,
    frame: run::Run<'a>,
    findings: Findings,
}

impl Run<'_> {
    fn fault(&mut self, fault: Fault) -> Result<()> {
        let plan = self.plan;
        let mut site = Site::start(fault, plan.subscribers)?;
        if fault == Fault::None {
            self.frame.progress.step("processor time".to_owned());
            for round in 0..plan.rounds {
                let figures = site.processor(plan.publications, round)?;
                self.findings.note(("processor", "a publication", 0), &figures);
            }
        }
        site.connect(plan.subscribers)?;
        if fault == Fault::None {
            self.frame.progress.step("delay".to_owned());
            let figures = site.delay(plan.delays, plan.subscribers)?;
            self.findings.note(("delay", "to the last subscriber", plan.subscribers), &figures);
        }
        while self.frame.budget.round() {
            let round = self.frame.budget.number();
            if round > 0 {
                site.mend(fault)?;
            }
            self.frame.progress.step(format!("{fault}, round {}", round + 1));
            let verdict = self.round(&mut site, fault, round)?;
            self.findings.note(("fault", fault.name(), plan.subscribers), &verdict.figures());
            self.explain(fault, &verdict);
        }
        Ok(())
    }

    fn round(&self, site: &mut Site, fault: Fault, round: usize) -> Result<Verdict> {
        let plan = self.plan;
        let end = format!("end-{round}");
        for crowd in &mut site.crowds {
            crowd.order(&Order::Follow(end.clone()))?;
        }
        let load = Load {
            path: CHANNEL,
            name: format!("{round}"),
            period_ms: plan.period_ms,
            hang_up_every: (fault == Fault::Reply).then_some(HANG_UP_EVERY),
        };
        let (is_over, addresses) = (AtomicBool::new(false), site.addresses.clone());
        let (suffered, mut published) = std::thread::scope(|scope| {
            let (load, is_over) = (&load, &is_over);
            let publish = |home| {
                let publisher = Publisher::new(&addresses, home);
                scope.spawn(move || publisher.publish(load, u64::MAX, is_over))
            };
            let all: Vec<_> = (0..SERVERS).map(publish).collect();
            pause(plan.before);
            let begun = Instant::now();
            let suffered = site.suffer(fault, round, plan.stop);
            if suffered.is_ok() {
                pause(plan.from_then.saturating_sub(begun.elapsed()).max(plan.after));
            }
            is_over.store(true, Ordering::Relaxed);
            let mut published = Published::default();
            for one in all {
                published.add(one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            (suffered, published)
        });
        suffered?;
        published.add(site.publish_one(&end));
        let mut reports = Vec::new();
        for crowd in &mut site.crowds {
            reports.push(crowd.answer::<Report>()?);
        }
        let texts: Vec<String> = published.confirmed.iter().map(|one| one.text.clone()).collect();
        let mut checked = Vec::new();
        for crowd in &mut site.crowds {
            checked.push(crowd.ask(&Order::Check(texts.clone()))?);
        }
        Ok(Verdict::new(&published, reports, checked, fault.destroys()))
    }

    /// Prints examples of the mistakes in a round, if there are any.
    fn explain(&mut self, fault: Fault, verdict: &Verdict) {
        if verdict.is_wrong() || (verdict.total.missed > 0 && !fault.destroys()) {
            let examples: Vec<_> = verdict.total.complaints.iter().take(6).cloned().collect();
            let reasons = &verdict.total.reasons;
            let examples = examples.join("; ");
            self.frame.note(format!("{fault}: {examples}; lost connections: {reasons:?}"));
        }
    }
}

fn pause(time: Duration) {
    process::sleep(time.as_nanos() as u64);
}

// The verdict on a round: everything that publishers and subscribers report, together.

/// The findings of a round.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// The sum of all processes.
    pub total: Report,
    confirmed: u64,
    refused: u64,
}

impl Verdict {
    /// Judges a round. `checked` are the reports on lost messages; `destroys` says whether the
    /// fault may destroy confirmed messages.
    pub(super) fn new(
        published: &Published,
        reports: Vec<Report>,
        checked: Vec<Report>,
        destroys: bool,
    ) -> Verdict {
        let mut total = Report::default();
        let mut texts: HashMap<Position, String> = HashMap::new();
        for report in reports.into_iter().chain(checked) {
            for heard in report.messages {
                let text = texts.entry(heard.position).or_insert_with(|| heard.text.clone());
                if *text != heard.text {
                    total.reordered += 1;
                    let (at, other) = (heard.position, &heard.text);
                    total.complaints.push(format!("{text} and {other} are both at {at}"));
                }
            }
            total.lost += report.lost;
            total.doubled += report.doubled;
            total.reordered += report.reordered;
            total.missed += report.missed;
            total.reconnects += report.reconnects;
            total.silence_ns = total.silence_ns.max(report.silence_ns);
            total.complaints.extend(report.complaints);
            add(&mut total.reasons, report.reasons);
        }
        for confirmed in &published.confirmed {
            let (text, at) = (&confirmed.text, confirmed.position);
            match texts.get(&at) {
                Some(found) if found == text => {}
                Some(found) => {
                    total.reordered += 1;
                    total
                        .complaints
                        .push(format!("{text} was confirmed at {at}, {found} is there"));
                }
                None if destroys => {}
                None => {
                    total.lost += 1;
                    total
                        .complaints
                        .push(format!("{text} was confirmed at {at}, nothing is there"));
                }
            }
        }
        total.lost += published.given_up;
        let confirmed = published.confirmed.len() as u64;
        Verdict { total, confirmed, refused: published.refused }
    }

    /// Returns whether a promise was broken.
    pub(super) fn is_wrong(&self) -> bool {
        self.total.lost + self.total.doubled + self.total.reordered > 0
    }

    /// Returns the figures of the round.
    pub(super) fn figures(&self) -> [Named; 8] {
        let count = |name, number: u64| (name, "count", number as f64);
        [
            count("lost", self.total.lost),
            count("doubled", self.total.doubled),
            count("reordered", self.total.reordered),
            count("missed", self.total.missed),
            count("reconnects", self.total.reconnects),
            count("confirmed", self.confirmed),
            count("refused", self.refused),
            ("silence", "ns", self.total.silence_ns as f64),
        ]
    }
}

fn add(to: &mut BTreeMap<String, u64>, from: BTreeMap<String, u64>) {
    for (reason, count) in from {
        *to.entry(reason).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::crowd::Heard;
    use crate::cluster::publisher::Confirmed;

    #[test]
    fn options_are_checked() {
        let of = |change: fn(&mut Options)| {
            let mut options = Options { faults: "none".to_owned(), ..Options::default() };
            change(&mut options);
            plan(&options).map(|plan| (plan.faults, plan.subscribers, plan.rounds, plan.period_ms))
        };
        assert_eq!(of(|_| {}).unwrap(), (vec![Fault::None], 3000, 3, 300));
        let quick = of(|options| options.output.quick = true).unwrap();
        assert_eq!(quick, (vec![Fault::None], 150, 1, 50));
        let chosen = of(|options| {
            options.faults = "cut, stop,cut".to_owned();
        });
        assert_eq!(chosen.unwrap(), (vec![Fault::Cut, Fault::Stop], 3000, 3, 300));
        assert!(of(|options| options.subscribers = Some(10_000_000)).unwrap().1 < 10_000_000);
        for (change, about) in [
            ((|o| o.faults = "fire".to_owned()) as fn(&mut Options), "\"fire\""),
            (|o| o.subscribers = Some(0), "--subscribers"),
        ] {
            let error = of(change).unwrap_err().to_string();
            assert!(error.contains(about), "{error}");
        }
    }

    fn at(id: u64) -> Position {
        Position { epoch: 7, id }
    }

    fn heard(id: u64, text: &str) -> Heard {
        Heard { position: at(id), text: text.to_owned(), last_elsewhere_ns: 0 }
    }

    #[test]
    fn processes_and_publishers_are_compared_with_each_other() {
        let report = |messages| Report { messages, missed: 1, silence_ns: 5, ..Report::default() };
        let reports =
            || vec![report(vec![heard(1, "a"), heard(2, "b")]), report(vec![heard(2, "c")])];
        let confirm =
            |id, text: &str| Confirmed { text: text.to_owned(), position: at(id), begun_ns: 0 };
        let published = Published {
            confirmed: vec![confirm(1, "a"), confirm(2, "c"), confirm(3, "d")],
            refused: 4,
            ..Published::default()
        };
        let of = |destroys| Verdict::new(&published, reports(), Vec::new(), destroys);
        let verdict = of(false);
        let total = &verdict.total;
        assert_eq!((total.lost, total.reordered, total.missed), (1, 2, 2));
        assert!(verdict.is_wrong() && total.complaints.len() == 3);
        assert_eq!(of(true).total.lost, 0);
        assert_eq!(
            verdict.figures()[5..7],
            [("confirmed", "count", 3.0), ("refused", "count", 4.0)]
        );
    }
}
