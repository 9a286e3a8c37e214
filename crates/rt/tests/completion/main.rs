//! Operations that are carried out by the kernel where it can, and by readiness elsewhere: the same
//! on every back-end.

#[path = "../child_process/mod.rs"]
mod child_process;
mod multishot;
mod single;
mod stage;
#[path = "../without_io_uring/mod.rs"]
mod without_io_uring;

#[test]
fn without_io_uring_all_is_the_same() {
    without_io_uring::run_all();
}
