//! The configurations that need no file, and what the command line adds to them.

use std::path::PathBuf;

use crate::acme::Automatic;
use crate::address::Address;
use crate::channel::Channel;
use crate::check::host_name;
use crate::encryption::{Https, Tls, TlsVersion};
use crate::model::{Action, Config, Files, Host, Listener, Route};
use crate::rights::Right;
use crate::rules::Rules;

impl Config {
    /// Returns the built-in configuration: the demonstration on port 8080 of the loopback address,
    /// as `localhost` and by IP addresses.
    #[must_use]
    pub fn demo() -> Config {
        let mut config = Config::of(Action::Demo);
        // Whoever tries the demonstration from elsewhere is meant to chat.
        let open = Channel { publish: Some(Right::Anyone), ..Channel::default() };
        let action = Action::Channel(open);
        config.hosts[0].routes.push(Route {
            matcher: None,
            path: "/demo/chat".to_owned(),
            action,
            rules: Rules::default(),
        });
        config
    }

    /// Returns a configuration that serves a folder on port 8080 of the loopback address, as
    /// `localhost` and by IP addresses.
    #[must_use]
    pub fn folder(folder: impl Into<PathBuf>) -> Config {
        Config::of(Action::Files(Files { root: folder.into(), ..Files::default() }))
    }

    fn of(action: Action) -> Config {
        let address = Address::Tcp { host: Some("127.0.0.1".to_owned()), port: 8080 };
        let route = Route { path: "/".to_owned(), matcher: None, action, rules: Rules::default() };
        // A site whose name is made to resolve to this machine (DNS rebinding) has another name.
        let names = ["localhost", "*.localhost"].map(str::to_owned).into();
        Config {
            listeners: vec![Listener::plain(address)],
            hosts: vec![Host { names, addresses: true, routes: vec![route], ..Host::default() }],
            ..Config::default()
        }
    }

    /// Makes the first host answer for these names alone, by HTTPS on some addresses with
    /// certificates that the server gets by itself, and redirects clients of the address `http`.
    ///
    /// # Errors
    ///
    /// If a name is none of a host, or the authority cannot certify it; the text says why.
    pub fn with_https(
        mut self,
        names: &[String],
        automatic: Automatic,
        https: &[Address],
        http: Address,
    ) -> Result<Config, String> {
        if let Some(host) = self.hosts.first_mut() {
            host.names.clear();
            host.addresses = matches!(automatic, Automatic::Internal(_));
            // Browsers would insist on HTTPS for a year, also after a first try at the command
            // line.
            host.https = Some(Https { hsts: None });
        }
        for name in names {
            self.also_named(name)?;
        }
        if let Automatic::Acme(acme) = &automatic {
            acme.names(&self.hosts, &http).map_err(|error| error.to_string())?;
        }
        let tls = Tls {
            certificates: Vec::new(),
            automatic: Some(automatic),
            min_version: TlsVersion::default(),
            client: None,
            alpn: Vec::new(),
        };
        let https = https.iter().cloned().map(|address| {
            let tls = Some(tls.clone());
            Listener { tls, ..Listener::plain(address) }
        });
        self.listeners = https.chain([Listener::plain(http)]).collect();
        Ok(self)
    }

    /// Makes the first host answer for another name, unless a host already does.
    ///
    /// # Errors
    ///
    /// If it is no host name; the text says why.
    pub fn also_named(&mut self, name: &str) -> Result<(), String> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        host_name(&name).map_err(|what| format!("{name:?} is no host name: {what}"))?;
        let is_known = self.hosts.iter().any(|host| host.names.contains(&name));
        if let Some(host) = self.hosts.first_mut().filter(|_| !is_known) {
            host.names.push(name);
        }
        Ok(())
    }
}
