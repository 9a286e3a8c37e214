//! Active subscriptions: the updates that report their beginnings and ends, and the documents of
//! the web API (the draft, section "Active Subscriptions").
//!
//! A subscription is entered in the table before its update is published, and removed before that
//! of its end. So a client that reads the table, and then the updates after the `lastEventID` that
//! it has found there, misses none; it may be told the same twice.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use data_encoding::HEXLOWER;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Map, Value, json};
use superpoll_http::mercure::reader_record::{Identity, ReaderRecord};
use superpoll_http::mercure::selector::Selector;

use super::PATH;
use crate::channel::hub::Hub;
use crate::channel::message::{Draft, Meta, Update};

/// The context of the documents.
const CONTEXT: &str = "https://mercure.rocks/";

/// The bytes that an expansion of `{variable}` encodes (RFC 6570, section 3.2.1).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The active subscribers of a hub, on all engines.
#[derive(Default, Debug)]
pub(in crate::channel) struct Subscriptions {
    by_id: Mutex<BTreeMap<[u8; 16], Arc<ReaderRecord>>>,
}

/// Returns the identity of a new subscriber, a random UUID (RFC 9562, section 5.4). `None` if the
/// system has no random bytes.
pub(super) fn identify(payload: Option<String>) -> Option<Identity> {
    let mut id = [0; 16];
    SystemRandom::new().fill(&mut id).ok()?;
    id[6] = id[6] & 0x0f | 0x40;
    id[8] = id[8] & 0x3f | 0x80;
    Some(Identity { id, payload })
}

/// Returns the name of a subscriber.
fn subscriber(id: [u8; 16]) -> String {
    let hex = HEXLOWER.encode(&id);
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    format!("urn:uuid:{}", parts.join("-"))
}

/// Returns the address of a subscription.
fn address(topic: &Selector, subscriber: &str) -> String {
    let encode = |text| utf8_percent_encode(text, ENCODED);
    format!("{PATH}/subscriptions/{}/{}", encode(topic.text()), encode(subscriber))
}

/// Returns the document of a subscription, without its context.
fn document(topic: &Selector, identity: &Identity, is_active: bool) -> Map<String, Value> {
    let subscriber = subscriber(identity.id);
    let mut document = Map::new();
    document.insert("id".to_owned(), address(topic, &subscriber).into());
    document.insert("type".to_owned(), "Subscription".into());
    document.insert("topic".to_owned(), topic.text().into());
    document.insert("subscriber".to_owned(), subscriber.into());
    document.insert("active".to_owned(), is_active.into());
    let payload = identity.payload.as_deref().and_then(|json| serde_json::from_str(json).ok());
    if let Some(payload) = payload {
        document.insert("payload".to_owned(), payload);
    }
    document
}

/// Publishes that the subscriptions of a subscriber have begun, or ended. Only subscribers with a
/// right to them get these updates. Where another server continues with the hub, there is no one to
/// publish them.
pub(in crate::channel) fn report(hub: &Hub, record: &ReaderRecord, is_active: bool) {
    let Some(identity) = &record.identity else { return };
    for topic in &record.topics {
        let mut document = document(topic, identity, is_active);
        let topic = document["id"].as_str().unwrap_or_default().to_owned();
        document.insert("@context".to_owned(), CONTEXT.into());
        let data = Bytes::from(Value::from(document).to_string());
        let update = Update { topics: vec![topic], is_private: true, ..Update::default() };
        let meta = Meta { update: Some(Box::new(update)), ..Meta::default() };
        let _ = hub.publish_as(Draft { data, is_text: true, meta: Some(Arc::new(meta)) });
    }
}

impl Subscriptions {
    fn by_id(&self) -> MutexGuard<'_, BTreeMap<[u8; 16], Arc<ReaderRecord>>> {
        // No code that can panic runs under the lock.
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a subscriber, if it has an identity.
    pub(in crate::channel) fn enter(&self, record: &Arc<ReaderRecord>) {
        if let Some(identity) = &record.identity {
            self.by_id().insert(identity.id, record.clone());
        }
    }

    /// Removes a subscriber.
    pub(in crate::channel) fn remove(&self, record: &ReaderRecord) {
        if let Some(identity) = &record.identity {
            self.by_id().remove(&identity.id);
        }
    }

