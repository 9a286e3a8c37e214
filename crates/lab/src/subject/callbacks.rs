//! The C libraries, with one callback per report: libevent with persistent events, libev with a
//! watcher and libuv with a poll handle per descriptor.

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::subject::work::{ReadLog, Subject, Turns};
use crate::sys::{libev, libevent, libuv};

pub(super) fn build_libevent(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let mut base = libevent::Base::new(pairs.readers())
        .ok_or_else(|| Error::usage("libevent refused a descriptor: see event_add(3)"))?;
    Ok(Box::new(Turns(move |log: &mut ReadLog| match base.run_once(log) {
        true => Ok(()),
        false => Err(Error::usage("event_base_loop of libevent failed")),
    })))
}

pub(super) fn build_libev(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let mut run = libev::Loop::new(pairs.readers())
        .ok_or_else(|| Error::usage("libev has no epoll here: see ev_loop_new in ev(3)"))?;
    Ok(Box::new(Turns(move |log: &mut ReadLog| {
        run.run_once(log);
        Ok(())
    })))
}

pub(super) fn build_libuv(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let mut run = libuv::Loop::new(pairs.readers())
        .ok_or_else(|| Error::usage("libuv refused a descriptor: see uv_poll_init"))?;
    Ok(Box::new(Turns(move |log: &mut ReadLog| {
        run.run_once(log);
        Ok(())
    })))
}
