//! The Accept-Encoding header field (RFC 9110, section 12.5.3): the codings that a client accepts.
//!
//! The file as it is, is sent whenever no other coding is wanted or available, even to a client
//! that refuses it by `identity;q=0`. The RFC leaves it to the server to answer 406 instead. A
//! client that gets 406 has nothing, while a client that gets the file can nearly always read it.

use memchr::memchr;

use crate::accept;

superpoll::named! {
    /// How a body is compressed: first the codings that make files the shortest.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) enum Coding {
        Brotli = "br",
        Zstd = "zstd",
        Gzip = "gzip",
    }
}

impl Coding {
    /// The suffix of the compressed file's name.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Coding::Brotli => ".br",
            Coding::Zstd => ".zst",
            Coding::Gzip => ".gz",
        }
    }
}

/// How much a client wants each coding, in thousandths; 0 if it prefers the file as it is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Accepted([u16; 3]);

impl Accepted {
    /// Reads the values of the fields.
    pub(crate) fn of_values<'a>(values: impl Iterator<Item = &'a [u8]>) -> Accepted {
        let mut given: [Option<u16>; 5] = [None; 5];
        for value in values {
            for element in value.split(|byte| *byte == b',') {
                let (name, parameters) = match memchr(b';', element) {
                    Some(end) => (&element[..end], Some(&element[end + 1..])),
                    None => (element, None),
                };
                let name = name.trim_ascii();
                let names: [&[u8]; 5] = [b"br", b"zstd", b"gzip", b"identity", b"*"];
                let name = if name.eq_ignore_ascii_case(b"x-gzip") { b"gzip" } else { name };
                let Some(place) = names.iter().position(|known| name.eq_ignore_ascii_case(known))
                else {
                    continue;
                };
                given[place] = Some(match parameters.map(std::str::from_utf8) {
                    None => 1000,
                    Some(Ok(parameters)) => accept::said(parameters.split(';').map(str::trim)),
                    Some(Err(_)) => 0,
                });
            }
        }
        let [brotli, zstd, gzip, identity, any] = given;
        let least = identity.unwrap_or(0).max(1);
        let taken = |said: Option<u16>| said.or(any).filter(|weight| *weight >= least).unwrap_or(0);
        Accepted([taken(brotli), taken(zstd), taken(gzip)])
    }

    pub(crate) fn weight(self, coding: Coding) -> u16 {
        self.0[coding as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_decide() {
        for (field, brotli, zstd, gzip) in [
            ("", 0, 0, 0),
            ("gzip", 0, 0, 1000),
            ("gzip, br", 1000, 0, 1000),
            ("gzip;q=0.9, br;q=0.8", 800, 0, 900),
            ("br;q=0, *", 0, 1000, 1000),
            ("*;q=0.5", 500, 500, 500),
            ("gzip;q=0", 0, 0, 0),
            ("gzip; q = 0.001", 0, 0, 1),
            ("gzip;q=0.5, identity", 0, 0, 0),
            ("gzip;q=0.5, identity;q=0.5", 0, 0, 500),
            ("identity;q=0, gzip;q=0.1", 0, 0, 100),
            ("gzip;q=2", 0, 0, 0),
            ("gzip;q=1.001", 0, 0, 0),
            ("gzip;q=0.1234", 0, 0, 0),
            ("gzip;q=x", 0, 0, 0),
            ("gzip;q=0.é", 0, 0, 0),
            ("X-GZIP;Q=1.000", 0, 0, 1000),
            ("deflate, zstd;q=0.3", 0, 300, 0),
        ] {
            let accepted = Accepted::of_values([field.as_bytes()].into_iter());
            let found = Coding::ALL.map(|coding| accepted.weight(coding));
            assert_eq!(found, [brotli, zstd, gzip], "{field}");
        }
    }

    #[test]
    fn several_fields_are_one_list() {
        let fields = ["gzip;q=0.5", "br"].map(str::as_bytes);
        let accepted = Accepted::of_values(fields.into_iter());
        assert_eq!(accepted, Accepted([1000, 0, 500]));
    }
}
