//! Fields: checked names and values, and the lines of a head.

use std::fmt;

use httparse::Header;

/// The bytes of a token (RFC 9110, section 5.6.2).
pub(crate) static OF_TOKEN: [bool; 256] = alphanumeric_and(b"!#$%&'*+-.^_`|~");

/// Returns a table of letters, digits and other bytes.
pub(crate) const fn alphanumeric_and(others: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
}

/// Whether a text is a token (RFC 9110, section 5.6.2).
pub(crate) const fn is_token(text: &[u8]) -> bool {
    let mut at = 0;
    while at < text.len() {
        if !OF_TOKEN[text[at] as usize] {
            return false;
        }
        at += 1;
    }
    !text.is_empty()
}

/// Whether a text may be the value of a field, or a reason phrase: no control characters but tabs
/// (RFC 9110, section 5.5).
const fn is_value(text: &[u8]) -> bool {
    let mut at = 0;
    while at < text.len() {
        if !is_visible(text[at]) {
            return false;
        }
        at += 1;
    }
    true
}

/// Whether a byte is a tab or no control character.
pub(crate) const fn is_visible(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// Removes blanks from both ends. HTTP has two of them, fewer than ASCII (RFC 9110, section 5.6.3).
pub(crate) fn trim_blanks(text: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| !matches!(byte, b' ' | b'\t');
    let Some(start) = text.iter().position(is_text) else { return b"" };
    let end = text.iter().rposition(is_text).map_or(start, |last| last + 1);
    &text[start..end]
}

/// The name of a field: a token (RFC 9110, section 5.1).
///
/// Only a checked name can be written, so no name can end its line. The names in a head that was
/// read are in lower case.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FieldName<'a>(&'a [u8]);

impl<'a> FieldName<'a> {
    /// Checks a name; `None` if it is not a token.
    #[must_use]
    pub const fn new(name: &'a [u8]) -> Option<FieldName<'a>> {
        match is_token(name) {
            true => Some(FieldName(name)),
            false => None,
        }
    }

    /// Returns a name that is known when the program is compiled.
    ///
    /// # Panics
    ///
    /// If the name is not a token; in a constant that is an error of the compiler.
    #[must_use]
    pub const fn from_static(name: &'static str) -> FieldName<'static> {
        match is_token(name.as_bytes()) {
            true => FieldName(name.as_bytes()),
            false => panic!("a field's name is not a token"),
        }
    }

    /// Returns a name that was checked before.
    pub(crate) const fn from_checked(name: &'a [u8]) -> FieldName<'a> {
        FieldName(name)
    }

    /// Returns the bytes of the name.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl<'a> From<&'a http::HeaderName> for FieldName<'a> {
    fn from(name: &'a http::HeaderName) -> FieldName<'a> {
        // Its type has made the same check.
        FieldName(name.as_str().as_bytes())
    }
}

impl fmt::Debug for FieldName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// The value of a field, or the reason phrase of a response: no control characters but tabs (RFC
/// 9110, section 5.5).
///
/// Only a checked value can be written, so no value can end its line: a split response does not
/// compile.
///
/// ```compile_fail
/// # use superpoll_http1::{FieldName, Writer};
/// fn write(writer: &mut Writer<'_>, untrusted: &[u8]) {
///     writer.field(FieldName::from_static("location"), untrusted);
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FieldValue<'a>(&'a [u8]);

impl<'a> FieldValue<'a> {
    /// Checks a value; `None` if it has a control character other than a tab.
    #[must_use]
    pub const fn new(value: &'a [u8]) -> Option<FieldValue<'a>> {
        match is_value(value) {
            true => Some(FieldValue(value)),
            false => None,
        }
    }

    /// Returns a value that is known when the program is compiled.
    ///
    /// # Panics
    ///
    /// If the value has a control character; in a constant that is an error of the compiler.
    #[must_use]
    pub const fn from_static(value: &'static str) -> FieldValue<'static> {
        match is_value(value.as_bytes()) {
            true => FieldValue(value.as_bytes()),
            false => panic!("a field's value has a control character"),
        }
    }

    /// Returns a value that was checked before.
    pub(crate) const fn from_checked(value: &'a [u8]) -> FieldValue<'a> {
        FieldValue(value)
    }

    /// Returns the bytes of the value.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns the elements of a list, without the blanks around them (RFC 9110, section 5.6.1).
    /// Empty elements are among them.
    #[inline]
    pub fn elements(self) -> impl Iterator<Item = &'a [u8]> {
        self.0.split(|byte| *byte == b',').map(trim_blanks)
    }
}

impl<'a> From<&'a http::HeaderValue> for FieldValue<'a> {
    fn from(value: &'a http::HeaderValue) -> FieldValue<'a> {
        // Its type has made the same check.
        FieldValue(value.as_bytes())
    }
}

impl fmt::Debug for FieldValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// A field that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field<'a> {
    /// The name, in lower case in a head and as it came in a trailer.
    pub name: FieldName<'a>,
    /// The value, without blanks at its ends.
    pub value: FieldValue<'a>,
}

/// The place of a name and a value in a list: the value follows the name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) name: u32,
    pub(crate) value: u32,
    pub(crate) end: u32,
    pub(crate) flags: u8,
}

impl Place {
    #[inline]
    pub(crate) fn pair<'a>(&self, bytes: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let pair = bytes.get(self.name as usize..self.end as usize).unwrap_or_default();
        pair.split_at_checked((self.value - self.name) as usize).unwrap_or_default()
    }

    /// Returns the pair at this place as a field. The caller knows that it is one.
    #[inline]
    fn field<'a>(&self, bytes: &'a [u8]) -> Field<'a> {
        let (name, value) = self.pair(bytes);
        Field { name: FieldName(name), value: FieldValue(value) }
    }
}

/// The bytes that fields are parts of.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// A head that was read as lines.
    Lines {
        headers: &'a [Header<'a>],
        /// The head in lower case, which has the names at the same places as the head.
        lower: &'a [u8],
        /// The address of the head.
        head: usize,
    },
    /// A list, all of whose pairs are fields.
    List { places: &'a [Place], bytes: &'a [u8] },
}

