//! A certificate with its key: the text in which both are stored, and the facts in it that decide
//! about its use.

use std::time::SystemTime;

use futures_rustls::rustls::pki_types::pem::PemObject;
use futures_rustls::rustls::pki_types::{CertificateDer, Der, ServerName};
use instant_acme::CertificateIdentifier;
use superpoll_http::certificates;
use webpki::EndEntityCert;
use yasna::models::{ObjectIdentifier, TaggedDerValue};
use yasna::{ASN1Result, BERReader, Tag};

use crate::automatic_error::IssuedError;

/// The most certificates in a chain.
const LONGEST_CHAIN: usize = 16;

/// The extension with the identifier of the authority's key (RFC 5280, section 4.2.1.1).
const AUTHORITY_KEY_IDENTIFIER: [u64; 4] = [2, 5, 29, 35];

/// The times at which a certificate becomes valid and ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Validity {
    pub from: SystemTime,
    pub to: SystemTime,
}

/// A certificate that the server can use.
#[derive(Clone, Debug)]
pub(super) struct Certificate {
    /// For handshakes.
    pub usable: certificates::Certificate,
    pub validity: Validity,
    /// The name of the certificate for the authority's renewal information (RFC 9773), if the
    /// certificate names its issuer's key.
    pub identifier: Option<CertificateIdentifier<'static>>,
}

impl Certificate {
    /// Reads a certificate for a name, with its issuers and its key; `what` stands for the texts
    /// in errors.
    pub(super) fn parse(
        what: &'static str,
        name: &str,
        chain: &str,
        key: &str,
    ) -> Result<Certificate, IssuedError> {
        let count = CertificateDer::pem_slice_iter(chain.as_bytes()).take(LONGEST_CHAIN + 1);
        if count.count() > LONGEST_CHAIN {
            return Err(IssuedError::TooLong { what, most: LONGEST_CHAIN });
        }
        let usable = certificates::Certificate::from_pem(what, chain, key)?;
        let first = CertificateDer::from_pem_slice(chain.as_bytes())
            .map_err(|source| IssuedError::Malformed { what, source })?;
        let asked = ServerName::try_from(name).ok().zip(EndEntityCert::try_from(&first).ok());
        let verified = asked.map(|(name, one)| one.verify_is_valid_for_subject_name(&name));
        if !matches!(verified, Some(Ok(()))) {
            let (names, wanted) = (usable.names().to_vec(), name.to_owned());
            return Err(IssuedError::OtherNames { what, names, wanted });
        }
        let validity = Validity { from: usable.not_before(), to: usable.not_after() };
        let identifier = identifier(&first).ok().flatten();
        Ok(Certificate { usable, validity, identifier })
    }
}

#[cfg(test)]
impl Validity {
    /// Whether a moment is in it.
    pub(super) fn contains(&self, moment: SystemTime) -> bool {
        self.from <= moment && moment < self.to
    }
}

/// Returns the serial number and the issuer's key of a certificate. webpki, which reads everything
/// else, keeps the latter to itself.
fn identifier(certificate: &[u8]) -> ASN1Result<Option<CertificateIdentifier<'static>>> {
    let (serial, authority) = yasna::parse_der(certificate, |reader| {
        reader.read_sequence(|reader| {
            let found = reader.next().read_sequence(|reader| {
                // The version.
                reader.read_optional(|reader| {
                    reader.read_tagged(Tag::context(0), |reader| reader.read_u8())
                })?;
                let serial = reader.next().read_tagged_der()?.value().to_vec();
                // The algorithm, the issuer, the time, the subject and its key.
                for _ in 0..5 {
                    reader.next().read_der()?;
                }
                for identifier in [1, 2] {
                    reader.read_optional(|reader| {
                        let tag = Tag::context(identifier);
                        reader.read_tagged_implicit(tag, |reader| reader.read_bitvec_bytes())
                    })?;
                }
                let mut authority = None;
                reader.read_optional(|reader| {
                    reader.read_tagged(Tag::context(3), |reader| {
                        reader.read_sequence_of(|reader| {
                            authority = authority_in(reader)?.or(authority.take());
                            Ok(())
                        })
                    })
                })?;
                Ok((serial, authority))
            })?;
            // The algorithm and the signature.
            reader.next().read_der()?;
            reader.next().read_der()?;
            Ok(found)
        })
    })?;
    Ok(authority.map(|authority| {
        let (authority, serial) = (Der::from_slice(&authority), Der::from_slice(&serial));
        CertificateIdentifier::new(authority, serial).into_owned()
    }))
}

