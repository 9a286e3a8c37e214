//! Servers that are programs of their own: `superpoll`, as a user starts it, and the rivals.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_lite::AsyncReadExt;
use superpoll::BackendKind;
use superpoll_rt::{AsyncFd, Builder, Runtime};
use tempfile::TempDir;

use crate::environment::PROFILE;
use crate::error::{Doing, Error, Result};
use crate::go::Program;
use crate::record;
use crate::server::tls::Certificate;
use crate::server::{Calls, Control, Counts, ProcessOptions, Server};
use crate::sys::process;
use crate::{rivals, say};

/// The first port to try, and the first port of the connections' range if the kernel does not
/// report that range.
const FIRST: u32 = 10_240;
const FIRST_OF_CONNECTIONS: u32 = 32_768;

/// Spreads the ports at which processes begin to look.
const SPREAD: u32 = 2_654_435_769;

/// How long a program may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// The name of the command that serves. Cargo puts it into the same folder as this program.
const COMMAND: &str = "superpoll";

/// Where programs run that are not measured on a processor of their own.
pub(crate) const PROCESS: ProcessOptions = ProcessOptions { processor: None, second_thread: false };

/// Waits until something is so; `otherwise` is the beginning of the error.
pub(crate) fn until(
    otherwise: &str,
    patience: Duration,
    mut is_so: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let begun = Instant::now();
    while !is_so()? {
        if begun.elapsed() > patience {
            return Err(Error::usage(format!("{otherwise} within {} s", patience.as_secs())));
        }
        process::sleep(10_000_000);
    }
    Ok(())
}

/// Returns the path of the command that serves, next to a program of the laboratory.
fn next_to(program: &Path) -> Result<PathBuf> {
    let command = program.with_file_name(COMMAND);
    if command.is_file() {
        return Ok(command);
    }
    // The profile `debug` is called `dev` on a command line, and is the default.
    let profile = match PROFILE {
        "debug" | "gate" => String::new(),
        other => format!(" --profile {other}"),
    };
    Err(Error::usage(format!(
        "{} is missing, which this experiment starts: build it with cargo build{profile} -p superpoll-cli --all-features",
        command.display(),
    )))
}

/// Returns the path of the command `superpoll`.
pub(crate) fn command() -> Result<PathBuf> {
    next_to(&std::env::current_exe().doing("finding this program")?)
}

/// Starts the command `superpoll` and waits until it prints its port.
pub(crate) fn superpoll(
    name: &'static str,
    process: ProcessOptions,
    arguments: &[&str],
) -> Result<(Server, u16)> {
    let failed = |e| Error::system(format!("starting superpoll {}", arguments.join(" ")), e);
    let mut command = Command::new(next_to(&std::env::current_exe().map_err(failed)?)?);
    command.args(arguments).env_remove(superpoll::backend::BACKEND_VARIABLE);
    command.env_remove(superpoll::backend::policy::POLICY_VARIABLE);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (child, output, errors) = at(process, || process::spawn(&mut command).map_err(failed))?;
    let server = Server::of_program(name, child);
    let mut line = String::new();
    if let Some(output) = output {
        BufReader::new(output).read_line(&mut line).map_err(failed)?;
    }
    match announced(&line) {
        Some(port) => Ok((server, port)),
        None => Err(complaint(name, server, errors)),
    }
}

/// Starts `superpoll serve` with one engine and this configuration, which it writes into the
/// folder, and with more arguments.
pub(crate) fn superpoll_serve(
    name: &'static str,
    process: ProcessOptions,
    folder: &Path,
    configuration: &str,
    more: &[&str],
) -> Result<(Server, u16)> {
    let file = folder.join("superpoll.toml");
    record::write(&file, configuration)?;
    let file = file.to_string_lossy();
    superpoll(name, process, &[&["serve", "--workers", "1", "-c", &*file], more].concat())
}

/// More for a [`configuration`] whose clients may connect without a request.
pub(crate) const PATIENT: &str = "header = \"24h\"";

/// Returns a configuration of `superpoll serve`: a listener with these settings, these routes, and
/// more, which may begin with further timeouts. Every other key has its default, as that is what
/// users have, but for `idle`: a connection may be silent during the turns of all other servers.
pub(crate) fn configuration(listener: &str, routes: &[String], more: &str) -> String {
    let routes: String =
        routes.iter().map(|route| format!("[[hosts.routes]]\n{route}\n")).collect();
    format!(
        "[[listeners]]\n{listener}\n[[hosts]]\n{routes}\
         [timeouts]\nidle = \"24h\"\n{more}\n"
    )
}

