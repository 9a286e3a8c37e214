//! The tasks that keep the certificates of a listener valid.
//!
//! A few workers share the list of names and take the name that is due first, so that a thousand
//! names neither open a thousand connections nor wait for one slow validation. Times are those of
//! the wall clock, which continues while a machine sleeps, and workers look at it at least once an
//! hour.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use instant_acme::{CertificateIdentifier, Error};
use superpoll_http::certificates::CertificateStore;
use superpoll_http::log::{Event, Level, Report};
use superpoll_rt::{Handle, JoinHandle, JoinSet, time};

use super::account;
use super::certificate::Certificate;
use super::challenges::Challenges;
use super::http::{self, CaClient};
use super::order::{self, Failure, Ordering as Order, file};
use super::schedule::{self, FailureKind};
use super::storage::{self, LOCK_PAUSE, Storage};
use crate::automatic_error::{AutomaticError, Damage, StorageError};
use crate::config::Acme;

/// The most names that are worked on at the same time.
const WORKERS: usize = 4;

/// The longest sleep.
const LONGEST_SLEEP: Duration = Duration::from_secs(60 * 60);

/// How often the authority is asked for its suggestion, where it does not say.
const SUGGESTION: Duration = Duration::from_secs(6 * 60 * 60);

/// The shortest and the longest time between two questions for a suggestion (RFC 9773, section
/// 4.3).
const SUGGESTIONS: (Duration, Duration) =
    (Duration::from_secs(60), Duration::from_secs(24 * 60 * 60));

/// The certificates of a listener, after every step that can fail.
pub(crate) struct Plan {
    acme: Acme,
    storage: Storage,
    tls: futures_rustls::TlsConnector,
    names: Vec<(String, Option<Certificate>)>,
    store: Arc<CertificateStore>,
    /// The challenges of all listeners.
    challenges: Arc<Challenges>,
}

superpoll::debug_fields!(Plan, it => acme: it.acme);

/// The outcomes of attempts to get a certificate.
#[derive(Default, Debug)]
pub(crate) struct RenewalCounters {
    renewed: AtomicU64,
    failed: AtomicU64,
}

impl RenewalCounters {
    /// Returns the counts by outcome.
    pub(crate) fn by_result(&self) -> [(&'static str, u64); 2] {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [("success", get(&self.renewed)), ("failure", get(&self.failed))]
    }
}

/// Tasks at work. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns the folder of an authority.
fn folder(directory: &str) -> String {
    let url = directory.strip_prefix("https://").unwrap_or(directory);
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
    url.chars().map(|c| if plain(c) { c } else { '-' }).collect()
}

impl Plan {
    /// Opens the folder, and installs the certificates that are stored there.
    pub(crate) fn open(
        acme: &Acme,
        names: Vec<String>,
        store: Arc<CertificateStore>,
        challenges: Arc<Challenges>,
    ) -> Result<Plan, AutomaticError> {
        let root = match &acme.storage {
            Some(folder) => folder.clone(),
            None => storage::default_folder()?,
        };
        let storage = Storage::open(root)?.within("acme")?.within(&folder(&acme.directory))?;
        account::check(acme, &storage)?;
        let tls = http::connector(acme.directory_ca.as_deref())?;
        let mut found = Vec::new();
        for name in names {
            let certificate = stored(&storage, &name)?;
            if let Some(certificate) = &certificate {
                store.install(&name, certificate.usable.clone());
            }
            found.push((name, certificate));
        }
        Ok(Plan { acme: acme.clone(), storage, tls, names: found, store, challenges })
    }

