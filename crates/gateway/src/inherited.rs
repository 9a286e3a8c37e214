//! Sockets that listen before the server does.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use listenfd::ListenFd;
use superpoll_http::listen::{Bound, LeftListener, name_of_chosen};

use crate::config::Address;
use crate::processes::SupervisorLink;

/// Sockets that listen already, as a service manager (`sd_listen_fds(3)`), another server or a
/// supervisor passes them on.
#[derive(Debug, Default)]
pub struct Inherited {
    /// The sockets of a supervisor, by their addresses in the configuration.
    given: Vec<(Address, Bound)>,
    /// The connection to it.
    worker: Option<Arc<SupervisorLink>>,
    /// The sockets from the service manager that are not used yet.
    passed: Vec<Bound>,
    /// The sockets that another server has as well, with their names if the kernel has chosen their
    /// ports.
    left: Vec<(Bound, Option<String>)>,
    upgrades: bool,
}

impl Inherited {
    /// Takes the sockets that the environment names, once per process.
    ///
    /// # Errors
    ///
    /// If one of them is not a stream socket that listens.
    pub fn take() -> io::Result<Inherited> {
        let mut passed = ListenFd::from_env();
        let mut all = Vec::new();
        for index in 0..passed.len() {
            let bound = match passed.take_tcp_listener(index) {
                Ok(Some(listener)) => {
                    listener.set_nonblocking(true)?;
                    Some(Bound::of_tcp(listener)?)
                }
                Ok(None) => None,
                Err(_) => match passed.take_unix_listener(index)? {
                    Some(listener) => {
                        listener.set_nonblocking(true)?;
                        Some(Bound::Unix(listener, None))
                    }
                    None => None,
                },
            };
            all.extend(bound);
        }
        Ok(Inherited { passed: all, ..Inherited::default() })
    }

    /// Returns the sockets of a supervisor.
    pub(crate) fn by_supervisor(
        sockets: Vec<(Address, OwnedFd)>,
        worker: Arc<SupervisorLink>,
    ) -> io::Result<Inherited> {
        let mut inherited = Inherited { worker: Some(worker), ..Inherited::default() };
        inherited.give(sockets)?;
        Ok(inherited)
    }

    /// Takes the sockets of a supervisor, in the place of those that it has given before.
    pub(crate) fn give(&mut self, sockets: Vec<(Address, OwnedFd)>) -> io::Result<()> {
        self.given.clear();
        for (address, socket) in sockets {
            // Its file is the supervisor's.
            self.given.push((address, Bound::left(socket, false)?));
        }
        Ok(())
    }

    /// Closes the sockets of a supervisor that are not used.
    pub(crate) fn close_given(&mut self) {
        self.given.clear();
    }

    /// Returns the connection to the supervisor, if there is one.
    pub(crate) fn worker(&self) -> Option<&Arc<SupervisorLink>> {
        self.worker.as_ref()
    }

    /// Returns the same sockets for a server that takes over from one that is at work, with a
    /// keeper that both have.
    #[must_use]
    pub fn by_upgrade(self) -> Inherited {
        Inherited { upgrades: true, ..self }
    }

    pub(crate) fn upgrades(&self) -> bool {
        self.upgrades
    }

    /// Adds another server's listeners.
    pub(crate) fn add(&mut self, left: Vec<LeftListener>) {
        let bound = |left: LeftListener| {
            let bound = Bound::left(left.socket, left.has_file).ok()?;
            Some((bound, left.chosen))
        };
        self.left.extend(left.into_iter().filter_map(bound));
    }

    /// Returns the addresses of the sockets from the service manager that are not used yet.
    ///
    /// # Errors
    ///
    /// The kernel's error; `InvalidInput` for a socket of the Unix domain without a path.
    pub fn addresses(&self) -> io::Result<Vec<Address>> {
        let address = |bound: &Bound| match bound {
            Bound::Tcp(listener) => {
                let local = listener.local_addr()?;
                Ok(Address::Tcp { host: Some(local.ip().to_string()), port: local.port() })
            }
            Bound::Unix(listener, _) => match listener.local_addr()?.as_pathname() {
                Some(path) => Ok(Address::Unix(path.to_path_buf())),
                None => {
                    let what = "an inherited socket of the Unix domain has no path";
                    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
                }
            },
        };
        self.passed.iter().map(address).collect()
    }

    /// Refuses sockets from the service manager that no listener uses. Clients that connect there
    /// would wait for an answer that never comes, since the kernel continues accepting them.
    ///
    /// # Errors
    ///
    /// If there are any; the text has their addresses.
    pub fn all_used(&self) -> Result<(), String> {
        let addresses = self.addresses().map_err(|error| error.to_string())?;
        if addresses.is_empty() {
            return Ok(());
        }
        let all: Vec<String> = addresses.iter().map(Address::to_string).collect();
        Err(format!(
            "the service manager listens on {} for this process, and no listener has that address; name it here, or \
             take it out of the socket's unit",
            all.join(", ")
        ))
    }

    /// Takes the socket that listens on an address, if there is one.
    pub fn at(&mut self, address: &Address) -> Option<Bound> {
        if let Some(index) = self.given.iter().position(|(known, _)| known == address) {
            return Some(self.given.remove(index).1);
        }
        if let Some(index) = self.passed.iter().position(|bound| bound.is(address)) {
            return Some(self.passed.swap_remove(index));
        }
        let index = self.left.iter().position(|(bound, _)| bound.is(address))?;
        // The others stay in their order: several may have one name.
        Some(self.left.remove(index).0)
    }

    /// Takes the socket for which the kernel has chosen a port in another server, where the
    /// configuration leaves the port to the kernel.
    pub(crate) fn chosen_for(&mut self, address: &Address, is_admin: bool) -> Option<Bound> {
        let name = name_of_chosen(address, is_admin);
        let is_it = |chosen: &Option<String>| chosen.is_some() && *chosen == name;
        let index = self.left.iter().position(|(_, chosen)| is_it(chosen))?;
        Some(self.left.remove(index).0)
    }
}
