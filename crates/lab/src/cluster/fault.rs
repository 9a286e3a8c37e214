//! The faults, while messages are published.

use std::time::Duration;

use crate::cluster::Fault;
use crate::cluster::gateway::Gateway;
use crate::cluster::site::{Broker, Site};
use crate::error::{Doing, Error, Result};
use crate::sys::process;

/// How long a killed server is away.
const AWAY_NS: u64 = 500_000_000;

/// How often all connections are cut, and the pause after each.
const CUTS: usize = 10;
const CUT_NS: u64 = 50_000_000;

/// How long a link is cut.
const APART_NS: u64 = 5_000_000_000;

impl Site {
    /// Makes a part fail, and returns when the fault is over. Rounds are counted from zero.
    pub(super) fn suffer(&mut self, fault: Fault, round: usize, stop: Duration) -> Result<()> {
        let victim = round % self.gateways.len();
        match (fault, &mut self.broker) {
            // Publishers cause this one.
            (Fault::None | Fault::Reply, _) => Ok(()),
            (Fault::Gateway, _) => {
                let gateway = &mut self.gateways[victim];
                gateway.kill();
                process::sleep(AWAY_NS);
                gateway.start_again()
            }
            (Fault::Partition, _) => {
                let link = |gateway: &Gateway, is_up| {
                    gateway.namespace().map_or(Ok(()), |namespace| namespace.set_up(is_up))
                };
                link(&self.gateways[victim], false)?;
                process::sleep(APART_NS);
                link(&self.gateways[victim], true)
            }
            (Fault::Promote, Broker::Watched(watched)) => watched.promote(),
            (Fault::Redis, Broker::Single(redis)) => {
                redis.kill();
                redis.start_again(&[])
            }
            (Fault::Stop, Broker::Single(redis)) => {
                redis.stop(true)?;
                process::sleep(stop.as_nanos() as u64);
                redis.stop(false)
            }
            (Fault::Flush, Broker::Single(redis)) => {
                redis.call(&["FLUSHALL"]).map(drop).doing("emptying Redis")
            }
            (Fault::Cut, Broker::Single(redis)) => {
                for _ in 0..CUTS {
                    redis
                        .call(&["CLIENT", "KILL", "TYPE", "normal"])
                        .doing("cutting the connections to Redis")?;
                    process::sleep(CUT_NS);
                }
                Ok(())
            }
            _ => Err(Error::usage(format!("the fault {fault} needs another log"))),
        }
    }

    /// Restores the parts that a fault has taken, and waits until every server is ready.
    pub(super) fn mend(&mut self, fault: Fault) -> Result<()> {
        if let (Fault::Promote, Broker::Watched(watched)) = (fault, &mut self.broker) {
            watched.mend()?;
        }
        self.gateways.iter().try_for_each(Gateway::until_ready)
    }
}
