//! Interim responses of servers on their way to the client of a request (RFC 9110, section 15.2).
//!
//! ```text
//!   server's connection --push--> InterimResponses --poll_show--> the client's connection
//! ```
//!
//! There is one at a time: nothing more is read of the server before the client has taken it.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

use crate::answers::AnswerRules;
use crate::transport::poll_write_all;

/// The interim responses of the request under way.
#[derive(Default)]
pub struct InterimResponses {
    bytes: RefCell<Vec<u8>>,
    /// So many of these have gone to the client.
    at: Cell<usize>,
    /// The rules of the request's route.
    rules: RefCell<Option<Arc<AnswerRules>>>,
}

impl InterimResponses {
    /// Sets the rules for their fields.
    pub fn set_rules(&self, rules: Option<Arc<AnswerRules>>) {
        self.rules.replace(rules);
    }

    /// Whether the client has not taken the last one.
    pub(crate) fn is_pending(&self) -> bool {
        !self.bytes.borrow().is_empty()
    }

    /// Returns the rules for their fields.
    pub(crate) fn rules(&self) -> Option<Arc<AnswerRules>> {
        self.rules.borrow().clone()
    }

    /// Takes the lines of the one that is under way, for a client that gets no lines.
    #[must_use]
    pub fn take(&self) -> Option<Vec<u8>> {
        let bytes = self.bytes.take();
        (!bytes.is_empty()).then_some(bytes)
    }

    /// Passes the lines of one on.
    pub(crate) fn push(&self, lines: &[u8]) {
        self.bytes.borrow_mut().extend_from_slice(lines);
    }

    /// Writes the one that is under way; whether there was one.
    ///
    /// # Errors
    ///
    /// Those of the stream.
    pub fn poll_show(
        &self,
        cx: &mut Context<'_>,
        stream: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<bool>> {
        let mut bytes = self.bytes.borrow_mut();
        if bytes.is_empty() {
            return Poll::Ready(Ok(false));
        }
        let mut at = self.at.get();
        let written = poll_write_all(stream, cx, &bytes, &mut at);
        self.at.set(at);
        ready!(written)?;
        // They are rare, and the connection may live long.
        *bytes = Vec::new();
        self.at.set(0);
        Poll::Ready(Ok(true))
    }
}

superpoll::debug_fields!(InterimResponses, it => is_pending: it.is_pending());
