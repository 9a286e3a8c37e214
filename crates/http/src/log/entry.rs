//! Lines that are still to be written.
//!
//! A request under way has an [`Entry`], which all parts that have a hand in it share: the
//! connection, the route, the way to a server, and the tunnel that an upgraded connection becomes.
//! Each notes what it knows. The line is written when the last of them lets go of the entry, so
//! that there is one line for each request, with the bytes and times up to its end. A part that may
//! outlive the request, as the body that a client still sends, has a weak reference.
//!
//! Without an access log there is no entry, and noting is the test of an `Option`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use http::{HeaderValue, Uri};
use superpoll_rt::time;

use super::AccessLogWriter;
use super::record::{BrokenBy, RelayRecord, RequestRecord};

/// The logged status of a request whose client did not wait for the answer, as in nginx; analysers
/// know it.
const CLIENT_GONE: u16 = 499;

/// A request under way. Its line is written on drop.
pub struct Entry {
    access_log: Rc<AccessLogWriter>,
    begun: Instant,
    record: RefCell<RequestRecord>,
    /// Nothing is written.
    is_void: Cell<bool>,
}

impl Entry {
    /// Begins with a request that has arrived now.
    #[inline]
    pub fn new(access_log: Rc<AccessLogWriter>, record: RequestRecord) -> Rc<Entry> {
        let (begun, record) = (time::now(), RefCell::new(record));
        Rc::new(Entry { access_log, begun, record, is_void: Cell::new(false) })
    }

    /// Notes something.
    #[inline]
    pub fn note(&self, change: impl FnOnce(&mut RequestRecord)) {
        change(&mut self.record.borrow_mut());
    }

    /// Notes the head of the response.
    pub fn answered(&self, status: u16) {
        let took = time::now() - self.begun;
        self.note(|record| {
            record.status = status;
            record.first_byte = Some(took);
        });
    }

    /// Adds bytes of the body, or of a tunnel, that were sent.
    #[inline]
    pub fn sent(&self, bytes: u64) {
        self.note(|record| record.bytes += bytes);
    }

    /// Adds bytes of the body, or of a tunnel, that have arrived.
    #[inline]
    pub fn received(&self, bytes: u64) {
        self.note(|record| record.bytes_in += bytes);
    }

    /// Notes that the client has gone before the end.
    #[inline]
    pub fn gone(&self) {
        self.note(|record| record.broken_by(BrokenBy::Client));
    }

    /// Writes nothing: the request is answered in another way, and has another entry there.
    #[inline]
    pub fn void(&self) {
        self.is_void.set(true);
    }

    /// Copies the parts of the request that it has, which otherwise keep the connection's buffer as
    /// long as the request waits.
    pub fn detach(&self) {
        let mut record = self.record.borrow_mut();
        let RequestRecord { host, referer, agent, .. } = &mut *record;
        for field in [host, referer, agent] {
            if let Some(copy) =
                field.as_ref().and_then(|field| HeaderValue::from_bytes(field.as_bytes()).ok())
            {
                *field = Some(copy);
            }
        }
        if let Ok(copy) = Uri::try_from(record.uri.to_string()) {
            record.uri = copy;
        }
    }

    /// Notes that the connection is parked while the request, or the protocol that it has changed
    /// to, continues.
    #[inline]
    pub fn parked(&self) {
        self.note(|record| record.was_parked = true);
    }
}

superpoll::debug_fields!(Entry, it => record: it.record);

impl Drop for Entry {
    fn drop(&mut self) {
        if self.is_void.get() {
            return;
        }
        let record = self.record.get_mut();
        if record.status == 0 {
            record.status = CLIENT_GONE;
        }
        if !record.is_whole {
            record.broken_by(BrokenBy::Client);
        }
        self.access_log.write(record, time::now() - self.begun);
    }
}

/// A relayed connection. Its line is written on drop.
pub struct RelayEntry {
    access_log: Rc<AccessLogWriter>,
    begun: Instant,
    record: RefCell<RelayRecord>,
    /// Nothing is written.
    is_void: Cell<bool>,
}

impl RelayEntry {
    /// Begins with a connection that was accepted now.
    pub fn new(access_log: Rc<AccessLogWriter>, record: RelayRecord) -> RelayEntry {
        let (begun, record) = (time::now(), RefCell::new(record));
        RelayEntry { access_log, begun, record, is_void: Cell::new(false) }
    }

    /// Notes something.
    #[inline]
    pub fn note(&self, change: impl FnOnce(&mut RelayRecord)) {
        change(&mut self.record.borrow_mut());
    }

    /// Writes nothing: the connection was refused.
    #[inline]
    pub fn void(&self) {
        self.is_void.set(true);
    }
}

impl Drop for RelayEntry {
    fn drop(&mut self) {
        if self.is_void.get() {
            return;
        }
        self.access_log.write_relay(self.record.get_mut(), time::now() - self.begun);
    }
}
