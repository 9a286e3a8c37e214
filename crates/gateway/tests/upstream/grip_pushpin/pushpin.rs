//! The programs of pushpin, with files and ports of their own.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use superpoll_test_support::program::program;
use superpoll_test_support::{Running, find, free_port, start, until};
use tempfile::TempDir;

use crate::origin::Client;

/// The programs of pushpin and its client of HTTP, each after the programs that it connects to, and
/// the last socket that it binds.
const PROGRAMS: [(&str, &str); 4] = [
    ("zurl", "zurl-out"),
    ("condure", "pushpin-condure-out-stream"),
    ("pushpin-proxy", "pushpin-retry"),
    ("pushpin-handler", "stats"),
];

pub(super) struct Pushpin {
    /// The addresses for clients and for publishers.
    pub front: String,
    pub control: String,
    told: Arc<Mutex<Vec<String>>>,
    processes: Vec<(Running, &'static str)>,
    folder: TempDir,
}

/// The version whose differences are listed.
const VERSION: &str = "1.36.";

/// Returns why there is no pushpin of this version.
pub(super) fn absent() -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = std::env::split_paths(&path).collect();
    for (name, _) in PROGRAMS {
        if !folders.iter().any(|folder| folder.join(name).is_file()) {
            return Some(format!("{name} is not installed (packages pushpin, condure and zurl)"));
        }
    }
    let told = program("pushpin-handler").arg("--version").output().unwrap();
    let told = String::from_utf8_lossy(&told.stdout);
    let version = told.split_whitespace().last().unwrap_or_default();
    (!version.starts_with(VERSION)).then(|| format!("pushpin {version} is not {VERSION}x"))
}

