//! Notes the compiler, the profile and the commit of a build, for `superpoll doctor` and the
//! records of the laboratory, and makes the program smaller.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The places that depend on where the program is loaded take 0.3 MB, as each has three words;
    // in this form each has a bit. glibc knows it since 2.36.
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    println!("cargo::rustc-env=SUPERPOLL_RUSTC={}", line_of(&rustc, &["--version"]));
    println!("cargo::rustc-env=SUPERPOLL_PROFILE={}", profile());
    let commit = line_of("git", &["rev-parse", "--short=12", "HEAD"]);
    println!("cargo::rustc-env=SUPERPOLL_COMMIT={commit}");
    // Where the checkout has its HEAD, a new commit is noted with the next build.
    let head = line_of("git", &["rev-parse", "--git-path", "logs/HEAD"]);
    if std::path::Path::new(&head).exists() {
        println!("cargo::rerun-if-changed={head}");
    }
}

/// The profile of the build. Cargo's variable PROFILE only says which of its own profiles a profile
/// comes from; the name is the folder of the build, PROFILE/build/CRATE/out.
fn profile() -> String {
    let out = std::env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    let name = out.ancestors().nth(3).and_then(|folder| folder.file_name()).unwrap_or_default();
    // The gate's build is one for debugging whose own crates are optimized (.cargo/gate.toml).
    if name == "debug" && std::env::var("OPT_LEVEL").is_ok_and(|level| level == "3") {
        return "gate".to_owned();
    }
    name.to_string_lossy().into_owned()
}

/// The first line that a command prints; empty if the command fails.
fn line_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().ok();
    let text = output.filter(|output| output.status.success()).map(|output| output.stdout);
    let text = String::from_utf8(text.unwrap_or_default()).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}
