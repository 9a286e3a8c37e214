//! haproxy and nginx, each with a configuration of its own in a folder that goes with it.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, Result};

/// Where the dynamic module of a distribution is.
const STREAM_MODULES: [&str; 3] = [
    "/usr/lib/nginx/modules/ngx_stream_module.so",
    "/usr/lib64/nginx/modules/ngx_stream_module.so",
    "/usr/share/nginx/modules/ngx_stream_module.so",
];

/// A program in the search path, or where administrators have theirs.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// haproxy, if it is here.
pub fn haproxy() -> Option<PathBuf> {
    program("haproxy")
}

/// nginx, and its module for streams if that is not built in.
pub fn nginx() -> Option<(PathBuf, Option<PathBuf>)> {
    let nginx = program("nginx")?;
    let module = STREAM_MODULES.iter().map(PathBuf::from).find(|module| module.is_file());
    if module.is_some() {
        return Some((nginx, module));
    }
    let version = Command::new(&nginx).arg("-V").output().ok()?;
    let text = String::from_utf8_lossy(&version.stderr).into_owned();
    let built_in = text.split_whitespace().any(|word| word == "--with-stream");
    built_in.then_some((nginx, None))
}

/// A folder for a program's files, removed when this is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Result<Folder> {
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

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// What a program has complained of.
    pub fn complaint(&self) -> String {
        let log = fs::read_to_string(self.0.join("log")).unwrap_or_default();
        log.lines().last().unwrap_or("it said nothing").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed from the folder for temporary files is left to whoever clears that.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> Result<u16> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|e| Error::system("looking for a free port", e))
}

fn haproxy_configuration(port: u16, origin: u16, splices: bool) -> String {
    let splice =
        if splices { "    option splice-request\n    option splice-response\n" } else { "" };
    // With two pipes for each connection that it splices, haproxy wants five descriptors and more for each.
    let most = (superpoll::limits::descriptors().1 / 8).clamp(100, 9000);
    format!(
        "global\n    maxconn {most}\n    nbthread 1\n\
         defaults\n    mode tcp\n    timeout connect 5s\n    timeout client 60s\n    timeout server 60s\n{splice}\
         listen relay\n    bind 127.0.0.1:{port}\n    server origin 127.0.0.1:{origin}\n"
    )
}

fn nginx_configuration(folder: &Path, module: Option<&Path>, port: u16, origin: u16) -> String {
    let folder = folder.display();
    let module =
        module.map_or(String::new(), |module| format!("load_module {};\n", module.display()));
    format!(
        "{module}daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log {folder}/log error;\n\
         worker_rlimit_nofile 20000;\nevents {{ worker_connections 9000; }}\n\
         stream {{\n    server {{ listen 127.0.0.1:{port} backlog=4096; proxy_pass 127.0.0.1:{origin}; }}\n}}\n"
    )
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

/// Becomes haproxy.
pub fn become_haproxy(folder: &Path, port: u16, origin: u16, splices: bool) -> Error {
    let file = folder.join("haproxy.cfg");
    if let Err(source) = fs::write(&file, haproxy_configuration(port, origin, splices)) {
        return Error::system("writing a configuration for haproxy", source);
    }
    let mut command = Command::new(haproxy().unwrap_or_else(|| "haproxy".into()));
    command.arg("-db").arg("-f").arg(file);
    become_program(folder, command)
}

/// Becomes nginx.
pub fn become_nginx(folder: &Path, port: u16, origin: u16) -> Error {
    let (program, module) = nginx().unwrap_or_else(|| ("nginx".into(), None));
    let text = nginx_configuration(folder, module.as_deref(), port, origin);
    let file = folder.join("nginx.conf");
    if let Err(source) = fs::write(&file, text) {
        return Error::system("writing a configuration for nginx", source);
    }
    let mut command = Command::new(program);
    command.arg("-p").arg(folder).arg("-c").arg(file).arg("-e").arg(folder.join("log"));
    become_program(folder, command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_name_both_ports_and_splice_where_asked() {
        let text = haproxy_configuration(1234, 5678, true);
        assert!(text.contains("bind 127.0.0.1:1234\n") && text.contains("127.0.0.1:5678\n"));
        assert!(text.contains("option splice-response"));
        assert!(!haproxy_configuration(1, 2, false).contains("splice"));
        let text = nginx_configuration(Path::new("/tmp/x"), Some(Path::new("/m.so")), 1234, 5678);
        assert!(text.starts_with("load_module /m.so;\n") && text.contains("pid /tmp/x/pid;"));
        assert!(
            text.contains("listen 127.0.0.1:1234 ") && text.contains("proxy_pass 127.0.0.1:5678;")
        );
    }

    #[test]
    fn a_folder_goes_with_what_is_in_it() {
        let folder = Folder::new("test").unwrap();
        let path = folder.path().to_owned();
        assert_eq!(folder.complaint(), "it said nothing");
        fs::write(path.join("log"), "one\ntwo\n").unwrap();
        assert_eq!(folder.complaint(), "two");
        assert!(Folder::new("test").unwrap().path() != path);
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn programs_are_found_in_the_search_path() {
        assert!(program("sh").is_some() && program("no-such-program-here").is_none());
    }
}
