//! Active checks: each server is asked now and then whether it is well, on one engine for all.
//!
//! A check takes the whole way that a request takes, with a connection of its own. The time between two varies by a
//! tenth, so that several gateways, or servers that were started together, do not beat in time. Servers count as well
//! until they were asked.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{HOST, USER_AGENT};
use http::{HeaderValue, Request, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use superpoll_rt::Handle;
use superpoll_rt::time::{sleep, timeout};

use super::balance::{hash, mix};
use super::channel::Channel;
use super::channel2::Channel2;
use super::dial::{Dialled, dial};
use super::forwarder::{address_as_host, for_h2};
use super::group::Group;
use super::outgoing::Outgoing;
use crate::config::Health;

/// Begins to ask the servers of a group, if they are to be asked.
///
/// # Errors
///
/// The runtime has ended.
pub(crate) fn watch(group: &Arc<Group>, handle: &Handle) -> superpoll_rt::Result<()> {
    if group.config().health.is_none() {
        return Ok(());
    }
    let engines = handle.engines().max(1) as u64;
    let engine = usize::try_from(hash(group.name().as_bytes()) % engines).unwrap_or(0);
    for index in 0..group.members().len() {
        let group = Arc::downgrade(group);
        handle.call_on(engine, move || superpoll_rt::spawn(check(group, index)).detach())?;
    }
    Ok(())
}

async fn check(group: Weak<Group>, index: usize) {
    let mut number = 0;
    loop {
        let interval = {
            let Some(group) = group.upgrade().filter(|group| !group.has_ended()) else { return };
            let Some(health) = &group.config().health else { return };
            let asked = timeout(health.timeout, is_well(&group, index, health)).await;
            group.checked(index, asked.unwrap_or(false));
            health.interval
        };
        number += 1;
        sleep(varied(interval, mix(number ^ (index as u64) << 32))).await;
    }
}

/// A tenth more or less, or anything between.
fn varied(interval: Duration, by: u64) -> Duration {
    let share = (by >> 11) as f64 / (1_u64 << 53) as f64;
    interval.mul_f64(0.9 + 0.2 * share)
}

async fn is_well(group: &Group, index: usize, health: &Health) -> bool {
    let request = || {
        let mut request = Request::new(Outgoing::empty());
        *request.uri_mut() = health.path.parse().ok()?;
        let headers = request.headers_mut();
        headers.insert(HOST, address_as_host(&group.members()[index].address));
        headers.insert(USER_AGENT, HeaderValue::from_static("superpoll-health"));
        Some(request)
    };
    let Some(mut request) = request() else { return false };
    let limit = health.timeout;
    let Ok(Dialled { stream, is_h2 }) = dial(group, index, None, limit).await else {
        return false;
    };
    let is_good = |status: StatusCode| status.is_success() || status.is_redirection();
    if is_h2 {
        let Ok(mut channel) = Channel2::open(stream).await else { return false };
        for_h2(&mut request, group.tls.is_some());
        channel.send(request, limit).await.is_ok_and(|response| is_good(response.status()))
    } else {
        let Ok(mut channel) = Channel::open(stream).await else { return false };
        let Ok(response) = channel.send(request, limit).await else { return false };
        let status = response.status();
        // Closed with its response half read, a server may write down a broken connection.
        let mut body = response.into_body();
        let read = poll_fn(|cx| channel.poll(cx.waker(), |cx| read_to_end(&mut body, cx)));
        read.await && is_good(status)
    }
}

/// Whether a body has come to its end without a fault.
fn read_to_end(body: &mut Incoming, cx: &mut Context<'_>) -> Poll<bool> {
    loop {
        match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => return Poll::Ready(true),
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(Some(Err(_))) => return Poll::Ready(false),
        }
    }
}
