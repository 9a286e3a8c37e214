//! Requests for a hub of Mercure: subscriptions, publications, and the web API of active
//! subscriptions.

use std::rc::Rc;
use std::sync::Arc;

use http::header::{CONTENT_TYPE, LINK};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use superpoll_http::body::Body;
use superpoll_http::exchange::Exchange;
use superpoll_http::grant::{Grant, Use};
use superpoll_http::mercure::reader_record::ReaderRecord;
use superpoll_http::mercure::selector::Selector;
use superpoll_http::reply;
use superpoll_http::upload::Upload;

use super::claims::Claims;
use super::subscriptions::identify;
use super::update::{self, Refused};
use super::{EARLIEST, PATH, form};
use crate::channel::cursor::Cursor;
use crate::channel::events::{LAST_EVENT_ID, MercureRequest, StreamRequest};
use crate::channel::foreign_page::{ForeignPage, preflight};
use crate::channel::hub::Hub;
use crate::channel::local_route::LocalRoute;
use crate::channel::publish;
use crate::channel::response::no_channel;
use crate::channel::unread::Unread;

/// The methods of a hub, and of the web API.
const METHODS: &str = "GET, OPTIONS, POST";
const API_METHODS: &str = "GET, HEAD, OPTIONS";

/// The most topic selectors of a subscriber, and the most variables in all of them. Each variable
/// is work with each update.
const MOST_TOPICS: usize = 100;
const MOST_VARIABLES: usize = 100;

/// The names of the parameter with the last event's id. The draft has had the second one since.
const LAST_EVENT_IDS: [&str; 2] = ["Last-Event-ID", "lastEventID"];

/// The bytes of a form in addition to its data, each byte of which may take three.
const AROUND: u64 = 64 << 10;

/// The field that names the hub (the draft, section "Discovery").
pub const DISCOVERY: HeaderValue =
    HeaderValue::from_static("</.well-known/mercure>; rel=\"mercure\"");

fn wrong(what: &str) -> Response<Body> {
    reply::text(StatusCode::BAD_REQUEST, format!("{what}\n"))
}

impl LocalRoute {
    /// Answers a request for the hub, perhaps of a page of another site.
    pub(in crate::channel) async fn respond_as_hub(
        self: Rc<LocalRoute>,
        request: Request<Upload>,
        exchange: &Exchange,
        page: Option<&ForeignPage>,
    ) -> Response<Body> {
        let path = request.uri().path();
        let below = path.strip_prefix(PATH).unwrap_or(path).to_owned();
        let hub = match self.channels.locate(&PATH.into()).await {
            Ok(hub) => hub,
            Err(error) => return no_channel(error),
        };
        let is_hub = matches!(below.as_str(), "" | "/");
        let mut response = match *request.method() {
            Method::OPTIONS => preflight(),
            Method::GET if is_hub => return self.subscribe(&hub, request, exchange, page).await,
            Method::POST if is_hub => self.publish(&hub, request, exchange).await,
            _ if is_hub => reply::refused(request.method(), METHODS),
            Method::GET | Method::HEAD => {
                self.subscriptions(&hub, &below, &request, exchange).await
            }
            _ => reply::refused(request.method(), API_METHODS),
        };
        response.headers_mut().insert(LINK, DISCOVERY);
        response
    }

    /// Begins a stream of updates.
    async fn subscribe(
        self: Rc<LocalRoute>,
        hub: &Arc<Hub>,
        request: Request<Upload>,
        exchange: &Exchange,
        page: Option<&ForeignPage>,
    ) -> Response<Body> {
        let admitted = self.admit(Use::Subscribe, &request, exchange).await;
        let (grant, claims) = match admitted {
            Ok(admitted) => admitted,
            Err(refusal) => return refusal,
        };
        let (head, body) = request.into_parts();
        let (topics, last_event_id) = match question(&head) {
            Ok(question) => question,
            Err(what) => return wrong(&what),
        };
        let claims = claims.unwrap_or_default();
        let is_reported =
            self.channels.options().mercure.is_some_and(|options| options.subscriptions);
        // A report is a message. Clients that come and go wait for their turn as publishers do.
        if is_reported && let Err(busy) = publish::until_room(hub, 0).await {
            return busy;
        }
        let identity = if is_reported { identify(claims.payload) } else { None };
        let reader = ReaderRecord { topics, allowed: claims.subscribe, identity };
        let (after, last_event_id) = match last_event_id {
            None => (None, None),
            Some(id) => match hub.place_behind(&id) {
                Some(place) => (Some(place), Some(id)),
                // Everything that is kept: more than was asked for rather than less.
                None => (Some(Cursor { id: 0, epoch: None }), Some(EARLIEST.to_owned())),
            },
        };
        let mercure = Some(MercureRequest { reader, last_event_id });
        let asked = StreamRequest { after, grant, user: None, page: page.cloned(), mercure };
        self.subscribers(hub).stream(asked, exchange, Unread::new(body)).await
    }