/// Returns the settings of a listener on a port of the loopback address, zero for any free one,
/// which is encrypted if there is a certificate.
pub(crate) fn listener(port: u16, certificate: Option<&Certificate>) -> String {
    let tls = certificate.map(|Certificate { certificate, key, .. }| {
        format!("\ntls = {{ certificate = {certificate:?}, key = {key:?} }}")
    });
    format!("address = \"127.0.0.1:{port}\"{}", tls.unwrap_or_default())
}

/// Makes a folder with a page in a server's folder, and returns the route that serves it.
pub(crate) fn page(folder: &Path, body: &[u8]) -> Result<String> {
    let root = folder.join("root");
    std::fs::create_dir_all(&root)
        .and_then(|()| std::fs::write(root.join("index.html"), body))
        .doing(format_args!("writing into {}", root.display()))?;
    Ok(files(&root))
}

/// Returns the route that serves a folder.
pub(crate) fn files(root: &Path) -> String {
    format!("files = {{ root = {:?} }}", root.to_string_lossy())
}

/// Returns the route of a channel.
pub(crate) fn channel(path: &str, settings: &str) -> String {
    format!("path = \"{path}\"\nchannel = {{ {settings} }}")
}

/// Starts nginx in one process, with its files in the folder: with a module, and these blocks after
/// `events`.
pub(crate) fn nginx(
    name: &'static str,
    process: ProcessOptions,
    folder: &Path,
    port: u16,
    module: Option<&Path>,
    blocks: &str,
) -> Result<Server> {
    let (own, file) = (folder.to_string_lossy(), folder.join("nginx.conf"));
    record::write(&file, &nginx_configuration(folder, module, blocks))?;
    let arguments = ["-p", &own, "-c", &file.to_string_lossy(), "-e", "stderr"];
    other(name, process, port, "nginx", &arguments)
}

fn nginx_configuration(folder: &Path, module: Option<&Path>, blocks: &str) -> String {
    let own = folder.display();
    let module = module.map(|module| format!("load_module {module:?};\n")).unwrap_or_default();
    format!(
        "{module}daemon off; master_process off; pid {own}/nginx.pid; error_log stderr error;\n\
         events {{ worker_connections 20000; }}\n{blocks}"
    )
}

/// Returns an `http` block for [`nginx`]: without an access log, with connections that stay open
/// whatever has passed through them.
pub(crate) fn nginx_http(folder: &Path, inside: &str) -> String {
    let own = folder.display();
    format!(
        "http {{ access_log off; keepalive_timeout 24h; keepalive_requests 1000000000;\n\
         client_header_timeout 24h; client_body_temp_path {own}/b; proxy_temp_path {own}/p;\n\
         fastcgi_temp_path {own}/f; uwsgi_temp_path {own}/u; scgi_temp_path {own}/s;\n{inside} }}\n"
    )
}

