//! The trace that a request belongs to (W3C Trace Context, level 1).
//!
//! `traceparent` is `VERSION-TRACE-PARENT-FLAGS` in lower case hexadecimal. A server that takes
//! part passes on the trace and puts itself in the place of the parent. A field that is not valid
//! begins another trace, and `tracestate`, which describes the invalid one, is left out then
//! (sections 3.2 and 4.3).
//!
//! A later version than 00 may have more behind the flags; the known parts are read, and sent as
//! version 00. Of the flags two have a meaning: the trace is recorded (01), and its number is
//! random (02, level 2). All other flags are sent as 0.

use std::fmt;

use data_encoding::HEXLOWER;
use http::HeaderValue;

use super::request_id::random_bytes;

/// The length of a field of version 00.
const LENGTH: usize = 55;

/// The trace is recorded by the caller, so that its servers should record it, too.
const SAMPLED: u8 = 1;

/// The flags with a meaning: [`SAMPLED`], and that the number of the trace is random.
const KNOWN_FLAGS: u8 = SAMPLED | 2;

/// A trace, and this server's part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TraceContext {
    trace: [u8; 16],
    parent: [u8; 8],
    flags: u8,
}

/// Reads a number of hexadecimal digits in lower case.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    HEXLOWER.decode_mut(digits, &mut bytes).ok()?;
    Some(bytes)
}

impl TraceContext {
    /// Reads the values of the field; `None` unless there is one that is valid.
    pub(super) fn parse<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Option<TraceContext> {
        let value = values.next()?;
        if values.next().is_some() {
            return None;
        }
        let (known, rest) = value.split_at_checked(LENGTH)?;
        let [version] = hex(&known[..2])?;
        let is_whole = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.is_empty() || rest.starts_with(b"-"),
        };
        let has_hyphens = [2, 35, 52].iter().all(|place| known[*place] == b'-');
        if !is_whole || !has_hyphens {
            return None;
        }
        let (trace, parent) = (hex(&known[3..35])?, hex(&known[36..52])?);
        let [flags] = hex(&known[53..])?;
        let is_valid = trace != [0; 16] && parent != [0; 8];
        is_valid.then_some(TraceContext { trace, parent, flags: flags & KNOWN_FLAGS })
    }

    /// Begins a trace. `sample` is the share of traces that are recorded, in hundredths.
    pub(super) fn new(sample: u8) -> Option<TraceContext> {
        let trace = random_bytes::<16>()?;
        // The last bits, as tools that decide by the number of a trace expect these to be random.
        let last = trace.last_chunk::<4>().map_or(0, |last| u32::from_be_bytes(*last));
        let is_sampled = u64::from(last) * 100 < u64::from(sample) << 32;
        let flags = if is_sampled { SAMPLED } else { 0 };
        Some(TraceContext { trace, parent: random_bytes()?, flags })
    }

    /// Returns the same trace with this server as the parent.
    pub(super) fn child(self) -> Option<TraceContext> {
        Some(TraceContext { parent: random_bytes()?, ..self })
    }

    /// Returns the number of the trace.
    pub(super) fn trace_id(&self) -> String {
        HEXLOWER.encode(&self.trace)
    }

    /// Returns the value of the field.
    pub(super) fn value(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(&self.to_string()).ok()
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, parent) = (HEXLOWER.encode(&self.trace), HEXLOWER.encode(&self.parent));
        write!(f, "00-{trace}-{parent}-{:02x}", self.flags)
    }
}
