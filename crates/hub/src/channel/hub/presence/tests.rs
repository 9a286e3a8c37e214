//! Tests of who is told to come and go.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use futures_lite::future::block_on;
use proptest::prelude::*;
use serde_json::Value;
use superpoll_config::Channel;

use super::*;
use crate::channel::form::Offsets;
use crate::channel::hub::NotPublished;
use crate::channel::inbox::Inbox;
use crate::channel::message::{Draft, Message, Meta, cost};
use crate::succession::records::{MemberRecord, RecordStore, decode_message, member_slot};

const GRACE: Duration = Duration::from_secs(10);

fn options() -> Channel {
    Channel { presence: true, presence_grace: GRACE, history: 100_000, ..Channel::default() }
}

fn user(name: &str) -> User {
    User { name: name.into(), info: None }
}

/// The events of a channel in order: type, user, and the number of users.
type Event = (String, String, u64);

fn event(message: &Message) -> Event {
    let json: Value = serde_json::from_slice(&message.data).unwrap();
    let name = json["user"].as_str().unwrap().to_owned();
    (message.event().unwrap().to_owned(), name, json["users"].as_u64().unwrap())
}

fn events(hub: &Hub) -> Vec<Event> {
    events_after(hub, 0)
}

fn events_after(hub: &Hub, id: u64) -> Vec<Event> {
    let all = hub.since(Some(Cursor { id, epoch: None }));
    assert!(!all.missed);
    all.messages.iter().filter(|message| message.event().is_some()).map(event).collect()
}

fn told(change: &str, name: &str, users: u64) -> Event {
    (change.to_owned(), name.to_owned(), users)
}

fn members(hub: &Hub, after: Option<&str>) -> Listed {
    block_on(hub.members(after)).unwrap().unwrap()
}

fn names(hub: &Hub) -> Vec<String> {
    let Listed { members, users, has_more, .. } = members(hub, None);
    assert!(!has_more && users == members.len() as u64);
    members.iter().map(|one| one["user"].as_str().unwrap().to_owned()).collect()
}

fn later(seconds: u64) -> Instant {
    time::now() + Duration::from_secs(seconds)
}

#[test]
fn users_are_told_and_not_their_connections() {
    let hub = Hub::new(options());
    let inboxes: [Arc<Inbox>; 2] = Default::default();
    let (one, other) = (hub.open(&inboxes[0]), hub.open(&inboxes[1]));
    let ann = User { info: Some("{\"age\":7}".into()), ..user("ann") };
    hub.enter(one, None, ann);
    // Another tab, and a subscriber without a name.
    hub.enter(other, None, user("ann"));
    hub.join(one, None);
    hub.enter(one, None, user("bob"));
    assert_eq!(events(&hub), [told("join", "ann", 1), told("join", "bob", 2)]);
    let Listed { last, members, has_more, .. } = members(&hub, None);
    let expected = serde_json::json!([{ "user": "ann", "info": { "age": 7 } }, { "user": "bob" }]);
    assert_eq!((last, Value::from(members), has_more), (2, expected, false));
    hub.leave(one);
    hub.exit(one, &"ann".into(), true);
    hub.end_graces(later(11));
    assert_eq!(events(&hub).len(), 2, "ann has another tab");
    hub.exit(other, &"ann".into(), true);
    hub.end_graces(later(9));
    assert_eq!((events(&hub).len(), hub.users()), (2, Some(2)));
    // Back in time, and gone again.
    hub.enter(other, None, user("ann"));
    hub.end_graces(later(11));
    hub.exit(other, &"ann".into(), true);
    assert_eq!(events(&hub).len(), 2);
    hub.end_graces(later(11));
    assert_eq!(events(&hub)[2..], [told("leave", "ann", 1)]);
    assert_eq!((names(&hub), hub.subscribers()), (vec!["bob".to_owned()], 1));
    // Its own event comes through the queue.
    let queue = hub.open(&inboxes[0]);
    hub.enter(queue, None, user("cid"));
    let own: Vec<Event> = hub.take_queued(queue).iter().map(event).collect();
    assert_eq!(own, [told("join", "cid", 2)]);
}

#[test]
fn without_a_grace_a_user_leaves_at_once() {
    let hub = Hub::new(Channel { presence_grace: Duration::ZERO, ..options() });
    let queue = hub.open(&Arc::default());
    hub.enter(queue, None, user("ann"));
    // A moment is at most a 64th of a second long.
    hub.exit(queue, &"ann".into(), true);
    hub.end_graces(time::now() + Duration::from_millis(16));
    assert_eq!(events(&hub), [told("join", "ann", 1), told("leave", "ann", 0)]);
    assert!(!hub.has_members());
}

