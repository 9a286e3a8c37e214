//! The parts that the records of many held connections have in common.
//!
//! Two connections of an application have different channels, as a rule, and so different records.
//! But they came by the same route, for the same host, and get the same in silence.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use superpoll_http::held::{HeldFor, HeldRecord, KeepAlive};

/// The most parts of a kind that are known. Clients choose the host, and an application the content
/// for silence: the parts of further connections are their own.
const MOST: usize = 256;

/// Parts of the records of held connections.
#[derive(Default)]
pub(super) struct SharedParts {
    /// Routes and hosts.
    texts: HashSet<Arc<str>>,
    keep_alives: HashSet<Arc<KeepAlive>>,
}

impl SharedParts {
    /// Makes a record share its parts with the records before.
    pub(super) fn share(&mut self, record: &mut HeldRecord) {
        share(&mut self.texts, &mut record.route);
        if let HeldFor::Stream { host, .. } = &mut record.purpose {
            share(&mut self.texts, host);
        }
        if let Some(keep_alive) = &mut record.keep_alive {
            share(&mut self.keep_alives, keep_alive);
        }
    }
}

fn share<T: Eq + Hash + ?Sized>(known: &mut HashSet<Arc<T>>, part: &mut Arc<T>) {
    if let Some(known) = known.get(&**part) {
        *part = known.clone();
        return;
    }
    if known.len() == MOST {
        known.retain(|part| Arc::strong_count(part) > 1);
    }
    if known.len() < MOST {
        known.insert(part.clone());
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use superpoll_http::held::FrameKind;

    use super::*;

    fn record(host: &str, seconds: u32) -> HeldRecord {
        let content = Bytes::from_static(b"\n");
        let kind = FrameKind::Text;
        HeldRecord {
            route: "a.example/".into(),
            channels: Default::default(),
            meta: Vec::new(),
            keep_alive: Some(Arc::new(KeepAlive { content, kind, seconds, is_interval: false })),
            purpose: HeldFor::Stream { is_open: true, next: None, gone: None, host: host.into() },
        }
    }

    fn host(record: &HeldRecord) -> &Arc<str> {
        let HeldFor::Stream { host, .. } = &record.purpose else { panic!("{record:?}") };
        host
    }

    #[test]
    fn equal_parts_are_shared() {
        let mut parts = SharedParts::default();
        let (mut one, mut other) = (record("a.example", 20), record("a.example", 30));
        for record in [&mut one, &mut other] {
            let before = record.clone();
            parts.share(record);
            assert_eq!(*record, before);
        }
        assert!(Arc::ptr_eq(&one.route, &other.route) && Arc::ptr_eq(host(&one), host(&other)));
        let mut third = record("b.example", 20);
        parts.share(&mut third);
        assert_eq!(&**host(&third), "b.example");
        let keep_alive = |record: &HeldRecord| record.keep_alive.clone().unwrap();
        assert!(Arc::ptr_eq(&keep_alive(&one), &keep_alive(&third)));
        assert!(!Arc::ptr_eq(&keep_alive(&one), &keep_alive(&other)));
    }

    #[test]
    fn parts_of_connections_that_have_gone_make_room() {
        let mut parts = SharedParts::default();
        let used = |parts: &mut SharedParts, index: usize| {
            let mut record = record(&format!("{index}.example"), 20);
            parts.share(&mut record);
            record
        };
        let mut records: Vec<_> = (0..2 * MOST).map(|index| used(&mut parts, index)).collect();
        assert_eq!(parts.texts.len(), MOST);
        records.truncate(1);
        drop(used(&mut parts, 2 * MOST));
        // The route, the host of the record that is left, and the last one.
        assert_eq!(parts.texts.len(), 3);
        assert!(Arc::ptr_eq(host(&used(&mut parts, 0)), host(&records[0])));
    }
}
