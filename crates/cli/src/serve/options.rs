//! The command line of `superpoll serve`, and the configuration that it stands for.

use std::error::Error;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use superpoll::BackendKind;
use superpoll::backend::Profile;
use superpoll_gateway::config::{
    Automatic, ChallengeKind, Internal, KeeperKind, Workers, is_local, parse_processes,
};
use superpoll_gateway::control::SocketPath;
use superpoll_gateway::processes::WorkerPlace;
use superpoll_gateway::{Address, Config, config, prepare};

/// Options of `serve`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// The folder whose files are served [default: the built-in demonstration]
    #[arg(value_name = "DIR", conflicts_with = "config")]
    pub folder: Option<PathBuf>,
    /// Serve as this file says
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check the configuration, print any error, and end
    #[arg(long)]
    pub check: bool,
    /// Address for clients: HOST:PORT, [IPV6]:PORT, :PORT or unix:PATH; may be repeated [default:
    /// 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config")]
    pub listen: Vec<Address>,
    /// Another name that clients use for this server, in addition to localhost, addresses and this
    /// machine's; may be repeated
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    pub name: Vec<String>,
    /// Serve by HTTPS under these names, separated by commas, with certificates that the server
    /// gets by itself: from Let's Encrypt, or from an authority of its own for localhost and
    /// addresses of this machine. Ports 443 and 80 unless --listen and --http say otherwise
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = ["config", "name"])]
    pub https: Vec<String>,
    #[command(flatten)]
    pub authority: Authority,
    /// Threads of each process that serve, or "auto" for one for each processor [default: that of
    /// the configuration, else auto]
    #[arg(long, value_name = "N|auto")]
    pub workers: Option<Workers>,
    /// Processes that serve, each with its own threads, or "auto" for one for each processor; they
    /// are started again when they crash [default: that of the configuration, else 1]
    #[arg(long, value_name = "N|auto", value_parser = parse_processes)]
    pub processes: Option<NonZeroUsize>,
    /// Leave idle connections with the keeper at this path, which is started if necessary, so
    /// that they outlive the server
    #[arg(long, alias = "sit", value_name = "PATH")]
    pub keeper: Option<PathBuf>,
    /// Take over the listeners, channels and idle connections of the server that is at work with
    /// the same keeper
    #[arg(long)]
    pub upgrade: bool,
    /// Place of the statistics socket for `superpoll top`: a path, which only this user can open,
    /// or "off" [default: that of the configuration, else by its number in a folder of the user's]
    #[arg(long, value_name = "PATH|off")]
    pub stats: Option<SocketPath>,
    /// Let core files and this user's debuggers have the memory of a server with TLS, in which its
    /// keys are
    #[arg(long)]
    pub dumpable: bool,
    /// The back-end [default: that of the configuration, else SUPERPOLL_BACKEND, else adaptive]
    #[arg(long, value_name = "NAME")]
    pub backend: Option<BackendKind>,
    /// The place of this process among the workers of a supervisor, which sets it
    #[arg(long, hide = true, value_name = "SLOT@NAME")]
    pub worker: Option<WorkerPlace>,
    /// An address on which the service manager listens for the server; a supervisor sets it
    #[arg(long, hide = true, value_name = "ADDRESS")]
    pub passed: Vec<Address>,
    /// With --check: the form of the state that the program leaves from which this one is to take
    /// over
    #[arg(long, hide = true, value_name = "NUMBER")]
    pub takes_over: Option<u32>,
}

/// Options of `serve --https`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Authority {
    /// Address for clients without encryption, which are redirected [default: :80]
    #[arg(long, value_name = "ADDRESS", requires = "https")]
    pub http: Option<Address>,
    /// Address that the certificate authority may write to
    #[arg(long, value_name = "MAIL", requires = "https")]
    pub email: Option<String>,
    /// URL of the directory of a certificate authority with ACME [default: Let's Encrypt]
    #[arg(long, value_name = "URL", requires = "https")]
    pub acme: Option<String>,
    /// File of certificates that the authority's own server is verified with [default: the
    /// system's]
    #[arg(long, value_name = "FILE", requires = "acme")]
    pub acme_ca: Option<PathBuf>,
    /// How the authority verifies names: tls-alpn-01 on port 443, http-01 on port 80 [default:
    /// tls-alpn-01]
    #[arg(long, value_name = "KIND", requires = "https", value_parser = challenge)]
    pub challenge: Option<ChallengeKind>,
    /// Folder for keys and certificates [default: STATE_DIRECTORY, else the user's folder of
    /// state]
    #[arg(long, value_name = "DIR", requires = "https")]
    pub state: Option<PathBuf>,
}

