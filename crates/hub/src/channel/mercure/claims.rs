//! The claims of a token about topics (the Mercure draft, section "Authorization").

use serde_json::Value;
use superpoll_http::mercure::selector::Selector;
use superpoll_http::token;

/// The claim with everything about Mercure.
const CLAIM: &str = "mercure";

/// The rights of a token.
#[derive(PartialEq, Eq, Default, Debug)]
pub(super) struct Claims {
    /// The topics of the updates that its holder may publish; `None`: none at all.
    pub publish: Option<Vec<Selector>>,
    /// The topics of the private updates that its holder may get.
    pub subscribe: Vec<Selector>,
    /// The payload for subscription events, in JSON.
    pub payload: Option<String>,
}

impl Claims {
    /// Returns the claims of a valid token. A claim of another form allows nothing.
    pub(super) fn from_token(token: &token::Claims) -> Claims {
        let Some(claim) = token.all.get(CLAIM) else { return Claims::default() };
        let selectors = |name: &str| {
            let texts = claim.get(name)?.as_array()?.iter().filter_map(Value::as_str);
            Some(texts.map(|text| Selector::from(text.to_owned())).collect())
        };
        Claims {
            publish: selectors("publish"),
            subscribe: selectors("subscribe").unwrap_or_default(),
            payload: claim.get("payload").map(Value::to_string),
        }
    }

    /// Whether the holder may publish an update of a topic.
    pub(super) fn may_publish(&self, topic: &str) -> bool {
        self.publish.iter().flatten().any(|selector| selector.has(topic))
    }

    /// Whether the holder may get private updates of a topic.
    pub(super) fn may_read(&self, topic: &str) -> bool {
        self.subscribe.iter().any(|selector| selector.has(topic))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims(claim: &Value) -> Claims {
        let all = json!({ "mercure": claim }).as_object().unwrap().clone();
        Claims::from_token(&token::Claims { valid_until: None, all })
    }

    #[test]
    fn claims_are_read_and_other_forms_allow_nothing() {
        let some = claims(&json!({
            "publish": ["/a", 1, "/b/{id}"], "subscribe": ["*"], "payload": { "user": "joe" },
        }));
        assert!(some.may_publish("/a") && some.may_publish("/b/1") && !some.may_publish("/c"));
        assert!(some.may_read("/anything"));
        assert_eq!(some.payload.as_deref(), Some("{\"user\":\"joe\"}"));
        for claim in [
            json!(null),
            json!([]),
            json!("*"),
            json!({ "publish": "*", "subscribe": "*" }),
            json!({ "publish": { "0": "*" } }),
        ] {
            assert_eq!(claims(&claim), Claims::default(), "{claim}");
        }
        let none = claims(&json!({ "publish": [] }));
        assert!(none.publish.is_some() && !none.may_publish("*"));
        let other = token::Claims { valid_until: None, all: serde_json::Map::new() };
        assert_eq!(Claims::from_token(&other), Claims::default());
    }
}
