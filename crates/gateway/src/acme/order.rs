//! One order: from a name to a certificate.
//!
//! ```text
//! no record --> new order --> record of its URL and of the key
//!                                  |
//!     pending: offer the answers, say so to the authority, ask until it is
//!     ready: send the request for a certificate
//!     processing: ask until it is
//!     valid: get the certificate and check it --> stored, record removed
//!     invalid, or unknown to the authority --> record removed
//! ```
//!
//! The record is written before anything depends on it, so a server that was killed at any moment
//! continues with the order, and the key in the record fits the certificate that it gets. Between
//! the order and its record lies one write; a server that is killed there orders again, which does
//! no harm. One that is killed between the certificate and the end of the record leaves both, and
//! the next one removes the record: a renewal that continued with it would get the same
//! certificate.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeStatus, ChallengeType, Error,
    Identifier, NewOrder, Order, OrderStatus, Problem,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use serde::{Deserialize, Serialize};
use superpoll_rt::blocking::unblock;
use superpoll_rt::time::{self, sleep};

use super::certificate::Certificate;
use super::challenges::{Challenges, Offer};
use super::http::{CaClient, ExchangeError};
use super::schedule::FailureKind;
use super::storage::Storage;
use crate::automatic_error::StorageError;
use crate::config::ChallengeKind;

/// How long the authority may take to verify a name, and to issue a certificate after that.
const STEP: Duration = Duration::from_secs(5 * 60);

/// How often a request is repeated whose nonce the authority does not know (RFC 8555, section 6.5),
/// in addition to the attempts of instant-acme.
pub(super) const NONCES: u32 = 10;

/// The reason for which there is no certificate.
#[derive(thiserror::Error, Debug)]
#[error("{what}; {advice}")]
pub(super) struct Failure {
    pub what: String,
    pub advice: &'static str,
    pub kind: FailureKind,
    /// How long the authority asks to wait.
    pub asked: Option<Duration>,
    /// The authority does not know the account.
    pub is_account_lost: bool,
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Failure {
        let kind = FailureKind::Unreachable;
        Failure { kind, ..Failure::refused(error.to_string(), "check the folder of certificates") }
    }
}

/// Writes a file on a thread that may wait for the disk.
pub(super) async fn write(storage: &Storage, name: &str, text: String) -> Result<(), Failure> {
    let (storage, name) = (storage.clone(), name.to_owned());
    let written = unblock(move || storage.write(&name, &text)).await;
    written.map_err(|error| Failure::here(error.to_string()))?.map_err(Failure::from)
}

/// Repeats a request until the authority knows its nonce.
macro_rules! with_nonce {
    ($call:expr) => {{
        let mut left = NONCES;
        loop {
            match $call.await {
                Err(Error::Api(problem)) if left > 0 && is(&problem, "badNonce") => left -= 1,
                outcome => break outcome,
            }
        }
    }};
}

/// Whether a problem is of a type of ACME.
pub(super) fn is(problem: &Problem, kind: &str) -> bool {
    let full = problem.r#type.as_deref();
    full.and_then(|full| full.strip_prefix("urn:ietf:params:acme:error:")) == Some(kind)
}

impl Failure {
    /// Creates a failure of this server.
    pub(super) fn here(what: impl Into<String>) -> Failure {
        Failure::refused(what.into(), "check the configuration and this machine")
    }

    fn refused(what: String, advice: &'static str) -> Failure {
        let kind = FailureKind::Refused;
        Failure { what, advice, kind, asked: None, is_account_lost: false }
    }

    /// Creates the failure of a step.
    pub(super) fn at_step(step: &str, error: &Error, client: &CaClient) -> Failure {
        let after = client.take_retry_after();
        let asked = after.and_then(|after| after.duration_since(SystemTime::now()).ok());
        let (kind, advice) = match error {
            Error::Api(problem) => advise(problem),
            Error::Other(other) => match other.downcast_ref::<ExchangeError>() {
                Some(ExchangeError::Unreachable(_)) => {
                    (FailureKind::Unreachable, "check that this machine reaches the authority")
                }
                _ => (FailureKind::Refused, "check that the directory is that of an authority"),
            },
            _ => (FailureKind::Refused, "check that the directory is that of an authority"),
        };
        let is_account_lost =
            matches!(error, Error::Api(problem) if is(problem, "accountDoesNotExist"));
        // The text of the authority is on one line of the log.
        let what = format!("{step}: {error}").replace(['\n', '\r'], " ");
        Failure { what: shorten(what), advice, kind, asked, is_account_lost }
    }
}

