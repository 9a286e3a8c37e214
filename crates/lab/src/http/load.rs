//! The clients' request, and its answer.

use std::net::Ipv4Addr;
use std::rc::Rc;

use crate::error::Result;
use crate::http::BODY;
use crate::server::web::{self, Clients, Page};

/// How much is read at a time.
const ROOM: usize = 4096;

/// Makes this many connections to a server, from an address of this machine's own network, to each
/// of its ports in turn.
pub(crate) fn load(
    subject: &'static str,
    from: Ipv4Addr,
    ports: &[u16],
    count: usize,
) -> Result<Clients> {
    let page = Page { path: "/", body: &Rc::from(&BODY[..]), room: ROOM };
    web::load(subject, from, ports, count, page)
}
