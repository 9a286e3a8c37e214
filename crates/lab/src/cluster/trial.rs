//! All faults in turn, round by round.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::budget::Budget;
use crate::cluster::crowd::{Order, Report};
use crate::cluster::findings::Findings;
use crate::cluster::publisher::{self, Load};
use crate::cluster::site::Site;
use crate::cluster::verdict::Verdict;
use crate::cluster::{CHANNEL, Fault, Options, Row, SERVERS, namespace, redis};
use crate::error::{Error, Result};
use crate::options::{self, Output};
use crate::record::Record;
use crate::sys::process;
use crate::{channel, programs, run};

/// Messages a second that all subscribers together receive if nothing else is asked for.
const RECEIVED: usize = 30_000;

/// The shortest pause between two messages of a publisher if nothing else is asked for.
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
    let rounds = options.rounds.or(options.output.repetitions);
    let rounds = rounds.unwrap_or(if is_quick { 1 } else { 3 });
    let stop = options.stop_seconds.unwrap_or(if is_quick { 3 } else { 10 });
    for (name, value) in [
        ("--subscribers", asked as u64),
        ("--rounds", rounds as u64),
        ("--rate", options.rate.unwrap_or(1)),
        ("--stop-seconds", stop),
    ] {
        if value == 0 {
            return Err(Error::usage(format!("{name} 0 measures nothing: give 1 or more")));
        }
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
        && let Some(reason) = namespace::refusal()
    {
        faults.retain(|fault| *fault != Fault::Partition);
        notes.push(format!("partition left out: {reason}"));
        if faults.is_empty() {
            return Err(Error::usage(format!("partition is not possible: {reason}")));
        }
    }
    let spread = (subscribers * SERVERS * 1000).div_ceil(RECEIVED) as u64;
    let period_ms = options.rate.unwrap_or(spread.max(PERIOD_MS));
    let seconds = |full: f64| Duration::from_secs_f64(if is_quick { full / 2.0 } else { full });
    Ok(Plan {
        faults,
        subscribers,
        rounds,
        period_ms,
        stop: Duration::from_secs(stop),
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
    if programs::find(redis::PROGRAM).is_none() {
        return Err(Error::usage(format!(
            "{} is missing, in which this experiment has its messages: install the package {} (Debian)",
            redis::PROGRAM,
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
        ("redis", json!(programs::first_line(redis::PROGRAM, &["--version"]))),
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
        site.publishers.begin(Load {
            path: CHANNEL.to_owned(),
            name: format!("{round}"),
            period_ms: plan.period_ms,
            hang_up_every: (fault == Fault::Reply).then_some(HANG_UP_EVERY),
        })?;
        pause(plan.before);
        let begun = Instant::now();
        let suffered = site.suffer(fault, round, plan.stop);
        if suffered.is_ok() {
            pause(plan.from_then.saturating_sub(begun.elapsed()).max(plan.after));
        }
        let mut published = site.publishers.end()?;
        suffered?;
        let last = site.publishers.ask(&publisher::Order::One(end))?;
        published.confirmed.extend(last.confirmed);
        published.refused += last.refused;
        published.given_up += last.given_up;
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

#[cfg(test)]
mod tests {
    use super::*;

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
            options.rate = Some(7);
        });
        assert_eq!(chosen.unwrap(), (vec![Fault::Cut, Fault::Stop], 3000, 3, 7));
        assert!(of(|options| options.subscribers = Some(10_000_000)).unwrap().1 < 10_000_000);
        for (change, about) in [
            ((|o| o.faults = "fire".to_owned()) as fn(&mut Options), "\"fire\""),
            (|o| o.subscribers = Some(0), "--subscribers"),
            (|o| o.rounds = Some(0), "--rounds"),
            (|o| o.rate = Some(0), "--rate"),
            (|o| o.stop_seconds = Some(0), "--stop-seconds"),
        ] {
            let error = of(change).unwrap_err().to_string();
            assert!(error.contains(about), "{error}");
        }
    }
}
