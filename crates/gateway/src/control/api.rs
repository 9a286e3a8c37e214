//! The paths and methods of the API, the operations that they stand for, and the answers.
//!
//! There is no I/O here. The admin listener and the statistics socket read a request, and
//! [`route`] says what it asks for; [`answer`] makes the response of the outcome. An [`ApiRequest`]
//! is the way back, for a client: `superpoll upstream` and its like.
//!
//! ```text
//! ApiRequest -> method, target, body -> route -> Call -> Outcome -> answer -> Response
//! ```
//!
//! An error is `{"error": "..."}`, with the mistake and the expected value. All responses have the
//! version of the server in `Server`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, SERVER, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::Serialize;
use serde_json::{Map, Value, json};
use superpoll_http::admin::{
    ChannelQuery, ClientFilter, ConnectionQuery, MOST_LISTED, Operation, Outcome, Refusal,
    RefusalReason, Report, ServerChange, ServerCommand, ServerState, UserCommand, WeightChange,
};
use superpoll_http::log::Level;

/// The most bytes of the body of a request.
pub(crate) const LARGEST: u64 = 4096;

/// How many channels or connections are listed if the request does not say.
const LISTED: usize = 100;

/// The intervals of snapshots that may be asked for, in milliseconds.
pub const INTERVALS: RangeInclusive<u64> = 50..=60_000;

/// The interval if the request does not say.
const INTERVAL: u64 = 1000;

/// The name and version of the server in responses.
const NAME: &str = concat!("superpoll/", env!("CARGO_PKG_VERSION"));

/// The content type of a stream of objects of JSON, one a line.
pub(crate) const LINES: &str = "application/x-ndjson";

/// The characters that are encoded in targets.
const ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// The paths, for people.
const INDEX: &str = "\
GET    /api/status
GET    /api/snapshot
GET    /api/snapshots                        ?interval_ms=N: one a line, on the statistics socket
GET    /api/upstreams
GET    /api/upstreams/NAME
PATCH  /api/upstreams/NAME/servers/ADDRESS   {\"state\": \"up\", \"down\" or \"drain\", \"weight\": N or null}
GET    /api/connections                      ?client=IP[:PORT] &parked=true|false &limit=N
DELETE /api/connections                      ?client=IP[:PORT]
GET    /api/channels                         ?after=KEY &limit=N
DELETE /api/users/NAME                       ?channel=PATH: ends the user's subscriptions
POST   /api/users/NAME/refresh               ?channel=PATH: the user's clients come again, with the rights of now
GET    /api/log
PUT    /api/log                              {\"level\": \"info\", \"notice\", \"warning\", \"error\" or null}
POST   /api/reload
POST   /api/upgrade
POST   /api/reopen-logs
POST   /api/drain                            ?follow=true: its progress, on the statistics socket
";

/// A response as a whole.
pub(crate) type Answer = Response<Bytes>;

/// The meaning of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// The list of paths.
    Index,
    /// An operation.
    Operate(Operation),
    /// An upstream of all, by its name.
    Upstream(String),
    /// Snapshots at this interval in milliseconds, until the client goes.
    Snapshots(u64),
    /// A drain, and its progress until the process ends.
    FollowedDrain,
}

/// Returns the meaning of a request.
///
/// # Errors
///
/// The response to a request that is wrong.
pub(crate) fn route(head: &Parts, body: &[u8]) -> Result<Call, Box<Answer>> {
    check_type(&head.headers, body)?;
    let (path, query) = (head.uri.path(), head.uri.query().unwrap_or(""));
    let upstream = path.strip_prefix("/api/upstreams/");
    let server = upstream.and_then(|rest| rest.split_once("/servers/"));
    let user = path.strip_prefix("/api/users/").map(|rest| match rest.strip_suffix("/refresh") {
        Some(user) => (user, true),
        None => (rest, false),
    });
    let allowed = match path {
        "/" | "/api/status" | "/api/snapshot" | "/api/snapshots" => "GET, HEAD",
        "/api/upstreams" | "/api/channels" => "GET, HEAD",
        "/api/reload" | "/api/upgrade" | "/api/drain" | "/api/reopen-logs" => "POST",
        "/api/connections" => "GET, HEAD, DELETE",
        "/api/log" => "GET, HEAD, PUT",
        _ if user.is_some_and(|(_, is_refresh)| is_refresh) => "POST",
        _ if user.is_some() => "DELETE",
        _ if server.is_some() => "PATCH, PUT, POST",
        _ if upstream.is_some() => "GET, HEAD",
        _ => {
            let what = "there is nothing at this path, expected one of those listed at /";
            return Err(Box::new(refuse(StatusCode::NOT_FOUND, what)));
        }
    };
    if !allowed.split(", ").any(|one| head.method.as_str() == one) {
        return Err(Box::new(not_allowed(allowed)));
    }
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    let command = |command| empty(body, Operation::Command(command));
    let operation = match (path, server) {
        ("/", _) => return Ok(Call::Index),
        ("/api/status", _) => Ok(Operation::Status),
        ("/api/snapshot", _) => Ok(Operation::Snapshot),
        ("/api/snapshots", _) => return interval(query).map(Call::Snapshots).map_err(invalid),
        ("/api/reload", _) => command(ServerCommand::Reload),
        ("/api/upgrade", _) => command(ServerCommand::Upgrade),
        ("/api/drain", _) if follows(query).map_err(invalid)? => {
            return empty(body, Call::FollowedDrain).map_err(invalid);
        }
        ("/api/drain", _) => command(ServerCommand::Drain),
        ("/api/reopen-logs", _) => empty(body, Operation::ReopenLogs),
        ("/api/upstreams", _) => Ok(Operation::Upstreams),
        ("/api/connections", _) if is_read => connections(query),
        ("/api/connections", _) => close(query),
        ("/api/channels", _) => channels(query),
        ("/api/log", _) if is_read => Ok(Operation::Log),
        ("/api/log", _) => log(body),
        _ if let Some((user, may_return)) = user => end_user(user, query, may_return),
        (_, Some((upstream, server))) => change(upstream, server, body),
        (_, None) => {
            return decoded(upstream.unwrap_or("")).map(Call::Upstream).map_err(invalid);
        }
    };
    operation.map(Call::Operate).map_err(invalid)
}

/// Checks whether the body is JSON, if there is any.
fn check_type(headers: &HeaderMap, body: &[u8]) -> Result<(), Box<Answer>> {
    let kind = headers.get(CONTENT_TYPE);
    let is_json = kind.is_some_and(|kind| {
        let kind = kind.to_str().unwrap_or("").split(';').next().unwrap_or("");
        kind.trim().eq_ignore_ascii_case("application/json")
    });
    match (kind.is_some() || !body.is_empty()) && !is_json {
        true => {
            let what = "the body is expected to be JSON, with Content-Type: application/json";
            Err(Box::new(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, what)))
        }
        false => Ok(()),
    }
}

