//! The paths and methods of the API, and the operations that they stand for.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde_json::{Map, Value, json};
use superpoll_http::admin::command::{CommandAnswer, ServerCommand};
use superpoll_http::admin::{
    ChannelQuery, ClientFilter, ConnectionQuery, MOST_LISTED, Operation, OperationReport, Outcome,
    Refusal, RefusalReason, Report, ServerChange, ServerState, WeightChange,
};
use superpoll_http::body::Body;
use superpoll_http::log::Level;
use superpoll_http::reply;
use superpoll_http::upload::Upload;

use super::super::operations::AdminOperations;

/// The most bytes of the body of a request.
const LARGEST: u64 = 4096;

/// How many channels or connections are listed if the request does not say.
const LISTED: usize = 100;

/// Answers a request.
pub(super) async fn answer(
    admin_operations: &AdminOperations,
    request: Request<Upload>,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let (path, query) = (head.uri.path(), head.uri.query().unwrap_or(""));
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    let body = match read(&head.headers, body).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let is_post = head.method == Method::POST;
    let operation = match path {
        "/api/status" if is_read => Ok(Operation::Command(ServerCommand::Status)),
        "/api/reload" if is_post => empty(&body, Operation::Command(ServerCommand::Reload)),
        "/api/drain" if is_post => empty(&body, Operation::Command(ServerCommand::Drain)),
        "/api/reload" | "/api/drain" => return not_allowed("POST"),
        "/api/upstreams" if is_read => Ok(Operation::Upstreams),
        "/api/connections" if is_read => connections(query),
        "/api/connections" if head.method == Method::DELETE => close(query),
        "/api/connections" => return not_allowed("GET, HEAD, DELETE"),
        "/api/channels" if is_read => channels(query),
        "/api/log" if is_read => Ok(Operation::Log),
        "/api/log" if head.method == Method::PUT => log(&body),
        "/api/log" => return not_allowed("GET, HEAD, PUT"),
        "/api/status" | "/api/upstreams" | "/api/channels" => return not_allowed("GET, HEAD"),
        path => match path.strip_prefix("/api/upstreams/") {
            Some(rest) => match rest.split_once("/servers/") {
                Some((upstream, server)) => {
                    if !matches!(head.method, Method::PATCH | Method::PUT | Method::POST) {
                        return not_allowed("PATCH, PUT, POST");
                    }
                    change(upstream, server, &body)
                }
                None if !is_read => return not_allowed("GET, HEAD"),
                None => return upstream(admin_operations, rest).await,
            },
            None => {
                let what = "there is nothing at this path, expected one of those listed at /";
                return refuse(StatusCode::NOT_FOUND, what);
            }
        },
    };
    match operation {
        Ok(operation) => respond(admin_operations.operate(operation).await, !is_read),
        Err(wrong) => refusal(Refusal::invalid(wrong)),
    }
}

/// Reads the body, which is JSON if there is any.
async fn read(headers: &HeaderMap, mut body: Upload) -> Result<Bytes, Response<Body>> {
    body.limit(LARGEST);
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        match frame.map(http_body::Frame::into_data) {
            Ok(Ok(data)) => all.extend_from_slice(&data),
            // Trailers have no meaning here.
            Ok(Err(_)) => {}
            Err(error) => return Err(refuse(StatusCode::BAD_REQUEST, error.to_string())),
        }
    }
    let kind = headers.get(CONTENT_TYPE);
    let is_json = kind.is_some_and(|kind| {
        let kind = kind.to_str().unwrap_or("").split(';').next().unwrap_or("");
        kind.trim().eq_ignore_ascii_case("application/json")
    });
    if (kind.is_some() || !all.is_empty()) && !is_json {
        let what = "the body is expected to be JSON, with Content-Type: application/json";
        return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, what));
    }
    Ok(all.freeze())
}

/// Returns an operation whose request has no settings.
fn empty(body: &[u8], operation: Operation) -> Result<Operation, String> {
    if !body.is_empty() && object(body)? != Map::new() {
        return Err("the body has settings, expected none".to_owned());
    }
    Ok(operation)
}

