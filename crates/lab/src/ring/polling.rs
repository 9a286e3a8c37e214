//! The crate polling, level-triggered.

use std::os::fd::OwnedFd;

use crate::error::{Doing, Result};
use crate::ring::course::{Course, Pipes};
use crate::ring::passing::{Passing, in_turns};
use crate::ring::tasks::Ring;
use crate::sys::polling::Readers;

pub(super) fn build(course: &Course, pipes: Pipes) -> Result<Box<dyn Ring>> {
    let passing = Passing::new(course, &pipes);
    let (readers, writers): (Vec<OwnedFd>, Vec<OwnedFd>) = pipes.into_iter().unzip();
    let mut watched =
        Readers::watch(readers, course.total.min(1024)).doing("watching pipes with polling")?;
    Ok(in_turns(passing, writers, None, move |passing| {
        watched.wait()?.try_for_each(|number| passing.pass(number).map(drop))
    }))
}
