//! SIGHUP and `superpoll reload` to a process that serves: the configuration is read and prepared
//! on a thread, and requests are answered meanwhile.
//!
//! ```text
//!                asked                  prepared: taken on, or refused
//!  (idle) ----------------> under way -------------------------------------> (idle)
//!                             |    ^                                           |
//!                             +----+ asked: once more, after this one ---------+
//! ```
//!
//! One configuration is prepared at a time. All that is asked for meanwhile is one further reading,
//! which begins afterwards: a command reports the outcome of a reading that began after it. An
//! upgrade or the end of the server gives up both.

use std::future::pending;
use std::sync::Arc;

use superpoll_gateway::Config;
use superpoll_gateway::control::CommandCall;
use superpoll_gateway::serve::{Preparation, PreparedConfig};
use superpoll_rt::blocking::{Blocking, unblock};

use super::commands;

/// The reloads of a process.
#[derive(Default)]
pub(super) struct Reloads {
    under_way: Option<Reading>,
    /// The commands that wait for the next reading, if there will be one.
    next: Option<Vec<CommandCall>>,
}

/// A reading of the configuration.
struct Reading {
    /// The number of the configuration in the supervisor.
    number: u64,
    calls: Vec<CommandCall>,
    outcome: Blocking<Result<PreparedConfig, String>>,
}

/// A configuration that was read.
pub(super) struct Outcome {
    pub number: u64,
    pub calls: Vec<CommandCall>,
    pub prepared: Result<PreparedConfig, String>,
}

impl Reloads {
    /// Asks for a reading. Returns whether it can [begin](Reloads::begin) now.
    pub(super) fn ask(&mut self, call: Option<CommandCall>) -> bool {
        self.next.get_or_insert_default().extend(call);
        self.is_due()
    }

    /// Whether a reading was asked for, and none is under way.
    pub(super) fn is_due(&self) -> bool {
        self.next.is_some() && self.under_way.is_none()
    }

    /// Begins the reading that is due, on a thread.
    pub(super) fn begin(
        &mut self,
        number: u64,
        preparation: Preparation,
        read: impl FnOnce() -> Result<Config, String> + Send + 'static,
    ) {
        let prepare = move || preparation.prepare(read()?).map_err(|error| error.to_string());
        let calls = self.next.take().unwrap_or_default();
        self.under_way = Some(Reading { number, calls, outcome: unblock(prepare) });
    }

    /// Waits until the reading under way has ended; indefinitely, if there is none.
    ///
    /// # Cancel safety
    ///
    /// Cancelling loses nothing.
    pub(super) async fn outcome(&mut self) -> Outcome {
        let Some(reading) = &mut self.under_way else { return pending().await };
        let prepared = (&mut reading.outcome).await;
        let prepared = prepared.unwrap_or_else(|error| {
            Err(format!("reading the configuration on another thread: {error}"))
        });
        let (number, calls) = (reading.number, std::mem::take(&mut reading.calls));
        self.under_way = None;
        Outcome { number, calls, prepared }
    }

    /// Gives up the readings, and refuses the commands that wait for them.
    pub(super) fn give_up(&mut self, why: &str) {
        let under_way = self.under_way.take().map(|reading| reading.calls);
        let calls = under_way.into_iter().chain(self.next.take()).flatten();
        calls.for_each(|call| commands::refuse(Some(call), why));
    }
}

/// Returns the outcome for each command that waits for the same reload.
pub(super) fn conclude(
    calls: Vec<CommandCall>,
    path: &std::path::Path,
    outcome: &Result<Arc<Config>, String>,
) {
    for call in calls {
        let told = outcome.as_ref().map(|config| commands::taken_on(path, config));
        let told = told.map_err(|error| commands::not_taken_on(error));
        commands::conclude(Some(call), told);
    }
}
