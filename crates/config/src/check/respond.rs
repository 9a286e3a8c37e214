//! The rules of answers that the configuration has.

use std::ops::Range;

use toml::Spanned;

use super::Check;
use super::rules::Of;
use crate::model::Respond;
use crate::raw;
use crate::raw_rules::Headers;

/// The longest body, in bytes: a longer one belongs in a file.
const LONGEST_BODY: usize = 64 << 10;

impl Check<'_> {
    pub(super) fn respond(&mut self, raw: Spanned<raw::Respond>) -> Respond {
        let raw::Respond { status, body, headers } = raw.into_inner();
        let status = status.map_or(200, |status| {
            if !(200..=599).contains(status.get_ref()) {
                let what = format!("{} is no status of an answer", status.get_ref());
                let expected = "expected 200 to 599, or 444 to close the connection";
                self.wrong(status.span(), format!("{what}, {expected}"));
            }
            status.into_inner()
        });
        let first_header = headers.first_key_value().map(|(name, _)| name.span());
        let values: Vec<_> =
            headers.iter().map(|(name, values)| (name.get_ref().clone(), values.span())).collect();
        let headers = self.headers(Headers { set: headers, ..Headers::default() }, Of::Responses);
        for (name, _) in &headers.templates {
            let value = values.iter().find(|(known, _)| name.as_str().eq_ignore_ascii_case(known));
            let place = value.map(|(_, place)| place.clone()).unwrap_or_default();
            let what = "an answer that is the same for all requests has no variables";
            self.wrong(place, format!("{what}, expected them in headers of the route"));
        }
        let respond = Respond { status, body: None, headers: headers.added };
        if let Some(body) = &body {
            self.respond_body(body, &respond);
        }
        if respond.is_silent()
            && let Some(place) = first_header
        {
            let what = "444 closes the connection without an answer, expected no headers";
            self.wrong(place, what);
        }
        Respond { body: body.map(Spanned::into_inner), ..respond }
    }

    fn respond_body(&mut self, body: &Spanned<String>, respond: &Respond) {
        let (place, length): (Range<usize>, _) = (body.span(), body.get_ref().len());
        if length > 0 && !respond.has_body() {
            let what = format!("an answer with the status {} has no body", respond.status);
            self.wrong(place, format!("{what}, expected none, or another status"));
        } else if length > LONGEST_BODY {
            let what = format!("the body has {length} bytes");
            let expected = format!("expected at most {LONGEST_BODY}, or files");
            self.wrong(place, format!("{what}, {expected}"));
        }
    }
}