    /// Begins to get and renew certificates, in a task of the first engine.
    pub(crate) fn start(
        self,
        handle: &Handle,
        report: Report,
        counters: Arc<RenewalCounters>,
    ) -> Result<Running, superpoll_rt::Error> {
        let task = handle.spawn_on(0, async move {
            // The tasks are those of this engine, and end with this one.
            let mut tasks = JoinSet::new();
            {
                let count = WORKERS.min(self.names.len());
                let renewals = Rc::new(Renewals::new(self, report, counters));
                renewals.remove_finished_orders();
                for _ in 0..count {
                    tasks.spawn(renewals.clone().work());
                }
            }
            while tasks.join_next().await.is_some() {}
        })?;
        Ok(Running(task))
    }
}

/// Tries to get the lock of a name's orders.
fn lock(storage: &Storage, name: &str) -> Result<Option<storage::Lock>, StorageError> {
    storage.try_lock(&format!("{name}.order"))
}

/// Reads the certificate of a name that is stored.
fn stored(storage: &Storage, name: &str) -> Result<Option<Certificate>, StorageError> {
    let file = file(name);
    let Some(text) = storage.read(&file)? else { return Ok(None) };
    let path = storage.path(&file);
    let certificate = Certificate::parse("the stored text", name, &text, &text);
    let damaged = |error| StorageError::damaged(&path, Damage::Certificate(error));
    certificate.map(Some).map_err(damaged)
}

/// A name and its certificate.
struct Entry {
    name: String,
    certificate: Option<Certificate>,
    /// When the certificate is renewed, or the next attempt begins.
    due: SystemTime,
    /// When the authority is asked for its suggestion.
    question: SystemTime,
    failures: u32,
    /// Renewals in a row of certificates that had just been issued. An authority or a clock that
    /// wants them must not make the server order in a loop.
    hurries: u32,
    is_busy: bool,
}

/// The work on a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Renew,
    Ask,
}

impl Entry {
    fn new(name: String, certificate: Option<Certificate>, now: SystemTime) -> Entry {
        let (due, question) = (now, now);
        let (failures, hurries, is_busy) = (0, 0, false);
        let mut entry = Entry { name, certificate, due, question, failures, hurries, is_busy };
        if let Some(certificate) = &entry.certificate {
            entry.due = schedule::renewal(certificate.validity, schedule::jitter());
        }
        entry
    }

    /// Makes a certificate that is due already wait, if the one before was as young.
    fn hurry(&mut self, now: SystemTime) {
        if self.due > now {
            return;
        }
        if self.hurries > 0 {
            self.due =
                now + schedule::pause(FailureKind::Refused, self.hurries, None, schedule::jitter());
        }
        self.hurries = self.hurries.saturating_add(1);
    }

    /// Returns the next work, and its time.
    fn next(&self) -> (SystemTime, Work) {
        let asks = self.certificate.as_ref().is_some_and(|one| one.identifier.is_some());
        match asks && self.question < self.due {
            true => (self.question, Work::Ask),
            false => (self.due, Work::Renew),
        }
    }
}

/// The names of a listener, for the tasks of one engine.
struct Renewals {
    acme: Acme,
    storage: Storage,
    tls: futures_rustls::TlsConnector,
    store: Arc<CertificateStore>,
    challenges: Arc<Challenges>,
    entries: RefCell<Vec<Entry>>,
    report: Report,
    counters: Arc<RenewalCounters>,
}

impl Renewals {
    fn new(plan: Plan, report: Report, counters: Arc<RenewalCounters>) -> Renewals {
        let Plan { acme, storage, tls, names, store, challenges } = plan;
        let now = SystemTime::now();
        let entries =
            names.into_iter().map(|(name, certificate)| Entry::new(name, certificate, now));
        let entries = RefCell::new(entries.collect());
        Renewals { acme, storage, tls, store, challenges, entries, report, counters }
    }

    /// Removes what a server that was killed has left of orders that are over. An error is that of
    /// the next renewal as well, which reports it.
    fn remove_finished_orders(&self) {
        for entry in self.entries.borrow().iter().filter(|entry| entry.certificate.is_some()) {
            // Another process that has the lock removes its record itself.
            if order::has_record(&self.storage, &entry.name)
                && let Ok(Some(_lock)) = lock(&self.storage, &entry.name)
            {
                let _ = order::remove_finished(&self.storage, &entry.name);
            }
        }
    }

