//! The operations of operators on a server of several processes.
//!
//! The supervisor has the settings of operators. It checks a change, sends the settings to all
//! workers, and then asks the workers for the answer, on the same connections: a worker that
//! answers has the settings already. Everything else is asked of all workers, and merged.

use superpoll_gateway::processes::{Answers, Question};
use superpoll_http::admin::{
    LogReport, Operation, OperationReport, Outcome, Refusal, ReopenedLogs, Report, ServerChange,
    merge,
};
use superpoll_http::log::reopen;

use super::questions::most_unanswered;
use super::service::WorkerService;

/// The answers of the workers to an operation.
struct Asked {
    reports: Vec<Result<Report, Refusal>>,
    /// The processes that have answered.
    answered: Vec<u32>,
    /// Those that have not.
    missing: Vec<u32>,
}

impl Asked {
    /// Merges the reports of the workers into one list.
    fn listed(self, operation: &Operation) -> Outcome {
        let report = merge(operation, self.reports)?;
        Ok(OperationReport { missing_processes: self.missing, ..report.into() })
    }

    /// Returns the report of a change, which was sent to all workers: it is none of its failures
    /// that a worker has not answered. Without any answer the report is `unseen`.
    fn changed(self, operation: &Operation, unseen: Report) -> Outcome {
        let report = match self.reports.is_empty() {
            true => unseen,
            false => merge(operation, self.reports)?,
        };
        let (applied_processes, missing_processes) = (self.answered, self.missing);
        Ok(OperationReport { report, applied_processes, missing_processes })
    }
}

/// Leaves the upstream that was changed.
fn only(change: &ServerChange, mut outcome: Outcome) -> Outcome {
    if let Ok(OperationReport { report: Report::Upstreams(upstreams), .. }) = &mut outcome {
        upstreams.retain(|upstream| upstream.name == change.upstream);
    }
    outcome
}

impl WorkerService {
    /// Carries out an operation.
    pub(super) async fn operate(&self, operation: Operation) -> Outcome {
        match operation {
            Operation::SetServer(change) => {
                self.settings.borrow_mut().change(&change, &self.upstreams.borrow())?;
                self.send_settings();
                let asked = self.ask(&Operation::Upstreams).await?;
                let unseen = Report::Upstreams(Vec::new());
                only(&change, asked.changed(&Operation::Upstreams, unseen))
            }
            Operation::SetLog(level) => {
                self.settings.borrow_mut().log = level;
                self.error_log.level().set(level);
                self.send_settings();
                // The level of this process is that of all; a worker that refuses to say has it
                // too.
                let asked = self.ask(&Operation::Log).await?;
                Asked { reports: Vec::new(), ..asked }.changed(&Operation::Log, self.log_report())
            }
            Operation::Log => Ok(self.log_report().into()),
            Operation::Close(_) => {
                self.ask(&operation).await?.changed(&operation, Report::Closed(0))
            }
            Operation::ReopenLogs => self.reopen_all_logs().await,
            operation => self.ask(&operation).await?.listed(&operation),
        }
    }

    /// Opens the files of the logs of all processes again, which may have been moved away. The
    /// outcome is logged.
    pub(super) async fn reopen_logs(&self) {
        // Each process has logged its failures, and one that does not answer is still going to.
        let _ = self.reopen_all_logs().await;
    }

    async fn reopen_all_logs(&self) -> Outcome {
        let own = self.error_log.reopening().into_iter().collect();
        let mut all = reopen(own, |event| self.error_log.write(event)).await;
        let asked = self.ask(&Operation::ReopenLogs).await?;
        let unseen = Report::Reopened(ReopenedLogs::default());
        let mut outcome = asked.changed(&Operation::ReopenLogs, unseen)?;
        if let Report::Reopened(of_workers) = &mut outcome.report {
            all.add(std::mem::take(of_workers));
            *of_workers = all;
        }
        Ok(outcome)
    }

    fn log_report(&self) -> Report {
        let log = self.error_log.level();
        Report::Log(LogReport { level: log.get(), configured: log.configured() })
    }

    /// Makes all workers carry out an operation.
    async fn ask(&self, operation: &Operation) -> Result<Asked, Refusal> {
        let bytes =
            serde_json::to_vec(operation).map_err(|error| Refusal::invalid(error.to_string()))?;
        let most = most_unanswered(operation);
        let Answers { all, missing } = self.collect_up_to(Question::Operation(bytes), most).await;
        let answered = all.iter().map(|answer| answer.process).collect();
        // A worker that has just begun answers with no bytes, and has nothing yet.
        let outcomes =
            all.iter().filter_map(|answer| serde_json::from_slice::<Outcome>(&answer.bytes).ok());
        let reports = outcomes.map(|outcome| outcome.map(|told| told.report)).collect();
        Ok(Asked { reports, answered, missing })
    }
}
