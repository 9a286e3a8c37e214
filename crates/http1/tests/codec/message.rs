//! Whole messages, read by the codec from bytes that come in pieces.

use superpoll_http1::{
    After, Asked, BodyReader, Field, Fields, Form, Framing, Limits, Progress, Refusal, Response,
    ResponseHead, Room, Version, request, response,
};

/// Limits that no test but those of the limits reaches.
pub(crate) const WIDE: Limits = Limits { head: 1 << 18, target: 65_534, fields: 100 };

pub(crate) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// A head of a request that is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) form: Form,
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    pub(crate) authority: Option<String>,
    pub(crate) version: Version,
    pub(crate) host: Option<String>,
    pub(crate) fields: Pairs,
    pub(crate) framing: Framing,
    pub(crate) after: After,
    pub(crate) wants: (bool, Option<Vec<u8>>, bool),
    pub(crate) len: usize,
}

pub(crate) fn pair(field: Field<'_>) -> (Vec<u8>, Vec<u8>) {
    (field.name.as_bytes().to_ascii_lowercase(), field.value.as_bytes().to_vec())
}

fn pairs(fields: &Fields<'_>) -> Pairs {
    let is_lower = |field: &Field<'_>| !field.name.as_bytes().iter().any(u8::is_ascii_uppercase);
    assert!(fields.iter().all(|field| is_lower(&field)), "{fields:?}");
    fields.iter().map(pair).collect()
}

pub(crate) fn read_request(bytes: &[u8], limits: &Limits) -> Result<Option<Request>, Refusal> {
    let mut scratch = Vec::new();
    let mut room = Room::new(&mut scratch);
    let Some(head) = request(bytes, limits, &mut room)? else { return Ok(None) };
    let owned = |text: Option<&str>| text.map(str::to_owned);
    Ok(Some(Request {
        method: head.method.to_string(),
        target: head.target.as_str().to_owned(),
        form: head.target.form(),
        path: head.target.path().to_owned(),
        query: owned(head.target.query()),
        authority: owned(head.target.authority().map(|authority| authority.as_str())),
        version: head.version,
        host: owned(head.host.map(|host| host.as_str())),
        fields: pairs(&head.fields),
        framing: head.framing,
        after: head.after,
        wants: (
            head.wants.continues,
            head.wants.upgrade.map(|value| value.as_bytes().to_vec()),
            head.wants.trailers,
        ),
        len: head.len,
    }))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Interim,
    Switches,
    Final,
}

/// A head of a response that is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub(crate) kind: Kind,
    pub(crate) status: u16,
    pub(crate) reason: Vec<u8>,
    pub(crate) version: Version,
    pub(crate) fields: Pairs,
    pub(crate) framing: Framing,
    pub(crate) length: Option<u64>,
    pub(crate) after: After,
    pub(crate) len: usize,
}

pub(crate) fn read_response(
    bytes: &[u8],
    asked: Asked,
    limits: &Limits,
) -> Result<Option<Answer>, Refusal> {
    let mut scratch = Vec::new();
    let mut room = Room::new(&mut scratch);
    let Some(response) = response(bytes, asked, limits, &mut room)? else { return Ok(None) };
    let (kind, head): (Kind, &ResponseHead<'_>) = match &response {
        Response::Interim(head) => (Kind::Interim, head),
        Response::Switches(head) => (Kind::Switches, head),
        Response::Final(head) => (Kind::Final, head),
    };
    Ok(Some(Answer {
        kind,
        status: head.status.as_u16(),
        reason: head.reason.as_bytes().to_vec(),
        version: head.version,
        fields: pairs(&head.fields),
        framing: head.framing,
        length: head.length,
        after: head.after,
        len: head.len,
    }))
}

/// A body that was read.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Body {
    pub(crate) data: Vec<u8>,
    pub(crate) trailers: Pairs,
    /// The bytes from the head to the end of the body, if it was reached.
    pub(crate) end: Option<usize>,
}

/// Reads a body, of which some bytes more come with each piece. `closes` ends it after the bytes.
pub(crate) fn read_body(
    framing: Framing,
    bytes: &[u8],
    piece: usize,
    closes: bool,
) -> Result<Body, Refusal> {
    let (mut reader, mut body) = (BodyReader::new(framing), Body::default());
    let (mut at, mut upto) = (0, 0);
    loop {
        let part = &bytes[at..upto];
        let step = reader.step(part)?;
        assert!(step.data.end <= step.used && step.used <= part.len(), "{step:?}");
        body.data.extend_from_slice(&part[step.data]);
        body.trailers.extend(step.trailer.map(pair));
        at += step.used;
        assert_eq!(reader.is_over(), step.progress == Progress::Over);
        match step.progress {
            Progress::Over => {
                body.end = Some(at);
                return Ok(body);
            }
            Progress::Again => {}
            Progress::More if upto < bytes.len() => upto = (upto + piece).min(bytes.len()),
            Progress::More if closes => {
                reader.end()?;
                body.end = Some(at);
                return Ok(body);
            }
            Progress::More => return Ok(body),
        }
    }
}
