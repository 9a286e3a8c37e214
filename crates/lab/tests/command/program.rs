//! Starting the built laboratory, with the server that its experiments start.

use std::path::Path;
use std::process::Command;
use std::sync::Once;
use std::time::SystemTime;

pub(crate) use superpoll_test_support::program::program;

/// The built command.
const LAB: &str = env!("CARGO_BIN_EXE_superpoll-lab");

/// The built command, with the command `superpoll` next to it.
pub(crate) fn lab() -> Command {
    static BUILT: Once = Once::new();
    BUILT.call_once(build_server);
    let mut lab = program(LAB);
    // Tests download no modules of Go, and compile none that are there.
    lab.env("GOPROXY", "off")
        .env("GOMODCACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/no-modules"));
    lab
}

/// Builds the command `superpoll`, unless it is there and newer than its sources: cargo builds it
/// only for the tests of its own package.
fn build_server() {
    let server = Path::new(LAB).with_file_name("superpoll");
    if is_fresh(&server) {
        return;
    }
    let folder = server.parent().unwrap();
    let profile = match folder.file_name().unwrap().to_str() {
        Some("debug") => "test",
        other => other.unwrap(),
    };
    let mut cargo = program(env!("CARGO"));
    cargo.args(["build", "--quiet", "--locked", "-p", "superpoll-cli", "--features", "redis"]);
    cargo.args(["--profile", profile]);
    cargo.arg("--target-dir").arg(folder.parent().unwrap());
    assert!(cargo.status().unwrap().success(), "superpoll cannot be built");
}

/// Whether a program is newer than each source file of the crates that it is made of. The tests of
/// the whole workspace build it with themselves, and building it alone would compile these crates
/// with other features.
fn is_fresh(program: &Path) -> bool {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let sources =
        ["superpoll", "keeper", "rt", "config", "gateway", "cli"].map(|name| crates.join(name));
    written(program).is_some_and(|made| sources.iter().all(|folder| is_older(folder, made)))
}

fn written(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|about| about.modified()).ok()
}

/// Whether no file in a folder was written after this time.
fn is_older(folder: &Path, than: SystemTime) -> bool {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().path()).all(|path| match path.is_dir() {
        true => path.ends_with("tests") || is_older(&path, than),
        false => written(&path) <= Some(than),
    })
}