impl Pushpin {
    /// Starts the programs for an application at an address, with a secret for signatures.
    pub(super) fn start(app: &str, key: &str) -> Pushpin {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display().to_string();
        let (front, control) = (free_port(), free_port());
        let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text);
        write("routes", format!("* {app},over_http\n")).unwrap();
        write(
            "zurl.conf",
            format!(
                "[General]\nin_spec=ipc://{at}/zurl-in\nin_stream_spec=ipc://{at}/zurl-in-stream\n\
                 out_spec=ipc://{at}/zurl-out\nin_req_spec=\ndefpolicy=allow\n\
                 max_open_requests=2000\nbuffer_size=200000\ntimeout=600\nin_hwm=1000\n\
                 out_hwm=1000\n"
            ),
        )
        .unwrap();
        // The bounds are those of Debian's configuration, but for the channels of a connection and
        // the time that subscriptions of long-polls linger, which `prepare` needs. For `debug` its
        // errors have their reasons.
        write(
            "pushpin.conf",
            format!(
                "[global]\ninclude={{libdir}}/internal.conf\nrundir={at}\nipc_prefix=pushpin-\n\
                 port_offset=0\n\
                 [proxy]\nroutesfile={at}/routes\nupdates_check=off\n\
                 debug=true\nsig_iss=pushpin\n\
                 sig_key={key}\nzurl_out_specs=ipc://{at}/zurl-in\n\
                 zurl_out_stream_specs=ipc://{at}/zurl-in-stream\n\
                 zurl_in_specs=ipc://{at}/zurl-out\n\
                 [handler]\npush_in_http_addr=127.0.0.1\npush_in_http_port={control}\n\
                 push_in_http_max_headers_size=10000\npush_in_http_max_body_size=1000000\n\
                 stats_spec=ipc://{at}/stats\nmessage_rate=2500\nmessage_hwm=25000\n\
                 message_wait=5000\nid_cache_ttl=60\nconnection_subscription_max=1000\n\
                 subscription_linger=600\nstats_subscription_ttl=600\n"
            ),
        )
        .unwrap();
        let config = format!("--config={at}/pushpin.conf");
        let own = || vec![config.clone(), "--ipc-prefix=pushpin-".to_owned()];
        let condure = vec![
            format!("--listen=127.0.0.1:{front},stream"),
            format!("--zclient-stream=ipc://{at}/pushpin-condure"),
        ];
        let [front, control] = [front, control].map(|port| format!("127.0.0.1:{port}"));
        let mut pushpin =
            Pushpin { front, control, told: Arc::default(), processes: Vec::new(), folder };
        let arguments = [vec![format!("--config={at}/zurl.conf")], condure, own(), own()];
        for ((name, last), arguments) in PROGRAMS.into_iter().zip(arguments) {
            pushpin.start_program(name, &arguments);
            let last = pushpin.folder.path().join(last);
            until("a program of pushpin listens", || {
                pushpin.assert_running();
                last.exists()
            });
        }
        until("pushpin takes connections", || {
            pushpin.assert_running();
            [&pushpin.front, &pushpin.control].iter().all(|at| TcpStream::connect(at).is_ok())
        });
        let stream = subscribe(&pushpin.folder.path().join("stats")).unwrap();
        let told = pushpin.told.clone();
        thread::spawn(move || read_messages(stream, &told));
        pushpin
    }

    fn start_program(&mut self, name: &'static str, arguments: &[String]) {
        let log = std::fs::File::create(self.folder.path().join(format!("{name}.log"))).unwrap();
        let mut command = program(name);
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.processes.push((Running(start(&mut command)), name));
    }

    fn assert_running(&mut self) {
        for (running, name) in &mut self.processes {
            let ended = running.0.try_wait().unwrap();
            let log = self.folder.path().join(format!("{name}.log"));
            assert!(
                ended.is_none(),
                "{name} ended: {ended:?}\n{}",
                std::fs::read_to_string(log).unwrap_or_default()
            );
        }
    }

    /// Subscribes to channels by a long-poll at a path, with the channels in the query. A second
    /// after its first subscription to a channel, pushpin asks the application again, and so not
    /// after those of scripts. The application then answers, and the subscriptions linger.
    pub(super) fn prepare(&self, path: &str, channels: &[String]) {
        let mut attempt = 0;
        // The first request may be lost, while the programs are not all connected.
        let mut poll = find("pushpin holds a long-poll", || {
            attempt += 1;
            let target = format!("{path}/{attempt}?{}", channels.join(","));
            let mut client = Client::connect(&self.front);
            client.send(format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
            let end = Instant::now() + Duration::from_secs(2);
            while Instant::now() < end {
                if channels.iter().all(|channel| self.subscribed("response", channel) > 0) {
                    return Some(client);
                }
                thread::sleep(Duration::from_millis(1));
            }
            None
        });
        // The second request may be lost as well. Then the connection ends.
        let _ = poll.reply_to("GET");
        self.told.lock().unwrap().clear();
    }

    /// Returns how often it has begun a subscription to a channel, for the connections of a mode:
    /// `response`, `stream` or `ws`.
    pub(super) fn subscribed(&self, mode: &str, channel: &str) -> usize {
        self.count(mode, channel, false)
    }

    /// Returns how often it has ended the last subscription to a channel.
    pub(super) fn unsubscribed(&self, mode: &str, channel: &str) -> usize {
        self.count(mode, channel, true)
    }

    fn count(&self, mode: &str, channel: &str, is_end: bool) -> usize {
        // Texts of a dictionary, whose order is any: each with its length.
        let word = |text: &str| format!("{}:{text},", text.len());
        let words = [word("mode") + &word(mode), word("channel") + &word(channel)];
        let told = self.told.lock().unwrap();
        let all = told.iter().filter(|text| words.iter().all(|word| text.contains(word)));
        all.filter(|text| text.contains(&word("unavailable")) == is_end).count()
    }
}

/// Subscribes to the messages about subscriptions of pushpin, by ZMTP 3.0: a greeting, a handshake
/// without security, and frames.
fn subscribe(socket: &Path) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    let mut greeting = [0; 64];
    (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
    greeting[12..16].copy_from_slice(b"NULL");
    stream.write_all(&greeting)?;
    stream.read_exact(&mut greeting)?;
    let ready = b"\x05READY\x0bSocket-Type\0\0\0\x03SUB";
    stream.write_all(&[&[4, ready.len() as u8], &ready[..]].concat())?;
    stream.write_all(b"\0\x05\x01sub ")?;
    Ok(stream)
}

/// Reads messages until pushpin ends.
fn read_messages(mut stream: UnixStream, to: &Mutex<Vec<String>>) -> io::Result<()> {
    loop {
        let mut flags = [0];
        stream.read_exact(&mut flags)?;
        let is_long = flags[0] & 2 != 0;
        let mut length = [0; 8];
        stream.read_exact(&mut length[if is_long { 0 } else { 7 }..])?;
        let mut text = vec![0; usize::try_from(u64::from_be_bytes(length)).unwrap()];
        stream.read_exact(&mut text)?;
        to.lock().unwrap().push(String::from_utf8_lossy(&text).into_owned());
    }
}
