//! Caddy, compiled from its Go module where there is Go.

use std::path::Path;

use crate::error::Result;
use crate::go::Program;
use crate::record::write;
use crate::server::tls::Certificate;
use crate::server::{ProcessOptions, Server, program};

/// The program that its makers offer for download.
pub(crate) static CADDY: Program = Program::of_package(
    "caddy",
    "github.com/caddyserver/caddy/v2/cmd/caddy",
    "github.com/caddyserver/caddy/v2",
    "v2.11.9",
);

/// Returns why it cannot take part.
pub(crate) fn refusal() -> Option<String> {
    CADDY.refusal()
}

/// Starts it with its files in a folder, as a site on a port with these directives, encrypted if
/// there is a certificate.
pub(crate) fn start(
    name: &'static str,
    process: ProcessOptions,
    folder: &Path,
    port: u16,
    certificate: Option<&Certificate>,
    directives: &str,
) -> Result<Server> {
    let file = folder.join("Caddyfile");
    write(&file, &configuration(folder, port, certificate, directives))?;
    let arguments = ["run", "--adapter", "caddyfile", "--config", &file.to_string_lossy()];
    program::of_go(name, process, folder, port, &CADDY, &arguments)
}

fn configuration(
    folder: &Path,
    port: u16,
    certificate: Option<&Certificate>,
    directives: &str,
) -> String {
    let (scheme, tls) = match certificate {
        Some(Certificate { certificate, key, .. }) => {
            ("https", format!("\ttls {certificate:?} {key:?}\n"))
        }
        None => ("http", String::new()),
    };
    // Clients may be silent during the turns of other servers.
    format!(
        "{{\n\tadmin off\n\tpersist_config off\n\tauto_https off\n\
         \tstorage file_system {:?}\n\tlog {{\n\t\tlevel ERROR\n\t}}\n\
         \tservers {{\n\t\tprotocols h1 h2\n\t\ttimeouts {{\n\t\t\tidle 24h\n\t\t}}\n\t}}\n}}\n\
         {scheme}://:{port} {{\n\tbind 127.0.0.1\n{tls}{directives}}}\n",
        folder.join("storage")
    )
}

/// Returns the directives of a site with the files of a folder.
pub(crate) fn files(root: &Path) -> String {
    format!("\troot {root:?}\n\tfile_server\n")
}

/// Returns the directives of a proxy, with as many idle connections to the origin as ours has.
pub(crate) fn proxy(origin: u16) -> String {
    format!(
        "\treverse_proxy 127.0.0.1:{origin} {{\n\t\ttransport http {{\n\t\t\tkeepalive 24h\n\
         \t\t\tkeepalive_idle_conns_per_host 1024\n\t\t}}\n\t}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_has_its_port_and_its_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let certificate = Certificate::make(folder.path()).unwrap();
        let text = configuration(folder.path(), 1234, Some(&certificate), &proxy(5678));
        assert!(text.contains("https://:1234 {") && text.contains("reverse_proxy 127.0.0.1:5678"));
        assert!(
            text.contains("localhost.pem\" \"") && text.contains("localhost.key\"\n"),
            "{text}"
        );
        assert_eq!(text.matches('{').count(), text.matches('}').count());
        let text = configuration(folder.path(), 1234, None, &files(Path::new("/srv")));
        assert!(text.contains("http://:1234 {") && text.contains("root \"/srv\"\n"), "{text}");
    }
}
