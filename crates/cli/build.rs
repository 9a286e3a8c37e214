//! Notes the compiler and the commit of a build, for `superpoll doctor` and the records of the laboratory.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    println!("cargo::rustc-env=SUPERPOLL_RUSTC={}", line_of(&rustc, &["--version"]));
    let commit = line_of("git", &["rev-parse", "--short=12", "HEAD"]);
    println!("cargo::rustc-env=SUPERPOLL_COMMIT={commit}");
    // Where the checkout has its HEAD, a new commit is noted with the next build.
    let head = line_of("git", &["rev-parse", "--git-path", "logs/HEAD"]);
    if std::path::Path::new(&head).exists() {
        println!("cargo::rerun-if-changed={head}");
    }
}

/// The first line that a command prints; empty if the command fails.
fn line_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().ok();
    let text = output.filter(|output| output.status.success()).map(|output| output.stdout);
    let text = String::from_utf8(text.unwrap_or_default()).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}
