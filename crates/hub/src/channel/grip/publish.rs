//! The control endpoint: applications publish items by POST.

use std::sync::{Arc, PoisonError};

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
use super::sequence::PATIENCE;
use crate::channel::hub::Hub;
use crate::channel::publish;
use crate::channel::response::no_channel;
use crate::channel::route::Channels;

/// The most bytes of a publication.
const MOST_BYTES: u64 = 1_000_000;

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
    for Published { item, waits } in items {
        let (passed, is_waiting) = {
            let mut sequences = channels.sequences.lock().unwrap_or_else(PoisonError::into_inner);
            let before = sequences.waiting();
            (sequences.pass(item, waits, time::now()), sequences.waiting() > before)
        };
        if is_waiting {
            spawn(publish_overdue(channels.clone(), hub.clone())).detach();
        }
        for item in passed {
            if let Err(response) = publish_item(&hub, &item).await {
                return response;
            }
        }
    }
    kind.answer(StatusCode::OK, "Published")
}

/// Publishes items whose time to wait is over.
async fn publish_overdue(channels: Arc<Channels>, hub: Arc<Hub>) {
    sleep(PATIENCE).await;
    let overdue = {
        let mut sequences = channels.sequences.lock().unwrap_or_else(PoisonError::into_inner);
        sequences.overdue(time::now())
    };
    for item in overdue {
        // Its publisher has its answer already.
        let _ = publish_item(&hub, &item).await;
    }
}

/// Publishes an item, unless it is kept already.
async fn publish_item(hub: &Arc<Hub>, item: &Item) -> Result<(), Response<Body>> {
    let draft = item.draft();
    let limit = hub.options().message_bytes;
    if draft.data.len() as u64 > limit {
        return Err(publish::too_large(limit));
    }
    match publish::publish_in_turn(hub, draft).await {
        Ok(_) => Ok(()),
        // An item with its id: a repeated one.
        Err(response) if response.status() == StatusCode::UNPROCESSABLE_ENTITY => Ok(()),
        Err(response) => Err(response),
    }
}
