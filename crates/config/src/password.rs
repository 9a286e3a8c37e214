//! Hashes of passwords, in the forms that `htpasswd`, `mkpasswd` and `argon2` write.
//!
//! | form | beginning | made by |
//! |---|---|---|
//! | bcrypt | `$2y$`, `$2b$`, `$2a$` | `htpasswd -B` |
//! | Argon2 | `$argon2id$`, `$argon2i$`, `$argon2d$` | `argon2 SALT -id -e` |
//! | SHA-crypt | `$6$`, `$5$` | `htpasswd -5`, `mkpasswd -m sha-512` |
//!
//! Older forms (MD5, SHA-1, DES, no hash) are refused: a password can be guessed from them at
//! millions of tries a second. The libraries compare in constant time.
//!
//! Whoever writes a hash chooses the work of each verification. So there is a bound for each form,
//! which is about a second of one processor and 128 MiB; a hash beyond it is refused when the
//! configuration is read.

use std::error::Error;
use std::fmt;

use argon2::Argon2;
use argon2::password_hash::phc;
use sha_crypt::{PasswordHashRef, PasswordVerifier, ShaCrypt};

/// The longest text of a hash, in bytes.
const LONGEST: usize = 256;

/// The highest cost of bcrypt, which is a power of two.
const BCRYPT_COST: u32 = 14;

/// The most memory of Argon2, in KiB.
const ARGON2_MEMORY: u32 = 128 << 10;

/// The most memory of Argon2 times its passes, in KiB.
const ARGON2_WORK: u64 = 1 << 20;

/// The most rounds of SHA-crypt.
const SHA_ROUNDS: u32 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Bcrypt,
    Argon2,
    ShaCrypt,
}

/// The hash of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    form: Form,
    text: Box<str>,
}

/// Shows the form alone.
impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.form {
            Form::Bcrypt => "bcrypt",
            Form::Argon2 => "Argon2",
            Form::ShaCrypt => "SHA-crypt",
        })
    }
}

const EXPECTED: &str = "expected bcrypt ($2y$, as from: htpasswd -nB USER), Argon2 ($argon2id$) or SHA-crypt ($6$, $5$)";

/// The reason for which a text is no hash of a password. It has nothing of the text.
#[derive(thiserror::Error, Debug)]
pub enum PasswordHashError {
    /// It is longer than any hash.
    #[error("the hash of a password is longer than {LONGEST} bytes")]
    TooLong,
    /// It is of a form from which a password can be guessed, which is named.
    #[error("{0} is too weak for passwords, {EXPECTED}")]
    Weak(&'static str),
    /// It is of no form that is known.
    #[error("this is no known hash of a password, {EXPECTED}")]
    Unknown,
    /// It begins as a form does, which is named, and is not in that form.
    #[error(
        "this is no hash of {form}{}, {EXPECTED}",
        .source.as_ref().map_or_else(String::new, |source| format!(": {source}"))
    )]
    Malformed {
        /// The name of the form.
        form: &'static str,
        /// The mistake, if the form has a reader that names it.
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// It has no salt or no sum; the name of its form.
    #[error("this is no hash of {0}: it has no salt or no hash, {EXPECTED}")]
    Incomplete(&'static str),
    /// A verification by bcrypt of this cost takes too long, or is too weak.
    #[error("a cost of {0} is not usable, expected 4 to {BCRYPT_COST}")]
    BcryptCost(u32),
    /// A verification by Argon2 takes too much memory or time.
    #[error(
        "m={memory},t={passes} takes too much memory or time, expected m of at most \
         {ARGON2_MEMORY}, and m times t of at most {ARGON2_WORK}"
    )]
    Argon2Work {
        /// The memory, in KiB.
        memory: u32,
        /// How often it is filled.
        passes: u32,
    },
    /// A verification by SHA-crypt of so many rounds takes too long, or is too weak.
    #[error(
        "rounds={0} is not usable, expected {least} to {SHA_ROUNDS}",
        least = sha_crypt::Params::ROUNDS_MIN
    )]
    ShaRounds(u32),
}

impl PasswordHash {
    /// Reads a hash.
    ///
    /// # Errors
    ///
    /// Its form is not known, or a verification takes too long. The text has nothing of the hash.
    pub fn parse(text: &str) -> Result<PasswordHash, PasswordHashError> {
        if text.len() > LONGEST {
            return Err(PasswordHashError::TooLong);
        }
        let id = text.strip_prefix('$').and_then(|rest| rest.split('$').next()).unwrap_or("");
        let form = match id {
            "2a" | "2b" | "2y" => bcrypt_is_usable(text).map(|()| Form::Bcrypt),
            "argon2id" | "argon2i" | "argon2d" => argon2_is_usable(text).map(|()| Form::Argon2),
            "5" | "6" => sha_crypt_is_usable(text).map(|()| Form::ShaCrypt),
            "apr1" | "1" => Err(PasswordHashError::Weak("MD5")),
            _ if text.starts_with("{SHA}") => Err(PasswordHashError::Weak("SHA-1")),
            _ => Err(PasswordHashError::Unknown),
        };
        Ok(PasswordHash { form: form?, text: text.into() })
    }

    /// Whether it is the hash of a password. This takes long, by intent.
    #[must_use]
    pub fn verify(&self, password: &[u8]) -> bool {
        match self.form {
            Form::Bcrypt => bcrypt::verify(password, &self.text).unwrap_or(false),
            Form::Argon2 => Argon2::default().verify_password(password, &*self.text).is_ok(),
            Form::ShaCrypt => ShaCrypt::default().verify_password(password, &*self.text).is_ok(),
        }
    }
}

