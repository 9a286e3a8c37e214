//! What placement costs in the simulator: the families of loads that the targets name, and the
//! worst loads that a search finds. `placement [SEED]` searches from another seed.

use superpoll::backend::policy::CostBased;
use superpoll::diagnostics::Kind;
use superpoll_lab::simulator::{
    Adversary, Load, Outcome, Pattern, Search, Setting, Tactic, play, play_adversary, worst_load,
};

fn line(name: &str, outcome: &Outcome) {
    println!(
        "  {name:<58} {:>6.3} {:>6.3} {:>8.3} {:>8} {:>8} {:>5}",
        outcome.ratio(),
        outcome.ratio_own(),
        outcome.regret(),
        outcome.moves,
        outcome.triggers,
        outcome.hot,
    );
}

fn families() -> Vec<Load> {
    let mut loads = vec![];
    for active in [1, 2, 3, 4, 5, 8, 16, 100, 400, 999] {
        loads.push(Load::new(active, Pattern::Steady).and(1000 - active, Pattern::Idle));
    }
    for (hot, cold) in [(50, 950), (200, 9_600), (1_000, 8_800)] {
        loads.push(Load::new(hot, Pattern::Steady).and(cold, Pattern::Few(5)));
    }
    for every in [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 50, 70, 100, 200, 1000] {
        loads.push(Load::new(1000, Pattern::Rotating { active: 50, every, jitter: 0 }));
    }
    for chance in [0.01, 0.05, 0.1, 0.13, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9] {
        loads.push(Load::new(1000, Pattern::Chance(chance)));
    }
    loads
}

fn main() {
    let seed = std::env::args().nth(1).and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for kind in Kind::MEASURED {
        let setting = Setting::new(kind);
        println!(
            "{}: to pure, own time, to hindsight, moves, triggers, hot at the end",
            kind.name()
        );
        for load in families() {
            line(&load.to_string(), &play(CostBased::new(), &load, 3000, &setting));
        }
        for tactic in [Tactic::Contrary, Tactic::Delayed(3), Tactic::Careless(0.1)] {
            let mut adversary = Adversary::new(tactic, 200, seed);
            let outcome = play_adversary(CostBased::new(), &mut adversary, 3000, &setting);
            line(&format!("200: {tactic:?}"), &outcome);
        }
        for seed in seed..seed + 3 {
            let worst = worst_load(CostBased::new, &setting, &Search { seed, ..Search::default() });
            line(&worst.load.to_string(), &worst.outcome);
        }
        let small = Search { seed, smallest: 1, largest: 8, ..Search::default() };
        let worst = worst_load(CostBased::new, &setting, &small);
        line(&worst.load.to_string(), &worst.outcome);
    }
}
