//! Priorities of responses (RFC 9218).

/// The urgency of a stream that names none.
const USUAL: u8 = 3;

/// The least urgent value.
const LEAST: u8 = 7;

/// The priority of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Priority {
    /// From 0, the most urgent, to 7.
    pub urgency: u8,
    /// Whether the client uses parts of the response as they arrive. Such streams share the
    /// connection; others of the same urgency follow each other. A stream for which the client has
    /// said nothing shares the connection, too.
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Priority {
        Priority { urgency: USUAL, incremental: true }
    }
}

impl Priority {
    /// Reads the value of a `priority` field or of `PRIORITY_UPDATE`. Unknown parameters and
    /// invalid values are ignored (RFC 9218, section 4).
    #[must_use]
    pub fn new(value: &[u8]) -> Priority {
        let mut priority = Priority { urgency: USUAL, incremental: false };
        for member in value.split(|byte| *byte == b',') {
            // Parameters of a member have no meaning.
            let member = member.split(|byte| *byte == b';').next().unwrap_or_default();
            match member.trim_ascii() {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.incremental = true,
                b"i=?0" => priority.incremental = false,
                _ => {}
            }
        }
        priority
    }

    pub(crate) const fn to_byte(self) -> u8 {
        self.urgency | (self.incremental as u8) << 3
    }

    pub(crate) const fn from_byte(byte: u8) -> Priority {
        Priority { urgency: byte & LEAST, incremental: byte & 8 > 0 }
    }
}