/// Reads the kind of a challenge.
fn challenge(text: &str) -> Result<ChallengeKind, String> {
    let found = ChallengeKind::ALL.into_iter().find(|kind| kind.name() == text);
    found.ok_or_else(|| "expected tls-alpn-01 or http-01".to_owned())
}

impl Authority {
    /// Returns the source of certificates for some names.
    fn automatic(&self, names: &[String]) -> Result<Automatic, String> {
        let storage = self.state.as_deref().map(std::path::absolute).transpose();
        let storage = storage.map_err(|error| format!("--state: {error}"))?;
        let local = names.iter().filter(|name| is_local(name)).count();
        if self.acme.is_none() && local == names.len() {
            return Ok(Automatic::Internal(Internal { storage }));
        }
        if self.acme.is_none() && local > 0 {
            let what = "--https: names of this machine have certificates of the server's own";
            return Err(format!("{what}, expected either such names or others"));
        }
        let mut acme = config::Acme { storage, ..config::Acme::default() };
        acme.email = self.email.clone().unwrap_or_default();
        acme.directory = self.acme.clone().unwrap_or(acme.directory);
        acme.directory_ca = self.acme_ca.clone();
        acme.challenge = self.challenge.unwrap_or_default();
        Ok(Automatic::Acme(acme))
    }
}

impl Options {
    /// Returns the configuration with HTTPS.
    fn https(&self, config: Config, inherited: &[Address]) -> Result<Config, Box<dyn Error>> {
        let everywhere = |port| Address::Tcp { host: None, port };
        let is_plain = |address: &&Address| matches!(address, Address::Tcp { port: 80, .. });
        let plain = inherited.iter().find(is_plain).cloned();
        let http = self.authority.http.clone().or(plain).unwrap_or(everywhere(80));
        let mut https = self.listen.clone();
        if https.is_empty() {
            https.extend(inherited.iter().filter(|one| **one != http).cloned());
        }
        if https.is_empty() {
            https.push(everywhere(443));
        }
        let automatic = self.authority.automatic(&self.https)?;
        let config = config.with_https(&self.https, automatic, &https, http);
        Ok(config.map_err(|what| format!("--https: {what}"))?)
    }

    /// Returns the configuration to serve. `inherited` are the addresses on which a service manager
    /// listens for this process, and `text` is the content of the file.
    pub(super) fn read(
        &self,
        inherited: &[Address],
        text: Option<&str>,
    ) -> Result<Config, Box<dyn Error>> {
        let mut config = match (&self.config, &self.folder) {
            (Some(path), _) => return Ok(prepare::parse_file(path, text.unwrap_or_default())?),
            (None, Some(folder)) => Config::folder(folder),
            (None, None) => Config::demo(),
        };
        if !self.https.is_empty() {
            return self.https(config, inherited);
        }
        let asked = if self.listen.is_empty() { inherited } else { &self.listen };
        if !asked.is_empty() {
            config.listeners = asked.iter().cloned().map(config::Listener::plain).collect();
        }
        // The operators' name for this machine does not belong to any other site.
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let listened = asked.iter().filter_map(|address| match address {
            Address::Tcp { host, .. } => host.as_deref(),
            Address::Unix(_) => None,
        });
        for name in std::iter::once(machine.trim()).chain(listened) {
            // A name that is no host name is not one that a client asks for.
            let _ = config.also_named(name);
        }
        for name in &self.name {
            config.also_named(name).map_err(|what| format!("--name: {what}"))?;
        }
        Ok(config)
    }

    /// Sets the keeper that the command line names.
    pub(super) fn set_keeper(&self, config: &mut Config) -> Result<(), String> {
        let Some(socket) = &self.keeper else { return Ok(()) };
        let socket = std::path::absolute(socket).map_err(|error| format!("--keeper: {error}"))?;
        let wanted = config.keeper.as_ref();
        let profile = wanted.map_or(Profile::Chat, |one| one.profile);
        let tls = wanted.is_some_and(|one| one.tls);
        config.keeper = Some(config::Keeper { kind: KeeperKind::Process { socket }, profile, tls });
        Ok(())
    }

    /// Returns the number of processes that are to serve a configuration.
    ///
    /// # Errors
    ///
    /// If the configuration has a setting that several processes cannot have.
    pub(super) fn processes(&self, config: &Config) -> Result<NonZeroUsize, String> {
        let processes = self.processes.unwrap_or(config.server.processes);
        match config.conflict_with_processes() {
            // The file's own number was checked with it.
            Some(what) if processes.get() > 1 => Err(format!("--processes {processes}: {what}")),
            _ => Ok(processes),
        }
    }
}
