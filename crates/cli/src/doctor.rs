//! `superpoll doctor`: the back-ends that work on this machine, their costs, and the loads that
//! suit them.

use std::error::Error;
use std::fmt::{self, Write as _};
use std::io::Write as _;

use crate::environment::Environment;
use crate::probe;
use crate::table::Table;
use serde_json::{Map, Value, json};
use superpoll::BackendKind;
use superpoll::backend::policy::{POLICY_VARIABLE, PolicyKind};
use superpoll::diagnostics::{Choice, Costs, Kind, KindCosts};

mod auto;

/// Options of `doctor`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Print one JSON document instead
    #[arg(long)]
    json: bool,
}

/// The version of the document.
const SCHEMA: u32 = 1;

/// Examines the machine and prints the findings.
///
/// # Errors
///
/// An unknown back-end in `SUPERPOLL_BACKEND` or policy in `SUPERPOLL_POLICY`, since every program
/// that leaves the choice to that variable would fail the same way. Or a failure to print.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let chosen = std::env::var(superpoll::backend::BACKEND_VARIABLE).unwrap_or_default();
    let chosen = match chosen.as_str() {
        "" => None,
        name => Some(name.parse::<BackendKind>()?),
    };
    let policy = PolicyKind::from_environment()?;
    let (soft, hard) = superpoll::limits::nofile();
    let costs = Costs::calibrated();
    let tried: Vec<Trial> =
        BackendKind::ALL.into_iter().map(|kind| (kind, probe::backend(kind))).collect();
    let choice = Choice::here();
    let mut text = String::new();
    if options.json {
        writeln!(text, "{:#}", document(&tried, costs, choice, (soft, hard)))?;
    } else {
        describe(&mut text, (chosen, policy), &tried, costs, choice, (soft, hard))?;
    }
    print(&text).map_err(|error| format!("writing to the standard output: {error}"))?;
    Ok(())
}

fn print(text: &str) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

/// A back-end, and the limit with which it works or the reason why it does not.
type Trial = (BackendKind, Result<Option<String>, String>);

/// Writes everything as text.
fn describe(
    out: &mut String,
    (chosen, policy): (Option<BackendKind>, PolicyKind),
    tried: &[Trial],
    costs: &Costs,
    choice: &Choice,
    (soft, hard): (u64, u64),
) -> fmt::Result {
    let here = Environment::here();
    writeln!(out, "superpoll {} on Linux {}", here.superpoll, here.kernel)?;
    writeln!(out, "{}, {} cores", if here.cpu.is_empty() { "?" } else { &here.cpu }, here.cores)?;
    for mitigation in &here.mitigations {
        writeln!(out, "  mitigation {mitigation}")?;
    }
    let unknown = || "unknown".to_owned();
    writeln!(out, "\nlimits\n")?;
    writeln!(out, "descriptors    {soft} (soft), {hard} (hard)")?;
    let slack = |ns| {
        let meaning = "a timeout may end so much later";
        format!("{ns} ns ({meaning}; superpoll::diagnostics::set_timer_slack changes it)")
    };
    let pwait2 = match probe::epoll_pwait2() {
        Ok(()) => "yes: timeouts in nanoseconds".to_owned(),
        Err(error) => format!("no ({error}): timeouts of epoll are rounded up to milliseconds"),
    };
    let returns = match superpoll::diagnostics::uses_return_stack_refill() {
        true => "made cheap after system calls, which pays here",
        false => "left alone after system calls",
    };
    let io_uring = match probe::io_uring_disabled() {
        None => "no sysctl switches it off",
        Some(0) => "not switched off (kernel.io_uring_disabled is 0)",
        Some(1) => "for privileged processes only (kernel.io_uring_disabled is 1)",
        Some(value) => &format!("switched off (kernel.io_uring_disabled is {value})"),
    };
    let watches = probe::epoll_watches().map_or_else(unknown, |n| format!("{n} per user"));
    writeln!(out, "epoll watches  {watches}")?;
    writeln!(out, "timer slack    {}", probe::timer_slack().map_or_else(unknown, slack))?;
    writeln!(out, "epoll_pwait2   {pwait2}")?;
    writeln!(out, "returns        {returns}")?;
    writeln!(out, "io_uring       {io_uring}")?;
    writeln!(out, "\nback-ends\n")?;
    for (kind, outcome) in tried {
        let says = match outcome {
            Ok(None) => "works".to_owned(),
            Ok(Some(limit)) => format!("works, {limit}"),
            Err(error) => format!("does not work: {error}"),
        };
        writeln!(out, "{:<9}  {says}", kind.name())?;
    }
    writeln!(
        out,
        "kqueue     not on Linux; superpoll-lab measures the library libkqueue where it is installed \
         (libkqueue0t64 of Ubuntu 24.04 and of Debian's experimental; libkqueue of Fedora)"
    )?;
    if let Some(kind) = chosen {
        writeln!(
            out,
            "\n{}={kind}: programs that leave the choice to it use {}",
            superpoll::backend::BACKEND_VARIABLE,
            kind.resolve()
        )?;
    }
    if policy != PolicyKind::default() {
        writeln!(out, "\n{POLICY_VARIABLE}={policy}: they place descriptors by this policy")?;
    }
    writeln!(out, "\nback-end auto\n")?;
    auto::explain(out, choice)?;
    writeln!(out, "\ncosts in nanoseconds ({})\n", measured(costs))?;
    write!(out, "{}", table(costs))?;
    for (name, value) in calls(costs) {
        writeln!(out, "{name:<22}  {value:.0}")?;
    }
    writeln!(out, "\nbreak-even: from this active/total ratio on poll is cheaper than epoll\n")?;
    let mut even = Table::new(["kind", "the loop's own time", "with what writers pay"]);
    for kind in Kind::MEASURED {
        let at = costs.break_even(kind);
        even.row([kind.name().to_owned(), share(at.own), share(at.with_writers)]);
    }
    write!(out, "{even}")
}