/// Shortens the text of an authority to a length that a log takes.
fn shorten(mut what: String) -> String {
    const LONGEST: usize = 1_000;
    if what.len() > LONGEST {
        let mut end = LONGEST;
        while !what.is_char_boundary(end) {
            end -= 1;
        }
        what.truncate(end);
        what.push_str("...");
    }
    what
}

/// Returns the advice for a problem that the authority has reported.
fn advise(problem: &Problem) -> (FailureKind, &'static str) {
    let kind = problem.r#type.as_deref().unwrap_or("").rsplit(':').next().unwrap_or("");
    let advice = match kind {
        "rateLimited" => "wait, or use the authority's directory for tests while you try",
        "dns" => "check that the name has an address in the DNS",
        "connection" | "tls" | "incorrectResponse" | "unauthorized" => {
            "check that the name leads to this server, and that ports 80 and 443 reach it"
        }
        "caa" => "allow the authority in the CAA records of the name",
        "rejectedIdentifier" | "unsupportedIdentifier" => {
            "take the name out of [[hosts]], or use certificate and key"
        }
        "externalAccountRequired" => "set account = { id, key } as the authority shows it",
        "invalidContact" | "unsupportedContact" => "correct the address in acme = \"...\"",
        "serverInternal" => return (FailureKind::Unreachable, "wait for the authority's repair"),
        "badNonce" => return (FailureKind::Unreachable, "wait for the authority's repair"),
        _ => "see the authority's documentation of this problem",
    };
    (FailureKind::Refused, advice)
}

/// An order under way, as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OrderRecord {
    url: String,
    /// The key of the certificate.
    key: String,
}

/// The parts that an order needs.
pub(super) struct Ordering<'a> {
    pub account: &'a Account,
    pub client: &'a CaClient,
    pub storage: &'a Storage,
    pub challenges: &'a Arc<Challenges>,
    pub kind: ChallengeKind,
    pub name: &'a str,
    /// The certificate that the new one replaces.
    pub replaces: Option<CertificateIdentifier<'static>>,
}

/// Returns the name of the file with a certificate and its key.
pub(super) fn file(name: &str) -> String {
    format!("{name}.pem")
}

fn record_file(name: &str) -> String {
    format!("{name}.order.json")
}

/// Whether there is a record of an order, which may be over.
pub(super) fn has_record(storage: &Storage, name: &str) -> bool {
    storage.path(&record_file(name)).exists()
}

/// Removes the record of an order whose certificate is stored. The caller has the lock of the name.
pub(super) fn remove_finished(storage: &Storage, name: &str) -> Result<(), StorageError> {
    let Some(record) = OrderRecord::read(storage, name)? else { return Ok(()) };
    match storage.read(&file(name))? {
        Some(stored) if stored.starts_with(&record.key) => storage.remove(&record_file(name)),
        _ => Ok(()),
    }
}

impl OrderRecord {
    /// Reads the record of a name.
    fn read(storage: &Storage, name: &str) -> Result<Option<OrderRecord>, StorageError> {
        let file = record_file(name);
        let Some(text) = storage.read(&file)? else { return Ok(None) };
        let record = serde_json::from_str(&text);
        let no_record = |error| StorageError::no_json(&storage.path(&file), "order", &error);
        record.map(Some).map_err(no_record)
    }
}

