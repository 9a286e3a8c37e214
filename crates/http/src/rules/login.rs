//! Users with passwords (RFC 7617): the verification, and its bounds.
//!
//! The hash of a password is made to take long: a tenth of a second is usual. Clients send their
//! password with each request, so there are five bounds:
//!
//! * An engine computes no hash. Threads for calls that block do, at most [`AT_ONCE`] in the
//!   process for clients, and two more for operators.
//! * At most [`MOST_WAITING`] requests wait for such a thread. Further ones are answered by 503,
//!   which bounds the memory that clients with wrong passwords take. Requests to the admin listener
//!   wait in a queue of their own ([`LoginQueue`]): the flood that an operator wants to end would
//!   otherwise keep the operator out.
//! * A password that was verified is known from then on, as a keyed hash of it, for at most
//!   [`MOST_KNOWN`] users and passwords of a route. The key is random, and no longer-lived than the
//!   configuration; so the memory of the process has nothing that a password can be guessed from.
//! * The wrong passwords of one client address have a rate (`failures`), of a table that is
//!   bounded. A client beyond it is answered by 429 without a hash. A password counts only while
//!   its hash is computed, so a browser that sends many requests with a right password is not
//!   refused. Passwords that are known pass in any case: a client that guesses locks out no user at
//!   the same address who has logged in before.
//! * A hash that takes too long is refused with the configuration ([`PasswordHash`]).
//!
//! A request for a user who does not exist takes as long as one with a wrong password: the hash of
//! another user is computed. What was verified is only looked up by the keyed hash, so the time
//! that this takes says nothing about a password.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use data_encoding::BASE64;
use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use ring::hmac::{self, HMAC_SHA256};
use ring::rand::SystemRandom;
use superpoll_config::{BasicAuth, PasswordHash};
use superpoll_rt::blocking::unblock;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use super::error::RulesError;
use super::refusal::{Reason, Refused};
use crate::body::Body;
use crate::head::Fields;
use crate::rate_table::{RateTable, TooFast};
use crate::{connection_limits, htpasswd, reply};

/// The most hashes that are computed at the same time.
const AT_ONCE: usize = 4;

/// The most requests that wait until a hash can be computed.
const MOST_WAITING: usize = 256;

/// The most users and passwords of a route that are known as verified.
const MOST_KNOWN: usize = 1024;

/// The longest text of a user and a password, encoded.
const LONGEST: usize = 2048;

/// The requests that wait for the verification of a password.
pub(super) struct LoginQueue {
    computing: Semaphore,
    waiting: AtomicUsize,
    most_waiting: usize,
}

impl LoginQueue {
    const fn new(at_once: usize, most_waiting: usize) -> LoginQueue {
        let (computing, waiting) = (Semaphore::const_new(at_once), AtomicUsize::new(0));
        LoginQueue { computing, waiting, most_waiting }
    }
}

/// The queue for the routes of all hosts.
pub(super) static CLIENTS: LoginQueue = LoginQueue::new(AT_ONCE, MOST_WAITING);

/// The queue for the admin listener, which serves 64 connections at a time.
pub(super) static OPERATORS: LoginQueue = LoginQueue::new(2, 64);

/// A keyed hash of a user and a password.
type Tag = [u8; 32];

/// The users and passwords that were verified, the oldest first.
#[derive(Default)]
struct Known {
    tags: HashSet<Tag>,
    order: VecDeque<Tag>,
}

impl Known {
    fn insert(&mut self, tag: Tag) {
        if !self.tags.insert(tag) {
            return;
        }
        self.order.push_back(tag);
        if self.order.len() > MOST_KNOWN
            && let Some(oldest) = self.order.pop_front()
        {
            self.tags.remove(&oldest);
        }
    }
}

/// The users of a route.
pub(super) struct Login {
    rule: Arc<BasicAuth>,
    challenge: HeaderValue,
    users: BTreeMap<String, PasswordHash>,
    queue: &'static LoginQueue,
    key: hmac::Key,
    known: Mutex<Known>,
    /// The clients that have sent wrong passwords lately.
    failures: RateTable<Option<IpAddr>>,
}

/// A user and a password that were not verified yet.
pub struct Verification {
    hash: Option<PasswordHash>,
    password: Zeroizing<Vec<u8>>,
    tag: Tag,
    client: Option<IpAddr>,
}