fn measured(costs: &Costs) -> &'static str {
    if costs.measured { "measured just now" } else { "assumed: measuring failed" }
}

fn share(ratio: f32) -> String {
    if ratio > 1.0 { "never".to_owned() } else { format!("{ratio:.2}") }
}

/// Returns every cost of a kind, by name.
fn fields(costs: &KindCosts) -> [(&'static str, f32); 11] {
    [
        ("scan", costs.scan),
        ("ready", costs.ready),
        ("block", costs.block),
        ("event", costs.event),
        ("level", costs.level),
        ("recheck", costs.recheck),
        ("wake", costs.wake),
        ("parked_wake", costs.parked_wake),
        ("add", costs.add),
        ("modify", costs.modify),
        ("delete", costs.delete),
    ]
}

/// Returns every cost per call, by name.
fn calls(costs: &Costs) -> [(&'static str, f32); 3] {
    [("poll_call", costs.poll_call), ("cold_wait", costs.cold_wait), ("pass", costs.pass)]
}

fn table(costs: &Costs) -> Table {
    let names = fields(costs.of(Kind::Pipe)).map(|(name, _)| name);
    let mut table = Table::new(std::iter::once("kind").chain(names));
    for kind in Kind::MEASURED {
        let values = fields(costs.of(kind)).map(|(_, value)| format!("{value:.0}"));
        table.row(std::iter::once(kind.name().to_owned()).chain(values));
    }
    table
}

fn document(tried: &[Trial], costs: &Costs, choice: &Choice, (soft, hard): (u64, u64)) -> Value {
    let backends: Vec<Value> = tried
        .iter()
        .map(|(kind, outcome)| match outcome {
            Ok(limit) => json!({"name": kind.name(), "works": true, "limit": limit}),
            Err(error) => json!({"name": kind.name(), "works": false, "reason": error}),
        })
        .collect();
    let kinds = Kind::MEASURED.map(|kind| {
        let mut object: Map<String, Value> = fields(costs.of(kind))
            .into_iter()
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect();
        let even = costs.break_even(kind);
        // JSON has no infinity: null means never.
        let finite = |ratio: f32| ratio.is_finite().then_some(ratio);
        object.insert(
            "break_even".to_owned(),
            json!({"own": finite(even.own), "with_writers": finite(even.with_writers)}),
        );
        (kind.name().to_owned(), Value::Object(object))
    });
    let mut ns: Map<String, Value> = kinds.into_iter().collect();
    ns.extend(calls(costs).map(|(name, value)| (name.to_owned(), json!(value))));
    ns.insert("measured".to_owned(), json!(costs.measured));
    json!({
        "schema": SCHEMA,
        "environment": Environment::here(),
        "limits": {
            "descriptors_soft": soft,
            "descriptors_hard": hard,
            "epoll_watches": probe::epoll_watches(),
            "timer_slack_ns": probe::timer_slack(),
            "epoll_pwait2": probe::epoll_pwait2().is_ok(),
            "io_uring_disabled": probe::io_uring_disabled(),
        },
        "uses_return_stack_refill": superpoll::diagnostics::uses_return_stack_refill(),
        "backends": backends,
        "auto": auto::document(choice),
        "costs_ns": ns,
    })
}
