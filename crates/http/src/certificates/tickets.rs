//! Session tickets: a client keeps one so that its next handshake is a short one.
//!
//! A ticket is encrypted with a key that only servers know. The keys here are made of secrets that
//! can be handed to the next server, so that an upgrade does not cost each client a full handshake;
//! rustls' own ticketer keeps its keys to itself. A secret makes tickets for six hours and opens
//! them for six more: whoever learns it can read the resumed connections of that time, if they were
//! recorded.
//!
//! A listener's keys depend on the certificates that it asks of its clients. The identity of a
//! client is in its ticket, and a listener must not believe another one's.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_rustls::rustls::server::ProducesTickets;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf;
use ring::rand::{SecureRandom, SystemRandom};
use zeroize::Zeroizing;

use crate::unix_time::seconds_now;

/// The seconds in which a secret makes tickets, and those in which it opens them.
const MAKES: u64 = 6 * 60 * 60;
const OPENS: u64 = 2 * MAKES;

/// The most secrets that are accepted from another server. There are three at most, of which one is
/// about to end.
const MOST: usize = 8;

/// The bytes of a secret, of a key, and of a key's name.
const SECRET: usize = 32;
const NAME: usize = 16;

/// The bytes of a secret in a record: the time from which on it makes tickets, and the secret.
const ENTRY: usize = 8 + SECRET;

/// The longest ticket that is looked at. A client's certificates are in its ticket.
const LONGEST: usize = 32 << 10;

/// Keeps secrets for the next server.
type Keep = Box<dyn Fn(&[u8]) + Send + Sync>;

/// A secret that keys of tickets are made of.
#[derive(Clone)]
struct Secret {
    /// In seconds of Unix time.
    since: u64,
    bytes: Zeroizing<[u8; SECRET]>,
}

#[derive(Default)]
struct TicketState {
    /// The newest is the last.
    secrets: Vec<Secret>,
    /// How often they have changed.
    changes: u64,
    keep: Option<Keep>,
    /// Gives them to the other processes of the server.
    share: Option<Keep>,
}

/// The secrets of a server, which all its listeners share.
#[derive(Default)]
pub struct TicketSecrets(Mutex<TicketState>);

impl TicketState {
    /// Drops secrets that are too old, and makes another one if none is young enough.
    fn renew(&mut self, now: u64) -> Option<()> {
        let is_younger = |secret: &Secret, than: u64| now.saturating_sub(secret.since) < than;
        let is_due = !self.secrets.last().is_some_and(|last| is_younger(last, MAKES));
        if !is_due {
            return Some(());
        }
        self.secrets.retain(|secret| is_younger(secret, OPENS));
        let mut bytes = Zeroizing::new([0; SECRET]);
        SystemRandom::new().fill(&mut bytes[..]).ok()?;
        self.secrets.push(Secret { since: now, bytes });
        self.changed();
        Some(())
    }

    fn changed(&mut self) {
        self.changes += 1;
        for takes in self.keep.iter().chain(&self.share) {
            takes(&self.record());
        }
    }

    fn record(&self) -> Zeroizing<Vec<u8>> {
        let mut record = Zeroizing::new(Vec::with_capacity(self.secrets.len() * ENTRY));
        for Secret { since, bytes } in &self.secrets {
            record.extend_from_slice(&since.to_le_bytes());
            record.extend_from_slice(&bytes[..]);
        }
        record
    }
}

/// Whether the newest secret of a record is newer than that of another.
pub fn is_newer(record: &[u8], than: &[u8]) -> bool {
    let newest = |record: &[u8]| {
        let (entries, _) = record.as_chunks::<ENTRY>();
        let since = |entry: &[u8; ENTRY]| Some(u64::from_le_bytes(*entry.first_chunk()?));
        entries.iter().filter_map(since).max()
    };
    newest(record) > newest(than)
}

impl TicketSecrets {
    fn state(&self) -> MutexGuard<'_, TicketState> {
        // No code that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Continues with the secrets of another server. A record that makes no sense is ignored:
    /// clients then make full handshakes.
    pub fn adopt(&self, record: &[u8]) {
        self.adopt_at(seconds_now(), record);
    }

    fn adopt_at(&self, now: u64, record: &[u8]) {
        let (entries, rest) = record.as_chunks::<ENTRY>();
        if !rest.is_empty() || entries.len() > MOST {
            return;
        }
        let mut state = self.state();
        state.secrets = entries
            .iter()
            .filter_map(|entry| {
                let (since, bytes) = entry.split_first_chunk()?;
                let bytes = Zeroizing::new(bytes.try_into().ok()?);
                Some(Secret { since: u64::from_le_bytes(*since), bytes })
            })
            // By a clock that was wrong, one would be in use until that time.
            .filter(|secret| secret.since <= now.saturating_add(MAKES))
            .collect();
        state.secrets.sort_by_key(|secret| secret.since);
        state.changes += 1;
        if let Some(keep) = &state.keep {
            keep(&state.record());
        }
    }

