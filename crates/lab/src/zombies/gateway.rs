//! `superpoll serve` with a folder of one file, as a user would start it.

use superpoll::BackendKind;
use tempfile::TempDir;

use crate::error::{Error, Result};
use crate::http::BODY;
use crate::server::{ProcessOptions, Server, program};

/// Starts the server. The folder must live as long as the server.
pub(super) fn start(
    name: &'static str,
    process: ProcessOptions,
    backend: BackendKind,
) -> Result<(Server, u16, TempDir)> {
    let failed = |e| Error::system("making a folder to be served", e);
    let folder = tempfile::tempdir().map_err(failed)?;
    let root = folder.path().join("root");
    std::fs::create_dir(&root).map_err(failed)?;
    std::fs::write(root.join("index.html"), BODY).map_err(failed)?;
    let file = folder.path().join("superpoll.toml");
    // Zombies are silent for as long as the experiment takes.
    let config = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\nfiles = {{ root = {:?} }}\n\
         [timeouts]\nidle = \"24h\"\nheader = \"24h\"\n",
        root.to_string_lossy()
    );
    std::fs::write(&file, config).map_err(failed)?;
    let file = file.to_string_lossy();
    let arguments = ["serve", "--workers", "1", "--backend", backend.name(), "-c", &file];
    let (server, port) = program::superpoll(name, process, &arguments)?;
    Ok((server, port, folder))
}
