//! The engine that keeps the messages of channels for several servers.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;

use super::Check;
use crate::broker::{Broker, RawBroker};
use crate::broker_url::BrokerUrl;
use crate::resource::Resource;

/// The longest time for which a publication is tried. Repeated publications are known for longer.
const LONGEST: Duration = Duration::from_secs(60);

impl Check<'_> {
    /// Checks the broker.
    pub(super) fn broker(&mut self, broker: Spanned<RawBroker>) -> Option<Broker> {
        let place = broker.span();
        let RawBroker { url, ca, prefix, replicas, publish } = broker.into_inner();
        let Some(url) = url else {
            self.missing(place, "the broker has no address, expected url = \"redis://HOST:PORT\"");
            return None;
        };
        let url_place = url.span();
        let url = match url.get_ref().parse::<BrokerUrl>() {
            Ok(url) => url,
            Err(what) => {
                self.wrong(url_place, what);
                return None;
            }
        };
        self.needs(url_place.clone(), Resource::Redis);
        match (&ca, url.is_encrypted) {
            (None, true) => {
                let what = "TLS to the broker, expected ca = FILE with the authorities that issue \
                            its certificate";
                self.wrong(url_place, what);
            }
            (Some(ca), false) => {
                self.wrong(ca.span(), "the broker has no TLS, expected ca only with rediss://");
            }
            _ => {}
        }
        let ca = ca.map(|ca| {
            let ca_place = ca.span();
            let path = self.resolved(ca.into_inner());
            self.needs(ca_place, Resource::Authorities(path.clone()));
            path
        });
        if prefix.get_ref().contains(|c: char| c.is_control() || c == '{' || c == '}') {
            let what = "the prefix has a character that it may not have, expected none of { } and \
                        no control character";
            self.wrong(prefix.span(), what);
        }
        let publish = publish.unwrap_or(Duration::from_secs(5));
        if publish > LONGEST || publish.is_zero() {
            let at = self.within(&place, &["publish"]);
            self.wrong(at, "the time for a publication, expected more than none and at most 60s");
        }
        Some(Broker { url, ca, prefix: prefix.into_inner(), replicas, publish })
    }

    /// Checks a channel whose messages are the broker's, in a table. It may not also have the
    /// setting that tells subscribers of each other.
    pub(super) fn shared_channel(&mut self, place: &Range<usize>) {
        if !self.has_broker {
            let at = self.within(place, &["broker"]);
            self.wrong(at, "there is no broker, expected [broker] with url = ADDRESS");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::draft::Draft;
    use crate::resource::{Place, Resource};

    #[test]
    fn a_broker_needs_a_build_that_can_talk_to_it() {
        let text = "[broker]\nurl = \"redis://a\"\n";
        let mut draft = Draft::parse_file("a.toml", text);
        assert_eq!(draft.take_resources(), [(Place(15..26), Resource::Redis)]);
    }
}
