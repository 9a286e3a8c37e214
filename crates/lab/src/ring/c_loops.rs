//! The C libraries libev, libevent and libuv: something to watch per pipe, one callback per report.

use std::io;

use crate::error::{Error, Result};
use crate::ring::course::{Course, Pipes};
use crate::ring::passing::{Passing, in_turns};
use crate::ring::tasks::Ring;
use crate::sys::{libev, libevent, libuv};

pub(super) fn build_libev(course: &Course, pipes: Pipes) -> Result<Box<dyn Ring>> {
    let passing = Passing::new(course, &pipes);
    let mut watched = libev::Loop::new(&passing.readers())
        .ok_or_else(|| Error::usage("libev has no epoll here: see ev_loop_new in ev(3)"))?;
    Ok(in_turns(passing, pipes, None, move |passing| {
        watched.run_once(passing);
        Ok(())
    }))
}

pub(super) fn build_libevent(course: &Course, pipes: Pipes) -> Result<Box<dyn Ring>> {
    let passing = Passing::new(course, &pipes);
    let mut watched = libevent::Base::new(&passing.readers())
        .ok_or_else(|| Error::usage("libevent refused a pipe: see event_add(3)"))?;
    Ok(in_turns(passing, pipes, None, move |passing| match watched.run_once(passing) {
        true => Ok(()),
        false => Err(io::Error::other("event_base_loop of libevent failed")),
    }))
}

pub(super) fn build_libuv(course: &Course, pipes: Pipes) -> Result<Box<dyn Ring>> {
    let passing = Passing::new(course, &pipes);
    let mut watched = libuv::Loop::new(&passing.readers())
        .ok_or_else(|| Error::usage("libuv refused a pipe: see uv_poll_init"))?;
    Ok(in_turns(passing, pipes, None, move |passing| {
        watched.run_once(passing);
        Ok(())
    }))
}
