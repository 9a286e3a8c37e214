//! A trial of servers: at each point the participating servers are set up and take turns, on a
//! processor of their own.

use serde_json::{Value, json};

use crate::budget::Budget;
use crate::environment::Environment;
use crate::error::Result;
use crate::options::Output;
use crate::progress::Progress;
use crate::record::Record;
use crate::rivals::{self, Lost};
use crate::server::ProcessOptions;
use crate::server::processors::Processors;
use crate::server::turns;

/// The parameters of a trial that are known beforehand.
pub(crate) struct Plan<'a> {
    /// The experiment.
    pub name: &'static str,
    /// Its time limit and the other options that all experiments have.
    pub output: &'a Output,
    /// Seconds for each point, unless the options set a time.
    pub seconds: f64,
    /// Servers that take part.
    pub servers: usize,
}

/// A trial under way.
pub(crate) struct Trial {
    /// Its time.
    pub budget: Budget,
    /// Where servers are started.
    pub process: ProcessOptions,
    /// The rivals that have failed.
    pub lost: Lost,
    /// Shows each step.
    pub progress: Progress,
}

/// A finished trial.
pub(crate) struct Done<Row> {
    name: &'static str,
    environment: Environment,
    /// The rows of all points.
    pub rows: Vec<Row>,
    lost: Lost,
    parameters: Vec<(&'static str, Value)>,
}

impl Plan<'_> {
    /// Measures at each point, as long as there is time.
    pub(crate) fn run<Point: Copy, Row>(
        &self,
        lost: Lost,
        points: &[Point],
        mut measure: impl FnMut(&mut Trial, Point) -> Result<Vec<Row>>,
    ) -> Result<Done<Row>> {
        let output = self.output;
        // Before this thread keeps to one processor.
        let environment = Environment::here();
        let processors = Processors::here();
        let steps = points.len() * self.servers * (turns::ROUNDS + 2);
        let full = self.seconds * points.len() as f64;
        let budget = Budget::new(output, points.len(), 10.0, full);
        let mut rows = Vec::new();
        let (lost, budget) = processors.apart(|processor| {
            let process = ProcessOptions { processor, second_thread: output.second_thread };
            let progress = Progress::new(self.name, steps);
            let mut trial = Trial { budget, process, lost, progress };
            for &point in points {
                if trial.budget.point() {
                    let measured = measure(&mut trial, point);
                    rows.extend(trial.budget.keep(measured)?.into_iter().flatten());
                }
            }
            Ok::<_, crate::error::Error>((trial.lost, trial.budget))
        })?;
        let own = [
            ("client_processor", json!(processors.client())),
            ("server_processor", json!(processors.server())),
            ("bytes_verified", json!(true)),
        ];
        let parameters = output.parameters().into_iter().chain(own).chain(budget.end()).collect();
        Ok(Done { name: self.name, environment, rows, lost, parameters })
    }
}

impl Trial {
    /// Sets up the servers that have not failed yet. `about` is shown with each.
    pub(crate) fn set_up<Entry: Copy, Runner>(
        &mut self,
        entries: impl IntoIterator<Item = Entry>,
        name: impl Fn(Entry) -> &'static str,
        about: &str,
        mut set_up: impl FnMut(Entry) -> Result<Runner>,
    ) -> Result<Vec<Runner>> {
        let mut runners = Vec::new();
        for entry in entries {
            let name = name(entry);
            // Without time, the point is left out.
            if self.budget.is_over() {
                break;
            }
            if !self.lost.has(name) {
                self.progress.step(format!("{name} begins: {about}"));
                runners.extend(self.lost.keep(name, set_up(entry))?);
            }
        }
        Ok(runners)
    }
}

impl<Row> Done<Row> {
    /// Returns the record: with the names and descriptions of the servers, the rivals among `all`,
    /// and the experiment's own parameters.
    pub(crate) fn record<'a>(
        self,
        servers: impl Iterator<Item = (&'a str, &'a str)> + Clone,
        all: impl IntoIterator<Item = &'a str>,
        notes: Vec<String>,
        more: impl IntoIterator<Item = (&'static str, Value)>,
    ) -> Record<Row> {
        let notes: Vec<String> = notes.into_iter().chain(self.lost.notes()).collect();
        let names: Vec<&str> = servers.clone().map(|(name, _)| name).collect();
        let about = servers.map(|(name, about)| (name.to_owned(), json!(about))).collect();
        let own = [
            ("subjects", json!(names)),
            ("about", about),
            ("rivals", rivals::versions(all)),
            ("notes", json!(notes)),
        ];
        let parameters = more.into_iter().chain(self.parameters).chain(own);
        Record::new(self.name, self.environment, parameters, self.rows)
    }
}