    /// Gives them to the other processes of the server from now on, when this one makes new ones.
    pub fn share_by(&self, share: impl Fn(&[u8]) + Send + Sync + 'static) {
        let mut state = self.state();
        if !state.secrets.is_empty() {
            share(&state.record());
        }
        state.share = Some(Box::new(share));
    }

    /// Keeps the secrets for the next server from now on.
    pub fn keep_by(&self, keep: impl Fn(&[u8]) + Send + Sync + 'static) {
        let mut state = self.state();
        keep(&state.record());
        state.keep = Some(Box::new(keep));
    }

    /// Keeps them for no other server any more.
    pub fn keep_no_more(&self) {
        self.state().keep = None;
    }
}

// Shows no secret.
superpoll::debug_fields!(TicketSecrets, it => secrets: it.state().secrets.len());

/// A key of tickets, and its name, with which each of its tickets begins.
struct TicketKey {
    name: [u8; NAME],
    key: LessSafeKey,
}

/// The lengths of a name and a key together, for ring.
struct Lengths;

impl hkdf::KeyType for Lengths {
    fn len(&self) -> usize {
        NAME + SECRET
    }
}

impl TicketKey {
    fn derive(secret: &Secret, purpose: &[u8]) -> Option<TicketKey> {
        let prk =
            hkdf::Salt::new(hkdf::HKDF_SHA256, b"superpoll tickets").extract(&secret.bytes[..]);
        let mut made = Zeroizing::new([0; NAME + SECRET]);
        prk.expand(&[purpose], Lengths).ok()?.fill(&mut made[..]).ok()?;
        let key = UnboundKey::new(&CHACHA20_POLY1305, &made[NAME..]).ok()?;
        Some(TicketKey { name: made[..NAME].try_into().ok()?, key: LessSafeKey::new(key) })
    }

    fn encrypt(&self, text: &[u8]) -> Option<Vec<u8>> {
        // At random: a counter would say how many handshakes there were.
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let start = NAME + NONCE_LEN;
        let mut ticket = Vec::with_capacity(start + text.len() + CHACHA20_POLY1305.tag_len());
        ticket.extend_from_slice(&self.name);
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(text);
        let (nonce, aad) = (Nonce::assume_unique_for_key(nonce), Aad::from(self.name));
        let sealed = self.key.seal_in_place_separate_tag(nonce, aad, &mut ticket[start..]);
        ticket.extend_from_slice(sealed.ok()?.as_ref());
        (ticket.len() <= LONGEST).then_some(ticket)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let rest = ticket.strip_prefix(&self.name)?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let (nonce, aad) = (Nonce::assume_unique_for_key(*nonce), Aad::from(self.name));
        let mut text = sealed.to_vec();
        let length = self.key.open_in_place(nonce, aad, &mut text).ok()?.len();
        text.truncate(length);
        Some(text)
    }
}

/// The keys of a listener's tickets, the newest last, and the number of changes of the secrets that
/// they were made of.
#[derive(Default)]
struct Keys {
    all: Vec<TicketKey>,
    changes: u64,
}

/// Makes and opens the tickets of a listener.
pub(super) struct Ticketer {
    secrets: Arc<TicketSecrets>,
    purpose: Vec<u8>,
    keys: Mutex<Keys>,
}

impl Ticketer {
    /// Creates a ticketer. Those with another purpose do not open its tickets.
    pub(super) fn new(secrets: Arc<TicketSecrets>, purpose: Vec<u8>) -> Ticketer {
        Ticketer { secrets, purpose, keys: Mutex::default() }
    }

    /// Calls a function with the keys of a time.
    fn with_keys<R>(&self, now: u64, act: impl FnOnce(&[TicketKey]) -> Option<R>) -> Option<R> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.secrets.state();
        state.renew(now)?;
        if keys.changes != state.changes {
            let all = state.secrets.iter().map(|secret| TicketKey::derive(secret, &self.purpose));
            *keys = Keys { all: all.collect::<Option<_>>()?, changes: state.changes };
        }
        drop(state);
        act(&keys.all)
    }

    fn encrypt_at(&self, now: u64, text: &[u8]) -> Option<Vec<u8>> {
        self.with_keys(now, |keys| keys.last()?.encrypt(text))
    }

    fn decrypt_at(&self, now: u64, ticket: &[u8]) -> Option<Vec<u8>> {
        if ticket.len() > LONGEST {
            return None;
        }
        self.with_keys(now, |keys| keys.iter().rev().find_map(|key| key.decrypt(ticket)))
    }
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        u32::try_from(OPENS).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, text: &[u8]) -> Option<Vec<u8>> {
        self.encrypt_at(seconds_now(), text)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.decrypt_at(seconds_now(), ticket)
    }
}