    /// Returns the document at a path below that of the hub, which begins with `/subscriptions`;
    /// `None` if there is none.
    pub(super) fn document_at(&self, below: &str, hub: &Hub) -> Option<Value> {
        // Before the table is read, see the top of this module.
        let last = hub.last_update();
        let mut parts = below.strip_prefix("/subscriptions")?.split('/');
        if parts.next() != Some("") {
            return None;
        }
        let decode = |part: &str| Some(percent_decode_str(part).decode_utf8().ok()?.into_owned());
        let topic = parts.next().map(decode);
        let whose = parts.next().map(decode);
        if parts.next().is_some() {
            return None;
        }
        let (topic, whose) = (topic.map_or(Some(None), |part| part.map(Some))?, whose);
        // Subscribers that come and go meanwhile do not wait for the documents.
        let table: Vec<Arc<ReaderRecord>> = self.by_id().values().cloned().collect();
        let all = table.iter().filter_map(|record| Some((record, record.identity.as_ref()?)));
        let all = all.flat_map(|(record, identity)| {
            record.topics.iter().map(move |topic| (topic, identity))
        });
        let mut found = all.filter(|(found, identity)| {
            topic.as_ref().is_none_or(|topic| found.text() == topic)
                && whose.as_ref().is_none_or(|whose| {
                    whose.as_ref().is_some_and(|whose| *whose == subscriber(identity.id))
                })
        });
        if whose.is_some() {
            let (topic, identity) = found.next()?;
            let mut document = document(topic, identity, true);
            document.insert("@context".to_owned(), CONTEXT.into());
            document.insert("lastEventID".to_owned(), last.into());
            return Some(document.into());
        }
        let subscriptions: Vec<Value> =
            found.map(|(topic, identity)| document(topic, identity, true).into()).collect();
        Some(json!({
            "@context": CONTEXT,
            "id": format!("{PATH}{below}"),
            "type": "Subscriptions",
            "lastEventID": last,
            "subscriptions": subscriptions,
        }))
    }
}

#[cfg(test)]
mod tests {
    use superpoll_config::Channel;

    use super::*;
    use crate::channel::Cursor;

    fn record(topics: &[&str], id: u8, payload: Option<&str>) -> Arc<ReaderRecord> {
        let topics = topics.iter().map(|text| Selector::from((*text).to_owned())).collect();
        let identity = Some(Identity { id: [id; 16], payload: payload.map(str::to_owned) });
        Arc::new(ReaderRecord { topics, allowed: Vec::new(), identity })
    }

    const ONE: &str = "urn%3Auuid%3A01010101-0101-0101-0101-010101010101";

    #[test]
    fn the_documents_are_those_of_the_draft() {
        let (table, hub) = (Subscriptions::default(), Hub::new(Channel::default()));
        let empty = table.document_at("/subscriptions", &hub).unwrap();
        let expected = json!({
            "@context": "https://mercure.rocks/",
            "id": "/.well-known/mercure/subscriptions",
            "type": "Subscriptions",
            "lastEventID": "earliest",
            "subscriptions": [],
        });
        assert_eq!(empty, expected);
        table.enter(&record(&["https://example.com/{selector}", "b"], 1, Some("{\"foo\":1}")));
        table.enter(&record(&["b"], 2, None));
        let id = format!(
            "/.well-known/mercure/subscriptions/https%3A%2F%2Fexample.com%2F%7Bselector%7D/{ONE}"
        );
        let below = id.strip_prefix(PATH).unwrap();
        let expected = json!({
            "@context": "https://mercure.rocks/",
            "id": id,
            "type": "Subscription",
            "topic": "https://example.com/{selector}",
            "subscriber": "urn:uuid:01010101-0101-0101-0101-010101010101",
            "active": true,
            "payload": { "foo": 1 },
            "lastEventID": "earliest",
        });
        assert_eq!(table.document_at(below, &hub), Some(expected));
        let count = |below: &str| {
            let document = table.document_at(below, &hub)?;
            Some(document["subscriptions"].as_array().unwrap().len())
        };
        assert_eq!(count("/subscriptions"), Some(3));
        assert_eq!(count("/subscriptions/b"), Some(2));
        assert_eq!(count("/subscriptions/other"), Some(0));
        for below in [
            &format!("/subscriptions/other/{ONE}"),
            "/subscriptionsx",
            "/s",
            "/subscriptions/a/b/c",
        ] {
            assert_eq!(table.document_at(below, &hub), None, "{below}");
        }
        table.remove(&record(&[], 1, None));
        assert_eq!(count("/subscriptions"), Some(1));
    }

    #[test]
    fn beginnings_and_ends_are_private_updates() {
        let hub = Hub::new(Channel::default());
        report(&hub, &record(&["a", "b"], 1, None), true);
        report(&hub, &record(&["a"], 1, None), false);
        let messages = hub.since(Some(Cursor { id: 0, epoch: None })).messages;
        let found: Vec<(Value, String, bool)> = messages
            .iter()
            .map(|message| {
                let update = message.update().unwrap();
                let data = serde_json::from_slice(&message.data).unwrap();
                (data, update.topics[0].clone(), update.is_private)
            })
            .collect();
        assert_eq!(found.len(), 3);
        for ((data, topic, is_private), (of, active)) in
            found.iter().zip([("a", true), ("b", true), ("a", false)])
        {
            assert!(is_private);
            assert_eq!(*topic, format!("/.well-known/mercure/subscriptions/{of}/{ONE}"));
            assert_eq!((&data["id"], &data["topic"]), (&Value::from(topic.as_str()), &of.into()));
            assert_eq!(data["active"], active);
            assert_eq!(data["@context"], CONTEXT);
        }
    }

    #[test]
    fn subscribers_have_random_uuids() {
        let [one, other] = [(); 2].map(|()| identify(None).unwrap().id);
        assert_ne!(one, other);
        let name = subscriber(one);
        assert_eq!((name.len(), &name[..9], &name[23..24]), (45, "urn:uuid:", "4"));
    }
}
