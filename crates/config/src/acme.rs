//! Certificates that the server gets by itself: the settings.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::Deserialize;

/// The directory of Let's Encrypt.
pub(super) const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// The source of certificates that the server gets by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Automatic {
    /// A certificate authority that speaks ACME.
    Acme(Acme),
    /// The server's own authority, for `localhost` and development.
    Internal(Internal),
}

/// Certificates by ACME (RFC 8555) for the names of all hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acme {
    /// The address that the certificate authority writes to about problems; may be empty. The
    /// account's owner agrees to the authority's terms of service.
    pub email: String,
    /// The URL of the authority's directory. Default: that of Let's Encrypt.
    pub directory: String,
    /// A PEM file of the certificates that the authority's own server is verified with. Default:
    /// those of the system.
    pub directory_ca: Option<PathBuf>,
    /// How the authority verifies that a name leads to this server. Default: `tls-alpn-01`.
    pub challenge: ChallengeKind,
    /// The folder for keys and certificates. Default: that of the service manager
    /// (`$STATE_DIRECTORY`), else `superpoll` in the user's folder for state.
    pub storage: Option<PathBuf>,
    /// The account at the authority that a new account is bound to. Default: none.
    pub account: Option<ExternalAccount>,
}

impl Default for Acme {
    fn default() -> Acme {
        Acme {
            email: String::new(),
            directory: LETS_ENCRYPT.to_owned(),
            directory_ca: None,
            challenge: ChallengeKind::default(),
            storage: None,
            account: None,
        }
    }
}

superpoll::named! {
    /// How a certificate authority verifies that a name leads to this server.
    #[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
    pub enum ChallengeKind {
        /// By a handshake on port 443 (RFC 8737). The default.
        #[default]
        #[serde(rename = "tls-alpn-01")]
        TlsAlpn01 = "tls-alpn-01",
        /// By a request on port 80.
        #[serde(rename = "http-01")]
        Http01 = "http-01",
    }
}

/// An account that a customer has at the authority (RFC 8555, section 7.3.4).
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExternalAccount {
    /// The identifier of the key.
    pub id: String,
    /// A file with the key, in base64url as the authority shows it.
    pub key: PathBuf,
}

/// Certificates of the server's own authority.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Internal {
    /// As [`Acme::storage`].
    pub storage: Option<PathBuf>,
}

/// Whether a name is one of this machine, or has no other names below it that the DNS could have.
#[must_use]
pub fn is_local(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    !name.contains('.') || name.ends_with(".localhost") || name.parse::<IpAddr>().is_ok()
}
