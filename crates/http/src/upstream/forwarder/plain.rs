//! The requests that are forwarded from where their heads were read.
//!
//! The codecs refuse what two servers could understand differently. Other requests are rare, and
//! get a map of fields: those that are refused or answered here, and those that ask for another
//! protocol.

use superpoll_http1::{BodyReader, Form, Framing, Method, Progress};

use crate::upstream::heads::ClientHead;
use crate::upstream::strict;

/// Whether a request is one of them. A target may stand in place of its own.
pub(super) fn is_plain(head: &ClientHead<'_>, target: Option<&str>) -> bool {
    let own = head.target.path();
    let path = target.map_or(own, |it| it.split_once('?').map_or(it, |(path, _)| path));
    head.host.is_some()
        // It was routed as one about `/`, and not about the whole server.
        && head.target.form() == Form::Origin
        && !matches!(head.method, Method::Connect | Method::Trace)
        && head.upgrade.is_none()
        && !strict::has_dots(path)
        // It bounds how often the request may be forwarded.
        && (head.method != Method::Options || head.fields.value("max-forwards").is_none())
}

/// Reads the body of a request that has come whole, without trailers. Returns how many bytes it
/// takes; `None` if it has not.
pub(super) fn whole(framing: Framing, bytes: &[u8], mut data: impl FnMut(&[u8])) -> Option<usize> {
    let (mut reader, mut at) = (BodyReader::new(framing), 0);
    if reader.is_over() {
        return Some(0);
    }
    loop {
        let piece = reader.step(&bytes[at..]).ok().filter(|piece| piece.trailer.is_none())?;
        data(&bytes[at..][piece.data.clone()]);
        at += piece.used;
        match piece.progress {
            Progress::Again => {}
            Progress::More => return None,
            Progress::Over => return Some(at),
        }
    }
}
