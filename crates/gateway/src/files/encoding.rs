//! The Accept-Encoding header field (RFC 9110, section 12.5.3): which compressed siblings a client takes.

use http::HeaderMap;
use http::header::ACCEPT_ENCODING;

/// How a file is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Coding {
    Brotli,
    Gzip,
}

impl Coding {
    /// As header fields write it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Gzip => "gzip",
        }
    }

    /// What follows the name of the file.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Coding::Brotli => ".br",
            Coding::Gzip => ".gz",
        }
    }
}

/// A weight in thousandths; none where it is malformed.
fn weight(text: &str) -> Option<u16> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let digits = rest.bytes().all(|byte| byte.is_ascii_digit());
    if !matches!(whole, "0" | "1") || rest.len() > 3 || !digits {
        return None;
    }
    let value: u16 = format!("{whole}{rest:0<3}").parse().ok()?;
    (value <= 1000).then_some(value)
}

/// The codings that a client takes rather than the file as it is, the best first.
pub(super) fn accepted(headers: &HeaderMap) -> Vec<Coding> {
    let mut given: [Option<u16>; 4] = [None; 4];
    for field in headers.get_all(ACCEPT_ENCODING) {
        for element in field.to_str().unwrap_or("").split(',') {
            let mut parts = element.split(';').map(str::trim);
            let name = parts.next().unwrap_or("").to_ascii_lowercase();
            let place = match name.as_str() {
                "br" => 0,
                "gzip" | "x-gzip" => 1,
                "identity" => 2,
                "*" => 3,
                _ => continue,
            };
            let said = parts
                .find_map(|part| part.strip_prefix(['q', 'Q'])?.trim_start().strip_prefix('='));
            given[place] = Some(said.map_or(Some(1000), |text| weight(text.trim())).unwrap_or(0));
        }
    }
    let [brotli, gzip, identity, any] = given;
    let identity = identity.unwrap_or(0);
    let mut codings =
        [(brotli.or(any).unwrap_or(0), Coding::Brotli), (gzip.or(any).unwrap_or(0), Coding::Gzip)];
    codings.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    let taken = codings.into_iter().filter(|(weight, _)| *weight > 0 && *weight >= identity);
    taken.map(|(_, coding)| coding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_decide() {
        use Coding::{Brotli, Gzip};
        let both: &[Coding] = &[Brotli, Gzip];
        for (field, expected) in [
            ("", &[][..]),
            ("gzip", &[Gzip]),
            ("gzip, br", both),
            ("gzip;q=0.9, br;q=0.8", &[Gzip, Brotli]),
            ("br;q=0, *", &[Gzip]),
            ("*;q=0.5", both),
            ("gzip;q=0", &[]),
            ("gzip; q = 0.001", &[Gzip]),
            ("gzip;q=0.5, identity", &[]),
            ("gzip;q=2", &[]),
            ("gzip;q=1.001", &[]),
            ("gzip;q=x", &[]),
            ("X-GZIP;Q=1.000", &[Gzip]),
            ("deflate, zstd", &[]),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, field.parse().unwrap())]);
            assert_eq!(accepted(&headers), expected, "{field}");
        }
    }
}
