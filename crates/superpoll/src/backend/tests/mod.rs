//! Tests of the table of back-ends, and what tests of their parts share.

pub(super) mod stage;

use super::*;

#[test]
fn hints_name_the_back_ends_that_can_do_it_everywhere() {
    assert_eq!(those(|abilities| abilities.nest), "epoll or adaptive");
    assert_eq!(those(|abilities| abilities.fd_limit.is_none()), "poll, epoll or adaptive");
    assert_eq!(those(|abilities| abilities.fd_limit.is_some()), "select");
    assert_eq!(those(|abilities| abilities.calls_per_wait > 9), "another one");
}

#[test]
fn names_are_those_of_the_back_ends_themselves() {
    for kind in BackendKind::available() {
        let made = kind.make(Some(Costs::ASSUMED), Topology::Nested).unwrap();
        assert_eq!(made.status().name, kind.name());
        assert_eq!(made.status().holds_files, kind.abilities().holds_files);
    }
    assert_eq!(BackendKind::names(), "select, poll, epoll, adaptive, uring, auto");
}