#[test]
fn the_list_of_members_has_pages() {
    let hub = Hub::new(options());
    let queue = hub.open(&Arc::default());
    for number in 0..2_500 {
        hub.enter(queue, None, user(&format!("{number:04}")));
    }
    let mut all = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let Listed { members: page, has_more, .. } = members(&hub, after.as_deref());
        assert!(page.len() <= 1000);
        all.extend(page.iter().map(|one| one["user"].as_str().unwrap().to_owned()));
        after = all.last().cloned();
        if !has_more {
            break;
        }
    }
    assert_eq!(all, (0..2_500).map(|number| format!("{number:04}")).collect::<Vec<_>>());
}

#[test]
fn only_the_server_publishes_these_types() {
    let draft = |event: &str| {
        let meta = Meta { event: Some(event.to_owned()), ..Meta::default() };
        Draft { meta: Some(Arc::new(meta)), ..Draft::new("x".into()) }
    };
    let hub = Hub::new(options());
    for event in ["join", "leave"] {
        assert_eq!(hub.publish_as(draft(event)).unwrap_err(), NotPublished::Reserved);
    }
    assert!(hub.publish_as(draft("joined")).is_ok());
    hub.change(Channel::default());
    assert!(hub.publish_as(draft("join")).is_ok());
    assert!(block_on(hub.members(None)).unwrap().is_none() && hub.users().is_none());
}

#[test]
fn a_flood_takes_no_more_memory_than_a_publisher_and_all_are_told_in_the_end() {
    let queue_bytes = 4096;
    let hub = Hub::new(Channel { queue_bytes, ..options() });
    let queue = hub.open(&Arc::default());
    for number in 1..=2_000 {
        hub.enter(queue, None, user(&number.to_string()));
        let most = queue_bytes + 512;
        assert!(hub.on_their_way(queue) < most, "{} after {number}", hub.on_their_way(queue));
    }
    // One who comes and goes untold.
    hub.enter(queue, None, user("short"));
    hub.exit(queue, &"short".into(), true);
    hub.end_graces(later(11));
    assert!((10..100).contains(&events(&hub).len()), "{}", events(&hub).len());
    for _ in 0..2_000 {
        let taken = hub.take_queued(queue).iter().map(cost).sum();
        hub.delivered(queue, taken);
    }
    let all = events(&hub);
    let expected: Vec<Event> =
        (1..=2_000).map(|number| told("join", &number.to_string(), number)).collect();
    assert_eq!(all, expected);
}

/// A call to a store of records.
#[derive(Clone)]
enum Call {
    Keep(u64, Vec<u8>),
    Trim(u64),
}

/// The records of a channel: all calls so far.
#[derive(Default)]
struct Records(Mutex<Vec<Call>>);

