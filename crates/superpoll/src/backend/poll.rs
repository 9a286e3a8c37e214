//! `poll(2)`: the whole array in each call, cheapest where most of it is active.
//!
//! A `poll` that blocks joins the wait queue of every descriptor and leaves it again, which costs
//! four times the scan. So a wait looks first, without blocking, and blocks only if nothing was
//! ready; with one or two descriptors the second call would cost more than the queues.
//!
//! A descriptor whose error or hang-up lasts is set [aside].
//!
//! [aside]: crate::backend::aside

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::LazyLock;

use crate::backend::array::Array;
use crate::backend::aside::Aside;
use crate::backend::{
    Abilities, Backend, BackendKind, Context, Deadline, Entry, Lengths, Lifecycle, Memory, Status,
    Synced, WaitCall, those, without_keeper,
};
use crate::error::{Error, Result};
use crate::interest::{Mode, Watch};

/// At most this many descriptors are watched without looking first.
const BLOCK_AT_ONCE: usize = 2;

/// The `poll` back-end.
#[derive(Debug)]
pub struct Poll {
    array: Array,
    aside: Aside,
}

impl Poll {
    /// An empty array.
    pub fn new() -> Poll {
        Poll { array: Array::new(), aside: Aside::new(RawFd::MAX) }
    }

    /// Reports the descriptors that are set aside, if the set or the waker is ready, and sets those
    /// aside whose error or hang-up lasts.
    #[cold]
    #[inline(never)]
    fn look_aside(&mut self, cx: &mut Context<'_>, own_is_ready: bool) -> io::Result<()> {
        if own_is_ready {
            for index in self.aside.report(cx)? {
                self.array.put(cx.table, index);
            }
        }
        while let Some(index) = self.array.pop_troubled() {
            self.set_aside(cx, index);
        }
        Ok(())
    }

    fn set_aside(&mut self, cx: &mut Context<'_>, index: u32) {
        if self.aside.put(cx, index) {
            self.array.remove(cx.table, index);
            self.array.set_own(self.aside.own().unwrap_or(-1));
        }
    }

    fn looks_first(&self) -> bool {
        self.array.len() > BLOCK_AT_ONCE
    }

    #[inline]
    fn wait_call<'a>(&'a mut self, cx: &mut Context<'_>, deadline: Deadline) -> WaitCall<'a> {
        let deadline = self.first_deadline(cx, deadline);
        self.array.wait_call(cx.stats, deadline.left())
    }

    /// The deadline of the first call of a wait.
    #[inline]
    fn first_deadline(&self, cx: &mut Context<'_>, deadline: Deadline) -> Deadline {
        let looks = self.looks_first() || !cx.may_block();
        if looks { Deadline::Now } else { deadline }
    }
}

/// As the table of back-ends has it.
pub(super) const ENTRY: Entry = Entry {
    kind: BackendKind::Poll,
    name: "poll",
    abilities: Abilities::POLL,
    is_available: || true,
    make: |_, topology| without_keeper(Poll::new(), &topology),
};

impl Default for Poll {
    fn default() -> Poll {
        Poll::new()
    }
}

/// Refuses the modes that need epoll.
pub(super) fn refuse_epoll_modes(backend: &'static str, mode: Mode) -> Result<()> {
    let what = match mode {
        Mode::Edge => "edge-triggered registrations",
        Mode::Exclusive => "exclusive wake-ups",
        Mode::Level | Mode::OneShot | Mode::Auto => return Ok(()),
    };
    static INSTEAD: LazyLock<String> = LazyLock::new(|| {
        format!("use {}, or another mode", those(|abilities| abilities.edge && abilities.exclusive))
    });
    Err(Error::Unsupported { backend, what, instead: &INSTEAD })
}

/// The answer of back-ends that no kernel object stands for.
pub(super) fn cannot_nest(backend: &'static str) -> Error {
    static INSTEAD: LazyLock<String> =
        LazyLock::new(|| format!("use {}", those(|abilities| abilities.nest)));
    Error::Unsupported { backend, what: "waiting inside another event loop", instead: &INSTEAD }
}

impl Backend for Poll {
    fn status(&self) -> Status<'_> {
        Status::new("poll", Lengths { hot: self.array.len(), cold: self.aside.len(), away: 0 })
    }

    fn memory(&self) -> Memory {
        let (array, aside) = (self.array.memory(), self.aside.memory());
        Memory { own: array.own + aside.own, mirrors: array.mirrors + aside.mirrors }
    }

    fn admit(&self, _fd: RawFd, watch: Watch) -> Result<()> {
        refuse_epoll_modes("poll", watch.mode)
    }

    fn sync(&mut self, cx: &mut Context<'_>, index: u32) -> Result<Synced> {
        if self.aside.sync(cx, index) {
            return Ok(Synced::Applied);
        }
        if cx.table.slot(index).is_live() {
            self.array.put(cx.table, index);
        } else {
            self.array.remove(cx.table, index);
        }
        Ok(Synced::Unchanged)
    }

    fn prepare_wait<'a>(
        &'a mut self,
        cx: &mut Context<'_>,
        deadline: Deadline,
    ) -> Option<WaitCall<'a>> {
        Some(self.wait_call(cx, deadline))
    }

    fn finish_wait(
        &mut self,
        cx: &mut Context<'_>,
        deadline: Deadline,
        answer: Option<io::Result<usize>>,
    ) -> io::Result<()> {
        let answer = answer.unwrap_or_else(|| self.wait_call(cx, deadline).issue());
        let mut ready = answer.or_else(|error| {
            let left = self.first_deadline(cx, deadline).left();
            self.array.poll_again(cx.stats, left, error)
        })?;
        if ready == 0 && deadline != Deadline::Now && self.looks_first() && cx.may_block() {
            ready = self.array.poll(cx.stats, deadline.left())?;
        }
        let own_is_ready = self.array.own_is_ready();
        cx.stats.hot.watched += self.array.len() as u64;
        cx.stats.hot.active += self.array.collect(cx, ready, |_, _| {}) as u64;
        if own_is_ready || self.array.has_troubled() {
            return self.look_aside(cx, own_is_ready);
        }
        Ok(())
    }

    fn lifecycle(&mut self) -> &mut dyn Lifecycle {
        self
    }
}

