//! Tokens of every algorithm, and tokens and keys that are refused.

use data_encoding::BASE64URL_NOPAD;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PublicKeyData};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair};
use serde_json::json;

use super::*;

const SECRET: &[u8] = b"a secret of thirty-two bytes: 32";

/// A public key of RSA, and the signature of `{"sub":"joe"}` by its private key (made by openssl).
const RSA: &str = "-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAuyID/xIE+RF5vuuYqQcT
mg0y9/Rsfsh3/JcvCqPuX8DACHW37M8pCAz+T1SKs4TAHe5+xKqxet8PwMsOT+MB
GAXhl8gt0e7Oj2HgCs8VnnstVzy8eu38jmHYlqT4lPlVsPf9F4nzsCo6jjtffzty
zSDeB15Qvt8kJHDRMtojP/52KUq8y7AtGXRmRK1nRJ6SXaY84qsWOALtVoySaKf0
C+qhhR0vMPShRuvb5Tvf0DxALkZP5ZTdsCRBHIz/+Y+OxdKfh+/TwNmQ+f1Gs6Qb
I2WaqCX6605rf2+VLY/69WL0d5K/IZqjn/5cippeUAIVRFglB24zeqbezvUXVbAK
NQIDAQAB
-----END PUBLIC KEY-----
";
const RSA_SIGNATURE: &str = "sV0xOKzXomIc7jdBp1x0bfOTy8wNhwEzsqZ3G3coaAvHbZ8MpdEifBzRHiPuZtcU3CS6XmjYo0LKdq5ZxkxgMYtaICEWeOm83WsQNicZ5duSuKmjI7e7kiIGvB0_ZOgilfR-pkIg9PVQGG-CWNZYSHfT-tz47xyN-xtb0AtA1mbVYxDclHGB0QBgCtAOSwP99nWcLVmewXoOIpecYBhmb9OtSiDoW8F-10jDZIuyhOlrYgMPn5-OTYr65GtUmPn21JI3YFRfHvwtC4Zv5CT_TpD8ewb9-uP9oz1-bfqnzqRbZ4Af85gE9fZblf6yinReS6ZEVsrNx9A9haZ5RoZ0Lw";
/// The modulus of that key, as a set of keys has it.
const RSA_MODULUS: &str = "uyID_xIE-RF5vuuYqQcTmg0y9_Rsfsh3_JcvCqPuX8DACHW37M8pCAz-T1SKs4TAHe5-xKqxet8PwMsOT-MBGAXhl8gt0e7Oj2HgCs8VnnstVzy8eu38jmHYlqT4lPlVsPf9F4nzsCo6jjtffztyzSDeB15Qvt8kJHDRMtojP_52KUq8y7AtGXRmRK1nRJ6SXaY84qsWOALtVoySaKf0C-qhhR0vMPShRuvb5Tvf0DxALkZP5ZTdsCRBHIz_-Y-OxdKfh-_TwNmQ-f1Gs6QbI2WaqCX6605rf2-VLY_69WL0d5K_IZqjn_5cippeUAIVRFglB24zeqbezvUXVbAKNQ";
const RSA_1024: &str = "-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDNpP2GMWzlEYhJdzzrnvDZBTVl
T59Gha4dE4Enotoy8R3giQrwEg7yI4QdNO+5xYNg/j8gGjs9QYlECetRcgJzaVVh
DhCx0EXWlpsDQL8m38DfGH2tuJiX7tKQYfX43qvMlCH3GzGNkTFYXTOPrk6bbCHQ
hWiy1/tcg1UCNFKMRwIDAQAB
-----END PUBLIC KEY-----
";

fn encoded(json: &Value) -> String {
    BASE64URL_NOPAD.encode(json.to_string().as_bytes())
}

/// Returns a token with this header and these claims.
fn signed(header: &Value, claims: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let message = format!("{}.{}", encoded(header), encoded(claims));
    let signature = BASE64URL_NOPAD.encode(&sign(message.as_bytes()));
    format!("{message}.{signature}")
}

fn with_secret(secret: &[u8]) -> impl Fn(&[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    move |message| hmac::sign(&key, message).as_ref().to_vec()
}

/// Returns a token of HS256 with these claims.
fn token(claims: &Value) -> String {
    signed(&json!({ "alg": "HS256", "typ": "JWT" }), claims, with_secret(SECRET))
}

fn verifier(key: impl AsRef<[u8]>) -> Verifier {
    Verifier::with_key(key.as_ref(), None, Duration::from_secs(5)).unwrap()
}

fn now() -> u64 {
    crate::unix_time::seconds_now()
}

/// A key on P-256: its signer, and its public key as PEM.
fn p256() -> (impl Fn(&[u8]) -> Vec<u8>, KeyPair) {
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let random = SystemRandom::new();
    let der = pair.serialize_der();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &random).unwrap();
    (move |message: &[u8]| key.sign(&random, message).unwrap().as_ref().to_vec(), pair)
}

