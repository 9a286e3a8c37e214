//! `superpoll-lab statistics`: which estimator recovers a planted difference.
//!
//! Two subjects take turns; one of them is really 5 % more expensive. Each block costs what the
//! subject costs, give or take one per cent (memory lies elsewhere in each block), and the
//! interference of a shared machine comes on top. It comes in bursts that last some blocks, its
//! size has a heavy tail, and in a quarter of the runs it keeps the period of the turns, so that by
//! bad luck only one of the two subjects is hit. The parameters are those that were measured on two
//! cores of a virtual machine while other programs compiled: a burst begins in every thirteenth
//! block and goes on with a probability of one half, half of all hits cost a tenth or more, and one
//! in a hundred doubles the block.

use crate::error::{Error, Result};
use crate::random::Random;
use crate::statistics::{Estimator, mean, quantile};
use crate::table::Table;

/// Options of `superpoll-lab statistics`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Blocks of each subject, with commas
    #[arg(long, value_name = "LIST", default_value = "5,11,50")]
    pub blocks: String,
    /// Simulated runs
    #[arg(long, value_name = "N", default_value_t = 300)]
    pub runs: usize,
    /// The real ratio of the two costs
    #[arg(long, value_name = "RATIO", default_value_t = 1.05)]
    pub planted: f64,
    /// The seed of everything drawn at random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Resamples for each interval: enough to find its ends within a per cent.
const RESAMPLES: usize = 200;

/// The interference of a machine.
#[derive(Clone, Copy, Debug)]
struct Machine {
    name: &'static str,
    /// The probability that a burst begins in a block.
    begins: f64,
    /// The probability that a burst goes on in the next block.
    goes_on: f64,
}

const MACHINES: [Machine; 3] = [
    Machine { name: "quiet", begins: 0.02, goes_on: 0.5 },
    Machine { name: "shared", begins: 0.08, goes_on: 0.5 },
    Machine { name: "busy", begins: 0.25, goes_on: 0.6 },
];

/// How far the cost of a block lies from the subject's cost without interference, on average.
const JITTER: f64 = 0.01;

/// The size of a hit in the middle of all hits, as a share of a block, and the largest.
const HIT: (f64, f64) = (0.1, 10.0);

/// How heavy the tail of hits is: the exponent of a Pareto distribution.
const TAIL: f64 = 1.2;

/// The share of runs in which interference keeps the period of the turns.
const IN_STEP: f64 = 0.25;

impl Machine {
    /// Draws the blocks of two subjects with these costs that take turns.
    fn blocks(self, costs: [f64; 2], count: usize, random: &mut Random) -> [Vec<f64>; 2] {
        let only = random.chance(IN_STEP).then(|| random.below(2));
        let (mut burst, mut blocks) = (false, [Vec::new(), Vec::new()]);
        for block in 0..2 * count {
            let subject = block % 2;
            burst = random.chance(if burst { self.goes_on } else { self.begins });
            let hit =
                if burst && only.is_none_or(|only| only == subject) { hit(random) } else { 0.0 };
            let jitter = JITTER * (random.unit() + random.unit() + random.unit() - 1.5) * 2.0;
            blocks[subject].push(costs[subject] * (1.0 + jitter) + hit);
        }
        blocks
    }
}

/// Draws the time that a hit adds.
fn hit(random: &mut Random) -> f64 {
    let least = HIT.0 * 0.5f64.powf(1.0 / TAIL);
    (least / (1.0 - random.unit()).powf(1.0 / TAIL)).min(HIT.1)
}

/// The quality of an estimator over all runs.
#[derive(Clone, Copy, Debug)]
struct Quality {
    /// The mean estimate less the planted ratio.
    bias: f64,
    /// The distance from the planted ratio that nine estimates in ten keep.
    off: f64,
    /// The share of runs that call the cheaper subject the more expensive one.
    wrong_sign: f64,
    /// The share of runs whose interval includes the planted ratio.
    coverage: f64,
}

fn quality(estimator: Estimator, machine: Machine, count: usize, options: &Options) -> Quality {
    let mut random = Random::new(options.seed);
    let (mut values, mut covered) = (Vec::new(), 0);
    for _ in 0..options.runs {
        let [other, own] = machine.blocks([1.0, options.planted], count, &mut random);
        let Some(found) = estimator.estimate(&own, &other, RESAMPLES) else { continue };
        covered += usize::from((found.low..=found.high).contains(&options.planted));
        values.push(found.value);
    }
    let share = |count: usize| count as f64 / values.len().max(1) as f64;
    let away: Vec<f64> = values.iter().map(|value| (value - options.planted).abs()).collect();
    let is_wrong = |value: &&f64| (**value > 1.0) != (options.planted > 1.0);
    Quality {
        bias: mean(&values) - options.planted,
        off: quantile(&away, 0.9),
        wrong_sign: share(values.iter().filter(is_wrong).count()),
        coverage: share(covered),
    }
}

/// Prints how far each estimator is from the planted ratio.
pub(crate) fn run(options: &Options) -> Result<()> {
    let counts = crate::options::numbers("--blocks", &options.blocks)?;
    if options.runs == 0 || counts.contains(&0) {
        return Err(Error::usage("--runs 0 or --blocks 0 simulates nothing: give 1 or more"));
    }
    if !(options.planted > 0.0 && options.planted.is_finite()) {
        return Err(Error::usage(format!("--planted {} is not a ratio of costs", options.planted)));
    }
    crate::say!("planted ratio {}, {} runs\n", options.planted, options.runs)?;
    let heading =
        ["machine", "blocks", "estimator", "bias", "90 % within", "wrong sign", "coverage of 90 %"];
    let mut table = Table::new(heading).names(3);
    for machine in MACHINES {
        for &count in &counts {
            for estimator in Estimator::ALL {
                let found = quality(estimator, machine, count, options);
                let percent = |share: f64| format!("{:.1} %", 100.0 * share);
                table.row([
                    machine.name.to_owned(),
                    count.to_string(),
                    estimator.name().to_owned(),
                    format!("{:+.3}", found.bias),
                    format!("{:.3}", found.off),
                    percent(found.wrong_sign),
                    percent(found.coverage),
                ]);
            }
        }
    }
    crate::say::print(table)
}
