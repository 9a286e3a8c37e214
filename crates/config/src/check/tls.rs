//! The rules of encryption: towards clients and towards servers.

use std::ops::Range;
use std::path::PathBuf;

use rustls_pki_types::ServerName;
use toml::Spanned;

use super::Check;
use crate::address::Address;
use crate::dns::ServerAddress;
use crate::encryption::{CertificateFiles, ClientCertificates, Tls};
use crate::model::{Server, UpstreamTls};
use crate::raw;
use crate::resource::{Place, Resource};

impl Check<'_> {
    pub(super) fn tls(&mut self, tls: Spanned<raw::Tls>, is_relay: bool) -> Option<Tls> {
        let place = tls.span();
        let raw::Tls(mut raw) = tls.into_inner();
        let alpn = raw.alpn.take().map_or_else(Vec::new, |alpn| {
            if !is_relay {
                self.no_protocols_of_http(alpn.span());
            }
            self.protocols(alpn.into_inner())
        });
        let automatic = self.automatic(&place, &mut raw);
        let mut certificates = Vec::new();
        let has_own = raw.certificate.is_some() || raw.key.is_some();
        if !has_own && raw.certificates.is_empty() && automatic.is_none() {
            let what = "tls without files, expected certificate = FILE and key = FILE, acme = \"MAIL\" or \"internal\"";
            self.missing(place.clone(), what);
        }
        if has_own {
            certificates.extend(self.certificate(place.clone(), raw.certificate, raw.key));
        }
        for pair in raw.certificates {
            let (place, pair) = (pair.span(), pair.into_inner());
            certificates.extend(self.certificate(place, pair.certificate, pair.key));
        }
        for (index, files) in certificates.iter().enumerate() {
            if certificates[..index].iter().any(|other| other.certificate == files.certificate) {
                let what =
                    format!("the certificate {} is named twice", files.certificate.display());
                self.wrong(place.clone(), format!("{what}, expected each certificate once"));
            }
        }
        let client = self.client_certificates(raw.client_ca, raw.client_certificates);
        (!certificates.is_empty() || automatic.is_some()).then_some(Tls {
            certificates,
            automatic,
            min_version: raw.min_version,
            client,
            alpn,
        })
    }

    /// Checks a certificate and its key.
    fn certificate(
        &mut self,
        place: Range<usize>,
        certificate: Option<Spanned<PathBuf>>,
        key: Option<Spanned<PathBuf>>,
    ) -> Option<CertificateFiles> {
        let what = match (certificate, key) {
            (Some(certificate), Some(key)) => return Some(self.pair(certificate, key)),
            (Some(_), None) => "a certificate without a key, expected key = FILE next to it",
            (None, Some(_)) => {
                "a key without a certificate, expected certificate = FILE next to it"
            }
            (None, None) => {
                "a certificate without files, expected certificate = FILE and key = FILE"
            }
        };
        self.missing(place, what);
        None
    }

    fn pair(&mut self, certificate: Spanned<PathBuf>, key: Spanned<PathBuf>) -> CertificateFiles {
        let (place, key_place) = (certificate.span(), key.span());
        let certificate = self.resolved(certificate.into_inner());
        let files = CertificateFiles { certificate, key: self.resolved(key.into_inner()) };
        self.needs(place, Resource::KeyPair { files: files.clone(), key: Place(key_place) });
        files
    }

    fn client_certificates(
        &mut self,
        ca: Option<Spanned<PathBuf>>,
        rule: Option<Spanned<raw::ClientCertificates>>,
    ) -> Option<ClientCertificates> {
        let Some(ca) = ca else {
            if let Some(rule) = rule {
                let what = "certificates of clients that no authority vouches for";
                self.missing(rule.span(), format!("{what}, expected client_ca = FILE next to it"));
            }
            return None;
        };
        let place = ca.span();
        let ca = self.resolved(ca.into_inner());
        self.needs(place, Resource::Authorities(ca.clone()));
        let rule = rule.map_or(raw::ClientCertificates::Required, Spanned::into_inner);
        Some(ClientCertificates { ca, is_required: rule == raw::ClientCertificates::Required })
    }

    pub(super) fn upstream_tls(
        &mut self,
        tls: Spanned<raw::UpstreamTls>,
        servers: &[Server],
    ) -> Option<UpstreamTls> {
        let place = tls.span();
        let raw::UpstreamTls { ca, server_name, certificate, key, alpn } = tls.into_inner();
        let alpn = self.protocols(alpn);
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(self.pair(certificate, key)),
            (Some(certificate), None) => {
                let what = "a certificate for the servers without its key";
                self.missing(certificate.span(), format!("{what}, expected key = FILE next to it"));
                None
            }
            (None, Some(key)) => {
                let what = "a key without the certificate for the servers";
                self.missing(key.span(), format!("{what}, expected certificate = FILE next to it"));
                None
            }
            (None, None) => None,
        };
        match &server_name {
            Some(name) if ServerName::try_from(name.get_ref().as_str()).is_err() => {
                let what = format!("{:?} is no name of a server", name.get_ref());
                self.wrong(name.span(), format!("{what}, expected one as \"example.org\""));
            }
            None if servers.iter().any(|server| {
                matches!(server.address, ServerAddress::Address(Address::Unix(_)))
            }) =>
            {
                let what = "a server in the Unix domain has no name that a certificate could have";
                self.missing(place.clone(), format!("{what}, expected server_name = NAME"));
            }
            _ => {}
        }
        let Some(ca) = ca else {
            let what = "tls without certificates that vouch for the servers";
            self.missing(place, format!("{what}, expected ca = FILE"));
            return None;
        };
        let ca = self.resolved(ca);
        let server_name = server_name.map(Spanned::into_inner);
        Some(UpstreamTls { ca, server_name, identity, alpn })
    }
}