fn object(body: &[u8]) -> Result<Map<String, Value>, String> {
    let expected = "expected an object of JSON";
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(format!("the body is no object, {expected}")),
        Err(error) => Err(format!("the body cannot be read ({error}), {expected}")),
    }
}

fn decoded(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Cow::into_owned).map_err(|_| format!("{text:?} is not UTF-8 in percent-encoding"))
}

/// Reads a change of a server.
fn change(upstream: &str, server: &str, body: &[u8]) -> Result<Operation, String> {
    let (upstream, server) = (decoded(upstream)?, decoded(server)?);
    let mut change = ServerChange { upstream, server, state: None, weight: None };
    for (key, value) in object(body)? {
        match (key.as_str(), &value) {
            ("state", value) => {
                let is_named = |state: &ServerState| value.as_str() == Some(state.name());
                let state = ServerState::ALL.into_iter().find(is_named);
                let wrong =
                    || format!("the state is {value}, expected \"up\", \"down\" or \"drain\"");
                change.state = Some(state.ok_or_else(wrong)?);
            }
            ("weight", Value::Null) => change.weight = Some(WeightChange::Configured),
            ("weight", value) => {
                let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
                let wrong =
                    || format!("the weight is {value}, expected a number from 1 on, or null");
                let number = number.filter(|number| *number > 0).ok_or_else(wrong)?;
                change.weight = Some(WeightChange::Number(number));
            }
            (key, _) => return Err(format!("unknown key {key:?}, expected state or weight")),
        }
    }
    Ok(Operation::SetServer(change))
}

/// Reads a level of the log.
fn log(body: &[u8]) -> Result<Operation, String> {
    let object = object(body)?;
    let expected = "expected \"info\", \"notice\", \"warning\", \"error\", or null for that of the configuration";
    if let Some(key) = object.keys().find(|key| *key != "level") {
        return Err(format!("unknown key {key:?}, expected level"));
    }
    match object.get("level") {
        None => Err(format!("there is no level, {expected}")),
        Some(Value::Null) => Ok(Operation::SetLog(None)),
        Some(value) => {
            let level = Level::ALL.into_iter().find(|level| value.as_str() == Some(level.name()));
            let level = level.ok_or_else(|| format!("the level is {value}, {expected}"))?;
            Ok(Operation::SetLog(Some(level)))
        }
    }
}

/// Reads the parameters of a query. Each may come once.
fn parameters<const N: usize>(
    query: &str,
    names: [&str; N],
) -> Result<[Option<String>; N], String> {
    let mut values = [const { None }; N];
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let Some(index) = names.iter().position(|known| *known == name) else {
            let expected = names.join(", ");
            return Err(format!("unknown parameter {name:?}, expected one of {expected}"));
        };
        if values[index].replace(decoded(&value.replace('+', " "))?).is_some() {
            return Err(format!("the parameter {name} is there twice"));
        }
    }
    Ok(values)
}

fn limit(text: Option<String>) -> Result<usize, String> {
    let Some(text) = text else { return Ok(LISTED) };
    let limit = text.parse().ok().filter(|limit| (1..=MOST_LISTED).contains(limit));
    limit.ok_or_else(|| format!("the limit is {text:?}, expected 1 to {MOST_LISTED}"))
}

fn connections(query: &str) -> Result<Operation, String> {
    let [client, parked, most] = parameters(query, ["client", "parked", "limit"])?;
    let client = client.map(|client| client.parse::<ClientFilter>()).transpose()?;
    let parked = match parked.as_deref() {
        None => None,
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(other) => return Err(format!("parked is {other:?}, expected true or false")),
    };
    Ok(Operation::Connections(ConnectionQuery { client, parked, limit: limit(most)? }))
}

fn close(query: &str) -> Result<Operation, String> {
    let [client] = parameters(query, ["client"])?;
    let expected = "expected client=ADDRESS, or client=ADDRESS:PORT";
    let client = client.ok_or_else(|| format!("it is not said whose connections, {expected}"))?;
    client.parse().map(Operation::Close)
}

fn channels(query: &str) -> Result<Operation, String> {
    let [after, most] = parameters(query, ["after", "limit"])?;
    Ok(Operation::Channels(ChannelQuery { after, limit: limit(most)? }))
}

