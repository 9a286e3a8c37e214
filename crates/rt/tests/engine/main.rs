//! The runtime: its engines, tasks, timers, descriptors and sockets.
//!
//! No test starts a process but by `superpoll_test_support`, because a child has copies of all
//! descriptors for a moment (see `no_child_starts` there): those that do are in `processes`. Tests
//! that count threads or descriptors of their process, or lower its limits, run alone.

mod answered;
mod blocking;
mod cancelled;
mod descriptors;
mod empty_buffers;
mod epoll_watches;
mod listeners;
mod macros;
mod memory;
mod named;
mod net_shed;
mod net_tcp;
mod net_udp;
mod no_descriptors;
mod outside;
mod policy;
mod pooled_client;
mod short_reads;
mod slow_turns;
mod soak;
mod tasks;
mod time;
mod tokio_context;
mod transfer;
mod unix;
mod urgent;
mod wakers;
#[path = "../without_io_uring/mod.rs"]
mod without_io_uring;

#[test]
fn all_of_this_holds_where_io_uring_is_refused() {
    without_io_uring::run(&[
        "blocking::",
        "descriptors::",
        "listeners::",
        "memory::",
        "net_shed::",
        "net_tcp::",
        "net_udp::",
        "no_descriptors::",
        "tasks::",
        "time::",
        "transfer::",
        "unix::",
        "wakers::",
    ]);
}