fn ed25519() -> (impl Fn(&[u8]) -> Vec<u8>, KeyPair) {
    let pair = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&pair.serialize_der()).unwrap();
    (move |message: &[u8]| key.sign(message).as_ref().to_vec(), pair)
}

#[test]
fn tokens_of_every_algorithm_are_verified() {
    let claims = json!({ "sub": "joe" });
    let rsa = signed(&json!({ "alg": "RS256", "typ": "JWT" }), &claims, |_| {
        BASE64URL_NOPAD.decode(RSA_SIGNATURE.as_bytes()).unwrap()
    });
    let (sign_p256, p256) = p256();
    let es256 = signed(&json!({ "alg": "ES256" }), &claims, sign_p256);
    let (sign_ed, ed) = ed25519();
    let eddsa = signed(&json!({ "alg": "EdDSA" }), &claims, sign_ed);
    let keys =
        [SECRET.to_vec(), RSA.into(), p256.public_key_pem().into(), ed.public_key_pem().into()];
    let tokens = [token(&claims), rsa, es256, eddsa];
    for (of_key, key) in keys.iter().enumerate() {
        let verifier = verifier(key);
        for (of_token, token) in tokens.iter().enumerate() {
            let outcome = verifier.verify(token).map(|claims| claims.all["sub"].clone());
            match of_key == of_token {
                true => assert_eq!(outcome, Ok("joe".into()), "{token}"),
                // A token never says which algorithm counts.
                false => assert_eq!(outcome, Err(TokenError::Algorithm), "{of_key} {token}"),
            }
            if of_key == of_token {
                // Any other character in the signature.
                let at = token.len() - 8;
                let other = if &token[at..=at] == "A" { "B" } else { "A" };
                let forged = format!("{}{other}{}", &token[..at], &token[at + 1..]);
                assert_eq!(verifier.verify(&forged).unwrap_err(), TokenError::Signature);
            }
        }
    }
}

#[test]
fn forged_tokens_are_refused() {
    let claims = json!({ "sub": "joe" });
    let with = |header: Value| signed(&header, &claims, with_secret(SECRET));
    let (_, pair) = p256();
    let pem = pair.public_key_pem();
    let none = signed(&json!({ "alg": "none" }), &claims, |_| Vec::new());
    let verifier = verifier(SECRET);
    for (token, expected) in [
        (none.clone(), TokenError::Malformed),
        (none.replace("..", "."), TokenError::Malformed),
        (with(json!({ "alg": "HS512" })), TokenError::Algorithm),
        (with(json!({ "alg": "none" })), TokenError::Malformed),
        (with(json!({ "typ": "JWT" })), TokenError::Malformed),
        (with(json!({ "alg": "HS256", "crit": ["b64"], "b64": false })), TokenError::Critical),
        (with(json!({ "alg": "HS256", "zip": "DEF" })), TokenError::Critical),
        (signed(&json!({ "alg": "HS256" }), &claims, with_secret(&[7; 32])), TokenError::Signature),
        (String::new(), TokenError::Malformed),
        ("a".to_owned(), TokenError::Malformed),
        ("a.b.c".to_owned(), TokenError::Malformed),
        ("\u{fffd}.\u{fffd}.\u{fffd}".to_owned(), TokenError::Malformed),
        (token(&json!("joe")), TokenError::Malformed),
        (token(&json!([1])), TokenError::Malformed),
        (token(&claims) + ".x", TokenError::Malformed),
        ("x".repeat(LARGEST + 1), TokenError::TooLarge),
        (token(&json!({ "x": "y".repeat(LARGEST) })), TokenError::TooLarge),
    ] {
        assert_eq!(verifier.verify(&token).unwrap_err(), expected, "{token:.200}");
    }
    // The public key is no secret, whatever a token says.
    let forged = signed(&json!({ "alg": "HS256" }), &claims, with_secret(pem.as_bytes()));
    let public = super::Verifier::with_key(pem.as_bytes(), None, Duration::ZERO).unwrap();
    assert_eq!(public.verify(&forged).unwrap_err(), TokenError::Algorithm);
    // A token with nearly the largest size is read.
    let large = token(&json!({ "x": "y".repeat(5000) }));
    assert!(large.len() < LARGEST && verifier.verify(&large).is_ok());
}

