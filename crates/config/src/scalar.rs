//! Values that TOML has no type for: durations, sizes and addresses.

use std::fmt;
use std::time::Duration;

use bytesize::ByteSize;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use superpoll::BackendKind;
use superpoll::backend::Profile;
use toml::Spanned;

/// The longest duration: some clocks overflow beyond it.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

fn read_duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(duration) if duration.is_zero() => {
            Err(format!("the duration {text:?} is zero, expected at least 1ms"))
        }
        Ok(duration) if duration > LONGEST => {
            Err(format!("the duration {text:?} is longer than ten years"))
        }
        Ok(duration) => Ok(duration),
        Err(_) => Err(format!("{text:?} is no duration, expected one as \"30s\" or \"500ms\"")),
    }
}

fn read_size(text: &str) -> Result<u64, String> {
    let size = text.parse::<ByteSize>().map(|size| size.as_u64());
    size.map_err(|_| format!("{text:?} is no size, expected one as \"64KiB\" or \"16MB\""))
}

/// Reads a value that is written as a text, by a function. A value of another type is refused with
/// the expected one.
pub(super) fn text<'de, D: Deserializer<'de>, T, E: fmt::Display>(
    deserializer: D,
    expected: &'static str,
    read: fn(&str) -> Result<T, E>,
) -> Result<T, D::Error> {
    struct Text<T, E> {
        expected: &'static str,
        read: fn(&str) -> Result<T, E>,
    }

    impl<T, E: fmt::Display> Visitor<'_> for Text<T, E> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.expected)
        }

        fn visit_str<E2: Error>(self, text: &str) -> Result<T, E2> {
            (self.read)(text).map_err(E2::custom)
        }
    }

    deserializer.deserialize_any(Text { expected, read })
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size as \"64KiB\", or a number of bytes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        read_size(text).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, bytes: i64) -> Result<u64, E> {
        u64::try_from(bytes).map_err(|_| E::custom(format!("the size {bytes} is negative")))
    }
}

pub(super) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    text(deserializer, "a duration as \"30s\" or \"500ms\"", read_duration)
}

pub(super) fn some_duration<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    duration(deserializer).map(Some)
}

pub(super) fn some_spanned_duration<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Spanned<Duration>>, D::Error> {
    struct Text(Duration);

    impl<'de> Deserialize<'de> for Text {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
            duration(deserializer).map(Text)
        }
    }

    let text = Spanned::<Text>::deserialize(deserializer)?;
    Ok(Some(Spanned::new(text.span(), text.into_inner().0)))
}

pub(super) fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserializer.deserialize_any(SizeVisitor)
}

/// A size as a value of TOML.
pub(super) struct SizeText(pub(super) u64);

impl<'de> Deserialize<'de> for SizeText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SizeText, D::Error> {
        size(deserializer).map(SizeText)
    }
}

/// How long browsers insist on encrypted connections, or `"off"`.
pub(super) struct HstsText(pub(super) Option<Duration>);

impl<'de> Deserialize<'de> for HstsText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<HstsText, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "off" => Ok(HstsText(None)),
            text => read_duration(text).map(|time| HstsText(Some(time))).map_err(D::Error::custom),
        }
    }
}

pub(super) fn some_backend<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BackendKind>, D::Error> {
    let read = |text: &str| {
        text.parse::<BackendKind>().map_err(|_| {
            let known = BackendKind::names();
            format!("{text:?} is no back-end, expected one of {known}")
        })
    };
    text(deserializer, "the name of a back-end as \"epoll\"", read).map(Some)
}

/// Reads the profile of a keeper by its name: when connections are left to it.
pub(super) fn profile<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Profile, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// Permissions of a file as a value of TOML: a text, as numbers of TOML need `0o` to be octal.
pub(super) struct ModeText(pub(super) u32);

impl<'de> Deserialize<'de> for ModeText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ModeText, D::Error> {
        text(deserializer, "permissions as \"0660\"", |text| {
            let digits = text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
            let mode = u32::from_str_radix(text, 8).ok().filter(|mode| digits && *mode <= 0o777);
            mode.map(ModeText)
                .ok_or_else(|| format!("{text:?} are no permissions, expected them as \"0660\""))
        })
    }
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProxyVersion {
    /// Text.
    V1,
    /// Binary.
    V2,
}

/// Whether there is a header of the PROXY protocol, and its version: `true` is the older version,
/// which all readers know.
#[derive(Default)]
pub(super) struct ProxyProtocol(pub(super) Option<ProxyVersion>);

impl<'de> Deserialize<'de> for ProxyProtocol {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ProxyProtocol, D::Error> {
        struct Kind;

        impl Visitor<'_> for Kind {
            type Value = ProxyProtocol;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, \"v1\" or \"v2\"")
            }

            fn visit_bool<E: Error>(self, is_on: bool) -> Result<ProxyProtocol, E> {
                Ok(ProxyProtocol(is_on.then_some(ProxyVersion::V1)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<ProxyProtocol, E> {
                match text {
                    "v1" => Ok(ProxyProtocol(Some(ProxyVersion::V1))),
                    "v2" => Ok(ProxyProtocol(Some(ProxyVersion::V2))),
                    _ => Err(E::custom(format!(
                        "{text:?} is no version of the PROXY protocol, expected \"v1\" or \"v2\""
                    ))),
                }
            }
        }

        deserializer.deserialize_any(Kind)
    }
}