impl Lifecycle for Poll {
    fn attach_waker(&mut self, cx: &mut Context<'_>, fd: BorrowedFd<'_>) -> Result<()> {
        self.aside.attach_waker(cx, fd.as_raw_fd())?;
        self.array.set_own(self.aside.own().unwrap_or(-1));
        Ok(())
    }

    fn after_fork(&mut self, _cx: &mut Context<'_>) -> Result<()> {
        self.aside.after_fork();
        self.array.set_own(-1);
        Ok(())
    }

    fn nest(&mut self, _cx: &mut Context<'_>) -> Result<BorrowedFd<'_>> {
        Err(cannot_nest("poll"))
    }

    fn shrink_to_fit(&mut self, _: &mut Context<'_>) {
        self.array.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::tests::stage::Stage;
    use crate::interest::Interest;
    use std::io::{PipeReader, PipeWriter, Write};
    use std::time::Duration;

    fn bench(count: usize) -> (Poll, Stage, Vec<(PipeReader, PipeWriter)>) {
        let (mut poll, mut stage) = (Poll::new(), Stage::new(8));
        let pipes: Vec<_> = (0..count).map(|_| std::io::pipe().unwrap()).collect();
        for (reader, _) in &pipes {
            let key = stage.add(reader.as_raw_fd(), Interest::READABLE);
            assert_eq!(poll.sync(&mut stage.cx(), key.index()).unwrap(), Synced::Unchanged);
        }
        (poll, stage, pipes)
    }

    #[test]
    fn a_wait_looks_first_unless_there_are_one_or_two() {
        for (count, looks) in [(1, 0), (2, 0), (3, 1), (4, 1)] {
            let (mut poll, mut stage, mut pipes) = bench(count);
            let mut time = Duration::from_millis(1);
            poll.finish_wait(&mut stage.cx(), Deadline::after(Some(time)), None).unwrap();
            // This thread may have been stopped until the time was over, which leaves no time to
            // block.
            while stage.stats.calls.ppoll == 0 && time < Duration::from_secs(5) {
                (poll, stage, pipes) = bench(count);
                time *= 2;
                poll.finish_wait(&mut stage.cx(), Deadline::after(Some(time)), None).unwrap();
            }
            let calls = stage.stats.calls;
            assert_eq!((calls.poll, calls.ppoll), (looks, 1), "{count}: {calls}");
            // It does not block if it may not, or if something is ready.
            poll.finish_wait(&mut stage.cx(), Deadline::Now, None).unwrap();
            let calls = stage.stats.calls;
            assert_eq!((calls.poll, calls.ppoll), (looks + 1, 1), "{count}: {calls}");
            pipes[0].1.write_all(b"x").unwrap();
            poll.finish_wait(&mut stage.cx(), Deadline::Never, None).unwrap();
            let calls = stage.stats.calls;
            assert_eq!((calls.poll, calls.ppoll), (looks + 2, 1), "{count}: {calls}");
            assert_eq!(stage.events.len(), 1);
        }
    }

    #[test]
    fn a_descriptor_that_has_recovered_comes_back_to_the_array() {
        let (mut poll, mut stage, mut pipes) = bench(0);
        pipes.push(std::io::pipe().unwrap());
        let watch = Watch::new(Interest::READABLE).mode(Mode::Auto);
        let index = stage.add(pipes[0].0.as_raw_fd(), watch).index();
        poll.sync(&mut stage.cx(), index).unwrap();
        while !stage.table.slot_mut(index).note_trouble() {}
        poll.set_aside(&mut stage.cx(), index);
        for arrival in 1..=3 {
            let lengths = poll.status().lengths;
            assert_eq!((lengths.hot, lengths.cold), (0, 1), "{arrival}");
            pipes[0].1.write_all(b"x").unwrap();
            poll.finish_wait(&mut stage.cx(), Deadline::Now, None).unwrap();
            assert_eq!(stage.events.len(), arrival);
        }
        assert_eq!((poll.array.len(), poll.aside.len()), (1, 0));
        poll.finish_wait(&mut stage.cx(), Deadline::Now, None).unwrap();
        assert_eq!(stage.events.len(), 4, "by its level");
    }

    #[test]
    fn a_wait_counts_watched_and_active_descriptors() {
        let (mut poll, mut stage, mut pipes) = bench(3);
        pipes[0].1.write_all(b"x").unwrap();
        pipes[2].1.write_all(b"x").unwrap();
        for (watched, active) in [(3, 2), (6, 4)] {
            poll.finish_wait(&mut stage.cx(), Deadline::Now, None).unwrap();
            assert_eq!((stage.stats.hot.watched, stage.stats.hot.active), (watched, active));
        }
    }
}
