//! The time between accepting a client and relaying its bytes: finding out who it is and where it
//! wants to go, and connecting to there.
//!
//! An introduction is a task that ends when the pair begins as another one: the state of a
//! handshake is larger than that of a pair, and a pair may live for days. Nothing that the client
//! has sent is lost on the way. Bytes that were read to look at them go ahead of all others.
//!
//! With a group, a server that cannot be reached is followed by another one, each at most once. So
//! a client waits at most for as many timeouts as the group has servers.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_rustls::rustls::ServerConnection;
use superpoll_http::certificates::ACME_TLS;
use superpoll_http::log::BrokenBy;
use superpoll_http::proxy_protocol;
use superpoll_http::tls::{self, Accepted};
use superpoll_http::transport::{Plain, Transport, Upstream};
use superpoll_http::upstream::{self, Group};
use superpoll_rt::net::lookup_host;
use superpoll_rt::{spawn, time};

use super::calls::{Call, count};
use super::client_hello;
use super::destination::{Destination, Target};
use super::pair::{Candidates, Pair, Relaying};
use super::sealed::{Sealed, SealedPair};
use super::servers::Servers;
use super::shared::{ActivePair, Settings};
use super::stream::Stream;
use crate::config::Address;

/// The time between two looks whether another connection has found the addresses of a name.
const PAUSE: Duration = Duration::from_millis(2);

/// The addresses of a client, as the PROXY protocol tells them.
#[derive(Clone, Copy)]
struct Addresses {
    client: Option<SocketAddr>,
    local: Option<SocketAddr>,
}