#[test]
fn times_are_checked_with_a_leeway() {
    let verifier = verifier(SECRET);
    for (claims, expected) in [
        (json!({}), Ok(None)),
        (json!({ "exp": now() + 600 }), Ok(Some(now() + 605))),
        (json!({ "exp": now() as f64 + 600.4 }), Ok(Some(now() + 605))),
        (json!({ "exp": now() - 600 }), Err(TokenError::Expired)),
        (json!({ "exp": 0 }), Err(TokenError::Expired)),
        (json!({ "exp": u64::MAX }), Ok(Some(u64::MAX))),
        (json!({ "exp": -1 }), Err(TokenError::Time)),
        (json!({ "exp": "tomorrow" }), Err(TokenError::Time)),
        (json!({ "exp": null }), Err(TokenError::Time)),
        (json!({ "nbf": now() }), Ok(None)),
        (json!({ "nbf": now() - 600, "exp": now() + 600 }), Ok(Some(now() + 605))),
        (json!({ "nbf": now() + 600 }), Err(TokenError::NotYetValid)),
        (json!({ "nbf": [] }), Err(TokenError::Time)),
    ] {
        let outcome = verifier.verify(&token(&claims)).map(|claims| claims.valid_until);
        let close = |one: Option<u64>, two: Option<u64>| match (one, two) {
            // A second may have passed.
            (Some(one), Some(two)) => one.abs_diff(two) <= 10,
            _ => one == two,
        };
        match (outcome, expected) {
            (Ok(one), Ok(two)) if close(one, two) => {}
            (outcome, expected) => assert_eq!(outcome, expected, "{claims}"),
        }
    }
    // Within the leeway.
    let until = verifier.verify(&token(&json!({ "exp": now() - 1 }))).unwrap().valid_until;
    assert!(until.is_some_and(|until| until >= now()));
}

#[test]
fn the_audience_has_to_be_the_one_of_the_channel() {
    let with = |audience: Option<&str>| {
        Verifier::with_key(SECRET, audience, Duration::from_secs(5)).unwrap()
    };
    let (chat, any) = (with(Some("chat")), with(None));
    for (claims, of_chat, of_any) in [
        (json!({ "aud": "chat" }), true, false),
        (json!({ "aud": ["mail", "chat"] }), true, false),
        (json!({ "aud": "mail" }), false, false),
        (json!({ "aud": ["mail"] }), false, false),
        (json!({ "aud": [] }), false, false),
        (json!({ "aud": 7 }), false, true),
        (json!({}), false, true),
    ] {
        for (verifier, expected) in [(&chat, of_chat), (&any, of_any)] {
            let outcome = verifier.verify(&token(&claims)).map(drop);
            let expected = if expected { Ok(()) } else { Err(TokenError::Audience) };
            assert_eq!(outcome, expected, "{claims}");
        }
    }
}

/// A set with a secret, a key on P-256, one on Ed25519, one of RSA, and keys for other purposes.
fn set(point: &[u8], ed: &[u8], ids: [Option<&str>; 4]) -> Value {
    let (x, y) = point[1..].split_at(32);
    let encode = |bytes: &[u8]| BASE64URL_NOPAD.encode(bytes);
    let mut keys = vec![
        json!({ "kty": "oct", "k": encode(SECRET), "alg": "HS256" }),
        json!({ "kty": "EC", "crv": "P-256", "x": encode(x), "y": encode(y), "use": "sig" }),
        json!({ "kty": "OKP", "crv": "Ed25519", "x": encode(ed) }),
        json!({ "kty": "RSA", "n": RSA_MODULUS, "e": "AQAB", "alg": "RS256" }),
    ];
    for (key, id) in keys.iter_mut().zip(ids) {
        if let Some(id) = id {
            key["kid"] = id.into();
        }
    }
    keys.extend([
        json!({ "kty": "RSA", "n": RSA_MODULUS, "e": "AQAB", "use": "enc", "kid": "enc" }),
        json!({ "kty": "RSA", "n": RSA_MODULUS, "e": "AQAB", "alg": "RS512", "kid": "rs512" }),
        json!({ "kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA", "kid": "k1" }),
        json!({ "kty": "AKP", "pub": "AA", "kid": "new" }),
    ]);
    json!({ "keys": keys })
}

