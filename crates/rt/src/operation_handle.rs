//! An operation under way, as the task sees it that waits for it.

use std::collections::VecDeque;
use std::io;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use superpoll::Key;
use superpoll::operation::{Operation, Progress};

use crate::current_engine;
use crate::engine::{self, Engine};
use crate::io_ref::IoRef;
use crate::operations::StartedOperation;
use crate::sources::Source;

/// An operation that a task waits for. Dropping this before the operation is over ends it first,
/// and takes the remaining results.
pub(crate) struct OperationHandle {
    engine: Weak<Engine>,
    pending: Rc<StartedOperation>,
    /// The registration of a stream from which it takes bytes.
    takes_from: Option<Key>,
}

impl OperationHandle {
    /// Starts an operation on this thread's engine; gives it back if there is no engine, or if the
    /// engine has no registration of this descriptor.
    pub(crate) fn start(
        io_ref: IoRef<'_>,
        operation: Operation,
    ) -> Result<OperationHandle, Operation> {
        let Some(engine) = engine::current().filter(|engine| engine.has_operations()) else {
            return Err(operation);
        };
        let Some(key) = io_ref.registration.key_for_operations(&engine, io_ref.fd) else {
            return Err(operation);
        };
        let takes = takes_bytes(&operation);
        if takes && io_ref.registration.read_ahead().is_some() {
            // Bytes that were found while the stream has left another engine come first.
            return Err(operation);
        }
        let pending = engine.operations.start(&mut engine.poller(), key, operation)?;
        engine.note_slot(pending.place);
        if takes {
            engine.source(key, Source::begin_receive);
        }
        let takes_from = takes.then_some(key);
        Ok(OperationHandle { engine: Rc::downgrade(&engine), pending, takes_from })
    }

    /// Returns the next progress; `None` after the last.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Progress>> {
        if let Some(progress) = self.pending.progress.borrow_mut().pop_front() {
            return Poll::Ready(Some(progress));
        }
        if self.pending.over.get() {
            return Poll::Ready(None);
        }
        let here = self.engine.upgrade().is_some_and(|home| current_engine::has_id(home.remote.id));
        if here {
            let before = self.pending.waker.replace(Some(cx.waker().clone()));
            drop(before);
            return Poll::Pending;
        }
        // Its engine may never run again.
        self.end();
        Poll::Ready(self.pending.progress.borrow_mut().pop_front())
    }

    /// Ends the operation, and waits until the kernel is done with it.
    pub(crate) fn end(&self) {
        if let Some(engine) = self.engine.upgrade() {
            engine.operations.end(&mut engine.poller(), &self.pending);
        }
    }

    /// Ends the operation and takes the results that no task has taken.
    pub(crate) fn cancel_and_take(&self) -> VecDeque<Progress> {
        if !self.pending.over.get() {
            self.end();
        }
        self.pending.progress.take()
    }
}

impl Drop for OperationHandle {
    fn drop(&mut self) {
        if let (Some(key), Some(engine)) = (self.takes_from, self.engine.upgrade()) {
            engine.source(key, Source::end_receive);
        }
    }
}

/// Returns whether an operation takes bytes from a stream.
fn takes_bytes(operation: &Operation) -> bool {
    matches!(operation, Operation::Read(_) | Operation::Receive(_) | Operation::ReceiveMany)
}

/// Returns whether an operation has to be repeated in another way: it was ended with its engine, or
/// the kernel would not wait.
pub(crate) fn should_retry(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ECANCELED | libc::EAGAIN | libc::EINTR | libc::EINPROGRESS | libc::EALREADY)
    )
}