impl Records {
    /// Returns the records that are there after the first calls.
    fn after(&self, calls: usize) -> HashMap<u64, Vec<u8>> {
        let mut all = self.0.lock().unwrap();
        all.truncate(calls);
        let mut records = HashMap::new();
        for call in all.iter().cloned() {
            match call {
                Call::Keep(id, bytes) if bytes.is_empty() => drop(records.remove(&id)),
                Call::Keep(id, bytes) => drop(records.insert(id, bytes)),
                Call::Trim(below) => records.retain(|id, _| *id >= below),
            }
        }
        records
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl RecordStore for Records {
    fn keep(&self, _: u64, id: u64, bytes: &[u8]) {
        self.0.lock().unwrap().push(Call::Keep(id, bytes.to_vec()));
    }

    fn trim(&self, _: u64, below: u64) {
        self.0.lock().unwrap().push(Call::Trim(below));
    }

    fn has_room(&self) -> bool {
        true
    }
}

/// A channel as a successor gets it, from records.
fn succeed(epoch: u64, records: &HashMap<u64, Vec<u8>>) -> Arc<Hub> {
    let mut ids: Vec<u64> = records.keys().copied().collect();
    ids.sort_unstable();
    let (mut messages, mut members) = (Vec::new(), Vec::new());
    for id in ids {
        match member_slot(id) {
            Some(slot) => {
                assert!(decode_message(id, &records[&id]).is_none(), "as earlier servers read it");
                members.push((slot, MemberRecord::decode(&records[&id]).unwrap()));
            }
            None => messages.push(decode_message(id, &records[&id]).unwrap().0),
        }
    }
    let next = Hub::restore_at("/c".into(), epoch, messages, Offsets::default());
    next.restore_members(members, false);
    next.change(options());
    next
}

#[test]
fn a_successor_tells_only_of_users_who_do_not_come_back() {
    for history in [100, 0] {
        let options = Channel { history, ..options() };
        let records: Arc<Records> = Arc::default();
        let hub = Hub::new(options);
        hub.record_in(records.clone(), 1);
        let queue = hub.open(&Arc::default());
        for name in ["ann", "bob", "bob", "cid", "dan"] {
            hub.enter(queue, None, user(name));
        }
        // The records of messages before are gone in one of both cases.
        for _ in 0..64 {
            hub.publish("message");
        }
        // In its grace when the server ends.
        hub.exit(queue, &"dan".into(), true);
        let next = succeed(hub.epoch(), &records.after(usize::MAX));
        let queue = next.open(&Arc::default());
        let before = next.last();
        assert_eq!(names(&next), ["ann", "bob", "cid", "dan"]);
        for name in ["ann", "bob"] {
            next.join(queue, None);
            next.keep_present(&name.into());
        }
        next.enter(queue, None, user("eve"));
        next.end_graces(later(100));
        assert_eq!(events_after(&next, before), [told("join", "eve", 5)], "others may still come");
        next.finish_gathering();
        next.enter(queue, None, user("cid"));
        next.end_graces(later(9));
        assert_eq!(events_after(&next, before).len(), 1);
        next.end_graces(later(11));
        assert_eq!(events_after(&next, before)[1..], [told("leave", "dan", 4)]);
        // The second tab of bob is lost.
        next.exit(queue, &"bob".into(), true);
        next.end_graces(later(11));
        assert_eq!(events_after(&next, before)[2..], [told("leave", "bob", 3)]);
    }
}

/// The broker is told of the end of a user who comes back before it has answered.
#[test]
fn one_who_comes_back_while_the_broker_is_told_of_the_end_is_told_again() {
    let hub = Hub::new(options());
    hub.state().history.follow();
    let (queue, ann) = (hub.open(&Arc::default()), Arc::<str>::from("ann"));
    let changes = || {
        let (changes, users) = hub.changes(10).unwrap();
        let names = changes.into_iter().map(|(user, is_here)| (user.name.to_string(), is_here));
        (names.collect::<Vec<_>>(), users)
    };
    let is_known = |is_here| hub.are_known([(&ann, is_here)].into_iter(), true);
    hub.enter(queue, None, user("ann"));
    assert_eq!(changes(), (vec![("ann".to_owned(), true)], 1));
    assert!(!is_known(true));
    hub.exit(queue, &ann, true);
    hub.end_graces(later(11));
    assert_eq!(changes(), (vec![("ann".to_owned(), false)], 0));
    hub.enter(queue, None, user("ann"));
    assert!(is_known(false), "there is more to tell");
    assert_eq!(changes(), (vec![("ann".to_owned(), true)], 1));
    assert!(!is_known(true));
    // A broker that has lost users is told of all of them.
    assert!(hub.are_known([].into_iter(), false));
    assert_eq!(changes(), (vec![("ann".to_owned(), true)], 1));
    assert!(events(&hub).is_empty(), "the log tells by itself");
}

#[test]
fn nothing_is_told_once_another_server_goes_on() {
    let hub = Hub::new(options());
    let queue = hub.open(&Arc::default());
    hub.enter(queue, None, user("ann"));
    hub.hand_over();
    hub.exit(queue, &"ann".into(), true);
    hub.delivered(queue, 0);
    hub.end_graces(later(11));
    assert_eq!(hub.last(), 1);
}

#[test]
fn the_oldest_graces_end_when_there_are_too_many() {
    let hub = Hub::new(Channel { queue_bytes: 1 << 40, ..options() });
    let queue = hub.open(&Arc::default());
    let most = 1 << 16;
    for number in 0..most + 10 {
        let name: Arc<str> = number.to_string().into();
        hub.enter(queue, None, user(&name));
        hub.exit(queue, &name, true);
    }
    assert_eq!(hub.users(), Some(most));
    let left: Vec<Event> =
        events(&hub).into_iter().filter(|(change, ..)| change == "leave").collect();
    let names: Vec<String> = left.into_iter().map(|(_, name, _)| name).collect();
    assert_eq!(names, (0..10).map(|number| number.to_string()).collect::<Vec<_>>());
}

/// The model: the connections of each user by their queues, and whether the user's grace lasts.
#[derive(Clone, Default, Debug)]
struct Model(HashMap<usize, (Vec<u64>, bool)>);

impl Model {
    fn here(&self) -> Vec<String> {
        let here = self.0.iter().filter(|(_, (queues, leaves))| *leaves || !queues.is_empty());
        let mut names: Vec<String> = here.map(|(name, _)| name.to_string()).collect();
        names.sort();
        names
    }
}

/// What the events say, from the first one on.
fn follow(known: &mut Vec<String>, events: &[Event]) -> Result<(), TestCaseError> {
    for (change, name, users) in events {
        match change.as_str() {
            "join" => {
                prop_assert!(!known.contains(name), "{} joins twice", name);
                known.push(name.clone());
            }
            _ => {
                prop_assert!(known.contains(name), "{} leaves twice", name);
                known.retain(|other| other != name);
            }
        }
        prop_assert_eq!(*users, known.len() as u64);
    }
    Ok(())
}

proptest! {
    /// Against a model of few lines: connections come and go on several engines, graces end, the
    /// engines deliver late, and the server is killed, after any record of the last change as
    /// well. A reader of the events never sees a user twice, and the list agrees with the events.
    #[test]
    fn the_events_and_the_list_agree_with_the_connections(
        steps in prop::collection::vec((0..7_u8, 0..4_usize, any::<u8>()), 1..120),
    ) {
        let options = Channel { queue_bytes: 400, ..options() };
        let records: Arc<Records> = Arc::default();
        let mut hub = Hub::new(options.clone());
        hub.record_in(records.clone(), 1);
        let mut queues: Vec<u64> = (0..2).map(|_| hub.open(&Arc::default())).collect();
        let mut model = Model::default();
        let (mut known, mut seen): (Vec<String>, u64) = (Vec::new(), 0);
        for (kind, who, by) in steps {
            let name: Arc<str> = who.to_string().into();
            let queue = queues[usize::from(by) % queues.len()];
            let (of_user, leaves) = model.0.entry(who).or_default();
            match kind {
                0 | 1 => {
                    hub.enter(queue, None, user(&name));
                    of_user.push(queue);
                    *leaves = false;
                }
                2 | 3 => {
                    let Some(queue) = of_user.pop() else { continue };
                    hub.exit(queue, &name, true);
                    *leaves = of_user.is_empty();
                }
                4 => {
                    hub.end_graces(later(3600));
                    model.0.values_mut().for_each(|(_, leaves)| *leaves = false);
                }
                5 => {
                    for queue in &queues {
                        let taken = hub.take_queued(*queue).iter().map(cost).sum();
                        hub.delivered(*queue, taken);
                    }
                }
                _ => {
                    // Killed in the middle of something: some connections continue with the next
                    // server, and those of users who were not told of come again.
                    let before = records.len();
                    match by % 2 {
                        0 => drop(hub.enter(queue, None, user(&name))),
                        _ => hub.end_graces(later(3600)),
                    }
                    let more = records.len() - before;
                    let left = records.after(before + usize::from(by / 2) % (more + 1));
                    hub = succeed(hub.epoch(), &left);
                    follow(&mut known, &events_after(&hub, seen))?;
                    seen = hub.last();
                    hub.change(options.clone());
                    hub.continue_in(records.clone(), 1);
                    queues = (0..2).map(|_| hub.open(&Arc::default())).collect();
                    for (who, (of_user, leaves)) in &mut model.0 {
                        let name: Arc<str> = who.to_string().into();
                        let is_known = known.contains(&name.to_string());
                        *of_user = vec![queues[0]; of_user.len().min(usize::from(by % 3))];
                        for queue in &*of_user {
                            if is_known {
                                hub.join(*queue, None);
                                hub.keep_present(&name);
                            } else {
                                hub.enter(*queue, None, user(&name));
                            }
                        }
                        *leaves = is_known && of_user.is_empty();
                    }
                    hub.finish_gathering();
                }
            }
            follow(&mut known, &events_after(&hub, seen))?;
            seen = hub.last();
            let mut sorted = known.clone();
            sorted.sort();
            prop_assert_eq!(names(&hub), sorted);
        }
        for _ in 0..1000 {
            for queue in &queues {
                let taken = hub.take_queued(*queue).iter().map(cost).sum();
                hub.delivered(*queue, taken);
            }
        }
        follow(&mut known, &events_after(&hub, seen))?;
        prop_assert_eq!(names(&hub), model.here());
    }
}
