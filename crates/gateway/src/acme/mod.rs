//! Certificates that the server gets by itself: by ACME (RFC 8555), or from an authority of its
//! own.
//!
//! For each listener with `tls = { acme = ... }` one task of the first engine gets a certificate
//! for each name of the hosts, renews them, and installs them in the listener's store; handshakes
//! find them there, without a reload. A name has a certificate of its own, so that a name whose DNS
//! is wrong keeps no other name from its certificate.
//!
//! A failure changes nothing but the time of the next attempt: the certificate that is in use stays
//! in use. Until there is one, handshakes end with an alert. A certificate that no client trusts
//! would only teach people to ignore warnings.
//!
//! | module | purpose |
//! |---|---|
//! | `renewals` | the tasks: when each name is due, and the outcome of an attempt |
//! | `schedule` | times of renewals and pauses after failures, without a clock |
//! | `order` | one order, from a name to a certificate, over restarts |
//! | `account` | the account at the authority |
//! | `challenges` | answers to an authority that verifies a name |
//! | `certificate` | a certificate and the facts in it |
//! | `http` | requests to an authority, on our runtime and within limits |
//! | `storage` | the folder with keys and certificates |
//! | `internal` | the own authority, for `localhost` |

mod account;
mod certificate;
mod challenges;
mod http;
mod internal;
mod order;
mod renewals;
mod schedule;
mod storage;

use std::sync::Arc;

use superpoll_rt::Handle;

pub(crate) use challenges::Challenges;
pub(crate) use renewals::{Plan, RenewalCounters};
use superpoll_http::certificates::CertificateStore;
use superpoll_http::log::Report;

use crate::automatic_error::AutomaticError;
use crate::config::{self, Address, Host};
use internal::Authority;
use renewals::Running;

/// The certificates that a server gets by itself, for all its listeners.
#[derive(Default, Debug)]
pub(crate) struct Automatic {
    pub(crate) challenges: Arc<Challenges>,
    pub(crate) counters: Arc<RenewalCounters>,
    running: Vec<Running>,
}

impl Automatic {
    /// Creates the store of a listener, with the certificates that are stored. The plan gets the
    /// missing ones, and renews all; `shared` are the answers of the server to authorities.
    ///
    /// # Errors
    ///
    /// The folder of certificates or the certificates of the authority cannot be used.
    pub(crate) fn open(
        shared: &Arc<Challenges>,
        automatic: &config::Automatic,
        hosts: &[Host],
        listener: &Address,
    ) -> Result<(Arc<CertificateStore>, Option<Plan>), AutomaticError> {
        match automatic {
            config::Automatic::Acme(acme) => {
                let challenges = shared.certificates().clone();
                let store = CertificateStore::new(Some(challenges));
                let (names, _) = acme.names(hosts, listener)?;
                let plan = Plan::open(acme, names, store.clone(), shared.clone())?;
                Ok((store, Some(plan)))
            }
            config::Automatic::Internal(internal) => {
                let names = hosts.iter().flat_map(|host| host.names.iter().cloned()).collect();
                let authority = Authority::open(internal, names)?;
                Ok((CertificateStore::issued_by(Arc::new(authority)), None))
            }
        }
    }

    /// Checks the parts that exist before the server has started.
    ///
    /// # Errors
    ///
    /// As [`open`](Automatic::open).
    pub(crate) fn check(
        automatic: &config::Automatic,
        hosts: &[Host],
        listener: &Address,
    ) -> Result<(), AutomaticError> {
        match automatic {
            config::Automatic::Acme(acme) => {
                acme.names(hosts, listener)?;
                http::connector(acme.directory_ca.as_deref()).map(drop)
            }
            config::Automatic::Internal(_) => Ok(()),
        }
    }

    /// Gets and renews certificates by these plans from now on, and by no others. Names whose last
    /// attempt failed are tried again.
    ///
    /// # Errors
    ///
    /// If the runtime has ended.
    pub(crate) fn start(
        &mut self,
        plans: Vec<Plan>,
        handle: &Handle,
        report: &Report,
    ) -> Result<(), superpoll_rt::Error> {
        self.end();
        for plan in plans {
            let running = plan.start(handle, report.clone(), self.counters.clone())?;
            self.running.push(running);
        }
        Ok(())
    }

    /// Ends all work. An order under way is gone on with by the next server.
    pub(crate) fn end(&mut self) {
        self.running.clear();
    }
}
