//! Finds the C rivals, and notes what was compiled with which compiler from which commit, and with which crates.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=LAB_RUSTC={}", line_of(Command::new(rustc()).arg("--version")));
    for (name, from) in [("LAB_TARGET", "TARGET"), ("LAB_PROFILE", "PROFILE")] {
        println!("cargo::rustc-env={name}={}", std::env::var(from).unwrap_or_default());
    }
    println!(
        "cargo::rustc-env=LAB_COMMIT={}",
        line_of(Command::new("git").args(["rev-parse", "--short=12", "HEAD"]))
    );
    // Where the checkout has its HEAD, a new commit is noted with the next build.
    let head = line_of(Command::new("git").args(["rev-parse", "--git-path", "logs/HEAD"]));
    if std::path::Path::new(&head).exists() {
        println!("cargo::rerun-if-changed={head}");
    }
    println!("cargo::rustc-env=LAB_CRATES={}", crates());
    #[cfg(feature = "rivals-c")]
    find_rivals();
}

/// The crates that this one depends on, as words like `mio=1.0.4`, from the lock file that cargo uses: the nearest one
/// that knows this crate. None where there is no such file.
fn crates() -> String {
    let folder = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    for folder in folder.ancestors() {
        let file = folder.join("Cargo.lock");
        if let Ok(text) = std::fs::read_to_string(&file) {
            println!("cargo::rerun-if-changed={}", file.display());
            if let Some(crates) = locked(&text, env!("CARGO_PKG_NAME")) {
                return crates.join(" ");
            }
        }
    }
    String::new()
}

/// The versions of what a package depends on. Its list of dependencies names a version only where there are several.
fn locked(text: &str, package: &str) -> Option<Vec<String>> {
    let value = |block: &str, key: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
        line.map(|value| value.trim_matches('"').to_owned())
    };
    let blocks: Vec<&str> = text.split("[[package]]").collect();
    let own = blocks.iter().find(|block| value(block, "name").as_deref() == Some(package))?;
    let (_, list) = own.split_once("dependencies = [")?;
    let each = list.lines().filter_map(|line| {
        let mut words = line.trim().strip_prefix('"')?.trim_end_matches(['"', ',']).split(' ');
        let name = words.next()?;
        let of_name = |block: &&&str| value(block, "name").as_deref() == Some(name);
        let version = words.next().map(str::to_owned);
        let version = version.or_else(|| value(blocks.iter().find(of_name)?, "version"))?;
        Some(format!("{name}={version}"))
    });
    Some(each.collect())
}

fn rustc() -> String {
    std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned())
}

/// The first line a command prints; empty if it fails.
fn line_of(command: &mut Command) -> String {
    let Ok(output) = command.output() else { return String::new() };
    if !output.status.success() {
        return String::new();
    }
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
}

#[cfg(feature = "rivals-c")]
fn find_rivals() {
    for (library, package) in [("libevent_core", "libevent-dev"), ("libuv", "libuv1-dev")] {
        if pkg_config::Config::new().probe(library).is_err() {
            missing(library, package);
        }
    }
    // Debian's libev has no .pc file; other systems do.
    if pkg_config::Config::new().probe("libev").is_err() {
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let path = line_of(Command::new(compiler).arg("-print-file-name=libev.so"));
        // The compiler repeats the bare name of a file that it does not find.
        if !path.contains('/') {
            missing("libev", "libev-dev");
        }
        println!("cargo::rustc-link-lib=ev");
    }
}

#[cfg(feature = "rivals-c")]
fn missing(library: &str, package: &str) -> ! {
    println!(
        "cargo::error=feature rivals-c needs {library}: install it (Debian: apt-get install \
         {package}) or build without the feature"
    );
    std::process::exit(1)
}