/// Reads the header that names the client, and relays the client to its destination.
pub(super) async fn introduce(
    mut client: Plain,
    address: Option<SocketAddr>,
    mut active: ActivePair,
) {
    let settings = active.settings().clone();
    let until = time::now() + settings.rules.greeting;
    let mut addresses = Addresses { client: address, local: None };
    let mut rest = Bytes::new();
    if let Some(patience) = settings.rules.header {
        let totals = active.totals();
        let header = match time::timeout(patience, proxy_protocol::read(&mut client)).await {
            Ok(Ok(header)) => header,
            Ok(Err(_)) => return none(&totals.broken).unwrap_or_default(),
            Err(_) => return none(&totals.timed_out).unwrap_or_default(),
        };
        if let Some((from, to)) = header.addresses {
            addresses = Addresses { client: Some(from), local: Some(to) };
            active.note(|record| record.client.address = Some(from));
        }
        rest = header.rest;
        if !active.count(addresses.client.map(|address| address.ip())) {
            active.refused();
            active.totals().refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
    // A route may lead to servers that are told the client.
    if settings.rules.announces.is_some()
        || settings.rules.reads_greetings()
        || matches!(&settings.to, Some(Destination::Group(group))
            if group.config().proxy_protocol.is_some())
    {
        addresses.local = addresses.local.or_else(|| client.local_address());
    }
    // The larger parts are freed with the step that they belong to.
    let (client, rest, name) = if settings.rules.reads_greetings() {
        match Box::pin(greet(client, rest, &active, until)).await {
            Some(greeted) => greeted,
            None => return,
        }
    } else {
        (Transport::Plain(client), rest.into(), None)
    };
    let routed = name.as_deref().and_then(|name| settings.rules.routes.find(name));
    if active.logs_server_names() {
        active.note(|record| record.client.server_name = name.clone().map(Into::into));
    }
    let Some(to) = routed.or(settings.to.as_ref()) else {
        active.totals().refused.fetch_add(1, Ordering::Relaxed);
        return;
    };
    // Whatever is not noted from here on is for this server to answer for.
    active.broken_by(BrokenBy::Server);
    match (to, client) {
        (Destination::Address(_), client)
            if routed.is_none() && matches!(settings.target, Target::Tcp(_)) =>
        {
            if !Box::pin(look_up(&mut active)).await {
                return;
            }
            let mut ahead = announced(&settings, None, addresses);
            match client {
                Transport::Plain(client) => {
                    connect(client, ahead, &rest, Candidates::default(), active);
                }
                client => {
                    ahead.extend_from_slice(&rest);
                    if let Some(upstream) = Box::pin(reach_known(&active)).await {
                        begin(client, Upstream::Plain(upstream), ahead, None, active);
                    }
                }
            }
        }
        (Destination::Address(to), client) => {
            let mut ahead = announced(&settings, None, addresses);
            ahead.extend_from_slice(&rest);
            if let Some(upstream) = Box::pin(reach(to, &active)).await {
                begin(client, Upstream::Plain(upstream), ahead, None, active);
            }
        }
        (Destination::Group(group), client) => {
            let header = announced(&settings, Some(group), addresses);
            let of = addresses.client.map(|address| address.ip());
            let Some(mut servers) = Box::pin(Servers::find(group, of, &active)).await else {
                return;
            };
            match client {
                Transport::Plain(client) if servers.are_direct() => {
                    connect(client, header, &rest, Candidates::Servers(servers.into()), active);
                }
                client => {
                    if let Some(upstream) = Box::pin(servers.dial(&header, &active)).await {
                        begin(client, upstream, rest, Some(servers), active);
                    }
                }
            }
        }
    }
}

/// Does the handshake of TLS, or reads the name that the client asks for. Returns the client, the
/// bytes of it that were read and belong to the destination, and the name. `None` if there is no
/// client any more.
async fn greet(
    mut client: Plain,
    rest: Bytes,
    active: &ActivePair,
    until: Instant,
) -> Option<(Transport, Vec<u8>, Option<String>)> {
    let (broken, timed_out) = (&active.totals().broken, &active.totals().timed_out);
    let rules = &active.settings().rules;
    let Some(tls) = &rules.tls else {
        let read = time::timeout_at(until, client_hello::read(&mut client, rest)).await;
        return match read {
            Ok(Ok((bytes, name))) => Some((Transport::Plain(client), bytes, name)),
            Ok(Err(_)) => none(broken),
            Err(_) => none(timed_out),
        };
    };
    let (mut is_challenge, mut name) = (false, None);
    let notice = |session: &ServerConnection| {
        is_challenge = session.alpn_protocol() == Some(ACME_TLS);
        active.note(|record| record.client.cipher = tls::cipher_of(session));
        name = session.server_name().map(str::to_ascii_lowercase);
    };
    let accepted = time::timeout_at(until, tls::accept(tls, client, rest, notice)).await;
    match accepted {
        // The handshake was all that the certificate authority wanted.
        Ok(Ok(_)) if is_challenge => None,
        Ok(Ok(Accepted::Http1(stream) | Accepted::Http2(stream))) => {
            Some((stream.into(), Vec::new(), name))
        }
        Ok(Err(_)) => none(broken),
        Err(_) => none(timed_out),
    }
}

fn none<T>(counter: &std::sync::atomic::AtomicU64) -> Option<T> {
    counter.fetch_add(1, Ordering::Relaxed);
    None
}

/// Returns the header that tells a destination about the client; empty if there is to be none.
fn announced(settings: &Settings, group: Option<&Group>, addresses: Addresses) -> Vec<u8> {
    let of_group = || group.and_then(|group| group.config().proxy_protocol);
    let version = settings.rules.announces.or_else(of_group);
    version.map_or_else(Vec::new, |version| {
        proxy_protocol::header(version, addresses.client, addresses.local)
    })
}

/// Looks the name of the destination up, if its addresses are not fresh. Returns whether to
/// continue; if not, the reason has been reported.
///
/// One connection looks the name up at a time. Meanwhile other connections use the addresses that
/// are known, or wait if there are none. So a flood of clients is no flood of look-ups, also while
/// the resolver fails.
async fn look_up(active: &mut ActivePair) -> bool {
    let settings = active.settings().clone();
    let (Some(name), Target::Tcp(known)) = (&settings.name, &settings.target) else { return true };
    let has_some = !known.is_empty();
    loop {
        if name.is_fresh() {
            return true;
        }
        if name.begin() {
            break;
        }
        if has_some {
            return true;
        }
        time::sleep(PAUSE).await;
        if active.renew() {
            return true;
        }
    }
    let looked_up = lookup_host((name.host.as_str(), name.port));
    let found = time::timeout(active.options().connect_timeout, looked_up).await;
    let found = found.unwrap_or_else(|_| {
        let what = format!("no answer of the resolver about {}", name.host);
        Err(io::Error::new(io::ErrorKind::TimedOut, what))
    });
    let outcome = match found {
        Ok(found) if found == *known => {
            name.note();
            true
        }
        Ok(found) => {
            active.adopt(settings.with_addresses(found));
            true
        }
        Err(error) if has_some => {
            name.note();
            if let Some(Destination::Address(to)) = &settings.to {
                active.local().shared.not_looked_up(to, error);
            }
            true
        }
        Err(error) => {
            active.not_connected(error);
            // Until then, further connections fail without a look-up.
            name.note();
            false
        }
    };
    name.end();
    outcome
}

/// Relays a client to one of several addresses or servers.
fn connect(client: Plain, mut ahead: Vec<u8>, rest: &[u8], to: Candidates, active: ActivePair) {
    ahead.extend_from_slice(rest);
    if let Some(pair) = Pair::connect(client.into_socket().into(), &ahead, to, active) {
        spawn(Relaying::from(pair)).detach();
    }
}

/// Connects to an address. A failure is reported.
async fn reach(to: &Address, active: &ActivePair) -> Option<Plain> {
    count(Call::Socket);
    count(Call::Connect);
    active.note(|record| record.upstream(None).tries(0, &to.to_string().into()));
    let began = active.is_logged().then(time::now);
    match upstream::connect(to, active.options().connect_timeout).await {
        Ok(upstream) => {
            active.note_connect(began);
            Some(upstream)
        }
        Err(error) => {
            active.broken_by(BrokenBy::Upstream);
            active.local().shared.not_connected(to, error);
            None
        }
    }
}

/// Connects to one of the known addresses of the settings. A failure is reported.
async fn reach_known(active: &ActivePair) -> Option<Plain> {
    let settings = active.settings().clone();
    let Target::Tcp(known) = &settings.target else { return None };
    count(Call::Socket);
    count(Call::Connect);
    if let Some(to) = &settings.to {
        active.note(|record| record.upstream(None).tries(0, &to.to_string().into()));
    }
    let began = active.is_logged().then(time::now);
    match upstream::connect_any(known.clone(), active.options().connect_timeout).await {
        Ok(upstream) => {
            active.note_connect(began);
            Some(upstream)
        }
        Err(error) => {
            active.not_connected(error);
            None
        }
    }
}

/// Begins to relay between two ends that are connected. `ahead` goes ahead of all bytes from the
/// client.
fn begin(
    client: Transport,
    upstream: Upstream,
    ahead: Vec<u8>,
    servers: Option<Servers>,
    active: ActivePair,
) {
    let (client, upstream) = match (client, upstream) {
        (Transport::Plain(client), Upstream::Plain(upstream)) => (client, upstream),
        (client, upstream) => {
            let pair = SealedPair::new(Sealed::new(client), Sealed::new(upstream), ahead, active);
            spawn(async move {
                pair.await;
                drop(servers);
            })
            .detach();
            return;
        }
    };
    let (client, upstream) = (client.into_socket(), upstream.into_socket());
    let to = servers.map_or_else(Candidates::default, |it| Candidates::Servers(it.into()));
    let pair = Pair::connected(Stream::from(upstream), Stream::from(client), ahead, to, active);
    spawn(Relaying::from(pair)).detach();
}