/// Returns the port in a line that announces where a server listens: the first port of the loopback
/// address.
fn announced(line: &str) -> Option<u16> {
    let (_, rest) = line.split_once("127.0.0.1:")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Starts another program and waits until connections to this port are accepted.
pub(crate) fn other(
    name: &'static str,
    process: ProcessOptions,
    port: u16,
    program: &str,
    arguments: &[&str],
) -> Result<Server> {
    until_there(name, process, program, arguments, PATIENCE, || {
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
    })
}

/// Starts a program in Go on one processor, with its files in a folder, and waits until connections
/// to this port are accepted.
pub(crate) fn of_go(
    name: &'static str,
    process: ProcessOptions,
    folder: &Path,
    port: u16,
    program: &Program,
    arguments: &[&str],
) -> Result<Server> {
    // Caddy writes into folders of the user's otherwise.
    let home = ["XDG_DATA_HOME", "XDG_CONFIG_HOME"]
        .map(|variable| format!("{variable}={}", folder.display()));
    let [program, processors] = program.command_line()?;
    let arguments = [&[&*home[0], &home[1], &processors, &program], arguments].concat();
    other(name, process, port, "env", &arguments)
}

/// Starts another program and waits until it is there.
pub(crate) fn until_there(
    name: &'static str,
    process: ProcessOptions,
    program: &str,
    arguments: &[&str],
    patience: Duration,
    is_there: impl Fn() -> bool,
) -> Result<Server> {
    let (server, mut errors) = begin(name, process, program, arguments)?;
    let begun = Instant::now();
    while begun.elapsed() < patience && !server.has_ended() {
        if is_there() {
            return Ok(server);
        }
        process::sleep(2_000_000);
    }
    // Without its beginning the log still tells the cause.
    let _ = errors.rewind();
    Err(complaint(name, server, Some(errors)))
}

/// Starts another program without waiting for anything. Returns the file with its errors as well.
pub(crate) fn begin(
    name: &'static str,
    process: ProcessOptions,
    program: &str,
    arguments: &[&str],
) -> Result<(Server, File)> {
    let failed = |e| Error::system(format!("starting {program}"), e);
    // A file, not a pipe: it is read only after the program has ended, and the program's own
    // children may still have it open then.
    let errors = tempfile::tempfile().map_err(failed)?;
    let mut command = Command::new(rivals::find(program).unwrap_or_else(|| program.into()));
    command.args(arguments).env_remove(superpoll::backend::BACKEND_VARIABLE);
    command.env_remove(superpoll::backend::policy::POLICY_VARIABLE);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(errors.try_clone().map_err(failed)?);
    let (child, ..) = at(process, || process::spawn(&mut command).map_err(failed))?;
    Ok((Server::of_program(name, child), errors))
}

/// Makes a folder for a server's files, which goes when it is dropped.
pub(crate) fn folder(name: &str) -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix(&format!("superpoll-{name}-"))
        .tempdir()
        .doing(format_args!("making a folder for files of {name}"))
}

/// Returns a port without a listener at the moment, for programs that cannot choose one themselves.
/// The port is outside the range that the kernel gives to connections: a connection could take a
/// port of that range before the program listens on it.
pub(crate) fn free_port() -> Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Other processes look for a port at the same time.
    let start = std::process::id().wrapping_mul(SPREAD);
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let first = range.ok().and_then(|range| range.split_whitespace().next()?.parse::<u32>().ok());
    let count = first.unwrap_or(FIRST_OF_CONNECTIONS).saturating_sub(FIRST);
    for _ in 0..count {
        let at = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % count;
        let port = u16::try_from(FIRST + at).unwrap_or(0);
        if port > 0 && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .doing("looking for a free port")
}

/// Starts something on a server's processor: children are where their parent was.
fn at<T>(process: ProcessOptions, start: impl FnOnce() -> Result<T>) -> Result<T> {
    let Some(processor) = process.processor else { return start() };
    let own = process::processors();
    let moving = |e| Error::system(format!("moving a server to processor {processor}"), e);
    process::pin(&[processor]).map_err(moving)?;
    let started = start();
    process::pin(&own).map_err(moving)?;
    started
}

/// Ends a server that did not start, and returns the last line of its log.
fn complaint(name: &'static str, server: Server, errors: Option<impl Read>) -> Error {
    drop(server);
    let mut text = String::new();
    if let Some(mut errors) = errors {
        // A log that is not text is left out.
        let _ = errors.read_to_string(&mut text);
    }
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    let line = line.map(|line| line.strip_prefix("superpoll: ").unwrap_or(line));
    Error::usage(format!("{name} did not start: {}", line.unwrap_or("it said nothing")))
}

// The assignment of processors: the load generator on one, each server on another.

/// The processors of an experiment with servers.
#[derive(Debug)]
pub(crate) struct Processors {
    all: Vec<usize>,
}

impl Processors {
    /// Returns the processors of this process. Prints a note if there is only one.
    pub(crate) fn here() -> Processors {
        let all = process::processors();
        if all.len() < 2 {
            say::note("there is one processor: servers and load generator take turns on it");
        }
        Processors { all }
    }

    /// Returns the load generator's processor.
    pub(crate) fn client(&self) -> Option<usize> {
        self.all.first().copied()
    }

    /// Returns a processor for the servers alone, if there is one.
    pub(crate) fn server(&self) -> Option<usize> {
        self.all.get(1).copied()
    }

    /// Measures with this thread on the load generator's processor. `measure` gets the servers'
    /// processor.
    pub(crate) fn apart<T>(&self, measure: impl FnOnce(Option<usize>) -> T) -> T {
        let pinned = self.client().is_some_and(|client| process::pin(&[client]).is_ok());
        let measured = measure(self.server().or(self.client()));
        if pinned {
            // If this fails, the following work runs on one processor.
            let _ = process::pin(&self.all);
        }
        measured
    }
}

