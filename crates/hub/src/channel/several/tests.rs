//! Tests of the merged streams, with a server's subscribers and no sockets.

use std::collections::HashMap;
use std::pin::Pin;
use std::rc::Weak;
use std::task::{Context, Poll, Waker};

use http::{HeaderMap, HeaderValue, Uri};
use http_body::Body as _;
use serde_json::Value;
use superpoll::backend::Topology;
use superpoll_config::{Channel, Slow};
use superpoll_http::grant::Grant;
use superpoll_http::parking_lot::ParkingLot;
use superpoll_rt::{Runtime, yield_now};

use super::super::engine::ChannelEngine;
use super::super::events::EventsBody;
use super::super::hub::Hub;
use super::super::joined::JoinedChannels;
use super::super::local_subscribers::{LocalSubscribers, SubscriberState};
use super::super::mailbox::EndReason;
use super::*;

fn subscribers(hubs: &[Arc<Hub>]) -> Vec<Rc<LocalSubscribers>> {
    let prepared = ParkingLot::prepare(Topology::Nested, false).unwrap();
    let lot = ParkingLot::open(prepared, Arc::default(), Arc::new(|event| panic!("{event}")));
    let engine = ChannelEngine::new(lot);
    hubs.iter().map(|hub| LocalSubscribers::new(hub.clone(), &engine, Weak::new())).collect()
}

/// Begins a stream after a position.
fn stream(channels: &[Rc<LocalSubscribers>], last_event_id: Option<&str>) -> EventsBody {
    let mut headers = HeaderMap::new();
    if let Some(id) = last_event_id {
        headers.insert("last-event-id", HeaderValue::from_str(id).unwrap());
    }
    let uri = Uri::from_static("/x?after=0");
    let after = position::asked(&uri, &headers, channels.len()).unwrap();
    let invite = |(subscribers, after): (&Rc<LocalSubscribers>, _)| Invitation {
        subscribers: subscribers.clone(),
        grant: Grant::unlimited(false),
        user: None,
        start: Start::before(&subscribers.hub.since(after)),
    };
    let invitations = channels.iter().zip(after).map(invite).collect();
    EventsBody::of_several(invitations, Unread::default())
}

/// Returns the bytes that are there.
fn read(stream: &mut EventsBody) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        match Pin::new(&mut *stream).poll_frame(&mut cx) {
            Poll::Ready(Some(frame)) => {
                all.extend_from_slice(&frame.unwrap().into_data().unwrap());
            }
            Poll::Ready(None) => return None,
            Poll::Pending => return Some(all),
        }
    }
}

/// Returns the whole events of a text: their ids and their data.
fn events(text: &[u8]) -> Vec<(String, Option<Value>)> {
    let text = String::from_utf8_lossy(text);
    let whole = text.rfind("\n\n").map_or("", |end| &text[..end]);
    let field = |event: &str, name: &str| {
        // The last field of a name counts: the first event has the place before it as well.
        event.lines().rev().find_map(|line| line.strip_prefix(name).map(str::to_owned))
    };
    let events = whole.split("\n\n").filter(|event| !event.is_empty());
    let all = events.map(|event| {
        let data = field(event, "data: ").map(|data| serde_json::from_str(&data).unwrap());
        (field(event, "id: ").unwrap(), data)
    });
    all.collect()
}

/// Waits until the engine has delivered all messages.
async fn deliver() {
    for _ in 0..20 {
        yield_now().await;
    }
}

fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    usize::try_from(*state >> 33).unwrap()
}

/// A reader whose connection ends after any byte continues in each channel where it was.
#[test]
fn a_reader_resumes_after_any_byte_without_loss_and_in_order() {
    for seed in 1..40_u64 {
        Runtime::new().unwrap().block_on(async {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let count = 1 + random(&mut state) % 6;
            let options = Channel { history: 1000, backlog_bytes: 500, ..Channel::default() };
            let hubs: Vec<_> = (0..count)
                .map(|index| {
                    let hub = Hub::restore(
                        format!("/{index}").as_str().into(),
                        u64::try_from(index).unwrap() + 7,
                        Vec::new(),
                    );
                    hub.change(options.clone());
                    hub.finish_gathering();
                    hub
                })
                .collect();
            let channels = subscribers(&hubs);
            let mut read_so_far: HashMap<String, u64> = HashMap::new();
            let mut position: Option<String> = None;
            let mut open = stream(&channels, None);
            let mut pending = Vec::new();
            for step in 0..300 {
                let is_last = step == 299;
                for _ in 0..random(&mut state) % 4 {
                    let hub = &hubs[random(&mut state) % count];
                    hub.publish(format!("message {}\nof {}", hub.last() + 1, hub.name()));
                }
                deliver().await;
                let Some(bytes) = read(&mut open) else {
                    // It was too slow: it comes again.
                    open = stream(&channels, position.as_deref());
                    pending.clear();
                    continue;
                };
                pending.extend(bytes);
                let breaks = random(&mut state).is_multiple_of(3) && !is_last;
                // What came before the connection broke.
                let length =
                    if breaks { random(&mut state) % (pending.len() + 1) } else { pending.len() };
                for (id, data) in events(&pending[..length]) {
                    position = Some(id);
                    let Some(data) = data else { continue };
                    let name = data["channel"].as_str().unwrap();
                    let last = read_so_far.entry(name.to_owned()).or_default();
                    *last += 1;
                    assert_eq!(data["id"], *last, "{name}");
                    assert_eq!(data["data"], format!("message {last}\nof {name}"));
                }
                pending.clear();
                if breaks {
                    drop(open);
                    open = stream(&channels, position.as_deref());
                }
            }
            drop(open);
            let mut rest = stream(&channels, position.as_deref());
            for (_, data) in events(&read(&mut rest).unwrap()) {
                if let Some(data) = data {
                    *read_so_far
                        .entry(data["channel"].as_str().unwrap().to_owned())
                        .or_default() += 1;
                }
            }
            for hub in &hubs {
                assert_eq!(read_so_far.get(&**hub.name()).copied().unwrap_or(0), hub.last());
                assert_eq!(hub.subscribers(), 1);
            }
            drop(rest);
            assert!(hubs.iter().all(|hub| hub.subscribers() == 0));
        });
    }
}