/// Answers with one upstream.
async fn upstream(admin_operations: &AdminOperations, name: &str) -> Response<Body> {
    let name = match decoded(name) {
        Ok(name) => name,
        Err(wrong) => return refusal(Refusal::invalid(wrong)),
    };
    match admin_operations.operate(Operation::Upstreams).await {
        Ok(OperationReport { report: Report::Upstreams(all), missing_processes, .. }) => {
            match all.iter().find(|upstream| upstream.name == name) {
                Some(answer) => {
                    let covers = Coverage { applied: Vec::new(), missing: missing_processes };
                    covers.json(answer, false)
                }
                None => {
                    let known = all.iter().map(|upstream| upstream.name.as_str());
                    refusal(Refusal::no_upstream(&name, known))
                }
            }
        }
        other => respond(other, false),
    }
}

/// An answer with the processes that it is about, as in an [`OperationReport`].
#[derive(Serialize)]
struct Covered<'a, T> {
    #[serde(flatten)]
    answer: &'a T,
    #[serde(skip_serializing_if = "<[u32]>::is_empty")]
    applied_processes: &'a [u32],
    #[serde(skip_serializing_if = "<[u32]>::is_empty")]
    missing_processes: &'a [u32],
}

/// The processes that an answer is about.
struct Coverage {
    applied: Vec<u32>,
    missing: Vec<u32>,
}

impl Coverage {
    /// Answers with JSON: 202 for a change that does not have effect everywhere yet.
    fn json(&self, answer: &impl Serialize, is_change: bool) -> Response<Body> {
        let status = match is_change && !self.missing.is_empty() {
            true => StatusCode::ACCEPTED,
            false => StatusCode::OK,
        };
        let Coverage { applied: applied_processes, missing: missing_processes } = self;
        json(status, &Covered { answer, applied_processes, missing_processes })
    }
}

/// Answers with the outcome of an operation.
fn respond(outcome: Outcome, is_change: bool) -> Response<Body> {
    let OperationReport { report, applied_processes, missing_processes } = match outcome {
        Ok(report) => report,
        Err(refused) => return refusal(refused),
    };
    let covers = Coverage { applied: applied_processes, missing: missing_processes };
    match &report {
        Report::Upstreams(upstreams) => {
            covers.json(&BTreeMap::from([("upstreams", upstreams)]), is_change)
        }
        Report::Connections(list) => covers.json(list, is_change),
        Report::Closed(count) => covers.json(&BTreeMap::from([("closed", count)]), is_change),
        Report::Channels(list) => covers.json(list, is_change),
        Report::Log(level) => covers.json(level, is_change),
        Report::Reopened(reopened) => covers.json(reopened, is_change),
        Report::Command(CommandAnswer::Status(status)) => json(StatusCode::OK, status),
        Report::Command(CommandAnswer::Done(outcome)) => json(StatusCode::OK, outcome),
        // The configuration has a mistake, or the server does something else.
        Report::Command(CommandAnswer::Error(error)) => refuse(StatusCode::CONFLICT, error),
        Report::Command(CommandAnswer::Progress(progress)) => json(StatusCode::OK, progress),
        Report::Command(CommandAnswer::Report(report)) => json(StatusCode::OK, report),
    }
}

// Responses of the admin listener.

/// The paths, for people.
const INDEX: &str = "\
superpoll: the admin listener

