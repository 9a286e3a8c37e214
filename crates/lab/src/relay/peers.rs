//! haproxy and nginx, each with a configuration of its own in a folder that goes with it.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, Result};
use crate::programs;

/// The folders in which distributions install dynamic modules.
const STREAM_MODULES: [&str; 3] = [
    "/usr/lib/nginx/modules/ngx_stream_module.so",
    "/usr/lib64/nginx/modules/ngx_stream_module.so",
    "/usr/share/nginx/modules/ngx_stream_module.so",
];

/// Returns the path of haproxy, if it is installed.
pub(crate) fn haproxy() -> Option<PathBuf> {
    programs::find("haproxy")
}

/// Returns the path of nginx, if it is installed.
pub(crate) fn nginx() -> Option<PathBuf> {
    programs::find("nginx")
}

/// Returns nginx's module for streams, if it has that: a file to load, or built in.
pub(crate) fn nginx_stream() -> Option<Option<PathBuf>> {
    let module = STREAM_MODULES.iter().map(PathBuf::from).find(|module| module.is_file());
    if module.is_some() {
        return Some(module);
    }
    let version = Command::new(nginx()?).arg("-V").output().ok()?;
    let text = String::from_utf8_lossy(&version.stderr).into_owned();
    text.split_whitespace().any(|word| word == "--with-stream").then_some(None)
}

/// A folder for a program's files, removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Result<Folder> {
        let failed = |source| Error::system("making a folder for a relay's files", source);
        for number in 0..1000 {
            let name = format!("superpoll-{name}-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Folder(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(io::ErrorKind::AlreadyExists.into()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the messages of a program.
    pub(crate) fn complaint(&self) -> String {
        let log = fs::read_to_string(self.0.join("log")).unwrap_or_default();
        log.lines().last().unwrap_or("it said nothing").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Files that cannot be removed are left to the cleaning of the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The work of a program between its clients and the origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    /// Passes bytes on, by splice if that is forced.
    Bytes { splices: bool },
    /// Passes HTTP on, and keeps this many connections to the origin, as our proxy does.
    Http { pool: usize },
}

fn haproxy_configuration([port, origin]: [u16; 2], task: Task) -> String {
    // Clients may be silent during the turns of other relays.
    let mode = match task {
        Task::Bytes { splices } => {
            let splice = if splices {
                "    option splice-request\n    option splice-response\n"
            } else {
                ""
            };
            format!("    mode tcp\n    timeout client 60s\n    timeout server 60s\n{splice}")
        }
        // haproxy's pool has no limit; the origin learns the client's address as from our proxy.
        Task::Http { .. } => "    mode http\n    timeout client 24h\n    timeout server 24h\n    \
             option http-keep-alive\n    option forwardfor\n    http-reuse always\n"
            .to_owned(),
    };
    // With two pipes for each spliced connection, haproxy needs at least five descriptors for each.
    let most = (superpoll::limits::nofile().1 / 8).clamp(100, 9000);
    format!(
        "global\n    maxconn {most}\n    nbthread 1\n\
         defaults\n    timeout connect 5s\n{mode}\
         listen relay\n    bind 127.0.0.1:{port}\n    server origin 127.0.0.1:{origin}\n"
    )
}

fn nginx_configuration(
    folder: &Path,
    module: Option<&Path>,
    [port, origin]: [u16; 2],
    task: Task,
) -> String {
    let folder = folder.display();
    let module =
        module.map_or(String::new(), |module| format!("load_module {};\n", module.display()));
    let begin = format!(
        "{module}daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log {folder}/log error;\n\
         worker_rlimit_nofile 20000;\nevents {{ worker_connections 9000; }}\n"
    );
    let rest = match task {
        Task::Bytes { .. } => format!(
            "stream {{\n    server {{ listen 127.0.0.1:{port} backlog=4096; proxy_pass 127.0.0.1:{origin}; }}\n}}\n"
        ),
        // Kept connections stay open, whatever has passed through them.
        Task::Http { pool } => format!(
            "http {{\n    access_log off;\n    keepalive_timeout 24h;\n    keepalive_requests 1000000000;\n\
             \x20   client_body_temp_path {folder}/b;\n    proxy_temp_path {folder}/p;\n\
             \x20   fastcgi_temp_path {folder}/f;\n    uwsgi_temp_path {folder}/u;\n\
             \x20   scgi_temp_path {folder}/s;\n\
             \x20   upstream origin {{ server 127.0.0.1:{origin}; keepalive {pool}; keepalive_timeout 24h; \
             keepalive_requests 1000000000; }}\n\
             \x20   server {{ listen 127.0.0.1:{port} backlog=4096; location / {{\n\
             \x20       proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
             \x20       proxy_set_header Host $http_host; proxy_set_header X-Forwarded-For $remote_addr;\n\
             \x20   }} }}\n}}\n"
        ),
    };
    begin + &rest
}

