//! Key exchanges: those of ring, and one that quantum computers do not break.
//!
//! X25519MLKEM768 (draft-ietf-tls-ecdhe-mlkem) combines X25519 with ML-KEM-768: an attacker who
//! records a connection today must break both. Browsers offer it. ring has no ML-KEM; graviola has
//! it, for processors with these instructions.

use futures_rustls::rustls::crypto::{CryptoProvider, ring};

/// Returns the algorithms of handshakes.
pub(super) fn provider() -> CryptoProvider {
    let mut provider = ring::default_provider();
    #[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
    if is_able() {
        provider.kx_groups.insert(0, rustls_graviola::kx::X25519MLKEM768);
    }
    provider
}

/// Whether the processor has the instructions of graviola.
#[cfg(target_arch = "x86_64")]
fn is_able() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("adx")
        && has!("aes")
        && has!("avx")
        && has!("avx2")
        && has!("bmi1")
        && has!("bmi2")
        && has!("pclmulqdq")
        && has!("ssse3")
}

/// Whether the processor has the instructions of graviola.
#[cfg(target_arch = "aarch64")]
fn is_able() -> bool {
    use std::arch::is_aarch64_feature_detected as has;
    has!("aes") && has!("neon") && has!("pmull") && has!("sha2")
}

#[cfg(test)]
mod tests {
    use futures_rustls::rustls::NamedGroup;

    use super::*;

    /// A client that knows the new exchange gets it, and others are served as ever.
    #[test]
    fn the_new_exchange_comes_first_where_the_processor_allows_it() {
        let groups: Vec<NamedGroup> = provider().kx_groups.iter().map(|one| one.name()).collect();
        let classic = [NamedGroup::X25519, NamedGroup::secp256r1, NamedGroup::secp384r1];
        assert!(groups.ends_with(&classic), "{groups:?}");
        let is_first = groups[0] == NamedGroup::X25519MLKEM768;
        #[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
        assert_eq!(is_first, is_able());
        assert_eq!(groups.len(), classic.len() + usize::from(is_first));
    }
}
