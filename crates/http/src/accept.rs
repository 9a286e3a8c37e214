//! The Accept header field (RFC 9110, section 12.5.1): the kinds of content that a client accepts.

use http::HeaderMap;
use http::header::ACCEPT;

/// Returns how much a client wants a kind that it names, in thousandths: 0 if it refuses the kind,
/// `None` if it does not name it.
///
/// Parameters other than the weight make no difference here, and of several that match the largest
/// weight counts.
pub fn weight_of(headers: &HeaderMap, kind: &str) -> Option<u16> {
    let fields = headers.get_all(ACCEPT).into_iter();
    let elements = fields.flat_map(|field| field.to_str().unwrap_or("").split(','));
    let weights = elements.filter_map(|element| {
        let mut parts = element.split(';').map(str::trim);
        let is_it = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(kind));
        is_it.then(|| said(parts))
    });
    weights.max()
}

/// Returns the weight among an element's parameters, in thousandths; 1000 if there is none, and 0
/// if it is malformed.
pub(crate) fn said<'a>(mut parameters: impl Iterator<Item = &'a str>) -> u16 {
    let said =
        parameters.find_map(|part| part.strip_prefix(['q', 'Q'])?.trim_start().strip_prefix('='));
    said.map_or(1000, |text| weight(text.trim()).unwrap_or(0))
}

/// Returns a weight in thousandths; `None` if it is malformed.
fn weight(text: &str) -> Option<u16> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    if !matches!(whole, "0" | "1") || rest.len() > 3 {
        return None;
    }
    let mut value = u16::from(whole == "1") * 1000;
    for (digit, worth) in rest.bytes().zip([100, 10, 1]) {
        value += u16::from((digit as char).to_digit(10)? as u8) * worth;
    }
    (value <= 1000).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_taken_as_much_as_it_says() {
        for (fields, expected) in [
            (&[][..], None),
            (&["a/b"], None),
            (&["*/*"], None),
            (&["text/event-stream"], Some(1000)),
            (&["Text/Event-Stream ; charset=utf-8"], Some(1000)),
            (&["text/event-stream;q=0"], Some(0)),
            (&["text/event-stream; q=0.000"], Some(0)),
            (&["text/event-stream;version=1;q=0.5, a/b"], Some(500)),
            (&["text/event-stream;q=x"], Some(0)),
            (&["text/event-stream;q=0.2,text/event-stream;q=0.3"], Some(300)),
            (&["a/b", "text/event-stream;q=0.7"], Some(700)),
        ] {
            let fields = fields.iter().map(|field| (ACCEPT, field.parse().unwrap()));
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(name, value);
            }
            assert_eq!(weight_of(&headers, "text/event-stream"), expected, "{headers:?}");
        }
    }
}
