//! The reasons for which a client is refused, and the responses that say so.

use http::header::{CACHE_CONTROL, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use superpoll_http::body::Body;
use superpoll_http::grant::Use;
use superpoll_http::reply;
use superpoll_http::token::TokenError;

use crate::channel::presence::UserError;

/// The reason for which a client is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// No right is configured, and clients elsewhere can reach the channel.
    NoRight,
    Nobody,
    NotLocal,
    NoToken,
    SeveralTokens,
    BadToken(TokenError),
    /// The token is valid, and names other channels.
    OtherChannels,
    /// The token is valid, and does not allow a topic of Mercure.
    OtherTopic(String),
    /// A cookie allows to publish, and the request does not say which site's page has sent it.
    UnknownPage,
    /// The application has refused, with this status, 401 or 403, and perhaps a challenge.
    Application(StatusCode, Option<HeaderValue>),
    /// The application has not answered, or not with yes or no.
    NoAnswer,
    /// The application has answered with something else than JSON of the form that is expected.
    BadAnswer(String),
    /// The user that the token or the application names cannot be one.
    BadUser(UserError),
}

impl Refusal {
    /// Whether the client lacks a right for one use, and may have the other all the same.
    pub(super) fn is_about_this_use(&self) -> bool {
        match self {
            Refusal::NoRight | Refusal::Nobody | Refusal::NotLocal => true,
            Refusal::NoToken | Refusal::OtherChannels | Refusal::OtherTopic(_) => true,
            Refusal::UnknownPage | Refusal::Application(..) => true,
            Refusal::SeveralTokens | Refusal::BadToken(_) | Refusal::NoAnswer => false,
            Refusal::BadAnswer(_) | Refusal::BadUser(_) => false,
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        match self {
            Refusal::SeveralTokens => StatusCode::BAD_REQUEST,
            Refusal::NoRight | Refusal::Nobody | Refusal::NotLocal => StatusCode::FORBIDDEN,
            Refusal::NoToken | Refusal::BadToken(_) => StatusCode::UNAUTHORIZED,
            Refusal::OtherChannels | Refusal::OtherTopic(_) => StatusCode::FORBIDDEN,
            Refusal::UnknownPage => StatusCode::FORBIDDEN,
            Refusal::Application(status, _) => *status,
            Refusal::NoAnswer => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::BadAnswer(_) => StatusCode::BAD_GATEWAY,
            Refusal::BadUser(_) => StatusCode::FORBIDDEN,
        }
    }

    /// Returns the reason for people. It contains nothing of a token.
    pub(super) fn reason(&self, using: Use, name: &str) -> String {
        let doing = using.doing();
        match self {
            Refusal::NoRight => format!(
                "{doing} to {name} is closed here until the server's configuration says who may \
                 publish"
            ),
            Refusal::Nobody => format!("{doing} to {name} is closed to all clients"),
            Refusal::NotLocal => format!(
                "{doing} to {name} is for programs on the server's machine, without a proxy between"
            ),
            Refusal::NoToken => format!("{doing} needs a token with {name}"),
            Refusal::SeveralTokens => "several tokens, expected one".to_owned(),
            Refusal::BadToken(error) => error.to_string(),
            Refusal::OtherChannels => {
                format!("{doing} needs a token with {name}; this token has other channels")
            }
            Refusal::OtherTopic(topic) => format!("the topic {topic:?} is not for this client"),
            Refusal::UnknownPage => format!(
                "{doing} with a cookie needs the field Origin or Referer of a page that may use {name}"
            ),
            Refusal::Application(..) => format!("the application refuses {doing} to {name}"),
            Refusal::NoAnswer => {
                format!("the application that decides about {doing} to {name} does not answer")
            }
            Refusal::BadAnswer(what) => format!(
                "the application that decides about {doing} to {name} answers with JSON that \
                 cannot be used: {what}"
            ),
            Refusal::BadUser(error) => format!("{doing} to {name}: {error}"),
        }
    }

    /// Returns the challenge that tells a program what is missing (RFC 6750, section 3).
    fn challenge(&self) -> Option<HeaderValue> {
        match self {
            Refusal::NoToken => Some(HeaderValue::from_static("Bearer")),
            Refusal::SeveralTokens => {
                Some(HeaderValue::from_static("Bearer error=\"invalid_request\""))
            }
            Refusal::BadToken(error) => {
                let text = format!("Bearer error=\"invalid_token\", error_description=\"{error}\"");
                HeaderValue::try_from(text).ok()
            }
            Refusal::OtherChannels | Refusal::OtherTopic(_) => {
                Some(HeaderValue::from_static("Bearer error=\"insufficient_scope\""))
            }
            Refusal::Application(_, challenge) => challenge.clone(),
            _ => None,
        }
    }

    pub(super) fn response(&self, reason: &str) -> Response<Body> {
        let json = serde_json::json!({ "error": reason });
        let mut response = reply::json(format!("{json}\n"));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(challenge) = self.challenge() {
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        if *self == Refusal::NoAnswer {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