/// Returns the meaning of a request that has no settings.
fn empty<T>(body: &[u8], meaning: T) -> Result<T, String> {
    if !body.is_empty() && object(body)? != Map::new() {
        return Err("the body has settings, expected none".to_owned());
    }
    Ok(meaning)
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

fn flag(name: &str, text: Option<String>) -> Result<Option<bool>, String> {
    let read = text.map(|text| text.parse().map_err(|_| text)).transpose();
    read.map_err(|text| format!("{name} is {text:?}, expected true or false"))
}

fn follows(query: &str) -> Result<bool, String> {
    let [follow] = parameters(query, ["follow"])?;
    Ok(flag("follow", follow)?.unwrap_or(false))
}

fn interval(query: &str) -> Result<u64, String> {
    let [interval] = parameters(query, ["interval_ms"])?;
    let Some(text) = interval else { return Ok(INTERVAL) };
    let interval = text.parse().ok().filter(|interval| INTERVALS.contains(interval));
    let (least, most) = (INTERVALS.start(), INTERVALS.end());
    interval.ok_or_else(|| {
        format!("the interval is {text:?} milliseconds, expected a number from {least} to {most}")
    })
}

fn connections(query: &str) -> Result<Operation, String> {
    let [client, parked, most] = parameters(query, ["client", "parked", "limit"])?;
    let client = client.map(|client| client.parse::<ClientFilter>()).transpose()?;
    let parked = flag("parked", parked)?;
    Ok(Operation::Connections(ConnectionQuery { client, parked, limit: limit(most)? }))
}

fn close(query: &str) -> Result<Operation, String> {
    let [client] = parameters(query, ["client"])?;
    let expected = "expected client=ADDRESS, or client=ADDRESS:PORT";
    let client = client.ok_or_else(|| format!("it is not said whose connections, {expected}"))?;
    client.parse().map(Operation::Close)
}

fn end_user(user: &str, query: &str, may_return: bool) -> Result<Operation, String> {
    if user.is_empty() {
        return Err("it is not said which user is meant, expected /api/users/NAME".to_owned());
    }
    let [channel] = parameters(query, ["channel"])?;
    Ok(Operation::EndUser(UserCommand { user: decoded(user)?, channel, may_return }))
}

fn channels(query: &str) -> Result<Operation, String> {
    let [after, most] = parameters(query, ["after", "limit"])?;
    Ok(Operation::Channels(ChannelQuery { after, limit: limit(most)? }))
}

// The requests of clients.

/// A request of the API, as a client sends it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiRequest {
    /// The method.
    pub method: Method,
    /// The path and the query.
    pub target: String,
    /// The body in JSON; empty if there is none.
    pub body: String,
}