// Shows no secret.
superpoll::debug_fields!(Ticketer, it => secrets: it.secrets);

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000;

    fn ticketer(secrets: &Arc<TicketSecrets>, purpose: &str) -> Ticketer {
        Ticketer::new(secrets.clone(), purpose.into())
    }

    #[test]
    fn a_ticket_is_opened_for_twelve_hours_and_by_its_purpose_alone() {
        let secrets: Arc<TicketSecrets> = Arc::default();
        let (one, other) = (ticketer(&secrets, "one"), ticketer(&secrets, "other"));
        let ticket = one.encrypt_at(NOW, b"session").unwrap();
        assert!(!ticket.windows(7).any(|window| window == b"session"));
        assert_ne!(one.encrypt_at(NOW, b"session").unwrap(), ticket);
        assert_eq!(other.decrypt_at(NOW, &ticket), None);
        for later in [0, MAKES - 1, MAKES, OPENS - 1] {
            assert_eq!(one.decrypt_at(NOW + later, &ticket).as_deref(), Some(&b"session"[..]));
            // The keys change every six hours, as clients come.
            assert!(one.encrypt_at(NOW + later, b"another").is_some());
        }
        assert!(one.encrypt_at(NOW + OPENS + MAKES, b"another").is_some());
        assert_eq!(one.decrypt_at(NOW + OPENS + MAKES, &ticket), None);
        // A clock that was set back.
        let ticket = one.encrypt_at(NOW - 5, b"session").unwrap();
        assert!(one.decrypt_at(NOW, &ticket).is_some());
    }

    #[test]
    fn a_changed_ticket_is_none() {
        let one = ticketer(&Arc::default(), "one");
        let ticket = one.encrypt_at(NOW, b"session").unwrap();
        for index in 0..ticket.len() {
            let mut wrong = ticket.clone();
            wrong[index] ^= 1;
            assert_eq!(one.decrypt_at(NOW, &wrong), None);
            assert_eq!(one.decrypt_at(NOW, &ticket[..index]), None);
        }
        assert_eq!(one.decrypt_at(NOW, &vec![0; LONGEST + 1]), None);
        assert_eq!(one.encrypt_at(NOW, &vec![0; LONGEST]), None);
    }

    #[test]
    fn processes_that_share_secrets_open_the_tickets_of_each_other() {
        let (first, second) = (Arc::<TicketSecrets>::default(), Arc::<TicketSecrets>::default());
        let (one, other) = (ticketer(&first, "one"), ticketer(&second, "one"));
        let shared: Arc<Mutex<Vec<u8>>> = Arc::default();
        let records = shared.clone();
        first.share_by(move |record| *records.lock().unwrap() = record.to_vec());
        let ticket = one.encrypt_at(NOW, b"session").unwrap();
        assert_eq!(other.decrypt_at(NOW, &ticket), None);
        let before = shared.lock().unwrap().clone();
        assert!(is_newer(&before, &[]) && !is_newer(&before, &before));
        second.adopt_at(NOW, &before);
        assert_eq!(other.decrypt_at(NOW, &ticket).as_deref(), Some(&b"session"[..]));
        // Those that are made later are shared, too, and open the tickets of before.
        let later = one.encrypt_at(NOW + MAKES, b"later").unwrap();
        let after = shared.lock().unwrap().clone();
        assert!(is_newer(&after, &before) && !is_newer(&before, &after));
        second.adopt_at(NOW + MAKES, &after);
        assert_eq!(other.decrypt_at(NOW + MAKES, &later).as_deref(), Some(&b"later"[..]));
        assert!(other.decrypt_at(NOW + MAKES, &ticket).is_some());
    }

    #[test]
    fn another_server_opens_the_tickets_with_the_secrets_that_were_kept() {
        let (first, second) = (Arc::<TicketSecrets>::default(), Arc::<TicketSecrets>::default());
        let kept: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let records = kept.clone();
        first.keep_by(move |record| records.lock().unwrap().push(record.to_vec()));
        let one = ticketer(&first, "one");
        let old = one.encrypt_at(NOW, b"old").unwrap();
        let new = one.encrypt_at(NOW + MAKES, b"new").unwrap();
        let records = kept.lock().unwrap();
        assert_eq!(records.iter().map(Vec::len).collect::<Vec<_>>(), [0, ENTRY, 2 * ENTRY]);
        second.adopt_at(NOW + MAKES, &records[2]);
        let next = ticketer(&second, "one");
        assert_eq!(next.decrypt_at(NOW + MAKES, &old).as_deref(), Some(&b"old"[..]));
        assert_eq!(next.decrypt_at(NOW + MAKES, &new).as_deref(), Some(&b"new"[..]));
        // What makes no sense changes nothing.
        second.adopt_at(NOW + MAKES, b"?");
        second.adopt_at(NOW + MAKES, &vec![0; ENTRY * (MOST + 1)]);
        assert!(next.decrypt_at(NOW + MAKES, &new).is_some());
        // Nor does a secret of a far future.
        second.adopt_at(NOW - 2 * MAKES, &records[2]);
        assert_eq!(second.state().secrets.len(), 0);
        assert!(!format!("{next:?} {second:?}").contains(&format!("{:?}", &records[1][8..12])));
    }
}
