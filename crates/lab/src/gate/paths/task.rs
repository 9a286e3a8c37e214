//! Tasks: spawning, a wake-up, joining.

use superpoll_rt::{spawn, yield_now};

use crate::error::Result;
use crate::gate::paths::work::{Work, on, runtime, said, wrong};

pub(super) fn set_up() -> Result<Box<dyn Work>> {
    on(runtime()?, |runtime, count| {
        // The joins run in a task: a thread that blocks on a runtime is woken by other means than a
        // task.
        let joins = async move {
            let mut sum = 0;
            for number in 0..count {
                let task = spawn(async move {
                    yield_now().await;
                    number
                });
                sum += task.await.unwrap_or(0);
            }
            sum
        };
        let sum = runtime.try_block_on(async { spawn(joins).await }).map_err(said)?;
        match sum.map_err(said)? == (0..count).sum::<u64>() {
            true => Ok(()),
            false => wrong("task", "the tasks have not returned the expected sum"),
        }
    })
}