    /// Takes the name that is due, or returns the time until one is.
    fn take(&self, now: SystemTime) -> Result<(usize, Work), Duration> {
        let mut entries = self.entries.borrow_mut();
        let idle = entries.iter_mut().enumerate().filter(|(_, entry)| !entry.is_busy);
        let first = idle.min_by_key(|(_, entry)| entry.next().0);
        let Some((index, entry)) = first else { return Err(LONGEST_SLEEP) };
        let (at, work) = entry.next();
        match at.duration_since(now) {
            Ok(left) if !left.is_zero() => Err(left),
            _ => {
                entry.is_busy = true;
                Ok((index, work))
            }
        }
    }

    /// Works on names until the task is aborted.
    async fn work(self: Rc<Renewals>) {
        loop {
            let (index, work) = match self.take(SystemTime::now()) {
                Ok(taken) => taken,
                Err(left) => {
                    // A clock that was set may make the next name due at any time.
                    time::sleep(left.clamp(Duration::from_millis(10), LONGEST_SLEEP)).await;
                    continue;
                }
            };
            match work {
                Work::Renew => self.renew(index).await,
                Work::Ask => self.ask(index).await,
            }
            self.entries.borrow_mut()[index].is_busy = false;
        }
    }

    fn client(&self) -> CaClient {
        CaClient::new(self.tls.clone())
    }

    /// Gets a certificate for a name, and installs it.
    async fn renew(&self, index: usize) {
        let name = self.entries.borrow()[index].name.clone();
        match self.attempt(index, &name).await {
            Ok((certificate, is_new)) => self.install(index, certificate, is_new),
            Err(failure) => self.fail(index, &failure),
        }
    }

    /// Makes an attempt for a name. The certificate is not new if another process has got it.
    async fn attempt(&self, index: usize, name: &str) -> Result<(Certificate, bool), Failure> {
        let _lock = loop {
            match lock(&self.storage, name)? {
                Some(lock) => break lock,
                None => time::sleep(LOCK_PAUSE).await,
            }
        };
        let current = {
            let entries = self.entries.borrow();
            entries[index].certificate.as_ref().map(|one| (one.validity, one.identifier.clone()))
        };
        let stored = stored(&self.storage, name)?;
        if let Some(stored) = stored {
            let known = current.as_ref().map(|(validity, _)| *validity);
            if known.is_none_or(|known| stored.validity.to > known.to)
                && schedule::renewal(stored.validity, 0.0) > SystemTime::now()
            {
                return Ok((stored, false));
            }
        }
        let replaces = current.and_then(|(_, identifier)| identifier);
        let outcome = match self.obtain(name, replaces.clone()).await {
            Err(failure) if failure.is_account_lost => {
                account::forget(&self.storage).await?;
                self.obtain(name, replaces).await
            }
            outcome => outcome,
        };
        Ok((outcome?, true))
    }

    /// Orders a certificate.
    async fn obtain(
        &self,
        name: &str,
        replaces: Option<CertificateIdentifier<'static>>,
    ) -> Result<Certificate, Failure> {
        let client = self.client();
        let order = Order {
            account: &account::open(&self.acme, &self.storage, &client).await?,
            client: &client,
            storage: &self.storage,
            challenges: &self.challenges,
            kind: self.acme.challenge,
            name,
            replaces,
        };
        order.obtain().await
    }

    fn install(&self, index: usize, certificate: Certificate, is_new: bool) {
        let mut entries = self.entries.borrow_mut();
        let entry = &mut entries[index];
        self.store.install(&entry.name, certificate.usable.clone());
        let validity = certificate.validity;
        let name = entry.name.clone();
        let (now, hurries) = (SystemTime::now(), entry.hurries);
        let new = Entry::new(name.clone(), Some(certificate), now);
        *entry = Entry { hurries, is_busy: true, ..new };
        // By a clock that is fast, a new certificate may be due already.
        entry.hurry(now);
        if !is_new {
            return;
        }
        self.counters.renewed.fetch_add(1, Ordering::Relaxed);
        let (until, again) = (date(validity.to), date(entry.due));
        let directory = &self.acme.directory;
        let message = format!(
            "got a certificate for {name} from {directory}, valid until {until}, \
             to be renewed at {again}"
        );
        let event = Event::new(Level::Notice, "certificate-obtained", message);
        (self.report)(&event.with("name", name).with("until", until));
    }

