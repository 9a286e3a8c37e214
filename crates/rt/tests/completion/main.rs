//! Operations that are carried out by the kernel where it can, and by readiness elsewhere: the same
//! on every back-end.

#[path = "../again/mod.rs"]
mod again;
mod many;
mod one;
#[path = "../refused/mod.rs"]
mod refused;
mod stage;

#[test]
fn without_io_uring_all_is_the_same() {
    refused::all_again();
}
