//! In the place of certificates that the server gets by itself, where the feature `acme` is off:
//! configurations that want them are refused.

use std::sync::Arc;

use superpoll_http::certificates::CertificateStore;
use superpoll_http::log::Report;
use superpoll_rt::Handle;

use crate::automatic_error::AutomaticError;
use crate::config::{self, Address, Host};

/// The certificates that a server would get by itself.
#[derive(Default, Debug)]
pub(crate) struct Automatic {
    pub(crate) challenges: Arc<Challenges>,
    pub(crate) counters: Arc<RenewalCounters>,
}

/// The answers to authorities that verify a name: none.
#[derive(Default, Debug)]
pub(crate) struct Challenges;

/// The outcomes of attempts to get a certificate: none.
#[derive(Default, Debug)]
pub(crate) struct RenewalCounters;

/// A plan to get certificates, which cannot be made.
#[derive(Debug)]
pub(crate) enum Plan {}

impl Challenges {
    pub(crate) fn answer(&self, _path: &str) -> Option<String> {
        None
    }
}

impl RenewalCounters {
    pub(crate) fn by_result(&self) -> [(&'static str, u64); 2] {
        [("success", 0), ("failure", 0)]
    }
}

impl Automatic {
    pub(crate) fn open(
        _shared: &Arc<Challenges>,
        _automatic: &config::Automatic,
        _hosts: &[Host],
        _listener: &Address,
    ) -> Result<(Arc<CertificateStore>, Option<Plan>), AutomaticError> {
        Err(AutomaticError::Absent)
    }

    pub(crate) fn check(
        _automatic: &config::Automatic,
        _hosts: &[Host],
        _listener: &Address,
    ) -> Result<(), AutomaticError> {
        Err(AutomaticError::Absent)
    }

    pub(crate) fn start(
        &mut self,
        _plans: Vec<Plan>,
        _handle: &Handle,
        _report: &Report,
    ) -> Result<(), superpoll_rt::Error> {
        Ok(())
    }

    pub(crate) fn end(&mut self) {}
}
