//! Tests that start other programs: a child has copies of all descriptors for a moment, so no test
//! here looks for the effect of a close at once.

mod adapters;
mod full_disk;
mod mistakes;
mod pauses;
mod process;
#[path = "../without_io_uring/mod.rs"]
mod without_io_uring;

#[test]
fn all_of_this_holds_where_io_uring_is_refused() {
    without_io_uring::run(&["adapters::", "full_disk::", "process::"]);
}