// A server on our runtime: its parts are the experiment's, and the request for its counters is the
// same for all.

/// Calls `start` to begin a server on a runtime with this back-end, reports that it is ready, and
/// answers questions until the parent is gone. The value that `start` returns lives as long.
pub(crate) fn serve<T>(
    backend: BackendKind,
    control: &mut Control,
    start: impl FnOnce(&Runtime) -> Result<T>,
) -> Result<()> {
    serve_on(Runtime::builder().backend(backend), control, start, |_| Calls::new())
}

/// Like [`serve`], on a runtime with these settings, whose system calls by name `calls` returns.
pub(crate) fn serve_on<T>(
    builder: Builder,
    control: &mut Control,
    start: impl FnOnce(&Runtime) -> Result<T>,
    calls: impl Fn(&Runtime) -> Calls,
) -> Result<()> {
    let failed = |source: io::Error| Error::system("setting our runtime up", source);
    let runtime = builder.build()?;
    let mut questions = AsyncFd::new(control.questions()?).map_err(failed)?;
    let _started = start(&runtime)?;
    control.ready()?;
    loop {
        let asked = runtime.try_block_on(async { questions.read(&mut [0]).await });
        // Without a parent there is no client to serve.
        if !matches!(asked?, Ok(1)) {
            return Ok(());
        }
        let stats = runtime.stats();
        control.counted(Counts {
            waits: stats.iter().map(|engine| engine.poller.calls.waits()).sum(),
            epoll_ctl: stats.iter().map(|engine| engine.poller.calls.epoll_ctl()).sum(),
            calls: calls(&runtime),
        })?;
    }
}

#[cfg(test)]
mod tests {
    use superpoll_gateway::Config;

    use super::*;

    #[test]
    fn nginx_has_its_module_and_its_files() {
        let block = nginx_http(Path::new("/tmp/x"), "server { }");
        let text = nginx_configuration(Path::new("/tmp/x"), Some(Path::new("/m.so")), &block);
        assert!(text.starts_with("load_module \"/m.so\";\n"), "{text}");
        assert!(
            text.contains("pid /tmp/x/nginx.pid;") && text.contains(" proxy_temp_path /tmp/x/p;")
        );
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }

    #[test]
    fn our_server_has_default_keys_but_for_the_silence_of_its_clients() {
        let routes = [files(Path::new("/srv"))];
        let text = configuration(&listener(80, None), &routes, "");
        let given = Config::parse("given", &text).unwrap();
        let mut expected = Config {
            listeners: given.listeners.clone(),
            hosts: given.hosts.clone(),
            ..Config::default()
        };
        assert_ne!(given, expected);
        expected.timeouts.idle = Duration::from_secs(24 * 3600);
        assert_eq!(given, expected);
        let patient =
            Config::parse("patient", &configuration(&listener(80, None), &routes, PATIENT))
                .unwrap();
        assert_eq!(patient.timeouts.header, expected.timeouts.idle);
    }

    #[test]
    fn ports_are_read_from_the_output_of_servers() {
        assert_eq!(announced("superpoll: serving http://127.0.0.1:8080/\n"), Some(8080));
        assert_eq!(announced("superpoll: relaying 127.0.0.1:80 to 127.0.0.1:81"), Some(80));
        assert_eq!(announced("superpoll: 127.0.0.1:x"), None);
        assert_eq!(announced(""), None);
    }

    #[test]
    fn a_server_that_is_not_built_is_named_with_the_way_to_build_it() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("superpoll-lab");
        let error = next_to(&program).unwrap_err().to_string();
        let command = folder.path().join("superpoll");
        assert!(error.starts_with(&format!("{} is missing", command.display())), "{error}");
        assert!(
            error.contains("cargo build") && error.contains("-p superpoll-cli --all-features"),
            "{error}"
        );
        std::fs::write(&command, "").unwrap();
        assert_eq!(next_to(&program).unwrap(), command);
    }

    #[test]
    fn a_program_that_ends_is_quoted_and_one_that_is_not_there_is_named() {
        let process = ProcessOptions { processor: None, second_thread: false };
        let port = free_port().unwrap();
        let error =
            other("shell", process, port, "sh", &["-c", "echo why >&2; exit 1"]).unwrap_err();
        assert_eq!(error.to_string(), "shell did not start: why");
        let error = other("absent", process, port, "superpoll-missing", &[]).unwrap_err();
        assert!(error.to_string().contains("starting superpoll-missing"), "{error}");
    }
}
