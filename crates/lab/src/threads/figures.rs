//! Rows from blocks: medians, and ratios to the best loop over events, turn by turn.

use crate::statistics::{self, Ratio};
use crate::threads::Row;
use crate::threads::block::Block;
use crate::threads::subject::{Entry, Family};

/// A figure of a block.
type Account = fn(&Block) -> f64;

/// Processor time for an event, including the writer's share. If waiting seems to make a write
/// cheaper, that is noise, and no subject gets credit for it.
fn cost(block: &Block) -> f64 {
    block.cpu_ns + block.write_ns.max(0.0)
}

fn clock(block: &Block) -> f64 {
    block.clock_ns
}

/// Returns the rows of a point, named by `at`, whose subjects have the same number of blocks each.
pub(super) fn rows(at: &Row, entries: &[Entry], blocks: &[Vec<Block>]) -> Vec<Row> {
    let best = [clock as Account, cost].map(|of| best(entries, blocks, of));
    let rows = entries.iter().zip(blocks);
    rows.map(|(entry, own)| {
        let all = |of: Account| own.iter().map(of).collect::<Vec<f64>>();
        let middle = |of: Account| statistics::median(&all(of));
        let per_descriptor = |of: Account| middle(of) / at.total.max(1) as f64;
        let ratios = |of: Account, best: Option<&[Block]>| {
            Ratio::of(&all(of), &best?.iter().map(of).collect::<Vec<f64>>())
        };
        let [clock_ratio, cost_ratio] = [ratios(clock, best[0]), ratios(cost, best[1])];
        Row {
            subject: entry.name.to_owned(),
            family: entry.family.name().to_owned(),
            threads: own.iter().map(|block| block.set.threads).max().unwrap_or(0),
            blocks: own.len(),
            rounds: own.iter().map(|block| block.rounds).sum(),
            clock_ns_per_round: middle(clock),
            clock_ns_per_round_low: statistics::minimum(&all(clock)),
            clock_ns_per_round_high: statistics::maximum(&all(clock)),
            cpu_ns_per_event: middle(|block| block.cpu_ns),
            write_ns_per_event: middle(|block| block.write_ns),
            cost_ns_per_event: middle(cost),
            cost_ns_per_event_low: statistics::minimum(&all(cost)),
            cost_ns_per_event_high: statistics::maximum(&all(cost)),
            clock_ratio: clock_ratio.map(|ratio| ratio.median),
            clock_ratio_low: clock_ratio.map(|ratio| ratio.low),
            clock_ratio_high: clock_ratio.map(|ratio| ratio.high),
            cost_ratio: cost_ratio.map(|ratio| ratio.median),
            cost_ratio_low: cost_ratio.map(|ratio| ratio.low),
            cost_ratio_high: cost_ratio.map(|ratio| ratio.high),
            clock_decile: clock_ratio.and_then(|ratio| ratio.decile),
            cost_decile: cost_ratio.and_then(|ratio| ratio.decile),
            voluntary_switches_per_event: middle(|block| block.voluntary),
            involuntary_switches_per_event: middle(|block| block.involuntary),
            memory_per_descriptor: per_descriptor(|block| block.set.memory as f64),
            kernel_stack_per_descriptor: per_descriptor(|block| block.kernel_stacks),
            set_up_ns_per_descriptor: per_descriptor(|block| block.set.ns as f64),
            ..at.clone()
        }
    })
    .collect()
}

/// Returns the blocks of the event loop that is best by `of`.
fn best<'a>(entries: &[Entry], blocks: &'a [Vec<Block>], of: Account) -> Option<&'a [Block]> {
    let middle = |own: &[Block]| statistics::median(&own.iter().map(of).collect::<Vec<_>>());
    let loops = entries.iter().zip(blocks).filter(|(entry, _)| entry.family == Family::Events);
    let owns = loops.map(|(_, own)| own.as_slice()).filter(|own| middle(own) > 0.0);
    owns.min_by(|a, b| middle(a).total_cmp(&middle(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::counters::SetUpReport;
    use crate::threads::subject;

    #[test]
    fn ratios_are_of_the_same_turn_to_the_loop_that_is_best_by_each_account() {
        let at = Row { total: 10, active: 5, ..Row::default() };
        let entries = subject::chosen(Some("thread-per-descriptor,raw-poll,raw-epoll-lt")).unwrap();
        let block = |clock_ns, cpu_ns, write_ns| Block {
            clock_ns,
            cpu_ns,
            write_ns,
            rounds: 4,
            set: SetUpReport { threads: 11, memory: 40, ns: 500 },
            ..Block::default()
        };
        let blocks = [
            vec![block(100.0, 30.0, 20.0), block(90.0, 30.0, 30.0), block(160.0, 30.0, 0.0)],
            // The quicker event loop by the clock, and the more expensive one by processor time.
            vec![block(50.0, 40.0, -3.0), block(60.0, 40.0, -3.0), block(40.0, 40.0, 1.0)],
            vec![block(80.0, 10.0, 10.0), block(80.0, 10.0, 10.0), block(80.0, 10.0, 10.0)],
        ];
        let rows = rows(&at, &entries, &blocks);
        let threads = &rows[0];
        assert_eq!((threads.threads, threads.blocks, threads.rounds), (11, 3, 12));
        assert_eq!((threads.memory_per_descriptor, threads.set_up_ns_per_descriptor), (4.0, 50.0));
        let clock = [threads.clock_ratio_low, threads.clock_ratio, threads.clock_ratio_high];
        assert_eq!(clock, [Some(1.5), Some(2.0), Some(4.0)]);
        let cost = [threads.cost_ratio_low, threads.cost_ratio, threads.cost_ratio_high];
        assert_eq!(cost, [Some(1.5), Some(2.5), Some(3.0)]);
        // A write that seems cheaper is no credit.
        assert_eq!((rows[1].cost_ns_per_event_low, rows[1].cost_ratio), (40.0, Some(2.0)));
        assert_eq!((rows[1].clock_ratio, rows[2].cost_ratio), (Some(1.0), Some(1.0)));
        assert_eq!((threads.family.as_str(), rows[1].family.as_str()), ("threads", "events"));
        let alone = super::rows(&at, &entries[..1], &blocks[..1]);
        assert_eq!((alone[0].clock_ratio, alone[0].cost_ratio), (None, None));
    }
}