/// The position after the event `missed` is before the message that follows it.
#[test]
fn a_reader_that_breaks_off_after_a_gap_still_gets_the_next_message() {
    Runtime::new().unwrap().block_on(async {
        let slow = Slow::DropOldest;
        let options = Channel { history: 1, backlog_bytes: 1, slow, ..Channel::default() };
        let hubs = [Hub::new(options.clone()), Hub::new(options)];
        let channels = subscribers(&hubs);
        let mut open = stream(&channels, None);
        read(&mut open).unwrap();
        for text in ["a", "b", "c"] {
            hubs[1].publish(text);
        }
        hubs[0].publish("x");
        deliver().await;
        let read = events(&read(&mut open).unwrap());
        let found: Vec<_> = read
            .iter()
            .map(|(id, data)| {
                let ids: Vec<_> =
                    id.split('.').map(|part| part.split('-').next().unwrap()).collect();
                let data = data.as_ref().unwrap();
                (ids.join("."), data["data"].as_str(), data["missed"] == true)
            })
            .collect();
        let expected = [
            ("1.0".to_owned(), Some("x"), false),
            ("1.2".to_owned(), None, true),
            ("1.3".to_owned(), Some("c"), false),
        ];
        assert_eq!(found, expected);
    });
}

/// Messages of one channel do not hold those of another.
#[test]
fn channels_have_their_turn() {
    Runtime::new().unwrap().block_on(async {
        let hubs = [(); 3].map(|()| Hub::new(Channel::default()));
        for (hub, count) in hubs.iter().zip([50, 2, 1]) {
            for _ in 0..count {
                hub.publish("x");
            }
        }
        let channels = subscribers(&hubs);
        let invitations = channels.iter().map(|subscribers| Invitation {
            subscribers: subscribers.clone(),
            grant: Grant::unlimited(false),
            user: None,
            start: Start { id: 0, missed: false },
        });
        let mut several = JoinedChannels::join(invitations.collect());
        let order: Vec<usize> =
            std::iter::from_fn(|| several.take()).map(|(index, _)| index).collect();
        assert_eq!(order[..5], [0, 1, 2, 0, 1]);
        assert_eq!(order.len(), 53);
    });
}

#[test]
fn the_first_channel_that_ends_ends_the_connection() {
    Runtime::new().unwrap().block_on(async {
        for reason in [EndReason::Slow, EndReason::Retired, EndReason::Expired, EndReason::Changed]
        {
            let hubs = [(); 3].map(|()| Hub::new(Channel::default()));
            let channels = subscribers(&hubs);
            let mut open = stream(&channels, None);
            read(&mut open).unwrap();
            hubs[0].publish("first");
            hubs[1].publish("second");
            deliver().await;
            for (_, subscriber) in channels[1].subscribers.borrow().iter() {
                let SubscriberState::Task(mailbox) = &subscriber.delivery else { panic!() };
                mailbox.end(reason);
            }
            let mut text = Vec::new();
            let mut cx = Context::from_waker(Waker::noop());
            while let Poll::Ready(Some(frame)) = Pin::new(&mut open).poll_frame(&mut cx) {
                text.extend_from_slice(&frame.unwrap().into_data().unwrap());
            }
            // A channel that retires still gives what it has.
            let given = events(&text).len();
            assert_eq!(given > 0, reason == EndReason::Retired, "{reason:?}");
            assert_eq!(read(&mut open), None, "{reason:?}");
        }
    });
    // The type of a response's body can hold it.
    let _: fn(EventsBody) -> Body = Body::stream;
}

#[test]
fn further_channels_are_found_in_the_url() {
    let find = |uri: &str| Also::find(uri.split_once('?').map(|(_, query)| query), |_| None);
    assert!(find("/a").is_none());
    assert!(find("/a?after=1&alsoo=/b").is_none());
    let also = find("/a?also=/b&after=1&also=%2Frooms%2Fa%2520b&also=").unwrap();
    let paths: Vec<&str> = also.paths.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["/b", "/rooms/a%20b", ""]);
    // Only so many are kept, and all are counted.
    let also = find(&format!("/a?{}", "also=/b&".repeat(5000))).unwrap();
    assert_eq!((also.paths.len(), also.count), (MOST_CHANNELS, 5000));
}
