//! Tokens for tests, signed with a secret (HS256).

use std::time::{SystemTime, UNIX_EPOCH};

use data_encoding::BASE64URL_NOPAD;
use ring::hmac;
use serde_json::{Value, json};

/// The secret of the channels in tests.
pub const SECRET: &str = "a secret of thirty-two bytes: 32";

/// Returns the table of a channel's tokens that counts no leeway, with further settings.
pub fn rule(more: &str) -> String {
    format!("token = {{ key = \"{SECRET}\", leeway = \"1ms\"{more} }}")
}

/// Returns a token with these claims.
pub fn with_claims(claims: &Value, secret: &str) -> String {
    let encode = |json: &Value| BASE64URL_NOPAD.encode(json.to_string().as_bytes());
    let header = json!({ "alg": "HS256", "typ": "JWT" });
    let message = format!("{}.{}", encode(&header), encode(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = BASE64URL_NOPAD.encode(hmac::sign(&key, message.as_bytes()).as_ref());
    format!("{message}.{signature}")
}

/// Returns a token of the user `joe` for these channels that expires after some seconds, or that
/// has expired.
pub fn token(subscribe: &[&str], publish: &[&str], seconds: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let channels = json!({ "subscribe": subscribe, "publish": publish });
    let expires = now.checked_add_signed(seconds).unwrap();
    with_claims(&json!({ "sub": "joe", "exp": expires, "superpoll": channels }), SECRET)
}
