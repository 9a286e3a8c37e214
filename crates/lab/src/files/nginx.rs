//! nginx with a folder, as a careful operator configures it: `sendfile`, heads and files in the
//! same packets, descriptors of files kept open and not looked at again for a minute, no access
//! log, one process.
//!
//! `sendfile` is right for long files and costs more than it saves with short ones, for which the
//! packets have to be held back and released with a call each. So nginx also takes part without
//! `sendfile`, with buffers for a long file.

use std::path::Path;

use crate::error::Result;
use crate::record::write;
use crate::server::{ProcessOptions, Server, program};

fn configuration(own: &str, root: &str, port: u16, sendfile: bool) -> String {
    let sending = if sendfile {
        "sendfile on; tcp_nopush on;"
    } else {
        "sendfile off; output_buffers 2 128k;"
    };
    format!(
        "daemon off; master_process off; pid {own}/pid; error_log stderr crit;\n\
         events {{ worker_connections 9000; }}\n\
         http {{\n  access_log off; {sending} default_type application/octet-stream;\n\
         \x20 open_file_cache max=1000 inactive=1h; open_file_cache_valid 60s;\n\
         \x20 keepalive_requests 1000000000; keepalive_timeout 1h;\n\
         \x20 client_body_temp_path {own}/b; proxy_temp_path {own}/p; fastcgi_temp_path {own}/f;\n\
         \x20 uwsgi_temp_path {own}/u; scgi_temp_path {own}/s;\n\
         \x20 server {{ listen 127.0.0.1:{port} backlog=4096; root {root}; }}\n}}\n"
    )
}

/// Starts it, with its files in a folder of its own.
pub(super) fn start(
    name: &'static str,
    process: ProcessOptions,
    own: &Path,
    root: &Path,
    port: u16,
    sendfile: bool,
) -> Result<Server> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (own, file) = (text(own), own.join("nginx.conf"));
    write(&file, &configuration(&own, &text(root), port, sendfile))?;
    program::other(name, process, port, "nginx", &["-p", &own, "-c", &text(&file)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_names_port_and_folders() {
        let text = configuration("/tmp/own", "/tmp/root", 1234, true);
        assert!(text.contains("listen 127.0.0.1:1234 ") && text.contains("root /tmp/root;"));
        assert!(text.contains("pid /tmp/own/pid;") && text.contains("sendfile on;"));
        assert!(configuration("/o", "/r", 1, false).contains("sendfile off;"));
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}
