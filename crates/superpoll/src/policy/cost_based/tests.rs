//! The rule, step by step with exact numbers: one descriptor on a stage, a file for each subject.

mod array;
mod epoll;
mod learning;
mod quiet;
mod stay;
mod ticks;

use super::*;
use crate::costs::{Costs, Kind};

/// A policy, one descriptor, and the passes around them.
struct Stage {
    policy: CostBased,
    account: Account,
    passes: u32,
    blocks: u32,
    hot: usize,
    cold: usize,
    /// Slots that the passes scan besides the one on stage, whose events are not counted.
    scanned: usize,
}

const COSTS: Costs = Costs::ASSUMED;

impl Stage {
    fn new(kind: Kind, hint: Hint) -> Stage {
        let mut stage = Stage {
            policy: CostBased::new(),
            account: Account { kind, ..Account::default() },
            passes: 0,
            blocks: 0,
            hot: 0,
            cold: 100,
            scanned: 0,
        };
        let view = stage.view();
        stage.policy.start(&mut stage.account, hint, &view);
        stage
    }

    fn view(&self) -> View<'static> {
        View {
            costs: &COSTS,
            scan_factor: 1.0,
            passes: self.passes,
            blocks: self.blocks,
            hot: self.hot,
            cold: self.cold,
        }
    }

    fn pass(&mut self, times: u32) {
        for _ in 0..times {
            self.passes += 1;
            let counts = PassCounts { hot: self.scanned, cold: self.cold, ..PassCounts::default() };
            self.policy.pass(counts, &self.view());
        }
    }

    fn cold_event(&mut self) -> bool {
        let view = self.view();
        self.policy.cold_event(&mut self.account, &view)
    }

    fn promote(&mut self) {
        (self.hot, self.account.parked) = (100, true);
        let view = self.view();
        self.policy.moved_to_hot(&mut self.account, &view);
    }

    fn hot_event(&mut self) {
        let view = self.view();
        self.policy.hot_event(&mut self.account, &view);
    }

    fn review(&mut self) -> Verdict {
        let view = self.view();
        self.policy.review(&mut self.account, &view)
    }

    fn demote(&mut self) {
        (self.hot, self.account.parked) = (0, false);
        let view = self.view();
        self.policy.moved_to_cold(&mut self.account, false, &view);
    }

    /// The descriptor on stage has this account.
    fn with(account: Account) -> Stage {
        Stage { account, ..Stage::new(Kind::Pipe, Hint::None) }
    }

    fn model(&mut self) -> &mut KindModel {
        let view = self.view();
        &mut self.policy.models(&view)[1]
    }

    /// The sums of the records: bursts, lulls of parked and of settled descriptors, and stays.
    fn recorded(&mut self) -> [f32; 4] {
        let model = *self.model();
        let (rises, falls) = (model.rises.iter().sum(), model.falls.iter().sum());
        let falls_settled = model.falls_settled.iter().sum();
        [rises, falls, falls_settled, model.settles.iter().sum()]
    }

    fn recorded_any(&mut self) -> [bool; 4] {
        self.recorded().map(|sum| sum != 0.0)
    }
}

/// An account in the present tick, with this credit and reach.
fn account(credit: f32, burst_peak: f32) -> Account {
    Account { credit, burst_peak, kind: Kind::Pipe, ..Account::default() }
}

const NONE: [bool; 4] = [false; 4];
const BURST: [bool; 4] = [true, false, false, false];
const LULL: [bool; 4] = [false, true, false, false];
const LULL_SETTLED: [bool; 4] = [false, false, true, false];
