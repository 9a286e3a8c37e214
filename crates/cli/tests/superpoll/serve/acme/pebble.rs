//! Certificates from pebble.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;

use crate::serve::acme::client::shown;
use crate::stage::{Running, Server, free_port, run, tool, until};
use crate::superpoll;
use superpoll_test_support::program::program;

/// Makes a folder with a file.
pub(crate) fn site(folder: &Path) -> PathBuf {
    let site = folder.join("www");
    std::fs::create_dir_all(&site).unwrap();
    std::fs::write(site.join("index.html"), "hello\n").unwrap();
    site
}

/// pebble at work, with a name server that says of each name that it is this machine.
pub(crate) struct Pebble {
    pub(crate) folder: TempDir,
    directory: String,
    /// The ports on which it verifies names.
    pub(crate) tls: u16,
    pub(crate) http: u16,
    port: u16,
    names: u16,
    _names: Running,
    process: Option<Running>,
}

impl Pebble {
    /// Starts it; `None`, with a reason, if it is not installed.
    pub(crate) fn start(life: u32, settings: &[(&str, &str)]) -> Option<Pebble> {
        let (pebble, names_server) = (tool("pebble")?, tool("pebble-challtestsrv")?);
        tool("openssl")?;
        let folder = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(folder.path().join("ca.pem"), certificate.pem()).unwrap();
        std::fs::write(folder.path().join("ca.key"), key.serialize_pem()).unwrap();
        let [tls, http, port, names, management] = [(); 5].map(|()| free_port());
        let text = format!(
            "{{\"pebble\": {{\"listenAddress\": \"127.0.0.1:{port}\", \"certificate\": \"ca.pem\", \
             \"privateKey\": \"ca.key\", \"httpPort\": {http}, \"tlsPort\": {tls}, \
             \"externalAccountBindingRequired\": false, \"certificateValidityPeriod\": {life}}}}}"
        );
        std::fs::write(folder.path().join("pebble.json"), text).unwrap();
        let name_server = program(names_server.to_str().unwrap())
            .args(["-dns01", &format!("127.0.0.1:{names}"), "-defaultIPv6", ""])
            .args(["-http01", "", "-https01", "", "-tlsalpn01", ""])
            .args(["-management", &format!("127.0.0.1:{management}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let directory = format!("https://localhost:{port}/dir");
        let _names = Running(name_server);
        let mut all = Pebble { folder, directory, tls, http, port, names, _names, process: None };
        all.restart(&pebble, settings);
        Some(all)
    }

    fn restart(&mut self, pebble: &Path, settings: &[(&str, &str)]) {
        let mut command = program(pebble.to_str().unwrap());
        command
            .args(["-config", "pebble.json", "-dnsserver", &format!("127.0.0.1:{}", self.names)])
            .current_dir(&self.folder)
            .env("PEBBLE_VA_NOSLEEP", "1")
            .env("PEBBLE_WFE_NONCEREJECT", "0")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        for (name, value) in settings {
            match value.is_empty() {
                true => command.env_remove(name),
                false => command.env(name, value),
            };
        }
        self.process = Some(Running(command.spawn().unwrap()));
        let listens = |port| TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).is_ok();
        until("the name server listens", || listens(self.names));
        until("pebble listens", || listens(self.port));
    }

    /// Returns the command of a server for some names.
    pub(crate) fn command(&self, names: &str, challenge: &str) -> Command {
        let folder = self.folder.path();
        let mut command = superpoll();
        command.args(["serve", "--https", names, "--challenge", challenge]);
        command.args(["--acme", &self.directory, "--email", "mail@example.org"]);
        command.arg("--acme-ca").arg(folder.join("ca.pem"));
        command.arg("--state").arg(folder.join("state")).arg(site(folder));
        command.args(["--listen", &format!("127.0.0.1:{}", self.tls)]);
        command.args(["--http", &format!("127.0.0.1:{}", self.http), "--stats", "off"]);
        command
    }

    /// Returns the folder of the authority's certificates.
    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join(format!("state/acme/localhost-{}-dir", self.port))
    }
}

/// Ends a server whose log is about certificates.
fn end(server: Server) -> String {
    server.signal("TERM");
    let (status, errors) = server.ended();
    assert!(status.success(), "{status}: {errors}");
    errors
}

#[test]
fn each_of_several_names_gets_a_certificate_by_both_challenges() {
    for challenge in ["tls-alpn-01", "http-01"] {
        let settings = [
            ("PEBBLE_WFE_NONCEREJECT", "40"),
            ("PEBBLE_VA_NOSLEEP", ""),
            ("PEBBLE_VA_SLEEPTIME", "2"),
            ("PEBBLE_AUTHZREUSE", "0"),
        ];
        let Some(pebble) = Pebble::start(3_600, &settings) else { return };
        let names = ["a.example.org", "b.example.org", "c.example.org"];
        let server = Server::of(pebble.command(&names.join(","), challenge), 2);
        for name in names {
            server.says(&format!("got a certificate for {name} "));
            let found = shown(server.at(0), name).unwrap();
            assert!(found.text.contains(&format!("DNS:{name}\n")), "{challenge}: {}", found.text);
        }
        let errors = end(server);
        assert!(!errors.contains("no certificate for"), "{errors}");
        // A restart takes the certificates from the disk, and orders none.
        let server = Server::of(pebble.command(&names.join(","), challenge), 2);
        for name in names {
            assert!(shown(server.at(0), name).unwrap().text.contains(name));
        }
        server.finish();
    }
}

#[test]
fn a_handshake_before_the_first_certificate_ends_with_an_alert() {
    let settings = [("PEBBLE_VA_NOSLEEP", ""), ("PEBBLE_VA_SLEEPTIME", "600")];
    let Some(pebble) = Pebble::start(3_600, &settings) else { return };
    let server = Server::of(pebble.command("a.example.org", "tls-alpn-01"), 2);
    assert_eq!(shown(server.at(0), "a.example.org"), None);
    server.finish();
}

#[test]
fn certificates_are_renewed_before_they_end_without_a_reload() {
    // Of the life of 30 seconds, two thirds pass before a renewal.
    let Some(pebble) = Pebble::start(30, &[("PEBBLE_WFE_NONCEREJECT", "20")]) else { return };
    let server = Server::of(pebble.command("a.example.org", "tls-alpn-01"), 2);
    server.says("got a certificate for a.example.org ");
    let first = shown(server.at(0), "a.example.org").unwrap();
    until("another certificate is shown", || {
        shown(server.at(0), "a.example.org").unwrap().serial != first.serial
    });
    end(server);
}

#[test]
fn an_order_goes_on_after_a_kill_at_any_moment() {
    // The server is killed later and later in the order, in the end after it. Most of that is
    // waiting, so several authorities take turns with the moments.
    const AUTHORITIES: u64 = 3;
    let resumed = std::thread::scope(|scope| {
        let killed =
            |first| scope.spawn(move || killed_at((first..18).step_by(AUTHORITIES as usize)));
        let all: Vec<_> = (0..AUTHORITIES).map(killed).collect();
        all.into_iter().map(|one| one.join().unwrap()).reduce(|a, b| Some(a? + b?)).unwrap()
    });
    // Without the program there is nothing to count.
    assert!(resumed.is_none_or(|resumed| resumed > 0), "no order went on in another server");
}

/// Kills servers at some moments of their orders, in steps of 120 ms; returns how many orders went
/// on in another server. `None` if there is no authority.
fn killed_at(moments: impl Iterator<Item = u64>) -> Option<u32> {
    let settings = [("PEBBLE_VA_NOSLEEP", ""), ("PEBBLE_VA_SLEEPTIME", "1")];
    let pebble = Pebble::start(3_600, &settings)?;
    let mut resumed = 0;
    for moment in moments {
        let name = format!("kill{moment}.example.org");
        let record = pebble.store().join(format!("{name}.order.json"));
        let server = Server::of(pebble.command(&name, "tls-alpn-01"), 2);
        until("an order is under way", || {
            record.exists() || server.errors().contains("got a certificate")
        });
        std::thread::sleep(Duration::from_millis(moment * 120));
        server.signal("KILL");
        server.ended();
        let before = std::fs::read_to_string(&record).ok();
        let server = Server::of(pebble.command(&name, "tls-alpn-01"), 2);
        until("there is a certificate", || shown(server.at(0), &name).is_some());
        assert!(shown(server.at(0), &name).unwrap().text.contains(&format!("DNS:{name}\n")));
        until("the order is over", || !record.exists());
        if let Some(before) = before {
            // The key of the order is that of the certificate, unless pebble tried to verify the
            // name while no server was there, which ends an order.
            let key = before.split("\"key\":\"").nth(1).unwrap().split('"').next().unwrap();
            let key = key.replace("\\n", "\n").replace("\\r", "\r");
            let stored = pebble.store().join(format!("{name}.pem"));
            let stored = std::fs::read_to_string(stored).unwrap();
            resumed += u32::from(stored.starts_with(&key));
        }
        end(server);
    }
    Some(resumed)
}

#[test]
fn two_servers_that_share_the_folder_order_once() {
    let settings = [("PEBBLE_VA_NOSLEEP", ""), ("PEBBLE_VA_SLEEPTIME", "1")];
    let Some(pebble) = Pebble::start(3_600, &settings) else { return };
    let first = Server::of(pebble.command("a.example.org", "tls-alpn-01"), 2);
    let mut command = pebble.command("a.example.org", "tls-alpn-01");
    // The later of two equal options would be refused, so the other ports are written anew.
    let arguments: Vec<_> = command.get_args().map(std::ffi::OsStr::to_os_string).collect();
    let is_port = |argument: &std::ffi::OsStr| {
        let text = argument.to_string_lossy().into_owned();
        text == format!("127.0.0.1:{}", pebble.tls) || text == format!("127.0.0.1:{}", pebble.http)
    };
    command = superpoll();
    command.args(arguments.iter().map(|one| match is_port(one) {
        true => "127.0.0.1:0".into(),
        false => one.clone(),
    }));
    let second = Server::of(command, 2);
    let has = |server: &Server| shown(server.at(0), "a.example.org");
    until("both have a certificate", || has(&first).is_some() && has(&second).is_some());
    assert_eq!(has(&first), has(&second));
    let logs = [end(first), end(second)].concat();
    assert_eq!(logs.matches("got a certificate").count(), 1, "{logs}");
}

#[test]
fn an_account_that_the_authority_has_forgotten_is_made_anew() {
    let Some(mut pebble) = Pebble::start(3_600, &[]) else { return };
    let server = Server::of(pebble.command("a.example.org", "tls-alpn-01"), 2);
    server.says("got a certificate");
    end(server);
    // A new pebble knows nothing of the old.
    pebble.process = None;
    pebble.restart(&tool("pebble").unwrap(), &[]);
    let server = Server::of(pebble.command("a.example.org,b.example.org", "tls-alpn-01"), 2);
    server.says("got a certificate for b.example.org");
    assert!(pebble.store().join("account.lost.json").exists());
    end(server);
}

#[test]
fn the_configuration_and_a_reload_try_again_and_the_metrics_count() {
    let Some(mut pebble) = Pebble::start(3_600, &[]) else { return };
    let Some(curl) = tool("curl") else { return };
    pebble.process = None;
    let folder = pebble.folder.path().to_path_buf();
    let text = format!(
        "[server]\nstats = \"off\"\n[metrics]\n\
         [[listeners]]\naddress = \"127.0.0.1:{}\"\n\
         tls = {{ acme = \"mail@example.org\", directory = {:?}, directory_ca = \"ca.pem\", \
         storage = \"state\" }}\n\
         [[listeners]]\naddress = \"127.0.0.1:{}\"\n\
         [[hosts]]\nnames = [\"a.example.org\"]\n[[hosts.routes]]\nfiles = {{ root = {:?} }}\n",
        pebble.tls,
        pebble.directory,
        pebble.http,
        site(&folder),
    );
    std::fs::write(folder.join("superpoll.toml"), text).unwrap();
    let server = Server::configured(&folder.join("superpoll.toml"), 2);
    // The authority is down.
    server.says("no certificate for a.example.org");
    server.says("check that this machine reaches the authority");
    pebble.restart(&tool("pebble").unwrap(), &[]);
    server.signal("HUP");
    server.says("got a certificate for a.example.org");
    let mut asks = Command::new(curl);
    asks.args(["-sS", "--noproxy", "*", &format!("http://127.0.0.1:{}/metrics", pebble.http)]);
    let metrics = run(&mut asks);
    let count = |result: &str| {
        let name = format!("superpoll_acme_renewals_total{{result=\"{result}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap_or_else(|| panic!("{metrics}")).parse::<u64>().unwrap()
    };
    assert_eq!(count("success"), 1);
    assert!(count("failure") >= 1);
    assert!(shown(server.at(0), "a.example.org").is_some());
    end(server);
}
