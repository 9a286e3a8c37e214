//! The parts of a server that its supervisor asks about, if it is one of several processes.

use std::rc::Rc;
use std::sync::Arc;

use super::operations::ServerOperations;
use crate::admin::Settings;
use crate::certificates::TicketSecrets;
use crate::processes::{Counters, Kind, Source};
use crate::telemetry::overview::Overview;
use crate::telemetry::socket::{Kept, Subject, carry_out};

/// The parts of a server that the supervisor asks about.
pub(super) struct ServerSource {
    pub(super) overview: Arc<Overview>,
    pub(super) tickets: Arc<TicketSecrets>,
    pub(super) statistics: Arc<Subject>,
    pub(super) operations: Arc<ServerOperations>,
}

impl Source for ServerSource {
    fn tickets(&self) -> &Arc<TicketSecrets> {
        &self.tickets
    }

    fn set(&self, settings: Settings) {
        self.operations.set(settings);
    }

    fn counters(&self) -> Counters {
        let (overview, statistics) = (self.overview.clone(), self.statistics.clone());
        let kept = Rc::new(Kept::default());
        Rc::new(move |kind| {
            let (overview, statistics, kept) = (overview.clone(), statistics.clone(), kept.clone());
            Box::pin(async move {
                match kind {
                    Kind::Overview => overview.encoded().await,
                    Kind::Engines => overview.encoded_engines().await,
                    Kind::Traffic(channels) => overview.encoded_traffic(&channels).await,
                    Kind::Statistics(channels) => {
                        postcard::to_allocvec(&kept.take(statistics, channels).await).ok()
                    }
                    Kind::Operation(operation) => {
                        Some(carry_out(Some(statistics), &operation).await)
                    }
                }
            })
        })
    }
}
