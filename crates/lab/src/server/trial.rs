//! A trial of servers: at each point the participating servers are set up and take turns, on a
//! processor of their own.

use serde_json::{Value, json};

use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::options::Output;
use crate::record::Record;
use crate::rivals::Lost;
use crate::run::Run;
use crate::server::ProcessOptions;
use crate::server::generator::Load;
use crate::server::processors::Processors;
use crate::server::subject::{self, Subject};
use crate::server::turns::{self, Figures, Runner};

/// The parameters of a trial that are known beforehand.
pub(crate) struct Plan<'a, Start> {
    /// The experiment.
    pub name: &'static str,
    /// The options that all experiments have.
    pub output: &'a Output,
    /// The servers that take part.
    pub subjects: &'a [Subject<Start>],
    /// The names of all servers, for the versions of the rivals among them.
    pub all: Vec<&'static str>,
    /// The time.
    pub budget: Budget,
    /// The rivals that have failed already.
    pub lost: Lost,
    /// What is left out or made smaller, and why.
    pub notes: Vec<String>,
    /// How many steps are shown.
    pub steps: usize,
}

/// A trial under way.
pub(crate) struct Trial<'a> {
    /// Its time, its progress and the rivals that have failed.
    pub run: Run<'a>,
    /// Where servers are started.
    pub process: ProcessOptions,
}

impl<'a, Start> Plan<'a, Start> {
    /// Creates the plan of servers that take turns at this many points, with `seconds` for each
    /// unless the options set a time.
    pub(crate) fn new(
        name: &'static str,
        output: &'a Output,
        subjects: &'a [Subject<Start>],
        points: usize,
        seconds: f64,
    ) -> Plan<'a, Start> {
        Plan {
            name,
            output,
            subjects,
            all: Vec::new(),
            budget: Budget::new(output, points, 10.0, seconds * points as f64),
            lost: Lost::default(),
            notes: Vec::new(),
            steps: points * subjects.len() * (turns::ROUNDS + 2),
        }
    }

    /// Measures at each point, as long as there is time, and returns the record, with the
    /// experiment's own parameters.
    pub(crate) fn run<Point, Row>(
        self,
        points: &[Point],
        own: impl IntoIterator<Item = (&'static str, Value)>,
        mut measure: impl FnMut(&mut Trial<'_>, &Point) -> Result<Vec<Row>>,
    ) -> Result<Record<Row>> {
        let Plan { name, output, subjects, all, budget, lost, notes, steps } = self;
        // Before this thread keeps to one processor.
        let mut run = Run::new(name, output, notes, steps, budget);
        run.lost = lost;
        let processors = Processors::here();
        let (run, rows) = processors.apart(|processor| {
            let process = ProcessOptions { processor, second_thread: output.second_thread };
            let mut trial = Trial { run, process };
            let mut rows = Vec::new();
            for point in points {
                if trial.run.budget.point() {
                    let measured = measure(&mut trial, point);
                    rows.extend(trial.run.budget.keep(measured)?.into_iter().flatten());
                }
            }
            Ok::<_, Error>((trial.run, rows))
        })?;
        let here = [
            ("client_processor", json!(processors.client())),
            ("server_processor", json!(processors.server())),
            ("bytes_verified", json!(true)),
        ];
        let own = own.into_iter().chain(here).chain(subject::parameters(subjects, all));
        Ok(run.record(own, rows))
    }
}

impl Trial<'_> {
    /// Sets up the servers that have not failed yet, lets them take turns, and returns a row of
    /// each. `set_up` also returns what has to live as long as the server; `row` gets that, and the
    /// figures of the rounds. `about` is shown with each step.
    pub(crate) fn take_turns<Start: Copy, L: Load, Kept, Row>(
        &mut self,
        subjects: impl IntoIterator<Item = Subject<Start>>,
        about: &str,
        mut set_up: impl FnMut(Subject<Start>, ProcessOptions) -> Result<(Runner<L>, Kept)>,
        mut row: impl FnMut(&mut Runner<L>, &mut Kept, Figures) -> Result<Row>,
    ) -> Result<Vec<Row>> {
        // The servers end before what they need.
        let (mut kept, mut runners) = (Vec::new(), Vec::new());
        let Trial { run: Run { budget, lost, progress, .. }, process } = self;
        for subject in subjects {
            let name = subject.name;
            // Without time, the point is left out.
            if budget.is_over() {
                break;
            }
            if !lost.has(name) {
                progress.step(format!("{name} begins: {about}"));
                if let Some((runner, own)) = lost.keep(name, set_up(subject, *process))? {
                    runners.push(runner);
                    kept.push(own);
                }
            }
        }
        let begins = |name| progress.step(format!("{name}: {about}"));
        let requests = turns::take_turns(&mut runners, budget, lost, begins)?;
        turns::rows(&mut runners, lost, |place, runner| {
            progress.step(format!("{}: {about}: figures", runner.name()));
            let figures = runner.figures(requests)?;
            row(runner, &mut kept[place], figures)
        })
    }
}
