//! Certificates of TLS: loading them, choosing one for a client, and replacing them while the
//! server runs.
//!
//! Each listener with TLS has a [`CertificateStore`]. The store holds certificates under labels;
//! installing one under a label that is in use replaces the former certificate, and the next
//! handshake has the new one. Connections that exist are not touched: TLS looks at a certificate
//! only during the handshake. A certificate from files has the path of the file as its label, and
//! [`Watch`] installs it again when the files change.
//!
//! The store chooses by the name in the client's greeting (SNI): a certificate with exactly that
//! name takes precedence over one with a wildcard for it, and an earlier certificate over a later
//! one. The names are those of the certificate itself (subjectAltName), because the client accepts
//! no other name. The first certificate answers clients that send no name or an unknown name, as in
//! nginx: the client can then report which certificate it got.
//!
//! Sessions are kept by clients, as [tickets](TicketSecrets).
//!
//! A client that speaks no other protocol than `acme-tls/1` is a certificate authority that
//! validates a name (RFC 8737). It gets the certificate that [`ChallengeCertificates`] has for that
//! name, or none, and the connection ends with the handshake.

mod error;
mod load;
mod server_config;
mod store;
mod subject;
#[cfg(test)]
mod tests;
mod tickets;
mod watch;

pub use error::{CertificateError, PemKind, UntimelyReason, UnusableReason};
pub use load::{Certificate, chain, key};
pub use server_config::ClientCertificate;
pub use server_config::server_config;
pub use store::CertificateStore;
pub use store::Issue;
pub use store::{ACME_TLS, ChallengeCertificates};
pub use tickets::{TicketSecrets, is_newer};
pub use watch::{CertificateStatus, KnownCertificates, Watch};
