//! Tasks: spawning, a wake-up, joining.

use superpoll_rt::{BackendKind, Runtime, spawn, yield_now};

use crate::error::Result;
use crate::gate::counted::{self, Counted};
use crate::gate::paths::work::{Work, said, wrong};

struct Tasks {
    runtime: Runtime,
}

pub(super) fn set_up() -> Result<Box<dyn Work>> {
    let runtime = Runtime::builder().backend(BackendKind::Epoll).build().map_err(said)?;
    Ok(Box::new(Tasks { runtime }))
}

impl Work for Tasks {
    fn operate(&mut self, count: u64) -> Result<()> {
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
        let sum = self.runtime.block_on(async { spawn(joins).await }).map_err(said)?;
        match sum.map_err(said)? == (0..count).sum::<u64>() {
            true => Ok(()),
            false => wrong("task", "the tasks have not returned the expected sum"),
        }
    }

    fn counted(&self) -> Counted {
        counted::of_runtime(&self.runtime)
    }
}
