//! The control endpoint: applications publish items by POST.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::{ACCEPT, ALLOW, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use superpoll_http::accept;
use superpoll_http::body::Body;
use superpoll_http::reply;
use superpoll_http::upload::Upload;
use superpoll_rt::spawn;
use superpoll_rt::time::{self, sleep};

use super::item::{self, Item, Published};
use super::key::GripKey;
use super::sequence::{PATIENCE, Sequences};
use crate::channel::hub::{Hub, NotPublished, Published as Outcome};
use crate::channel::publish;
use crate::channel::response::no_channel;
use crate::channel::route::Channels;
use crate::channel::shared::Publishing;

/// The most bytes of a publication.
const MOST_BYTES: u64 = 1_000_000;

/// The time between two looks for what items wait for.
const LOOK: Duration = Duration::from_millis(50);

/// The media types of answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Text,
    Json,
}

impl Kind {
    fn asked_for(fields: &HeaderMap) -> Option<Kind> {
        if !fields.contains_key(ACCEPT) {
            return Some(Kind::Text);
        }
        let weight = |kinds: [&str; 3]| {
            kinds.iter().find_map(|kind| accept::weight_of(fields, kind)).unwrap_or(0)
        };
        let text = weight(["text/plain", "text/*", "*/*"]);
        match (text, weight(["application/json", "application/*", "*/*"])) {
            (0, 0) => None,
            (text, json) if json > text => Some(Kind::Json),
            _ => Some(Kind::Text),
        }
    }

    fn answer(self, status: StatusCode, text: &str) -> Response<Body> {
        match self {
            Kind::Text => reply::text(status, format!("{text}\n")),
            Kind::Json => {
                let mut response =
                    reply::json(format!("{}\n", serde_json::json!({ "message": text })));
                *response.status_mut() = status;
                response
            }
        }
    }
}

/// Answers a request to the control endpoint of the logs with these keys: the items go to the log
/// whose key the publisher knows.
pub async fn publish_items(
    logs: &[(Arc<GripKey>, Arc<Channels>)],
    request: Request<Upload>,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let Some(kind) = Kind::asked_for(&head.headers) else {
        let text = "Not Acceptable. Supported formats are text/plain and application/json.\n";
        return reply::text(StatusCode::NOT_ACCEPTABLE, text);
    };
    if head.method != Method::POST {
        let text = format!("Method not allowed: {}.", head.method);
        let mut response = kind.answer(StatusCode::METHOD_NOT_ALLOWED, &text);
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return response;
    }
    let mut refusal = "no application holds connections here".to_owned();
    let mut known = None;
    for (key, channels) in logs {
        match key.check(&head.headers) {
            Ok(()) => known = Some(channels),
            Err(why) => refusal = why,
        }
    }
    let Some(channels) = known else {
        let mut response = kind.answer(StatusCode::UNAUTHORIZED, &refusal);
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return response;
    };
    let body = match publish::collect(body, MOST_BYTES).await {
        Ok(body) => body,
        Err(response) if response.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            return kind.answer(StatusCode::PAYLOAD_TOO_LARGE, "Request body too large.");
        }
        Err(response) => return response,
    };
    let items = match item::read(&body) {
        Ok(items) => items,
        Err(what) => return kind.answer(StatusCode::BAD_REQUEST, &what),
    };
    let hub = match channels.locate(&channels.own_name()).await {
        Ok(hub) => hub,
        Err(error) => return no_channel(error),
    };
    let is_large =
        |one: &Published| one.item.draft().data.len() as u64 > hub.options().message_bytes;
    if items.iter().any(is_large) {
        return publish::too_large(hub.options().message_bytes);
    }
    for Published { item, waits } in items {
        if let Err(response) = publish::until_room(&hub, item.cost() as u64).await {
            return response;
        }
        let (begun, is_waiting) = {
            let mut sequences = locked(channels);
            let before = sequences.waiting();
            let is_kept = |channel: &str, id: &str| is_kept(&hub, channel, id);
            let passed = sequences.pass(item, waits, time::now(), &is_kept);
            // In the order of the lock: another publisher's items come after these.
            (begin(&hub, passed), sequences.waiting() > before)
        };
        if is_waiting {
            spawn(publish_due(channels.clone(), hub.clone())).detach();
        }
        if let Err(why) = finish(channels, begun, true).await {
            spawn(publish_due(channels.clone(), hub.clone())).detach();
            return publish::not_published(&hub, why);
        }
    }
    hub.wait_until_recorded().await;
    kind.answer(StatusCode::OK, "Published")
}

fn locked(channels: &Channels) -> MutexGuard<'_, Sequences> {
    // No code that can panic runs under the lock.
    channels.sequences.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the log has an item.
fn is_kept(hub: &Hub, channel: &str, id: &str) -> bool {
    hub.number_of_key(&Item::key(channel, id)).is_some()
}

/// The publication of an item, as far as it is begun.
enum Begun {
    Done(Result<Outcome, NotPublished>),
    /// The log of several servers is still to take it.
    Shared(Publishing),
}

/// Begins to publish items, all before anything else.
fn begin(hub: &Hub, items: Vec<Item>) -> Vec<(Item, Begun)> {
    let begin = |item: Item| {
        let draft = item.draft();
        let begun = match hub.shared() {
            Some(shared) => Begun::Shared(shared.begin(draft)),
            None => Begun::Done(hub.publish_as(draft)),
        };
        (item, begun)
    };
    items.into_iter().map(begin).collect()
}

/// Waits until items are published. Those that are not come again: the first one by its publisher,
/// if that is told so, and the others here.
async fn finish(
    channels: &Channels,
    begun: Vec<(Item, Begun)>,
    is_told: bool,
) -> Result<(), NotPublished> {
    let (mut failed, mut reason, mut is_first_told) = (Vec::new(), None, false);
    for (place, (item, begun)) in begun.into_iter().enumerate() {
        let outcome = match begun {
            Begun::Done(outcome) => outcome,
            Begun::Shared(publishing) => publishing.await,
        };
        match outcome {
            // An item with its id is there: it is a repeated one.
            Ok(_) | Err(NotPublished::OtherWithKey) => {}
            Err(why) => {
                is_first_told |= is_told && place == 0;
                failed.push(item);
                reason.get_or_insert(why);
            }
        }
    }
    let Some(why) = reason else { return Ok(()) };
    locked(channels).put_back(failed, is_first_told, time::now());
    Err(why)
}

/// Publishes items that wait, when their time has come, until none waits any more.
async fn publish_due(channels: Arc<Channels>, hub: Arc<Hub>) {
    // Another server may publish what they wait for, without a word to this one.
    let nap = if hub.shared().is_some() { LOOK } else { PATIENCE };
    let end = time::now() + 2 * PATIENCE;
    while time::now() < end {
        sleep(nap).await;
        let begun = {
            let mut sequences = locked(&channels);
            let is_kept = |channel: &str, id: &str| is_kept(&hub, channel, id);
            let due = sequences.due(time::now(), &is_kept);
            begin(&hub, due)
        };
        // Their publishers have their answers already.
        let is_done = finish(&channels, begun, false).await.is_ok();
        if is_done && locked(&channels).waiting() == 0 {
            return;
        }
    }
}