    /// Publishes an update.
    async fn publish(
        &self,
        hub: &Arc<Hub>,
        request: Request<Upload>,
        exchange: &Exchange,
    ) -> Response<Body> {
        let claims = match self.admit(Use::Publish, &request, exchange).await {
            Ok((_, claims)) => claims,
            Err(refusal) => return refusal,
        };
        let publisher = self.publisher(exchange.peer());
        if let Err(response) = publish::check_rate(&publisher, PATH, || Some(hub.clone())) {
            return *response;
        }
        if !is_form(request.headers()) {
            let text = "an update is published as application/x-www-form-urlencoded\n";
            return reply::text(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
        }
        let limit = hub.options().message_bytes;
        let longest = limit.saturating_mul(3).saturating_add(AROUND);
        let body = match publish::collect(request.into_body(), longest).await {
            Ok(body) => body,
            Err(response) => return response,
        };
        let draft = match update::read(&body, limit) {
            Ok(draft) => draft,
            Err(Refused::Wrong(what)) => return wrong(&what),
            Err(Refused::TooLarge) => return publish::too_large(limit),
            Err(Refused::Reserved(topic)) => {
                return self.rights().refuse_topic(Use::Publish, &topic, PATH, exchange);
            }
        };
        let topics = draft.meta.iter().flat_map(|meta| &meta.update).flat_map(|one| &one.topics);
        if let Some(claims) = &claims
            && let Some(topic) = topics.clone().find(|topic| !claims.may_publish(topic))
        {
            return self.rights().refuse_topic(Use::Publish, topic, PATH, exchange);
        }
        let own_id = draft.meta.as_ref().and_then(|meta| meta.update.as_ref()?.id.clone());
        match publish::publish_in_turn(hub, draft).await {
            Ok(published) => {
                let place = Cursor { id: published.id, epoch: Some(published.epoch) };
                let id = own_id.unwrap_or_else(|| update::place(place));
                reply::text(StatusCode::OK, id)
            }
            Err(response) => response,
        }
    }

    /// Answers with active subscriptions.
    async fn subscriptions(
        &self,
        hub: &Hub,
        below: &str,
        request: &Request<Upload>,
        exchange: &Exchange,
    ) -> Response<Body> {
        if !self.channels.options().mercure.is_some_and(|options| options.subscriptions) {
            return reply::status(StatusCode::NOT_FOUND);
        }
        let claims = match self.admit(Use::Subscribe, request, exchange).await {
            Ok((_, Some(claims))) => claims,
            Ok((_, None)) => return self.rights().refuse_without_token(PATH, exchange),
            Err(refusal) => return refusal,
        };
        let path = request.uri().path();
        if !claims.may_read(path) {
            return self.rights().refuse_topic(Use::Subscribe, path, PATH, exchange);
        }
        match self.channels.subscriptions.document_at(below, hub) {
            Some(document) => {
                let mut response = Response::new(Body::from(format!("{document}\n")));
                let json = HeaderValue::from_static("application/ld+json");
                response.headers_mut().insert(CONTENT_TYPE, json);
                response
            }
            None => reply::status(StatusCode::NOT_FOUND),
        }
    }

    async fn admit(
        &self,
        using: Use,
        request: &Request<Upload>,
        exchange: &Exchange,
    ) -> Result<(Grant, Option<Claims>), Response<Body>> {
        let (grant, claims) = self.rights().admit_to_hub(using, PATH, request, exchange).await?;
        Ok((grant, claims.as_ref().map(Claims::from_token)))
    }
}

fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let kind = kind.split(';').next().unwrap_or("").trim();
    kind.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

/// Reads the topics that a subscriber asks for, and the id of the last event that it has.
fn question(head: &Parts) -> Result<(Vec<Selector>, Option<String>), String> {
    let (mut topics, mut last_event_id) = (Vec::new(), None);
    for field in form::fields(head.uri.query().unwrap_or("").as_bytes()) {
        let (name, value) = field?;
        if name == "topic" {
            update::check_topic(&value)?;
            let topic = Selector::from(value);
            if !topics.contains(&topic) {
                topics.push(topic);
            }
            if topics.len() > MOST_TOPICS {
                return Err(format!("a subscriber has at most {MOST_TOPICS} topics"));
            }
        } else if LAST_EVENT_IDS.iter().any(|one| name.eq_ignore_ascii_case(one)) {
            // A client that keeps the id itself appends it to the address that it was given.
            last_event_id = Some(value).filter(|id| !id.is_empty()).or(last_event_id);
        }
    }
    if topics.is_empty() {
        return Err("no topic in the URL, expected ?topic=TOPIC, perhaps several times".to_owned());
    }
    if topics.iter().map(Selector::variables).sum::<usize>() > MOST_VARIABLES {
        return Err(format!("the topics have more than {MOST_VARIABLES} variables"));
    }
    // The field counts more: it has the last id that the client has had meanwhile.
    let field = head.headers.get(LAST_EVENT_ID).filter(|id| !id.is_empty());
    let field = field.map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned());
    Ok((topics, field.or(last_event_id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(uri: &str, field: Option<&str>) -> Result<(Vec<String>, Option<String>), String> {
        let mut request = Request::get(uri);
        if let Some(field) = field {
            request = request.header("last-event-id", field);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let (topics, last) = question(&head)?;
        Ok((topics.into_iter().map(String::from).collect(), last))
    }

    #[test]
    fn a_question_is_read_and_the_field_counts_more() {
        let topics = vec!["a".to_owned(), "https://b/{id}".to_owned()];
        let uri = "/?topic=a&topic=https%3A%2F%2Fb%2F%7Bid%7D&topic=a&x=1";
        assert_eq!(asked(uri, None), Ok((topics.clone(), None)));
        for name in ["Last-Event-ID", "lastEventID", "last-event-id"] {
            let uri = format!("{uri}&{name}=urn%3Aa%2Bb");
            let last = Some("urn:a+b".to_owned());
            assert_eq!(asked(&uri, None), Ok((topics.clone(), last)));
            let last = Some("urn:c".to_owned());
            assert_eq!(asked(&uri, Some("urn:c")), Ok((topics.clone(), last)));
        }
    }

    /// Clients that keep the id themselves append it to the address that they were given.
    #[test]
    fn the_last_of_several_ids_in_the_url_counts() {
        for (query, expected) in [
            ("Last-Event-ID=urn:old&lastEventId=urn:new", "urn:new"),
            ("Last-Event-ID=&lastEventID=urn:new", "urn:new"),
            ("lastEventID=urn:new&Last-Event-ID=", "urn:new"),
        ] {
            let (_, last) = asked(&format!("/?topic=a&{query}"), None).unwrap();
            assert_eq!(last.as_deref(), Some(expected), "{query}");
        }
    }

    #[test]
    fn questions_are_bounded() {
        for (uri, part) in [
            ("/".to_owned(), "no topic"),
            ("/?topic=".to_owned(), "empty"),
            ("/?topic=%00".to_owned(), "control"),
            ("/?topic=%ff".to_owned(), "UTF-8"),
            (format!("/?topic={}", "x".repeat(3000)), "2048"),
            (format!("/?topic={}", "%7Bx%7D".repeat(101)), "variables"),
            (format!("/?topic=%7Bx{}%7D", ",x".repeat(100)), "variables"),
            (
                format!("/?x{}", (0..101).map(|id| format!("&topic={id}")).collect::<String>()),
                "100",
            ),
        ] {
            let what = asked(&uri, None).unwrap_err();
            assert!(what.contains(part), "{what}");
        }
    }
}