/// Returns the issuer's key, if an extension is the one that has it.
fn authority_in(reader: BERReader<'_, '_>) -> ASN1Result<Option<Vec<u8>>> {
    let (kind, value) = reader.read_sequence(|reader| {
        let kind = reader.next().read_oid()?;
        reader.read_optional(|reader| reader.read_bool())?;
        Ok((kind, reader.next().read_bytes()?))
    })?;
    if kind != ObjectIdentifier::from_slice(&AUTHORITY_KEY_IDENTIFIER) {
        return Ok(None);
    }
    let key = parts(&value)?.into_iter().find(|part| part.tag() == Tag::context(0));
    Ok(key.map(|key| key.value().to_vec()))
}

/// Returns the parts of a sequence.
fn parts(sequence: &[u8]) -> ASN1Result<Vec<TaggedDerValue>> {
    yasna::parse_der(sequence, |reader| {
        reader.collect_sequence_of(|reader| reader.read_tagged_der())
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{CertificateParams, KeyPair, SerialNumber};
    use time::OffsetDateTime;

    use super::*;

    fn made(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    #[test]
    fn facts_are_those_of_the_certificate() {
        let (chain, key) = made(&["a.example", "b.example", "127.0.0.1", "::1"], |params| {
            params.not_before = OffsetDateTime::from_unix_timestamp(1_700_000_000).unwrap();
            // Beyond 2049, times have another form.
            params.not_after = OffsetDateTime::from_unix_timestamp(3_000_000_000).unwrap();
            params.serial_number = Some(SerialNumber::from(vec![0x80, 1, 2]));
            params.use_authority_key_identifier_extension = true;
        });
        let after = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let validity = Validity { from: after(1_700_000_000), to: after(3_000_000_000) };
        for name in ["a.example", "B.example", "127.0.0.1", "::1"] {
            let certificate = Certificate::parse("it", name, &chain, &key).unwrap();
            assert_eq!(certificate.validity, validity);
            let identifier = certificate.identifier.unwrap();
            // With the zero that keeps the number positive, as RFC 9773 wants.
            assert_eq!(identifier.serial, "AIABAg");
            assert_eq!(
                data_encoding::BASE64URL_NOPAD
                    .decode(identifier.authority_key_identifier.as_bytes())
                    .unwrap()
                    .len(),
                20
            );
        }
        assert!(validity.contains(after(1_700_000_000)));
        assert!(!validity.contains(after(3_000_000_000)));
    }

    #[test]
    fn what_cannot_be_used_is_refused_in_words() {
        let (chain, key) = made(&["a.example"], |_| ());
        let (_, other) = made(&["a.example"], |_| ());
        let cut = chain.replacen("MI", "MA", 1);
        let many = chain.repeat(17);
        for (name, chain, key, expected) in [
            (
                "b.example",
                &chain,
                &key,
                "it is for the names \"a.example\" instead of \"b.example\"",
            ),
            ("127.0.0.1", &chain, &key, "instead of"),
            ("a.example", &chain, &other, "does not belong to"),
            ("a.example", &key, &key, "no certificate"),
            ("a.example", &String::new(), &key, "no certificate"),
            ("a.example", &cut, &key, "cannot be used"),
            ("a.example", &many, &key, "more than 16"),
            ("a.example", &chain, &chain, "no private key"),
        ] {
            let error = Certificate::parse("it", name, chain, key).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>, at: usize, byte: u8) {
            let _ = identifier(&bytes);
            let (chain, _) = made(&["a.example"], |_| ());
            let mut der = CertificateDer::from_pem_slice(chain.as_bytes()).unwrap().to_vec();
            let at = at % der.len();
            der[at] = byte;
            let _ = identifier(&der);
            der.truncate(at);
            identifier(&der).unwrap_err();
        }
    }
}
