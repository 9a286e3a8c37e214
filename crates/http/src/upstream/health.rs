//! Active checks: each server is checked now and then, on one engine for all.
//!
//! A check takes the same way as a request, with a connection of its own; or it is a connection
//! alone, for servers that do not speak HTTP. The time between two
//! checks varies by a tenth, so that several gateways, or servers that were started together, do
//! not check in lockstep. Servers count as healthy until the first check.

use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, USER_AGENT};
use http::uri::InvalidUri;
use http::{HeaderValue, Request};
use superpoll_config::{Health, HealthKind};
use superpoll_http1::Refusal;
use superpoll_rt::time::{sleep, timeout};

use super::balance::mix;
use super::dial::{Dialled, dial, dial_for_relay};
use super::fault::{FailedAttempt, Fault};
use super::group::Group;
use super::http1::Http1Connection;
use super::http2::{Head, Http2Connection};
use super::own_request;
use super::request::{ServerRequest, address_as_host};
use super::server::GroupServer;
use crate::proxy_protocol;

/// The reason for which a check has not succeeded.
pub(super) enum CheckError {
    /// The server does not answer, or says that it is not well.
    Unwell(String),
    /// This machine lacks something that the check needs.
    LocalShortage(String),
}

impl From<Fault> for CheckError {
    fn from(fault: Fault) -> CheckError {
        match fault.local_shortage() {
            Some(_) => CheckError::LocalShortage(fault.to_string()),
            None => CheckError::Unwell(fault.to_string()),
        }
    }
}

/// Begins to check a server on this engine, if its group has checks.
pub(super) fn begin(group: &Arc<Group>, server: &Arc<GroupServer>) {
    if group.config().health.is_some() {
        superpoll_rt::spawn(check(Arc::downgrade(group), server.clone())).detach();
    }
}

async fn check(group: Weak<Group>, server: Arc<GroupServer>) {
    let mut number = 0;
    loop {
        let interval = {
            let Some(group) = group.upgrade().filter(|group| !group.has_ended()) else { return };
            if server.is_gone() {
                return;
            }
            let Some(health) = &group.config().health else { return };
            let asked = timeout(health.timeout, is_well(&group, &server, health)).await;
            let late = |_| Err(CheckError::Unwell("no answer in time".to_owned()));
            group.check_ended(&server, asked.unwrap_or_else(late));
            health.interval
        };
        number += 1;
        sleep(varied(interval, mix(number ^ server.id << 32))).await;
    }
}

/// Returns the interval, changed by a tenth or less in either direction.
pub(super) fn varied(interval: Duration, by: u64) -> Duration {
    let share = (by >> 11) as f64 / (1_u64 << 53) as f64;
    interval.mul_f64(0.9 + 0.2 * share)
}

async fn is_well(group: &Group, server: &GroupServer, health: &Health) -> Result<(), CheckError> {
    match health.kind {
        HealthKind::Http => answers(group, server, health).await,
        HealthKind::Connect => accepts(group, server, health).await,
    }
}

/// Checks that a server accepts a connection, and does the handshake of TLS if it has TLS.
async fn accepts(group: &Group, server: &GroupServer, health: &Health) -> Result<(), CheckError> {
    // The connection is the gateway's own, in the name of no client.
    let version = group.config().proxy_protocol;
    let header =
        version.map_or_else(Vec::new, |version| proxy_protocol::header(version, None, None));
    let dialled = dial_for_relay(group, server, &header, health.timeout).await;
    dialled.map(drop).map_err(|error| Fault::Connect(error).into())
}

/// Checks that a server answers a request of HTTP.
async fn answers(group: &Group, server: &GroupServer, health: &Health) -> Result<(), CheckError> {
    let mut request = Request::new(Bytes::new());
    let no_path = |error: InvalidUri| CheckError::Unwell(error.to_string());
    *request.uri_mut() = health.path.parse().map_err(no_path)?;
    let headers = request.headers_mut();
    headers.insert(HOST, address_as_host(server.named_address()));
    headers.insert(USER_AGENT, HeaderValue::from_static("superpoll-health"));
    let unfit = |why: Refusal| CheckError::Unwell(why.to_string());
    let unfit_target = || unfit(Refusal::Target);
    let request = match group.config().fastcgi {
        false => ServerRequest::own(&request).map_err(unfit)?,
        true => ServerRequest::own_script(&health.path),
    };
    let limit = health.timeout;
    let dialled = dial(group, server, None, limit).await;
    let Dialled { stream, is_h2 } = dialled.map_err(Fault::Connect)?;
    let describe = |error: h2::Error| CheckError::from(Fault::Broken(error.into()));
    let status = if is_h2 {
        let connection = Http2Connection::open(stream).await.map_err(describe)?;
        let request = request.to_h2(connection.is_encrypted()).ok_or_else(unfit_target)?;
        let begun = connection.begin(request, limit).await;
        let lost = |lost| FailedAttempt::lost(lost, false, limit).fault;
        let mut reply = begun.map_err(|(why, _)| lost(why))?;
        loop {
            if let Head::Final(head) = poll_fn(|cx| reply.poll(cx)).await.map_err(lost)? {
                break head.status();
            }
        }
    } else {
        let mut connection = match group.config().fastcgi {
            false => Http1Connection::new(stream),
            true => Http1Connection::fastcgi(stream),
        };
        let response = own_request::send(&mut connection, &request, limit).await?;
        // If the connection is closed with its response half read, a server may log a broken
        // connection.
        while let Some(frame) = poll_fn(|cx| connection.poll_body(cx)).await {
            if frame.is_err() {
                return Err(CheckError::Unwell("its answer has ended before its end".to_owned()));
            }
        }
        response.status()
    };
    match status.is_success() || status.is_redirection() {
        true => Ok(()),
        false => Err(CheckError::Unwell(format!("it has answered {status}"))),
    }
}