/// Becomes a program whose messages go to the folder's log. Returns only if that fails.
fn become_program(folder: &Path, mut command: Command) -> Error {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |source| Error::system(format!("starting {name}"), source);
    let log = match File::options().create(true).append(true).open(folder.join("log")) {
        Ok(log) => log,
        Err(error) => return failed(error),
    };
    let copy = match log.try_clone() {
        Ok(copy) => copy,
        Err(error) => return failed(error),
    };
    failed(command.stdin(Stdio::null()).stdout(copy).stderr(log).exec())
}

/// Becomes haproxy, from a port to another.
pub(crate) fn become_haproxy(folder: &Path, ports: [u16; 2], task: Task) -> Error {
    let file = folder.join("haproxy.cfg");
    if let Err(source) = fs::write(&file, haproxy_configuration(ports, task)) {
        return Error::system("writing a configuration for haproxy", source);
    }
    let mut command = Command::new(haproxy().unwrap_or_else(|| "haproxy".into()));
    command.arg("-db").arg("-f").arg(file);
    become_program(folder, command)
}

/// Becomes nginx, from a port to another.
pub(crate) fn become_nginx(folder: &Path, ports: [u16; 2], task: Task) -> Error {
    let module = match task {
        Task::Bytes { .. } => nginx_stream().flatten(),
        Task::Http { .. } => None,
    };
    let text = nginx_configuration(folder, module.as_deref(), ports, task);
    let file = folder.join("nginx.conf");
    if let Err(source) = fs::write(&file, text) {
        return Error::system("writing a configuration for nginx", source);
    }
    let mut command = Command::new(nginx().unwrap_or_else(|| "nginx".into()));
    command.arg("-p").arg(folder).arg("-c").arg(file).arg("-e").arg(folder.join("log"));
    become_program(folder, command)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: [u16; 2] = [1234, 5678];

    #[test]
    fn configurations_name_both_ports_and_splice_where_asked() {
        let bytes = |splices| Task::Bytes { splices };
        let text = haproxy_configuration(PORTS, bytes(true));
        assert!(text.contains("bind 127.0.0.1:1234\n") && text.contains("127.0.0.1:5678\n"));
        assert!(text.contains("option splice-response") && text.contains("mode tcp"));
        assert!(!haproxy_configuration(PORTS, bytes(false)).contains("splice"));
        let module = Some(Path::new("/m.so"));
        let text = nginx_configuration(Path::new("/tmp/x"), module, PORTS, bytes(false));
        assert!(text.starts_with("load_module /m.so;\n") && text.contains("pid /tmp/x/pid;"));
        assert!(
            text.contains("listen 127.0.0.1:1234 ") && text.contains("proxy_pass 127.0.0.1:5678;")
        );
    }

    #[test]
    fn proxies_of_http_keep_their_connections_to_the_origin() {
        let task = Task::Http { pool: 64 };
        let text = haproxy_configuration(PORTS, task);
        assert!(text.contains("mode http\n") && text.contains("    http-reuse always\n"), "{text}");
        let text = nginx_configuration(Path::new("/tmp/x"), None, PORTS, task);
        assert!(text.contains("server 127.0.0.1:5678; keepalive 64;"), "{text}");
        assert!(text.contains("proxy_set_header Connection \"\";"), "{text}");
    }

    #[test]
    fn a_folder_is_removed_with_its_contents() {
        let folder = Folder::new("test").unwrap();
        let path = folder.path().to_owned();
        assert_eq!(folder.complaint(), "it said nothing");
        fs::write(path.join("log"), "one\ntwo\n").unwrap();
        assert_eq!(folder.complaint(), "two");
        assert!(Folder::new("test").unwrap().path() != path);
        drop(folder);
        assert!(!path.exists());
    }
}