#[test]
fn a_set_of_keys_has_the_key_that_a_token_names() {
    let ((sign_p256, p256), (sign_ed, ed)) = (p256(), ed25519());
    let (point, of_ed) = (p256.der_bytes(), ed.der_bytes());
    let read = |set: Value| {
        Verifier::with_set(set.to_string().as_bytes(), None, Duration::from_secs(5)).unwrap()
    };
    let named = read(set(point, of_ed, [Some("h"), Some("e"), Some("d"), Some("r")]));
    let claims = json!({ "sub": "joe" });
    let hs =
        |id: Value| signed(&json!({ "alg": "HS256", "kid": id }), &claims, with_secret(SECRET));
    let es = signed(&json!({ "alg": "ES256", "kid": "e" }), &claims, &sign_p256);
    let ed = signed(&json!({ "alg": "EdDSA", "kid": "d" }), &claims, &sign_ed);
    let point_as_secret =
        signed(&json!({ "alg": "HS256", "kid": "e" }), &claims, with_secret(point));
    for (token, expected) in [
        (hs("h".into()), Ok(())),
        (es.clone(), Ok(())),
        (ed, Ok(())),
        (hs("e".into()), Err(TokenError::Algorithm)),
        (point_as_secret, Err(TokenError::Algorithm)),
        (hs("x".into()), Err(TokenError::UnknownKey)),
        (hs("enc".into()), Err(TokenError::UnknownKey)),
        (hs("rs512".into()), Err(TokenError::UnknownKey)),
        (token(&claims), Err(TokenError::NoKeyNamed)),
    ] {
        assert_eq!(named.verify(&token).map(drop), expected, "{token}");
    }
    // RSA's token names no key, which is enough where there is but one.
    let rsa = format!(
        "{}.{}.{RSA_SIGNATURE}",
        encoded(&json!({ "alg": "RS256", "typ": "JWT" })),
        encoded(&claims)
    );
    assert_eq!(named.verify(&rsa).map(drop), Err(TokenError::NoKeyNamed));
    let one = json!({ "keys": [{ "kty": "RSA", "n": RSA_MODULUS, "e": "AQAB", "kid": "r" }] });
    assert_eq!(read(one.clone()).verify(&rsa).map(drop), Ok(()));
    assert_eq!(read(one).verify(&es).map(drop), Err(TokenError::UnknownKey));
    // Two keys with one name, as while one is replaced by the other.
    let twice = json!({ "keys": [
        { "kty": "oct", "k": BASE64URL_NOPAD.encode(&[7; 32]), "kid": "h" },
        { "kty": "oct", "k": BASE64URL_NOPAD.encode(SECRET), "kid": "h" },
    ] });
    assert_eq!(read(twice).verify(&hs("h".into())).map(drop), Ok(()));
}

#[test]
fn what_is_no_key_is_refused_with_the_reason() {
    let p384 = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    let p256 = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let certificate = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap().cert.pem();
    let pem = p256.public_key_pem();
    let bare = pem.replace("PUBLIC", "RSA PUBLIC");
    for (key, expected) in [
        (&b""[..], "empty, expected a secret"),
        (b"secret", "a secret of 6 bytes, expected at least 32"),
        (p384.public_key_pem().as_bytes(), "a public key of another kind"),
        (p256.serialize_pem().as_bytes(), "a private key, which only the signer of tokens needs"),
        (certificate.as_bytes(), "a certificate, expected its public key"),
        (bare.as_bytes(), "a PEM section RSA PUBLIC KEY"),
        (RSA_1024.as_bytes(), "an RSA key of 1024 bits, expected 2048 to 8192"),
        (&pem.as_bytes()[..80], "no PEM file of a public key"),
        (&p256.subject_public_key_info(), "a key in DER"),
        (b"-----BEGIN something or other\n", "a PEM section of another kind"),
        (b" {\"keys\": []} and more than thirty-two bytes", "JSON"),
    ] {
        let error = Verifier::with_key(key, None, Duration::ZERO).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let many = json!({ "keys": vec![json!({ "kty": "oct", "k": "AA" }); 101] }).to_string();
    for (set, expected) in [
        ("", "no set of keys"),
        ("[]", "no set of keys"),
        ("{\"keys\": 7}", "no set of keys"),
        ("{\"keys\": []}", "a set without a key"),
        ("{\"keys\": [{\"kty\":\"oct\",\"k\":\"AA\"}]}", "a set whose key 1 is a secret of 1 byte"),
        ("{\"keys\": [{\"kty\":\"oct\",\"k\":\"*\"}]}", "a set whose key 1 is no base64url"),
        (
            "{\"keys\": [{\"kty\":\"RSA\",\"n\":\"AQAB\",\"e\":\"AQAB\"}]}",
            "a set whose key 1 is an RSA",
        ),
        (
            "{\"keys\": [{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AA\",\"y\":\"AA\"}]}",
            "a set whose key 1",
        ),
        (&many, "a set of 101 keys"),
    ] {
        let error = Verifier::with_set(set.as_bytes(), None, Duration::ZERO).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn no_error_contains_the_key_or_the_token() {
    let error = Verifier::with_key(b"hunter2", None, Duration::ZERO).unwrap_err().to_string();
    assert!(!error.contains("hunter2"), "{error}");
    let verifier = verifier(SECRET);
    let token = signed(&json!({ "alg": "HS256" }), &json!({}), with_secret(&[7; 32]));
    let error = verifier.verify(&token).unwrap_err().to_string();
    assert!(token.split('.').all(|part| !error.contains(part)), "{error}");
    assert!(!format!("{verifier:?}").contains("secret"));
    let (one, other) = (self::verifier(SECRET), self::verifier([7; 32]));
    assert_ne!(one.fingerprint(), other.fingerprint());
}