    fn fail(&self, index: usize, failure: &Failure) {
        let mut entries = self.entries.borrow_mut();
        let entry = &mut entries[index];
        entry.failures = entry.failures.saturating_add(1);
        let pause =
            schedule::pause(failure.kind, entry.failures, failure.asked, schedule::jitter());
        entry.due = SystemTime::now() + pause;
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
        let meanwhile = match &entry.certificate {
            Some(one) if one.validity.to > SystemTime::now() => {
                format!("the certificate in use is valid until {}", date(one.validity.to))
            }
            Some(one) => format!("the certificate in use has ended at {}", date(one.validity.to)),
            None => "clients cannot connect by that name until there is one".to_owned(),
        };
        let (name, directory) = (&entry.name, &self.acme.directory);
        let pause = humantime::format_duration(Duration::from_secs(pause.as_secs()));
        let message = format!(
            "no certificate for {name} from {directory}: {failure}; {meanwhile}; \
             the next attempt is in {pause}"
        );
        let event = Event::new(Level::Error, "renewal-failed", message);
        (self.report)(&event.with("name", name.as_str()).with("failures", entry.failures));
    }

    /// Asks the authority when it wants a certificate to be renewed.
    async fn ask(&self, index: usize) {
        let (identifier, validity) = {
            let entries = self.entries.borrow();
            let certificate = entries[index].certificate.as_ref();
            let of = |one: &Certificate| Some((one.identifier.clone()?, one.validity));
            let Some(asked) = certificate.and_then(of) else { return };
            asked
        };
        let answer = self.suggestion(&identifier).await;
        let mut entries = self.entries.borrow_mut();
        let entry = &mut entries[index];
        let pause = match answer {
            Ok(Some((start, end, pause))) => {
                // A window that has not changed keeps the time that was chosen in it.
                if entry.due < start || entry.due > end {
                    entry.due = schedule::suggested(start, end, validity, schedule::jitter());
                    let now = SystemTime::now();
                    let life = validity.to.duration_since(validity.from).unwrap_or_default();
                    match now < validity.from + life / 10 {
                        true => entry.hurry(now),
                        false => entry.hurries = 0,
                    }
                }
                pause.clamp(SUGGESTIONS.0, SUGGESTIONS.1)
            }
            Ok(None) => SUGGESTIONS.1,
            Err(failure) => {
                let (name, directory) = (&entry.name, &self.acme.directory);
                let message = format!(
                    "asking {directory} when to renew the certificate for {name}: {failure}"
                );
                let event = Event::new(Level::Info, "renewal-suggestion-failed", message);
                (self.report)(&event.with("name", name.as_str()));
                SUGGESTION.mul_f64(1.0 + schedule::jitter() / 4.0)
            }
        };
        entry.question = SystemTime::now() + pause;
    }

    /// Returns the window that the authority suggests, and the time until the next question;
    /// `None` if the authority makes no suggestions.
    async fn suggestion(
        &self,
        identifier: &CertificateIdentifier<'_>,
    ) -> Result<Option<(SystemTime, SystemTime, Duration)>, Failure> {
        let client = self.client();
        let account = account::open(&self.acme, &self.storage, &client).await?;
        match account.renewal_info(identifier).await {
            Ok((info, pause)) => {
                let window = info.suggested_window;
                Ok(Some((window.start.into(), window.end.into(), pause)))
            }
            Err(Error::Unsupported(_)) => Ok(None),
            Err(error) => {
                Err(Failure::at_step("asking for the renewal information", &error, &client))
            }
        }
    }
}

/// Returns a time for people and programs.
fn date(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_has_a_folder() {
        for (directory, expected) in [
            ("https://acme.example/dir", "acme.example-dir"),
            ("https://[::1]:14000/a/../b?c", "---1--14000-a-..-b-c"),
        ] {
            assert_eq!(folder(directory), expected);
        }
    }
}