GET    /metrics
GET    /healthz
GET    /readyz
GET    /_superpoll/
GET    /api/status
GET    /api/upstreams
GET    /api/upstreams/NAME
PATCH  /api/upstreams/NAME/servers/ADDRESS   {\"state\": \"up\", \"down\" or \"drain\", \"weight\": N or null}
GET    /api/connections                      ?client=IP[:PORT] &parked=true|false &limit=N
DELETE /api/connections                      ?client=IP[:PORT]
GET    /api/channels                         ?after=KEY &limit=N
GET    /api/log
PUT    /api/log                              {\"level\": \"info\", \"notice\", \"warning\", \"error\" or null}
POST   /api/reload
POST   /api/drain
";

/// Returns the list of paths.
pub(super) fn index() -> Response<Body> {
    reply::text(StatusCode::OK, INDEX)
}

/// Returns a value in JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    // These types have no map with other keys than texts.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    let length = HeaderValue::from(text.len());
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, length);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Returns an error, with the reason and the expected value.
pub(super) fn refuse(status: StatusCode, error: impl Into<String>) -> Response<Body> {
    json(status, &json!({ "error": error.into() }))
}

/// Returns the answer to a method that the path does not have.
pub(super) fn not_allowed(allowed: &'static str) -> Response<Body> {
    let what = format!("the path does not have this method, expected {allowed}");
    let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, what);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// Returns the answer for a refusal.
pub(super) fn refusal(refusal: Refusal) -> Response<Body> {
    let status = match refusal.reason {
        RefusalReason::NotFound => StatusCode::NOT_FOUND,
        RefusalReason::Invalid => StatusCode::BAD_REQUEST,
        RefusalReason::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
    };
    refuse(status, refusal.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_and_bodies_are_read_and_mistakes_say_what_was_expected() {
        assert_eq!(
            connections("client=10.0.0.1&parked=true&limit=5"),
            Ok(Operation::Connections(ConnectionQuery {
                client: Some("10.0.0.1".parse().unwrap()),
                parked: Some(true),
                limit: 5,
            }))
        );
        assert_eq!(close("client=%5B::1%5D:80"), Ok(Operation::Close("[::1]:80".parse().unwrap())));
        let after = Some("a b/ö".to_owned());
        let query = ChannelQuery { after, limit: LISTED };
        assert_eq!(channels("after=a+b%2F%C3%B6"), Ok(Operation::Channels(query)));
        for (query, said) in [
            ("limit=0", "expected 1 to 1000"),
            ("limit=1001", "expected 1 to 1000"),
            ("limit=x", "expected 1 to 1000"),
            ("limit=1&limit=2", "there twice"),
            ("page=1", "expected one of client, parked, limit"),
            ("parked=1", "expected true or false"),
            ("client=a", "expected an IP address"),
            ("client=%ff", "is not UTF-8"),
        ] {
            let error = connections(query).unwrap_err();
            assert!(error.contains(said), "{query}: {error}");
        }
        assert!(close("").unwrap_err().contains("expected client=ADDRESS"));
        let read = |body: &str| change("a%20b", "unix:/run/x", body.as_bytes());
        let change = |state, weight| {
            let (upstream, server) = ("a b".to_owned(), "unix:/run/x".to_owned());
            Ok(Operation::SetServer(ServerChange { upstream, server, state, weight }))
        };
        assert_eq!(read("{\"state\":\"down\"}"), change(Some(ServerState::Down), None));
        assert_eq!(read("{\"weight\":null}"), change(None, Some(WeightChange::Configured)));
        assert_eq!(read("{\"weight\":7}"), change(None, Some(WeightChange::Number(7))));
        for (body, said) in [
            ("", "cannot be read"),
            ("[]", "no object"),
            ("{\"state\":\"off\"}", "the state is \"off\", expected \"up\", \"down\" or \"drain\""),
            ("{\"state\":1}", "the state is 1"),
            ("{\"weight\":0}", "the weight is 0, expected a number from 1 on"),
            ("{\"weight\":-1}", "the weight is -1"),
            ("{\"weight\":1.5}", "the weight is 1.5"),
            ("{\"weight\":4294967296}", "expected a number"),
            ("{\"wait\":1}", "unknown key \"wait\""),
        ] {
            let error = read(body).unwrap_err();
            assert!(error.contains(said), "{body}: {error}");
        }
        assert_eq!(log(b"{\"level\":\"error\"}"), Ok(Operation::SetLog(Some(Level::Error))));
        assert_eq!(log(b"{\"level\":null}"), Ok(Operation::SetLog(None)));
        for body in ["{}", "{\"level\":\"debug\"}", "{\"levels\":1}", "x"] {
            assert!(log(body.as_bytes()).unwrap_err().contains("expected"), "{body}");
        }
        assert!(
            empty(b"{}", Operation::Log).is_ok() && empty(b"{\"a\":1}", Operation::Log).is_err()
        );
    }
}