impl ApiRequest {
    fn new(method: Method, target: impl Into<String>) -> ApiRequest {
        ApiRequest { method, target: target.into(), body: String::new() }
    }

    /// Returns the request for snapshots at an interval in milliseconds.
    #[must_use]
    pub fn snapshots(interval_ms: u64) -> ApiRequest {
        ApiRequest::new(Method::GET, format!("/api/snapshots?interval_ms={interval_ms}"))
    }

    /// Returns the request for a drain whose progress is told until the process ends.
    #[must_use]
    pub fn followed_drain() -> ApiRequest {
        ApiRequest::new(Method::POST, "/api/drain?follow=true")
    }
}

impl From<ServerCommand> for ApiRequest {
    fn from(command: ServerCommand) -> ApiRequest {
        ApiRequest::from(&Operation::Command(command))
    }
}

impl From<&Operation> for ApiRequest {
    fn from(operation: &Operation) -> ApiRequest {
        let encoded = |text: &str| utf8_percent_encode(text, ENCODED).to_string();
        let get = |target: String| ApiRequest::new(Method::GET, target);
        let post = |target: String| ApiRequest::new(Method::POST, target);
        match operation {
            Operation::Command(command) => post(format!("/api/{}", command.name())),
            Operation::ReopenLogs => post("/api/reopen-logs".to_owned()),
            Operation::Status => get("/api/status".to_owned()),
            Operation::Snapshot => get("/api/snapshot".to_owned()),
            Operation::Upstreams => get("/api/upstreams".to_owned()),
            Operation::Log => get("/api/log".to_owned()),
            Operation::SetLog(level) => {
                let body = json!({ "level": level.map(Level::name) }).to_string();
                ApiRequest { body, ..ApiRequest::new(Method::PUT, "/api/log") }
            }
            Operation::SetServer(ServerChange { upstream, server, state, weight }) => {
                let mut settings = Map::new();
                if let Some(state) = state {
                    settings.insert("state".to_owned(), state.name().into());
                }
                if let Some(weight) = weight {
                    let weight = match weight {
                        WeightChange::Configured => Value::Null,
                        WeightChange::Number(number) => (*number).into(),
                    };
                    settings.insert("weight".to_owned(), weight);
                }
                let (upstream, server) = (encoded(upstream), encoded(server));
                let target = format!("/api/upstreams/{upstream}/servers/{server}");
                let body = Value::Object(settings).to_string();
                ApiRequest { body, ..ApiRequest::new(Method::PATCH, target) }
            }
            Operation::Connections(ConnectionQuery { client, parked, limit }) => {
                let client =
                    client.map(|client| format!("&client={}", encoded(&client.to_string())));
                let parked = parked.map(|parked| format!("&parked={parked}"));
                let (client, parked) = (client.unwrap_or_default(), parked.unwrap_or_default());
                get(format!("/api/connections?limit={limit}{client}{parked}"))
            }
            Operation::Close(client) => {
                let target = format!("/api/connections?client={}", encoded(&client.to_string()));
                ApiRequest::new(Method::DELETE, target)
            }
            Operation::EndUser(UserCommand { user, channel, may_return }) => {
                let (method, rest) = match may_return {
                    true => (Method::POST, "/refresh"),
                    false => (Method::DELETE, ""),
                };
                let channel = channel.as_ref().map(|name| format!("?channel={}", encoded(name)));
                let channel = channel.unwrap_or_default();
                ApiRequest::new(method, format!("/api/users/{}{rest}{channel}", encoded(user)))
            }
            Operation::Channels(ChannelQuery { after, limit }) => {
                let after = after.as_ref().map(|after| format!("&after={}", encoded(after)));
                get(format!("/api/channels?limit={limit}{}", after.unwrap_or_default()))
            }
        }
    }
}

