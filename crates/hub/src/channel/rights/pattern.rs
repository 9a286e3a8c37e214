//! The patterns with which tokens name channels.

use matchit::Router;
use serde_json::Value;
use superpoll_http::token::Claims;

/// The claim with the channels.
const CLAIM: &str = "superpoll";

/// The pattern of all channels.
const ALL: &str = "*";

/// Whether the claims of a token name a channel for a use, `publish` or `subscribe`.
pub(super) fn are_named(claims: &Claims, using: &str, name: &str) -> bool {
    let patterns = claims.all.get(CLAIM).and_then(|claim| claim.get(using)?.as_array());
    let mut patterns = patterns.into_iter().flatten().filter_map(Value::as_str);
    patterns.any(|pattern| matches(pattern, name))
}

/// Whether a pattern stands for a channel: `{name}` for one part of its name, `{*name}` at the end
/// for one part or more, `*` alone for all channels. A text that is no pattern stands for none.
fn matches(pattern: &str, name: &str) -> bool {
    if pattern == ALL {
        return true;
    }
    let mut router = Router::new();
    router.insert(pattern, ()).is_ok() && router.at(name).is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn patterns_stand_for_channels() {
        for (pattern, name, expected) in [
            ("*", "/anything/at/all", true),
            ("/rooms/42", "/rooms/42", true),
            ("/rooms/42", "/rooms/421", false),
            ("/rooms/42", "/rooms", false),
            ("/rooms/{room}", "/rooms/42", true),
            ("/rooms/{room}", "/rooms/", false),
            ("/rooms/{room}", "/rooms/42/in", false),
            ("/rooms/{room}", "/rooms/a b ä", true),
            ("/rooms/a b ä", "/rooms/a b ä", true),
            ("/rooms/{room}/in", "/rooms/42/in", true),
            ("/rooms/{room}/in", "/rooms/42/out", false),
            ("/users/{*rest}", "/users/1/2/3", true),
            ("/users/{*rest}", "/users", false),
            ("/{*rest}", "/x", true),
            ("rooms", "/rooms", false),
            ("", "/", false),
            ("/{", "/{", false),
            ("/{*rest}/x", "/a/x", false),
            ("/**", "/a", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn claims_of_another_form_name_nothing() {
        let named = |claim: Value, using: &str| {
            let all = json!({ "superpoll": claim }).as_object().unwrap().clone();
            are_named(&Claims { valid_until: None, all }, using, "/a")
        };
        assert!(named(json!({ "publish": [1, "/b", "/a"] }), "publish"));
        assert!(!named(json!({ "publish": ["/a"] }), "subscribe"));
        for claim in [json!(null), json!(["/a"]), json!({ "publish": "/a" }), json!("*")] {
            assert!(!named(claim.clone(), "publish"), "{claim}");
        }
    }
}
