//! Finds the C rivals, and notes the target and the versions of the crates of a build.

use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let of_build = |name| std::env::var(name).unwrap_or_default();
    println!("cargo::rustc-env=LAB_TARGET={}", of_build("TARGET"));
    println!("cargo::rustc-env=LAB_CRATES={}", crates());
    #[cfg(feature = "rivals-c")]
    find_rivals();
}

/// The crates that this one depends on, as words like `mio=1.0.4`, from the lock file that cargo
/// uses: the nearest one that knows this crate. None where there is no such file.
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

/// Returns the versions of a package's dependencies. Its list of dependencies names a version only
/// where there are several.
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
        let output = std::process::Command::new(compiler).arg("-print-file-name=libev.so").output();
        // The compiler repeats the bare name of a file that it does not find.
        if !output.is_ok_and(|output| output.stdout.contains(&b'/')) {
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