// Responses.

/// Returns the response with the outcome of an operation, or with one of the upstreams in it.
pub(crate) fn answer(operation: &Operation, only: Option<&str>, outcome: Outcome) -> Answer {
    let covered = match outcome {
        Ok(covered) => covered,
        Err(refused) => return refusal(refused),
    };
    // A change may not have effect everywhere yet.
    let status = match operation.is_change() && !covered.missing_processes.is_empty() {
        true => StatusCode::ACCEPTED,
        false => StatusCode::OK,
    };
    match (&covered.report, only) {
        (Report::Upstreams(all), Some(name)) => {
            match all.iter().find(|upstream| upstream.name == name) {
                Some(one) => json(status, &covered.with(one)),
                None => {
                    let known = all.iter().map(|upstream| upstream.name.as_str());
                    refusal(Refusal::no_upstream(name, known))
                }
            }
        }
        (Report::Upstreams(all), None) => json(status, &covered.with(named("upstreams", all))),
        (Report::Closed(count), _) => json(status, &covered.with(named("closed", count))),
        (Report::Connections(list), _) => json(status, &covered.with(list)),
        (Report::Channels(list), _) => json(status, &covered.with(list)),
        (Report::Log(level), _) => json(status, &covered.with(level)),
        (Report::Reopened(reopened), _) => json(status, &covered.with(reopened)),
        (Report::Status(server), _) => json(status, server),
        (Report::Snapshot(snapshot), _) => json(status, snapshot),
        (Report::Command(outcome), _) if outcome.is_under_way => {
            json(StatusCode::ACCEPTED, outcome)
        }
        (Report::Command(outcome), _) => json(status, outcome),
    }
}

fn named<'a, T>(name: &'static str, value: &'a T) -> BTreeMap<&'static str, &'a T> {
    BTreeMap::from([(name, value)])
}

/// Returns the list of paths, after those that a listener has as well.
pub(crate) fn index(more: &str) -> Answer {
    let text = format!("superpoll: the API\n\n{more}{INDEX}");
    response(StatusCode::OK, "text/plain; charset=utf-8", text)
}

fn response(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let body = body.into();
    let length = HeaderValue::from(body.len());
    let mut response = head(status, kind).map(|()| body);
    response.headers_mut().insert(CONTENT_LENGTH, length);
    response
}

/// Returns the head of a response.
pub(crate) fn head(status: StatusCode, kind: &'static str) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(SERVER, HeaderValue::from_static(NAME));
    response
}

/// Returns a value in JSON.
fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    // These types have no map with other keys than texts.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    response(status, "application/json", text)
}

/// Returns an error, with the reason and the expected value.
pub(crate) fn refuse(status: StatusCode, error: impl Into<String>) -> Answer {
    json(status, &json!({ "error": error.into() }))
}

fn invalid(wrong: String) -> Box<Answer> {
    Box::new(refuse(StatusCode::BAD_REQUEST, wrong))
}

/// Returns the answer to a method that the path does not have.
pub(crate) fn not_allowed(allowed: &'static str) -> Answer {
    let what = format!("the path does not have this method, expected {allowed}");
    let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, what);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// Returns the answer for a refusal.
