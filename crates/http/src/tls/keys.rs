//! The keys of one direction of a connection.

use std::fmt;

use ring::aead::{self, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use ring::error::Unspecified;
use ring::hkdf;
use zeroize::Zeroizing;

/// The secret of a direction; the rest of it is zeros.
pub(super) type Secret = Zeroizing<[u8; LONGEST_SECRET]>;

/// Returns a secret of these bytes.
pub(super) fn secret(bytes: &[&[u8]]) -> Secret {
    let mut secret = Zeroizing::new([0; LONGEST_SECRET]);
    let mut at = 0;
    for part in bytes {
        secret[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    secret
}

/// The length of a key, for ring.
struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// Makes bytes of a traffic secret, as `HKDF-Expand-Label` does without a context (RFC 8446,
/// section 7.1).
fn expand(prk: &hkdf::Prk, label: &[u8], to: &mut [u8]) {
    const PREFIX: &[u8] = b"tls13 ";
    // No length here is more than 48.
    let [length, label_length] = [to.len(), PREFIX.len() + label.len()].map(|length| length as u8);
    let info: [&[u8]; 5] = [&[0, length], &[label_length], PREFIX, label, &[0]];
    let made = prk.expand(&info, Length(to.len())).and_then(|okm| okm.fill(to));
    made.expect("HKDF makes a few bytes");
}

/// The key and the initialisation vector of a direction.
#[derive(PartialEq)]
pub(super) struct RawKey {
    pub key: Zeroizing<[u8; 32]>,
    pub key_len: usize,
    pub iv: Zeroizing<[u8; IV]>,
}

impl RawKey {
    /// Returns a key with the two parts of its initialisation vector; the rest of it is zeros.
    pub(super) fn new(bytes: &[u8], [fixed, rest]: [&[u8]; 2]) -> RawKey {
        let (mut key, mut iv) = (Zeroizing::new([0; 32]), Zeroizing::new([0; IV]));
        key[..bytes.len()].copy_from_slice(bytes);
        iv[..fixed.len()].copy_from_slice(fixed);
        iv[fixed.len()..fixed.len() + rest.len()].copy_from_slice(rest);
        RawKey { key, key_len: bytes.len(), iv }
    }

    /// Returns those of a secret.
    pub(super) fn derive(suite: Suite, secret: &Secret) -> RawKey {
        let key_len = suite.algorithm().key_len();
        let (mut key, mut iv) = (Zeroizing::new([0; 32]), Zeroizing::new([0; IV]));
        if suite.is_tls13 {
            let prk = hkdf::Prk::new_less_safe(suite.hkdf(), &secret[..suite.secret_len()]);
            expand(&prk, b"key", &mut key[..key_len]);
            expand(&prk, b"iv", &mut iv[..]);
        } else {
            key[..key_len].copy_from_slice(&secret[..key_len]);
            iv.copy_from_slice(&secret[key_len..key_len + IV]);
        }
        RawKey { key, key_len, iv }
    }
}

/// One direction of a connection.
pub(super) struct Direction {
    suite: Suite,
    secret: Secret,
    key: LessSafeKey,
    iv: Zeroizing<[u8; IV]>,
    /// The number of the next record.
    number: u64,
}

impl Direction {
    pub(super) fn new(suite: Suite, secret: Secret, number: u64) -> Direction {
        let raw = RawKey::derive(suite, &secret);
        Direction::with_key(suite, secret, raw, number)
    }

    /// Returns one whose key was made of the secret already.
    pub(super) fn with_key(suite: Suite, secret: Secret, raw: RawKey, number: u64) -> Direction {
        let RawKey { key, key_len, iv } = raw;
        let key = UnboundKey::new(suite.algorithm(), &key[..key_len]);
        let key = LessSafeKey::new(key.expect("the key has the length of the cipher's keys"));
        Direction { suite, secret, key, iv, number }
    }

    /// Returns the secret, and the number of the next record.
    pub(super) fn state(&self) -> (&Secret, u64) {
        (&self.secret, self.number)
    }

    /// Returns how many more records may be sealed with this key.
    pub(super) fn left(&self) -> u64 {
        self.suite.most_records().saturating_sub(self.number)
    }

    /// Continues with the next secret (RFC 8446, section 7.2).
    pub(super) fn update(&mut self) {
        let length = self.suite.secret_len();
        let prk = hkdf::Prk::new_less_safe(self.suite.hkdf(), &self.secret[..length]);
        let mut next = Zeroizing::new([0; LONGEST_SECRET]);
        expand(&prk, b"traffic upd", &mut next[..length]);
        *self = Direction::new(self.suite, next, 0);
    }

    /// Spends a number. Nothing is sealed or opened with it again, whatever comes of it.
    fn spend(&mut self) -> u64 {
        let number = self.number;
        self.number += 1;
        number
    }

    /// Returns the initialisation vector combined with a number.
    fn nonce(&self, number: u64) -> [u8; IV] {
        let mut nonce = *self.iv;
        for (byte, part) in nonce[IV - 8..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= part;
        }
        nonce
    }

    /// Returns the additional data of a record: its header, or what TLS 1.2 has in its place.
    fn additional(&self, number: u64, header: [u8; 5], text_len: usize) -> ([u8; 13], usize) {
        let mut data = [0; 13];
        if self.suite.is_tls13 {
            data[..5].copy_from_slice(&header);
            return (data, 5);
        }
        data[..8].copy_from_slice(&number.to_be_bytes());
        data[8..11].copy_from_slice(&header[..3]);
        // A record is shorter than 2^16 bytes.
        data[11..].copy_from_slice(&(text_len as u16).to_be_bytes());
        (data, 13)
    }

    /// Seals the text in place, which stands after the room for the explicit nonce, and returns
    /// its tag.
    pub(super) fn seal(&mut self, header: [u8; 5], body: &mut [u8]) -> Result<Tag, Unspecified> {
        let number = self.spend();
        let nonce = self.nonce(number);
        let explicit = self.suite.explicit_nonce();
        let (head, text) = body.split_at_mut(explicit);
        head.copy_from_slice(&nonce[IV - explicit..]);
        let (data, length) = self.additional(number, header, text.len());
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_separate_tag(nonce, Aad::from(&data[..length]), text)
    }

    /// Opens the body of a record in place; the text is then at the body's beginning, and this is
    /// its length.
    pub(super) fn open(&mut self, header: [u8; 5], body: &mut [u8]) -> Result<usize, Unspecified> {
        let number = self.spend();
        let explicit = self.suite.explicit_nonce();
        let text_len = body.len().checked_sub(explicit + self.suite.algorithm().tag_len());
        let text_len = text_len.ok_or(Unspecified)?;
        let mut nonce = self.nonce(number);
        if explicit > 0 {
            nonce[..IV - explicit].copy_from_slice(&self.iv[..IV - explicit]);
            nonce[IV - explicit..].copy_from_slice(&body[..explicit]);
        }
        let (data, length) = self.additional(number, header, text_len);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let text = self.key.open_within(nonce, Aad::from(&data[..length]), body, explicit..)?;
        Ok(text.len())
    }
}

impl fmt::Debug for Direction {
    /// Shows no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Direction { suite, number, .. } = self;
        f.debug_struct("Direction").field("suite", suite).field("number", number).finish()
    }
}

// The ciphers of records.

/// A version of TLS with a cipher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Suite {
    pub is_tls13: bool,
    pub cipher: Cipher,
}

/// An authenticated cipher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cipher {
    Aes128Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

/// The bytes of a cipher's initialisation vector.
pub(super) const IV: usize = 12;

/// The bytes of the longest secret of a direction.
pub(super) const LONGEST_SECRET: usize = 48;

/// The records that AES-GCM may seal with one key (rustls' `confidentiality_limit`).
const GCM_RECORDS: u64 = 1 << 24;

impl Suite {
    const ALL: [Suite; 6] = {
        const fn of(is_tls13: bool, cipher: Cipher) -> Suite {
            Suite { is_tls13, cipher }
        }
        [
            of(true, Cipher::Aes128Gcm),
            of(true, Cipher::Aes256Gcm),
            of(true, Cipher::ChaCha20Poly1305),
            of(false, Cipher::Aes128Gcm),
            of(false, Cipher::Aes256Gcm),
            of(false, Cipher::ChaCha20Poly1305),
        ]
    };

    /// Returns its number in the state for a successor.
    pub(super) fn number(self) -> u8 {
        let place = Suite::ALL.iter().position(|suite| *suite == self);
        place.and_then(|place| u8::try_from(place).ok()).unwrap_or(u8::MAX)
    }

    /// Returns the suite with a number.
    pub(super) fn numbered(number: u8) -> Option<Suite> {
        Suite::ALL.get(usize::from(number)).copied()
    }

    /// Returns the cipher as ring knows it.
    pub(super) fn algorithm(self) -> &'static aead::Algorithm {
        match self.cipher {
            Cipher::Aes128Gcm => &aead::AES_128_GCM,
            Cipher::Aes256Gcm => &aead::AES_256_GCM,
            Cipher::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }

    /// Returns the function that keys of TLS 1.3 are made with.
    pub(super) fn hkdf(self) -> hkdf::Algorithm {
        match self.cipher {
            Cipher::Aes256Gcm => hkdf::HKDF_SHA384,
            Cipher::Aes128Gcm | Cipher::ChaCha20Poly1305 => hkdf::HKDF_SHA256,
        }
    }

    /// Returns the bytes of a direction's secret: of TLS 1.3 the traffic secret, of TLS 1.2 the key
    /// and the initialisation vector.
    pub(super) fn secret_len(self) -> usize {
        match (self.is_tls13, self.cipher) {
            (true, Cipher::Aes256Gcm) => 48,
            (true, _) => 32,
            (false, _) => self.algorithm().key_len() + IV,
        }
    }

    /// Returns the bytes of a nonce that are written into each record.
    pub(super) fn explicit_nonce(self) -> usize {
        match (self.is_tls13, self.cipher) {
            (true, _) | (false, Cipher::ChaCha20Poly1305) => 0,
            (false, _) => 8,
        }
    }

    /// Returns by how many bytes a record is longer than its text, without its header and padding.
    pub(super) fn overhead(self) -> usize {
        self.explicit_nonce() + self.algorithm().tag_len() + usize::from(self.is_tls13)
    }

    /// Returns the number of records that may be sealed with one key.
    pub(super) fn most_records(self) -> u64 {
        match self.cipher {
            Cipher::Aes128Gcm | Cipher::Aes256Gcm => GCM_RECORDS,
            // The number itself must not begin again.
            Cipher::ChaCha20Poly1305 => u64::MAX,
        }
    }
}