impl Ordering<'_> {
    fn failed<'a>(&'a self, step: &'a str) -> impl Fn(Error) -> Failure + 'a {
        move |error| Failure::at_step(step, &error, self.client)
    }

    /// Gets a certificate and stores it.
    pub(super) async fn obtain(&self) -> Result<Certificate, Failure> {
        let (mut order, record) = match self.resumed().await? {
            Some(resumed) => resumed,
            None => self.begun().await?,
        };
        let outcome = self.finish(&mut order, &record).await;
        let is_over = match &outcome {
            Ok(_) => true,
            // An order that may still become valid is gone on with.
            Err(failure) => {
                failure.kind == FailureKind::Refused && order.state().status != OrderStatus::Valid
            }
        };
        if is_over {
            self.storage.remove(&record_file(self.name))?;
        }
        outcome
    }

    /// Returns the order that an earlier process has begun, or an earlier attempt.
    async fn resumed(&self) -> Result<Option<(Order, OrderRecord)>, Failure> {
        remove_finished(self.storage, self.name)?;
        let Some(record) = OrderRecord::read(self.storage, self.name)? else { return Ok(None) };
        match with_nonce!(self.account.order(record.url.clone())) {
            Ok(mut order) => {
                if order.state().status != OrderStatus::Invalid {
                    return Ok(Some((order, record)));
                }
            }
            Err(Error::Api(problem)) if is_forgotten(&problem) => {}
            Err(error) => return Err(self.failed("asking for the order under way")(error)),
        }
        // Nothing can come of the order any more.
        self.storage.remove(&record_file(self.name))?;
        Ok(None)
    }

    async fn begun(&self) -> Result<(Order, OrderRecord), Failure> {
        let identifier = match self.name.parse() {
            Ok(address) => Identifier::Ip(address),
            Err(_) => Identifier::Dns(self.name.to_owned()),
        };
        let identifiers = [identifier];
        let mut wanted = NewOrder::new(&identifiers);
        if let Some(replaces) = &self.replaces {
            wanted = wanted.replaces(replaces.clone());
        }
        let ordered = match with_nonce!(self.account.new_order(&wanted)) {
            // The authority knows a replacement already, as this server lost the last one, or it
            // has forgotten the certificate (RFC 9773, section 5).
            Err(error) if self.replaces.is_some() && refuses_replacement(&error) => {
                let plain = NewOrder::new(&identifiers);
                with_nonce!(self.account.new_order(&plain))
            }
            outcome => outcome,
        };
        let order = ordered.map_err(self.failed("ordering"))?;
        let key =
            KeyPair::generate().map_err(|error| Failure::here(format!("making a key: {error}")))?;
        let record = OrderRecord { url: order.url().to_owned(), key: key.serialize_pem() };
        let text = serde_json::to_string(&record)
            .map_err(|error| Failure::here(format!("writing the order: {error}")))?;
        write(self.storage, &record_file(self.name), text).await?;
        Ok((order, record))
    }

    async fn finish(
        &self,
        order: &mut Order,
        record: &OrderRecord,
    ) -> Result<Certificate, Failure> {
        if order.state().status == OrderStatus::Pending {
            // The answers are offered until the authority has decided.
            let _offers = self.offer(order).await?;
            self.wait(order, OrderStatus::Pending, "verifying the name").await?;
        }
        if order.state().status == OrderStatus::Ready {
            let request = request(self.name, &record.key)?;
            with_nonce!(order.finalize_csr(&request))
                .map_err(self.failed("requesting the certificate"))?;
        }
        self.wait(order, OrderStatus::Processing, "issuing the certificate").await?;
        let chain = with_nonce!(order.certificate());
        let chain = chain.map_err(self.failed("getting the certificate"))?;
        let unusable = |what: String| {
            let what = format!("the authority has sent a certificate that is of no use: {what}");
            Failure::refused(what, "report it to the authority")
        };
        let chain = chain.ok_or_else(|| unusable("it is not there yet".to_owned()));
        let certificate = chain.and_then(|chain| {
            let certificate = Certificate::parse("it", self.name, &chain, &record.key);
            let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
            if SystemTime::now() >= certificate.validity.to {
                return Err(unusable("it has ended".to_owned()));
            }
            Ok((certificate, chain))
        });
        let (certificate, chain) = match certificate {
            Ok(good) => good,
            Err(failure) => {
                // Another order is the only way out.
                self.storage.remove(&record_file(self.name))?;
                return Err(failure);
            }
        };
        let text = format!("{}{chain}", record.key);
        write(self.storage, &file(self.name), text).await?;
        Ok(certificate)
    }

    /// Offers the answers to the challenges of an order, and says so to the authority.
    async fn offer(&self, order: &mut Order) -> Result<Vec<Offer>, Failure> {
        let wanted = match self.kind {
            ChallengeKind::TlsAlpn01 => ChallengeType::TlsAlpn01,
            ChallengeKind::Http01 => ChallengeType::Http01,
        };
        let mut offers = Vec::new();
        let mut known = HashSet::new();
        let mut left = NONCES;
        'again: loop {
            let mut all = order.authorizations();
            while let Some(authorization) = all.next().await {
                let mut authorization = match authorization {
                    Ok(authorization) => authorization,
                    // What is known already is not asked for again.
                    Err(Error::Api(problem)) if left > 0 && is(&problem, "badNonce") => {
                        left -= 1;
                        continue 'again;
                    }
                    Err(error) => return Err(self.failed("asking for the challenges")(error)),
                };
                if authorization.status != AuthorizationStatus::Pending
                    || !known.insert(authorization.url().to_owned())
                {
                    continue;
                }
                let Some(mut challenge) = authorization.challenge(wanted.clone()) else {
                    let kind = self.kind.name();
                    let what = format!("the authority does not verify the name by {kind}");
                    return Err(Failure::refused(what, "set another challenge"));
                };
                let answer = challenge.key_authorization();
                let offer = self.challenges.offer(self.kind, self.name, &challenge.token, &answer);
                offers.push(offer.map_err(Failure::here)?);
                if challenge.status == ChallengeStatus::Pending {
                    with_nonce!(challenge.set_ready())
                        .map_err(self.failed("announcing the answer to the challenge"))?;
                }
            }
            return Ok(offers);
        }
    }

    /// Waits until an order has left a state.
    async fn wait(&self, order: &mut Order, state: OrderStatus, step: &str) -> Result<(), Failure> {
        let until = time::now() + STEP;
        let mut pause = Duration::from_millis(200);
        while order.state().status == state {
            if time::now() >= until {
                let minutes = STEP.as_secs() / 60;
                let what = format!("{step} takes longer than {minutes} minutes");
                let kind = FailureKind::Unreachable;
                let advice = "wait for the authority";
                return Err(Failure { kind, ..Failure::refused(what, advice) });
            }
            let asked = self.client.take_retry_after();
            let asked = asked.and_then(|asked| asked.duration_since(SystemTime::now()).ok());
            sleep(asked.unwrap_or(pause).clamp(pause, Duration::from_secs(30))).await;
            pause = (pause * 2).min(Duration::from_secs(5));
            with_nonce!(async { order.refresh().await.map(drop) }).map_err(self.failed(step))?;
        }
        if order.state().status == OrderStatus::Invalid {
            return Err(self.reason(order, step).await);
        }
        Ok(())
    }

    /// Returns the reason for which an order has become invalid.
    async fn reason(&self, order: &mut Order, step: &str) -> Failure {
        let mut found = order.state().error.clone();
        let mut all = order.authorizations();
        while let Some(Ok(mut authorization)) = all.next().await {
            if with_nonce!(async { authorization.refresh().await.map(drop) }).is_err() {
                continue;
            }
            let mut errors = authorization.challenges.iter().filter_map(|one| one.error.clone());
            found = errors.next_back().or(found);
        }
        match found {
            Some(problem) => Failure::at_step(step, &Error::Api(problem), self.client),
            None => {
                let what = format!("{step}: the authority has refused without a reason");
                Failure::refused(what, "see the authority's documentation")
            }
        }
    }
}

/// Whether an order may succeed if it does not name the certificate that it replaces.
fn refuses_replacement(error: &Error) -> bool {
    match error {
        Error::Api(problem) => !is(problem, "rateLimited") && !is(problem, "serverInternal"),
        Error::Unsupported(_) => true,
        // An answer that does not repeat the certificate, as it should.
        Error::Other(other) => other.downcast_ref::<ExchangeError>().is_none(),
        _ => false,
    }
}

/// Whether an authority has forgotten the object that a request was about.
fn is_forgotten(problem: &Problem) -> bool {
    let is_gone = matches!(problem.status, Some(404 | 410));
    is_gone || is(problem, "malformed") || is(problem, "unauthorized")
}

/// Makes the request for a certificate.
fn request(name: &str, key: &str) -> Result<Vec<u8>, Failure> {
    let failed = |error: rcgen::Error| Failure::here(format!("making the request: {error}"));
    let key = KeyPair::from_pem(key).map_err(failed)?;
    let mut params = CertificateParams::new([name.to_owned()]).map_err(failed)?;
    params.distinguished_name = DistinguishedName::new();
    Ok(params.serialize_request(&key).map_err(failed)?.der().to_vec())
}
