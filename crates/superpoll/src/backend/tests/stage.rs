//! A context for tests of a back-end's parts, without a poller around them.

use std::os::fd::RawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::backend::{Context, Delivery};
use crate::event::{Events, Readiness};
use crate::interest::Watch;
use crate::key::Key;
use crate::stats::Stats;
use crate::table::Table;

pub(in crate::backend) struct Stage {
    pub table: Table,
    pub stats: Stats,
    pub events: Events,
    pub delivery: Delivery,
}

/// Keeps tests that open many descriptors apart from those that need small ones, for `select`.
pub(in crate::backend) fn few_or_many() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stage {
    pub(in crate::backend) fn new(limit: usize) -> Stage {
        Stage {
            table: Table::new(Default::default()),
            stats: Stats::default(),
            events: Events::with_limit(limit),
            delivery: Delivery::default(),
        }
    }

    /// Registers a descriptor as if the back-end had applied it already.
    pub(in crate::backend) fn add(&mut self, fd: RawFd, watch: impl Into<Watch>) -> Key {
        let key = self.table.insert(fd, watch.into(), None);
        let applied = self.table.take_changed();
        self.table.recycle_changed(applied);
        key
    }

    pub(in crate::backend) fn cx(&mut self) -> Context<'_> {
        Context {
            table: &mut self.table,
            stats: &mut self.stats,
            events: &mut self.events,
            delivery: &mut self.delivery,
            sleep: None,
            asleep: false,
        }
    }

    /// The events that were delivered.
    pub(in crate::backend) fn delivered(&self) -> Vec<(Key, Readiness)> {
        self.events.iter().map(|event| (event.key(), event.readiness())).collect()
    }

    /// The keys of the events that were delivered, and of those that are kept for their turn.
    pub(in crate::backend) fn keys(&self) -> (Vec<Key>, Vec<Key>) {
        let delivered = self.events.iter().map(|event| event.key()).collect();
        (delivered, self.delivery.backlog.iter().map(|event| event.key()).collect())
    }
}