pub(crate) fn refusal(refusal: Refusal) -> Answer {
    let status = match refusal.reason {
        RefusalReason::NotFound => StatusCode::NOT_FOUND,
        RefusalReason::Invalid => StatusCode::BAD_REQUEST,
        RefusalReason::Refused => StatusCode::CONFLICT,
        RefusalReason::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
    };
    refuse(status, refusal.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the meaning of a request, or the status and the error of the response to it.
    fn routed(method: &str, target: &str, body: &str) -> Result<Call, (u16, String)> {
        let mut request = http::Request::builder().method(method).uri(target);
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json; charset=utf-8");
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        route(&head, body.as_bytes()).map_err(|answer| {
            let error: Value = serde_json::from_slice(answer.body()).unwrap();
            (answer.status().as_u16(), error["error"].as_str().unwrap().to_owned())
        })
    }

    #[test]
    fn the_request_for_an_operation_is_understood_as_that_operation() {
        let client: ClientFilter = "[2001:db8::1]:80".parse().unwrap();
        let (upstream, server) = ("a b/ö".to_owned(), "unix:/run/x?y".to_owned());
        let change = ServerChange { upstream, server, state: None, weight: None };
        let mut all = vec![
            Operation::Status,
            Operation::Snapshot,
            Operation::Upstreams,
            Operation::Log,
            Operation::SetLog(None),
            Operation::SetLog(Some(Level::Error)),
            Operation::ReopenLogs,
            Operation::Close(client),
            Operation::Connections(ConnectionQuery { client: None, parked: None, limit: 7 }),
            Operation::Connections(ConnectionQuery {
                client: Some(client),
                parked: Some(false),
                limit: 1000,
            }),
            Operation::EndUser(UserCommand {
                user: "a/refresh".to_owned(),
                channel: None,
                may_return: false,
            }),
            Operation::EndUser(UserCommand {
                user: "ö".to_owned(),
                channel: Some("/rooms/a b".to_owned()),
                may_return: true,
            }),
            Operation::Channels(ChannelQuery { after: None, limit: 1 }),
            Operation::Channels(ChannelQuery { after: Some("a,b/c d&%+ö".to_owned()), limit: 9 }),
            Operation::SetServer(ServerChange {
                state: Some(ServerState::Drain),
                ..change.clone()
            }),
            Operation::SetServer(ServerChange {
                weight: Some(WeightChange::Configured),
                ..change.clone()
            }),
            Operation::SetServer(ServerChange { weight: Some(WeightChange::Number(3)), ..change }),
        ];
        all.extend(ServerCommand::ALL.into_iter().map(Operation::Command));
        let routed = |ApiRequest { method, target, body }: ApiRequest| {
            routed(method.as_str(), &target, &body)
        };
        for operation in all {
            let request = ApiRequest::from(&operation);
            assert_eq!(routed(request.clone()), Ok(Call::Operate(operation)), "{request:?}");
        }
        assert_eq!(routed(ApiRequest::snapshots(50)), Ok(Call::Snapshots(50)));
        assert_eq!(routed(ApiRequest::followed_drain()), Ok(Call::FollowedDrain));
    }

    #[test]
    fn other_requests_are_refused_and_the_error_says_what_was_expected() {
        assert_eq!(routed("GET", "/", ""), Ok(Call::Index));
        assert_eq!(
            routed("HEAD", "/api/upstreams/a%20b", ""),
            Ok(Call::Upstream("a b".to_owned()))
        );
        assert_eq!(routed("GET", "/api/snapshots", ""), Ok(Call::Snapshots(INTERVAL)));
        let drain = Call::Operate(Operation::Command(ServerCommand::Drain));
        assert_eq!(routed("POST", "/api/drain?follow=false", "{}"), Ok(drain));
        for (request, body, status, said) in [
            ("GET /api", "", 404, "listed at /"),
            ("GET /metrics", "", 404, "listed at /"),
            ("POST /api/status", "", 405, "expected GET, HEAD"),
            ("POST /api/snapshots", "", 405, "expected GET, HEAD"),
            ("GET /api/upgrade", "", 405, "expected POST"),
            ("DELETE /api/reopen-logs", "", 405, "expected POST"),
            ("POST /api/upgrade", "{\"a\":1}", 400, "the body has settings"),
            ("POST /api/drain?follow=1", "", 400, "expected true or false"),
            ("POST /api/drain?wait=true", "", 400, "expected one of follow"),
            (
                "GET /api/snapshots?interval_ms=49",
                "",
                400,
                "\"49\" milliseconds, expected a number",
            ),
            ("GET /api/snapshots?interval_ms=60001", "", 400, "from 50 to 60000"),
            ("GET /api/snapshots?interval_ms=-1", "", 400, "from 50 to 60000"),
        ] {
            let (method, target) = request.split_once(' ').unwrap();
            let (found, error) = routed(method, target, body).unwrap_err();
            assert!(found == status && error.contains(said), "{request}: {found} {error}");
        }
        let (head, ()) = http::Request::post("/api/reload").body(()).unwrap().into_parts();
        assert_eq!(route(&head, b"{}").unwrap_err().status(), 415);
    }

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
        assert!(end_user("", "", false).unwrap_err().contains("expected /api/users/NAME"));
        assert!(end_user("a", "room=1", false).unwrap_err().contains("expected one of channel"));
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