fn bcrypt_is_usable(text: &str) -> Result<(), PasswordHashError> {
    let parts = text.parse::<bcrypt::HashParts>().map_err(|error| malformed("bcrypt", error))?;
    match parts.get_cost() {
        cost @ (0..=3 | BCRYPT_COST_ABOVE..) => Err(PasswordHashError::BcryptCost(cost)),
        _ => Ok(()),
    }
}

fn malformed(form: &'static str, error: impl Error + Send + Sync + 'static) -> PasswordHashError {
    PasswordHashError::Malformed { form, source: Some(error.into()) }
}

/// The lowest cost that is refused.
const BCRYPT_COST_ABOVE: u32 = BCRYPT_COST + 1;

fn argon2_is_usable(text: &str) -> Result<(), PasswordHashError> {
    let hash = phc::PasswordHash::new(text).map_err(|error| malformed("Argon2", error))?;
    let parameters = argon2::Params::try_from(&hash).map_err(|error| malformed("Argon2", error))?;
    if hash.salt.is_none() || hash.hash.is_none() {
        return Err(PasswordHashError::Incomplete("Argon2"));
    }
    let (memory, passes) = (parameters.m_cost(), parameters.t_cost());
    if memory > ARGON2_MEMORY || u64::from(memory) * u64::from(passes) > ARGON2_WORK {
        return Err(PasswordHashError::Argon2Work { memory, passes });
    }
    Ok(())
}

fn sha_crypt_is_usable(text: &str) -> Result<(), PasswordHashError> {
    let wrong = || PasswordHashError::Malformed { form: "SHA-crypt", source: None };
    let hash = PasswordHashRef::new(text).map_err(|_| wrong())?;
    let mut fields = hash.fields().map(|field| field.as_str()).peekable();
    if let Some(rounds) = fields.peek().and_then(|field| field.strip_prefix("rounds=")) {
        let rounds = rounds.parse::<u32>().map_err(|_| wrong())?;
        if !(sha_crypt::Params::ROUNDS_MIN..=SHA_ROUNDS).contains(&rounds) {
            return Err(PasswordHashError::ShaRounds(rounds));
        }
        fields.next();
    }
    let (salt, sum, end) = (fields.next(), fields.next(), fields.next());
    let length = if text.starts_with("$5$") { 43 } else { 86 };
    let is_whole = salt.is_some() && end.is_none() && sum.is_some_and(|sum| sum.len() == length);
    is_whole.then_some(()).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes of libxcrypt and OpenSSL, and two of the test vectors of Argon2's reference, with
    /// their passwords.
    const KNOWN: &[(&str, &str)] = &[
        ("secret", "$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW"),
        ("secret", "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA"),
        (
            "secret",
            "$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN\
             .Pq.H91p5hVO1",
        ),
        (
            "secret",
            "$6$rounds=2000$xyz$3T009sOzDnTWJO3kYCVe/IR1WHa6Nnzvtqa4aJp.OFP/QRbHqtgHsuJLVeTtvLTyXM\
             r41xaLu9ty/52rJyPuA/",
        ),
        (
            "password",
            "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
        ),
        (
            "password",
            "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
        ),
    ];

    #[test]
    fn hashes_of_other_programs_are_verified() {
        for (password, text) in KNOWN {
            let hash = PasswordHash::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(hash.verify(password.as_bytes()), "{text}");
            for other in ["", "Secret", &password[1..], &format!("{password} ")] {
                assert!(!hash.verify(other.as_bytes()), "{text} {other:?}");
            }
            assert!(!format!("{hash:?}").contains('$'));
            // A hash that lacks its end, or has more, is no hash.
            assert!(PasswordHash::parse(&text[..text.len() - 1]).is_err(), "{text}");
            assert!(PasswordHash::parse(&format!("{text}$x")).is_err(), "{text}");
        }
    }

    #[test]
    fn weak_expensive_and_unknown_hashes_are_refused() {
        let bcrypt = |cost: u32| KNOWN[0].1.replace("$04$", &format!("${cost:02}$"));
        let argon2 = |parameters: &str| KNOWN[4].1.replace("m=256,t=2,p=1", parameters);
        let sha = |rounds: &str| KNOWN[3].1.replace("2000", rounds);
        assert!(PasswordHash::parse(&bcrypt(14)).is_ok());
        assert!(PasswordHash::parse(&argon2("m=131072,t=8,p=1")).is_ok());
        assert!(PasswordHash::parse(&sha("1000000")).is_ok());
        for (text, why) in [
            (bcrypt(3), "a cost of 3"),
            (bcrypt(15), "a cost of 15"),
            (bcrypt(99), "a cost of 99"),
            (argon2("m=131073,t=1,p=1"), "too much memory"),
            (argon2("m=131072,t=9,p=1"), "too much memory or time"),
            (argon2("m=0,t=1,p=1"), "no hash of Argon2"),
            ("$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ".to_owned(), "no salt or no hash"),
            (sha("999"), "rounds=999"),
            (sha("1000001"), "rounds=1000001"),
            (sha("x"), "no hash of SHA-crypt"),
            ("$6$salt".to_owned(), "no hash of SHA-crypt"),
            ("$apr1$x$y".to_owned(), "MD5 is too weak"),
            ("{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=".to_owned(), "SHA-1 is too weak"),
            ("secret".to_owned(), "no known hash"),
            (String::new(), "no known hash"),
            ("$".repeat(300), "longer than 256"),
        ] {
            let error = PasswordHash::parse(&text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
            assert!(text.len() < 20 || !error.contains(&text[20..]), "{error}");
        }
    }
}