/// The bytes of a head that are handled at once.
const BLOCK: usize = 16;

/// The fields of a head, in their order.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    source: Source<'a>,
    has_bare_line_feed: bool,
    has_underscore: bool,
}

impl<'a> Fields<'a> {
    /// Returns the fields of a head, of which `lower` is a copy that is changed to lower case.
    ///
    /// There is no branch for each byte, so that the compiler handles many at once, and the last
    /// block overlaps the one before. That takes less time than the names one by one.
    pub(crate) fn new(head: &[u8], headers: &'a [Header<'a>], lower: &'a mut [u8]) -> Fields<'a> {
        let mut found = [0_u8; BLOCK];
        // A shorter head has no fields.
        let last = head.len().checked_sub(BLOCK + 1);
        let mut at = last.map(|_| 0);
        while let (Some(start), Some(last)) = (at, last)
            && let Some(bytes) = head[start..].first_chunk::<BLOCK>()
            && let Some(next) = head[start + 1..].first_chunk::<BLOCK>()
            && let Some(lower) = lower[start..].first_chunk_mut::<BLOCK>()
        {
            for place in 0..BLOCK {
                let is_split = (bytes[place] == b'\r') != (next[place] == b'\n');
                let is_underscore = bytes[place] == b'_';
                found[place] |= u8::from(is_split) | u8::from(is_underscore) << 1;
                lower[place] = bytes[place].to_ascii_lowercase();
            }
            at = (start < last).then(|| (start + BLOCK).min(last));
        }
        let found = found.iter().fold(0, |all, one| all | one);
        Fields {
            source: Source::Lines { headers, lower, head: head.as_ptr().addr() },
            has_bare_line_feed: found & 1 != 0
                || head.starts_with(b"\n")
                || (last.is_none()
                    && head.windows(2).any(|two| two[0] != b'\r' && two[1] == b'\n')),
            has_underscore: found & 2 != 0,
        }
    }

