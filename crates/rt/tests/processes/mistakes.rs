//! Common mistakes: what the compiler says of each names the way out.
//!
//! Each program in `mistakes/` is compiled as a user's would be, with the library that this test
//! was built with.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

/// Each mistake, and a part of what the compiler says.
const MISTAKES: &[(&str, &str)] = &[
    ("main_is_not_async", "needs `async` before `fn`"),
    ("main_has_an_argument", "argument"),
    ("main_has_an_unknown_option", "`start_paused = BOOL` and `tokio`"),
    ("a_port_is_no_address", "such as \"127.0.0.1:8080\""),
    ("a_handle_is_dropped", "call `detach` if that is intended"),
    ("a_future_is_not_awaited", "consider `await`ing on the `Future`"),
    ("a_task_for_any_engine_is_not_send", "or `superpoll_rt::spawn`, which stays on this engine"),
    ("a_file_is_spliced", "for a file use `transfer::sendfile`"),
    ("a_function_is_spawned", "use parentheses to call this function"),
    ("a_time_limit_comes_second", "(duration: Duration, future: F)"),
];

/// The folder with the libraries of this build.
fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// Returns the libraries next to this test, the newest first. A folder may have several of them,
/// with other features. Those that were made of an archive of the crate have sources elsewhere,
/// which the compiler cannot quote.
fn builds() -> Vec<PathBuf> {
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let number =
            name.strip_prefix("libsuperpoll_rt-").and_then(|rest| rest.strip_suffix(".rlib"));
        let Some(number) = number else { return false };
        let sources = path.with_file_name(format!("superpoll_rt-{number}.d"));
        std::fs::read_to_string(sources).is_ok_and(|text| text.contains(": crates/rt/src/lib.rs"))
    };
    let built = |path: &PathBuf| {
        path.metadata().and_then(|found| found.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
    };
    let files = std::fs::read_dir(libraries()).unwrap().map(|entry| entry.unwrap().path());
    let mut builds: Vec<PathBuf> = files.filter(is_ours).collect();
    builds.sort_by_key(|path| std::cmp::Reverse(built(path)));
    builds
}

fn compile(program: &Path, library: &Path, folder: &Path) -> Option<Output> {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    Command::new(compiler)
        .args(["--edition", "2024", "--emit", "metadata", "--color", "never", "-L"])
        .arg(format!("dependency={}", libraries().display()))
        .arg("--extern")
        .arg(format!("superpoll_rt={}", library.display()))
        .arg("--out-dir")
        .arg(folder)
        .arg(program)
        // The library's own sources, which the compiler quotes, have paths relative to this folder.
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .ok()
}

#[test]
fn the_compiler_names_the_way_out_of_common_mistakes() {
    let folder = tempfile::tempdir().unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/processes/mistakes");
    let right = folder.path().join("right.rs");
    std::fs::write(&right, "#[superpoll_rt::main]\nasync fn main() {}\n").unwrap();
    let (mut library, mut reasons) = (None, String::new());
    for build in builds() {
        let Some(output) = compile(&right, &build, folder.path()) else {
            eprintln!("skipped: there is no rustc to compile the programs with");
            return;
        };
        if output.status.success() {
            library = Some(build);
            break;
        }
        reasons += &String::from_utf8_lossy(&output.stderr);
    }
    let library = library.unwrap_or_else(|| panic!("no build has `main`: {reasons}"));
    for (name, part) in MISTAKES {
        let output =
            compile(&sources.join(name).with_extension("rs"), &library, folder.path()).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{name} compiles");
        assert!(said.contains(part), "{name}: no {part:?} in\n{said}");
    }
    assert_eq!(MISTAKES.len(), std::fs::read_dir(sources).unwrap().count());
}
