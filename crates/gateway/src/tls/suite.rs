//! The ciphers of records.

use ring::{aead, hkdf};

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
            // The number itself must not begin anew.
            Cipher::ChaCha20Poly1305 => u64::MAX,
        }
    }
}
