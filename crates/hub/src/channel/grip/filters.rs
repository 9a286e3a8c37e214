//! Which items a held connection gets, and how filters change them.

use std::borrow::Cow;

use bytes::Bytes;
use superpoll_http::held::{HeldFor, HeldRecord, filter};

use super::item::{Item, SocketFormat, StreamFormat};

/// The value of a connection that tells its user.
const USER: &str = "user";

/// Whether a connection gets an item.
pub(in crate::channel) fn let_through(held: &HeldRecord, item: &Item) -> bool {
    let Some(channel) = held.channel(&item.channel) else { return false };
    let has_format = match held.purpose {
        HeldFor::Stream { .. } => match &item.stream {
            // A successor takes each item for some bytes. Only the id of an empty one may count.
            Some(StreamFormat::Content(content)) => {
                !content.is_empty() || channel.previous.is_some()
            }
            Some(StreamFormat::Close) => true,
            Some(StreamFormat::Hint) => {
                matches!(held.purpose, HeldFor::Stream { next: Some(_), .. })
            }
            None => false,
        },
        HeldFor::Response { .. } => item.response.is_some(),
        HeldFor::Socket { .. } => item.socket.is_some(),
    };
    if !has_format {
        return false;
    }
    let has = |filter: u8| channel.filters & filter != 0;
    let user = held.value(USER);
    if has(filter::SKIP_SELF) && item.sender.is_some() && item.sender.as_deref() == user {
        return false;
    }
    let is_skipped = |user: &str| item.skip_users.iter().any(|skipped| **skipped == *user);
    if has(filter::SKIP_USERS) && user.is_some_and(is_skipped) {
        return false;
    }
    let needed = item.require_sub.as_deref().filter(|_| has(filter::REQUIRE_SUB));
    needed.is_none_or(|needed| held.channel(needed).is_some())
}

/// Whether an item is more to a connection than bytes that all get: its end, a reason to ask the
/// application, or content with the connection's own values.
pub(in crate::channel) fn needs_task(held: &HeldRecord, item: &Item) -> bool {
    let Some(channel) = held.channel(&item.channel) else { return false };
    let has_own = channel.filters & filter::VAR_SUBST != 0;
    let content = match held.purpose {
        HeldFor::Response { .. } => return true,
        HeldFor::Stream { .. } => match &item.stream {
            // Its last id is a part of its state.
            Some(StreamFormat::Close | StreamFormat::Hint) => return true,
            _ if channel.previous.is_some() => return true,
            Some(StreamFormat::Content(content)) => content,
            None => return false,
        },
        HeldFor::Socket { .. } => match &item.socket {
            Some(SocketFormat::Close { .. }) => return true,
            Some(SocketFormat::Message { content, .. }) => content,
            None => return false,
        },
    };
    has_own && content.windows(2).any(|pair| pair == b"%(")
}

/// Whether the bytes of items may be the connection's own.
pub(super) fn have_own(held: &HeldRecord) -> bool {
    held.channels.iter().any(|channel| channel.filters & filter::VAR_SUBST != 0)
}

/// Returns content with the connection's values in the place of variables, if its channel has that
/// filter. `None`: a variable has no value, and the item is left out.
pub(super) fn filled(held: &HeldRecord, item: &Item, content: &Bytes) -> Option<Bytes> {
    let has_own =
        held.channel(&item.channel).is_some_and(|channel| channel.filters & filter::VAR_SUBST != 0);
    if !has_own {
        return Some(content.clone());
    }
    let Ok(text) = std::str::from_utf8(content) else { return Some(content.clone()) };
    match substituted(held, text)? {
        Cow::Borrowed(_) => Some(content.clone()),
        Cow::Owned(text) => Some(text.into()),
    }
}

fn substituted<'a>(held: &HeldRecord, text: &'a str) -> Option<Cow<'a, str>> {
    if !text.contains("%(") {
        return Some(text.into());
    }
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find("%(") {
        out.push_str(&rest[..at]);
        rest = &rest[at + 2..];
        let end = rest.find(")s")?;
        out.push_str(held.value(&rest[..end])?);
        rest = &rest[end + 2..];
    }
    out.push_str(rest);
    Some(out.into())
}