    /// Returns the fields of a list, all of which were checked.
    pub(crate) const fn from_places(
        places: &'a [Place],
        bytes: &'a [u8],
        has_underscore: bool,
    ) -> Fields<'a> {
        Fields { source: Source::List { places, bytes }, has_bare_line_feed: false, has_underscore }
    }

    /// Returns the number of fields.
    #[must_use]
    pub const fn len(&self) -> usize {
        match &self.source {
            Source::Lines { headers, .. } => headers.len(),
            Source::List { places, .. } => places.len(),
        }
    }

    /// Whether there are no fields.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a line of the head ended with a line feed alone. Such a head is accepted (RFC 9112,
    /// section 2.2) and written again with CR LF.
    #[must_use]
    pub const fn has_bare_line_feed(&self) -> bool {
        self.has_bare_line_feed
    }

    /// Whether the head has an underscore. If it has none, no name has one that could stand for a
    /// hyphen.
    #[must_use]
    pub const fn has_underscore(&self) -> bool {
        self.has_underscore
    }

    /// Returns the fields in their order.
    #[inline]
    pub fn iter(&self) -> FieldIter<'a> {
        FieldIter(match self.source {
            Source::Lines { headers, lower, head } => {
                SourceIter::Lines { headers: headers.iter(), lower, head }
            }
            Source::List { places, bytes } => SourceIter::List { places: places.iter(), bytes },
        })
    }

    /// Returns the values of all fields of a name, which is in lower case.
    #[inline]
    pub fn values(&self, name: &str) -> impl Iterator<Item = FieldValue<'a>> {
        let same = move |field: &Field<'_>| field.name.as_bytes() == name.as_bytes();
        self.iter().filter(same).map(|field| field.value)
    }

    /// Returns the value of the first field of a name, which is in lower case.
    #[must_use]
    #[inline]
    pub fn value(&self, name: &str) -> Option<FieldValue<'a>> {
        self.values(name).next()
    }
}

/// The fields of a head, one after another.
#[derive(Clone)]
pub struct FieldIter<'a>(SourceIter<'a>);

#[derive(Clone)]
enum SourceIter<'a> {
    Lines { headers: std::slice::Iter<'a, Header<'a>>, lower: &'a [u8], head: usize },
    List { places: std::slice::Iter<'a, Place>, bytes: &'a [u8] },
}

#[inline]
fn line_field<'a>(header: &Header<'a>, lower: &'a [u8], head: usize) -> Field<'a> {
    let start = header.name.as_ptr().addr().wrapping_sub(head);
    let name = lower.get(start..start.wrapping_add(header.name.len()));
    Field {
        // httparse names parts of the head only, so there is always a name.
        name: FieldName(name.unwrap_or(b"connection")),
        value: FieldValue(header.value),
    }
}

impl<'a> Iterator for FieldIter<'a> {
    type Item = Field<'a>;

    #[inline]
    fn next(&mut self) -> Option<Field<'a>> {
        match &mut self.0 {
            SourceIter::Lines { headers, lower, head } => {
                headers.next().map(|header| line_field(header, lower, *head))
            }
            SourceIter::List { places, bytes } => places.next().map(|place| place.field(bytes)),
        }
    }

    // What is looked for by its name; the kind of the source is the same for all fields.
    #[inline]
    fn find<P: FnMut(&Field<'a>) -> bool>(&mut self, mut is: P) -> Option<Field<'a>> {
        match &mut self.0 {
            SourceIter::Lines { headers, lower, head } => {
                let (lower, head) = (*lower, *head);
                headers.map(|header| line_field(header, lower, head)).find(|field| is(field))
            }
            SourceIter::List { places, bytes } => {
                let bytes = *bytes;
                places.map(|place| place.field(bytes)).find(|field| is(field))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            SourceIter::Lines { headers, .. } => headers.size_hint(),
            SourceIter::List { places, .. } => places.size_hint(),
        }
    }
}

impl DoubleEndedIterator for FieldIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            SourceIter::Lines { headers, lower, head } => {
                headers.next_back().map(|header| line_field(header, lower, *head))
            }
            SourceIter::List { places, bytes } => {
                places.next_back().map(|place| place.field(bytes))
            }
        }
    }
}

impl ExactSizeIterator for FieldIter<'_> {}

impl fmt::Debug for FieldIter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

impl fmt::Debug for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|field| (field.name, field.value))).finish()
    }
}
