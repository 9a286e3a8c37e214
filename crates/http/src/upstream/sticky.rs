//! The cookie by which a client comes back to its server.
//!
//! The value is a keyed hash of the upstream and of the server's address. Without the secret, a
//! client can neither tell an address from it nor make one for another server. Gateways with the
//! same secret agree on it, also after a restart. A client whose server is not up is forwarded to
//! another one, whose cookie replaces the former. Cookies that no server has are as good
//! as none.
//!
//! A cookie comes with a response only where it changes something: a client that has the right one
//! gets none.

use std::fmt::Write as _;

use data_encoding::BASE64URL_NOPAD;
use http::HeaderValue;
use ring::hmac;
use superpoll_config::{self, Address, SameSite};

use super::server::GroupServer;
use crate::head::Fields;

/// The bytes of a hash that are used.
const LENGTH: usize = 16;

/// The cookie of a group.
pub(super) struct Sticky {
    key: hmac::Key,
    group: String,
    cookie: String,
    /// The attributes after the value.
    attributes: String,
    is_always_secure: bool,
}

/// The cookie of a client, and whether the client's connection is encrypted.
pub(super) struct ClientCookie {
    pub value: Option<String>,
    is_encrypted: bool,
}

impl Sticky {
    pub(super) fn new(group: &str, config: &superpoll_config::Sticky) -> Sticky {
        let same_site = match config.same_site {
            SameSite::Lax => "Lax",
            SameSite::Strict => "Strict",
            SameSite::None => "None",
        };
        let mut attributes = format!("; Path={}; HttpOnly; SameSite={same_site}", config.path);
        if let Some(age) = config.max_age {
            // Writing to a string does not fail.
            let _ = write!(attributes, "; Max-Age={}", age.as_secs().max(1));
        }
        Sticky {
            key: hmac::Key::new(hmac::HMAC_SHA256, config.secret.as_bytes()),
            group: group.to_owned(),
            cookie: config.cookie.clone(),
            attributes,
            // Browsers take no such cookie otherwise.
            is_always_secure: config.same_site == SameSite::None,
        }
    }

    /// Returns the value of a server's cookie.
    pub(super) fn token(&self, address: &Address) -> String {
        // No name of a group and no address has a zero byte, so the two cannot be confused.
        let text = format!("{}\0{address}", self.group);
        let hash = hmac::sign(&self.key, text.as_bytes());
        BASE64URL_NOPAD.encode(&hash.as_ref()[..LENGTH])
    }

    /// Returns the value of the cookie of a request, if it can be one.
    fn of_request(&self, fields: Fields<'_>) -> Option<String> {
        let values = fields.values("cookie").filter_map(|value| std::str::from_utf8(value).ok());
        let mut pairs = values.flat_map(|value| value.split(';'));
        let length = BASE64URL_NOPAD.encode_len(LENGTH);
        pairs.find_map(|pair| {
            let (name, value) = pair.trim().split_once('=')?;
            (name == self.cookie && value.len() == length).then(|| value.to_owned())
        })
    }

    /// Returns the facts about a client that decide about its cookie.
    pub(super) fn client(&self, fields: Fields<'_>, is_encrypted: bool) -> ClientCookie {
        ClientCookie { value: self.of_request(fields), is_encrypted }
    }

    /// Returns the cookie of the server that has answered a client, if the client has another one.
    pub(super) fn given(&self, server: &GroupServer, client: &ClientCookie) -> Option<HeaderValue> {
        let token = server.token.as_ref().filter(|token| client.value.as_ref() != Some(token))?;
        self.field(token, client.is_encrypted)
    }

    /// Returns the field of a response that gives a client its server's cookie.
    fn field(&self, token: &str, is_encrypted: bool) -> Option<HeaderValue> {
        let secure = if is_encrypted || self.is_always_secure { "; Secure" } else { "" };
        let text = format!("{}={token}{}{secure}", self.cookie, self.attributes);
        HeaderValue::try_from(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use http::header::COOKIE;

    use super::*;

    fn sticky(group: &str, secret: &str) -> Sticky {
        let config = superpoll_config::Sticky {
            cookie: "srv".to_owned(),
            secret: secret.to_owned(),
            same_site: SameSite::Strict,
            path: "/app".to_owned(),
            max_age: Some(std::time::Duration::from_millis(90_500)),
        };
        Sticky::new(group, &config)
    }

    #[test]
    fn values_depend_on_secret_group_and_address_and_show_none_of_them() {
        let address = |text: &str| text.parse::<Address>().unwrap();
        let one = sticky("a", "secret").token(&address("10.0.0.1:80"));
        assert_eq!(one, sticky("a", "secret").token(&address("10.0.0.1:80")));
        assert_eq!(one.len(), 22);
        for other in [
            sticky("a", "secret").token(&address("10.0.0.1:81")),
            sticky("b", "secret").token(&address("10.0.0.1:80")),
            sticky("a", "other").token(&address("10.0.0.1:80")),
        ] {
            assert_ne!(one, other);
        }
        assert!(
            !format!(
                "{:?}",
                superpoll_config::Sticky {
                    cookie: "srv".to_owned(),
                    secret: "hidden".to_owned(),
                    same_site: SameSite::Lax,
                    path: "/".to_owned(),
                    max_age: None,
                }
            )
            .contains("hidden")
        );
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let sticky = sticky("a", "secret");
        let token = "AAAAAAAAAAAAAAAAAAAAAA";
        let of = |fields: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for field in fields {
                headers.append(COOKIE, HeaderValue::from_static(field));
            }
            sticky.of_request(Fields::Map(&headers))
        };
        let found = Some(token.to_owned());
        assert_eq!(of(&["srv=AAAAAAAAAAAAAAAAAAAAAA"]), found);
        assert_eq!(of(&["a=b; srv=AAAAAAAAAAAAAAAAAAAAAA ;c=d"]), found);
        assert_eq!(of(&["a=b", "srv=short; srv=AAAAAAAAAAAAAAAAAAAAAA"]), found);
        for none in ["xsrv=AAAAAAAAAAAAAAAAAAAAAA", "srv", "srv=", "SRV=AAAAAAAAAAAAAAAAAAAAAA"] {
            assert_eq!(of(&[none]), None);
        }
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn attributes_follow_the_configuration_and_the_request() {
        let field = |is_encrypted| sticky("a", "secret").field("token", is_encrypted).unwrap();
        let plain = "srv=token; Path=/app; HttpOnly; SameSite=Strict; Max-Age=90";
        assert_eq!(field(false), plain);
        assert_eq!(field(true), format!("{plain}; Secure"));
    }
}
