//! The parts of a certificate that a server looks at: its names and its time.

use std::time::{Duration, SystemTime};

use futures_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, Error, KeyUsage};

/// Names and time of a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Facts {
    /// The DNS names in lower case; `*.` at the start stands for one label.
    pub(super) names: Vec<String>,
    /// When the certificate begins to be valid.
    pub(super) not_before: SystemTime,
    /// When the certificate ceases to be valid.
    pub(super) not_after: SystemTime,
}

impl Facts {
    /// Reads a certificate; the error says why that is impossible.
    pub(super) fn read(certificate: &CertificateDer<'_>) -> Result<Facts, String> {
        let parsed = EndEntityCert::try_from(certificate).map_err(|error| error.to_string())?;
        let names = parsed.valid_dns_names().map(str::to_ascii_lowercase).collect();
        let (not_before, not_after) = validity(&parsed)?;
        Ok(Facts { names, not_before, not_after })
    }
}

/// Returns from when and until when a certificate is valid.
///
/// webpki has no function for this, but its errors state both. It looks at the time before it looks
/// for an issuer, so the verification needs no root, and ends with one of these two errors. A
/// parser of our own, or another library, would be a second reader of the same bytes.
fn validity(certificate: &EndEntityCert<'_>) -> Result<(SystemTime, SystemTime), String> {
    let verify_at = |time: u64| {
        let time = UnixTime::since_unix_epoch(Duration::from_secs(time));
        let usage = KeyUsage::server_auth();
        certificate.verify_for_usage(&[], &[], &[], time, usage, None, None).err()
    };
    // No certificate reaches into the year 10000: its form of a time has four digits.
    let not_after = match verify_at(u64::from(u32::MAX) * 100) {
        Some(Error::CertExpired { not_after, .. }) => not_after.as_secs(),
        Some(error) => return Err(error.to_string()),
        None => return Err("its time cannot be read".to_owned()),
    };
    let not_before = match verify_at(0) {
        Some(Error::CertNotValidYet { not_before, .. }) => not_before.as_secs(),
        // Valid at the beginning of the clock already.
        _ => 0,
    };
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    Ok((at(not_before), at(not_after)))
}
