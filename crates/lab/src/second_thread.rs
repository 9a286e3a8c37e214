//! A thread that does nothing, for measuring the cost of its mere presence: with a second thread in
//! the process every descriptor lookup has to count references.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct SecondThread(Option<(Sender<()>, JoinHandle<()>)>);

impl SecondThread {
    /// Starts it. Where the system refuses a thread there is none, which the environment's count
    /// of threads shows.
    pub(crate) fn start() -> SecondThread {
        let (end, wait): (Sender<()>, Receiver<()>) = channel();
        let idle = move || {
            // Sleeps until the sender is dropped.
            let _ = wait.recv();
        };
        let thread = std::thread::Builder::new().name("idle".to_owned()).spawn(idle).ok();
        SecondThread(thread.map(|thread| (end, thread)))
    }
}

impl Drop for SecondThread {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.0.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::SecondThread;

    #[test]
    fn it_is_there_and_then_gone() {
        let names = || {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap();
            tasks
                .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
                .filter(|name| name.trim() == "idle")
                .count()
        };
        let thread = SecondThread::start();
        // The thread names itself when it first runs.
        while names() == 0 {
            std::thread::yield_now();
        }
        drop(thread);
        // The kernel lists a thread for a moment after it could be joined.
        let dropped = Instant::now();
        while names() > 0 {
            assert!(dropped.elapsed() < Duration::from_secs(60), "the thread runs on");
            std::thread::yield_now();
        }
    }
}