/// The outcome of a look at a request.
pub(super) enum Checked {
    /// The user and the password were verified before.
    Known,
    /// There is no user with a password in the request.
    Missing,
    Unknown(Verification),
}

/// Returns the user with the password: `Basic` and the base64 of both.
fn decode(value: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (scheme, rest) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") || rest.len() > LONGEST {
        return None;
    }
    BASE64.decode(rest.trim_ascii()).ok().map(Zeroizing::new)
}

/// Returns the user that a request names with a password, which was verified or not: by the only
/// value of `Authorization`.
pub fn user(fields: Fields<'_>) -> Option<Box<str>> {
    let mut values = fields.values("authorization");
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let text = decode(value)?;
    let colon = text.iter().position(|byte| *byte == b':')?;
    Some(String::from_utf8_lossy(&text[..colon]).into())
}

/// Counts a request that waits.
struct Waiting(&'static LoginQueue);

impl Waiting {
    fn begin(queue: &'static LoginQueue) -> Option<Waiting> {
        let before = queue.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(queue);
        (before < queue.most_waiting).then_some(waiting)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Login {
    /// Reads the users of a rule, whose passwords are verified by way of a queue.
    ///
    /// # Errors
    ///
    /// The file of users cannot be read or has mistakes.
    pub(super) fn open(
        rule: &Arc<BasicAuth>,
        queue: &'static LoginQueue,
    ) -> Result<Login, RulesError> {
        let mut users = match &rule.file {
            Some(file) => htpasswd::read(file)?,
            None => BTreeMap::new(),
        };
        users.extend(rule.users.iter().map(|(user, hash)| (user.clone(), hash.clone())));
        let realm = rule.realm.replace('\\', "\\\\").replace('"', "\\\"");
        let challenge = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"");
        let key = hmac::Key::generate(HMAC_SHA256, &SystemRandom::new());
        Ok(Login {
            rule: rule.clone(),
            challenge: HeaderValue::try_from(challenge).map_err(|_| RulesError::Realm)?,
            users,
            queue,
            key: key.map_err(|_| RulesError::RandomBytes)?,
            known: Mutex::default(),
            failures: RateTable::new(rule.failures),
        })
    }

    /// Whether another route has the same users with the same passwords.
    pub(super) fn has_users_of(&self, other: &Login) -> bool {
        self.rule == other.rule && self.users == other.users
    }

    /// Whether all users of another route are users with the same passwords.
    pub(super) fn keeps_users_of(&self, other: &Login) -> bool {
        other.users.iter().all(|(user, hash)| self.users.get(user) == Some(hash))
    }

    /// Looks at a request of a client with these fields.
    pub(super) fn check(&self, client: Option<IpAddr>, fields: Fields<'_>) -> Checked {
        let mut values = fields.values("authorization");
        let (Some(value), None) = (values.next(), values.next()) else { return Checked::Missing };
        let Some(text) = decode(value) else { return Checked::Missing };
        let Some(colon) = text.iter().position(|byte| *byte == b':') else {
            return Checked::Missing;
        };
        let mut tag = Tag::default();
        // The name of a user has no colon.
        tag.copy_from_slice(hmac::sign(&self.key, &text).as_ref());
        if self.known.lock().unwrap_or_else(PoisonError::into_inner).tags.contains(&tag) {
            return Checked::Known;
        }
        let user = std::str::from_utf8(&text[..colon]).ok();
        let hash = user.and_then(|user| self.users.get(user)).cloned();
        let password = Zeroizing::new(text[colon + 1..].to_vec());
        Checked::Unknown(Verification { hash, password, tag, client })
    }

    /// Verifies a password.
    ///
    /// # Errors
    ///
    /// The response that refuses the client.
    pub(super) async fn verify(&self, verification: Verification) -> Result<(), Box<Refused>> {
        let Verification { hash, password, tag, client } = verification;
        let is_near = client.is_none_or(|client| client.to_canonical().is_loopback());
        let is_spared = self.rule.spares_local && is_near;
        let client = client.map(connection_limits::client);
        if !is_spared {
            self.failures.look(client).map_err(too_many_passwords)?;
        }
        let Some(waiting) = Waiting::begin(self.queue) else { return Err(busy()) };
        let permit = self.queue.computing.acquire().await.map_err(|_| busy())?;
        drop(waiting);
        // A browser sends several requests at once; the first has verified the password meanwhile.
        if self.known.lock().unwrap_or_else(PoisonError::into_inner).tags.contains(&tag) {
            return Ok(());
        }
        let is_user = hash.is_some();
        let Some(hash) = hash.or_else(|| self.users.values().next().cloned()) else {
            return Err(self.wrong_password());
        };
        if !is_spared {
            self.failures.admit(client).map_err(too_many_passwords)?;
        }
        let computing = unblock(move || {
            // The call continues if the client does not wait for it.
            let _permit = permit;
            hash.verify(&password)
        });
        match computing.await {
            Ok(true) if is_user => {
                if !is_spared {
                    self.failures.give_back(client);
                }
                self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(tag);
                Ok(())
            }
            Ok(_) => Err(self.wrong_password()),
            // The system refuses a thread.
            Err(_) => {
                let response = reply::status(StatusCode::INTERNAL_SERVER_ERROR);
                Err(Refused::with(Reason::PasswordQueue, response))
            }
        }
    }

    fn wrong_password(&self) -> Box<Refused> {
        Refused::with(Reason::WrongPassword, self.refusal())
    }

    /// Returns the answer to a client without a right password.
    pub(super) fn refusal(&self) -> Response<Body> {
        let mut response = reply::status(StatusCode::UNAUTHORIZED);
        response.headers_mut().insert(WWW_AUTHENTICATE, self.challenge.clone());
        response
    }
}

/// Returns the answer to a client that comes too fast.
pub(super) fn too_many_requests(too_fast: TooFast) -> Response<Body> {
    let mut response = reply::status(StatusCode::TOO_MANY_REQUESTS);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(too_fast.seconds()));
    response
}

fn too_many_passwords(too_fast: TooFast) -> Box<Refused> {
    Refused::with(Reason::PasswordRate, too_many_requests(too_fast))
}

/// Refuses a client while too many passwords are being verified.
fn busy() -> Box<Refused> {
    Refused::with(Reason::PasswordQueue, reply::unavailable(1))
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::pin::Pin;
    use std::task::Poll;

    use http::HeaderMap;
    use http::header::AUTHORIZATION;
    use superpoll_config::Rate;
    use superpoll_rt::Runtime;

    use super::*;

    fn login(users: &[&str]) -> Login {
        login_with(users, None, true)
    }

    fn login_with(users: &[&str], failures: Option<&str>, spares_local: bool) -> Login {
        let hash = "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA";
        let hash = PasswordHash::parse(hash).unwrap();
        let users = users.iter().map(|user| ((*user).to_owned(), hash.clone())).collect();
        let failures = failures.map(|text| Rate::parse(text).unwrap());
        let realm = "a \"b\" \\".to_owned();
        let rule = BasicAuth { realm, users, file: None, failures, spares_local };
        Login::open(&Arc::new(rule), &CLIENTS).unwrap()
    }

    fn check(login: &Login, text: &str) -> Checked {
        check_of(login, text, None)
    }

    fn check_of(login: &Login, text: &str, client: Option<IpAddr>) -> Checked {
        let value = format!("Basic {}", BASE64.encode(text.as_bytes()));
        let fields = HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
        login.check(client, Fields::Map(&fields))
    }

    fn verification(login: &Login, text: &str) -> Verification {
        match check(login, text) {
            Checked::Unknown(verification) => verification,
            Checked::Known => panic!("{text} is known"),
            Checked::Missing => panic!("{text} is no user with a password"),
        }
    }

    #[test]
    fn verified_passwords_are_known_up_to_a_bound() {
        let login = login(&["joe"]);
        Runtime::new().unwrap().block_on(async {
            login.verify(verification(&login, "joe:secret")).await.unwrap();
            assert!(matches!(check(&login, "joe:secret"), Checked::Known));
            for text in ["joe:Secret", "ann:secret", "joe:"] {
                let refused = login.verify(verification(&login, text)).await.unwrap_err();
                assert_eq!(refused.reason, Reason::WrongPassword);
                let refused = refused.response;
                assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
                let expected = "Basic realm=\"a \\\"b\\\" \\\\\", charset=\"UTF-8\"";
                assert_eq!(refused.headers()[WWW_AUTHENTICATE], expected);
                assert!(matches!(check(&login, text), Checked::Unknown(_)));
            }
        });
        let mut known = login.known.lock().unwrap();
        for number in 0..MOST_KNOWN {
            let mut tag = Tag::default();
            tag[..8].copy_from_slice(&number.to_be_bytes());
            known.insert(tag);
            known.insert(tag);
        }
        assert_eq!((known.tags.len(), known.order.len()), (MOST_KNOWN, MOST_KNOWN));
        drop(known);
        assert!(matches!(check(&login, "joe:secret"), Checked::Unknown(_)));
    }

    /// Its request takes the time of a hash, which may be that of its password.
    #[test]
    fn a_user_who_does_not_exist_has_no_password() {
        let login = login(&["joe"]);
        Runtime::new().unwrap().block_on(async {
            for text in ["ann:secret", ":secret", "JOE:secret"] {
                let refused = login.verify(verification(&login, text)).await.unwrap_err();
                assert_eq!(refused.response.status(), StatusCode::UNAUTHORIZED);
            }
        });
    }

    #[test]
    fn wrong_passwords_of_a_client_have_a_rate() {
        let verify = |login: &Login, text: &str, client: Option<IpAddr>| {
            let Checked::Unknown(verification) = check_of(login, text, client) else {
                return StatusCode::OK;
            };
            let outcome = Runtime::new().unwrap().block_on(login.verify(verification));
            outcome.map_or_else(|refused| refused.response.status(), |()| StatusCode::OK)
        };
        let (one, other) = (Some([192, 0, 2, 1].into()), Some([192, 0, 2, 2].into()));
        let login = login_with(&["joe", "ann"], Some("1/m burst 3"), true);
        // Right passwords do not count.
        assert_eq!(verify(&login, "joe:secret", one), StatusCode::OK);
        for text in ["joe:a", "nobody:secret", "joe:b"] {
            assert_eq!(verify(&login, text, one), StatusCode::UNAUTHORIZED, "{text}");
        }
        for text in ["joe:c", "ann:secret"] {
            assert_eq!(verify(&login, text, one), StatusCode::TOO_MANY_REQUESTS, "{text}");
        }
        // A known user of the address is served, and so are the users at another one.
        assert_eq!(verify(&login, "joe:secret", one), StatusCode::OK);
        assert_eq!(verify(&login, "ann:secret", other), StatusCode::OK);
        let local = ["127.0.0.1", "::1", "::ffff:127.0.0.1"].map(|text| text.parse().ok());
        for (spares, status) in
            [(true, StatusCode::UNAUTHORIZED), (false, StatusCode::TOO_MANY_REQUESTS)]
        {
            for client in local.into_iter().chain([None]) {
                let login = login_with(&["joe"], Some("1/m"), spares);
                assert_eq!(verify(&login, "joe:a", client), StatusCode::UNAUTHORIZED);
                assert_eq!(verify(&login, "joe:b", client), status, "{client:?}");
            }
        }
    }

    #[test]
    fn too_many_verifications_are_refused() {
        // Other tests verify passwords of clients at the same time.
        static QUEUE: LoginQueue = LoginQueue::new(AT_ONCE, MOST_WAITING);
        let login = Login { queue: &QUEUE, ..login(&["joe"]) };
        Runtime::new().unwrap().block_on(async {
            let all = u32::try_from(AT_ONCE).unwrap();
            let computing = QUEUE.computing.acquire_many(all).await.unwrap();
            let verify = || Box::pin(login.verify(verification(&login, "joe:secret")));
            let mut waiting: Vec<_> = (0..MOST_WAITING).map(|_| verify()).collect();
            poll_fn(|cx| {
                for one in &mut waiting {
                    assert!(one.as_mut().poll(cx).is_pending());
                }
                let mut next = verify();
                let Poll::Ready(Err(busy)) = Pin::new(&mut next).poll(cx) else {
                    panic!("it waits")
                };
                assert_eq!(busy.reason, Reason::PasswordQueue);
                assert_eq!(busy.response.status(), StatusCode::SERVICE_UNAVAILABLE);
                assert_eq!(busy.response.headers()[RETRY_AFTER], "1");
                Poll::Ready(())
            })
            .await;
            // Operators do not wait for clients.
            let operators = Login { queue: &OPERATORS, ..self::login(&["joe"]) };
            operators.verify(verification(&operators, "joe:secret")).await.unwrap();
            drop(computing);
            for one in waiting {
                one.await.unwrap();
            }
        });
        assert_eq!(QUEUE.waiting.load(Ordering::Relaxed), 0);
    }
}
