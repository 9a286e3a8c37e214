//! Counting without BPF in the program itself: by a library that is loaded before the others
//! (`LD_PRELOAD`), and that stands before the C library's waits and reads.
//!
//! The library is the crate `superpoll-watch-preload`, which has only the functions. They count
//! through [`Inside`], by the rules of `outcome`. The counters are memory of the same layout as
//! that of BPF. The program opens it by its place in `/proc`: many programs close all unknown
//! descriptors before they start others.
//!
//! No process gives its slots back, as none tells its end. So there are more slots than with BPF,
//! and they are found by hashing: a process that takes one needs no lock.

mod inside;

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::counters::{BITMAP, GLOBALS, Global, HISTOGRAM, WORDS, Word};
pub use crate::machine::Call;
pub use crate::outcome::Outcome;
use crate::sys::{self, SharedWords};
pub use inside::Inside;
pub(crate) use inside::measure;

/// Processes, sets and kinds of arrays from start to end, at most. A power of two.
const SLOTS: usize = 4096;

/// Where the counters begin: at a page, of whatever size.
const COUNTERS_AT: usize = 8192;
const BITMAPS_AT: usize = COUNTERS_AT + SLOTS * WORDS;
const MEMORY: usize = BITMAPS_AT + SLOTS * BITMAP;

/// The environment variable with the place of the memory.
const MEMORY_VARIABLE: &str = "SUPERPOLL_WATCH_COUNTERS";

/// The environment variable with the place of the library, if it has an unusual one.
const LIBRARY_VARIABLE: &str = "SUPERPOLL_WATCH_PRELOAD";

const LIBRARY: &str = "libsuperpoll_watch_preload.so";

/// A number that a library and a watch must have in common.
const LAYOUT: u64 = {
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    let layout = [WORDS, HISTOGRAM, BITMAP, GLOBALS, SLOTS, COUNTERS_AT, Word::Ended as usize];
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut at = 0;
    while at < version.len() + layout.len() {
        let next =
            if at < version.len() { version[at] as u64 } else { layout[at - version.len()] as u64 };
        hash = (hash ^ next).wrapping_mul(0x100_0000_01b3);
        at += 1;
    }
    hash
};

const MARK: &[u8; 16] = b"superpoll-watch:";

/// How a file with the library tells its layout: this is somewhere in it.
pub const LAYOUT_MARK: [u8; 24] = {
    let (mut mark, layout) = ([0; 24], LAYOUT.to_ne_bytes());
    let mut at = 0;
    while at < mark.len() {
        mark[at] = if at < 16 { MARK[at] } else { layout[at - 16] };
        at += 1;
    }
    mark
};

/// The watch's side: the library, and the memory for a program that is started.
#[derive(Debug)]
pub(crate) struct Preload {
    library: PathBuf,
    memory: File,
}

/// The three parts of the memory.
#[derive(Debug)]
struct Parts {
    globals: SharedWords,
    counters: SharedWords,
    bitmaps: SharedWords,
}

impl Parts {
    fn of(memory: &File) -> io::Result<Parts> {
        let part = |first, words| SharedWords::part(memory.as_fd(), first, words);
        Ok(Parts {
            globals: part(0, GLOBALS)?,
            counters: part(COUNTERS_AT, SLOTS * WORDS)?,
            bitmaps: part(BITMAPS_AT, SLOTS * BITMAP)?,
        })
    }

    fn global(&self, word: Global) -> &std::sync::atomic::AtomicU64 {
        &self.globals.words()[word as usize]
    }
}

impl Preload {
    /// Finds the library for a program. Returns it with the counters, the bitmaps, and the words
    /// of all.
    ///
    /// # Errors
    ///
    /// Why the program cannot be counted in this way.
    pub(crate) fn of(program: &OsStr) -> Result<(Preload, [SharedWords; 3]), String> {
        let library = find_library()?;
        check_program(program)?;
        let failed = |error: io::Error| format!("making memory for the counters: {error}");
        let memory = sys::memory(c"superpoll-watch", MEMORY).map_err(failed)?;
        let parts = Parts::of(&memory).map_err(failed)?;
        parts.global(Global::Next).store(SLOTS as u64, std::sync::atomic::Ordering::Relaxed);
        parts.global(Global::Layout).store(LAYOUT, std::sync::atomic::Ordering::Release);
        let Parts { globals, counters, bitmaps } = parts;
        Ok((Preload { library, memory }, [counters, bitmaps, globals]))
    }

    /// Makes a command load the library, after those that the environment names already: some must
    /// be the first.
    pub(crate) fn load_into(&self, command: &mut Command) {
        let mut libraries = env::var_os("LD_PRELOAD").unwrap_or_default();
        if !libraries.is_empty() {
            libraries.push(":");
        }
        libraries.push(&self.library);
        let (process, descriptor) = (std::process::id(), self.memory.as_raw_fd());
        command.env("LD_PRELOAD", libraries);
        command.env(MEMORY_VARIABLE, format!("/proc/{process}/fd/{descriptor}"));
    }

    /// How many slots there are.
    pub(crate) fn slots() -> usize {
        SLOTS
    }
}

/// Finds the library, of this layout.
fn find_library() -> Result<PathBuf, String> {
    let library = match env::var_os(LIBRARY_VARIABLE) {
        Some(named) => {
            // The program may start others in other folders.
            let named = PathBuf::from(named);
            fs::canonicalize(&named)
                .map_err(|error| format!("{LIBRARY_VARIABLE} names {}: {error}", named.display()))?
        }
        None => {
            let own = env::current_exe().map_err(|error| format!("finding this file: {error}"))?;
            let folder = own.parent().unwrap_or(Path::new("/"));
            // The first is where cargo builds; the package has the last.
            let found = ["deps", ".", "../lib/superpoll"]
                .into_iter()
                .find_map(|place| fs::canonicalize(folder.join(place).join(LIBRARY)).ok());
            found.ok_or_else(|| {
                format!(
                    "{LIBRARY}, which would count with less delay, is not in {0} or \
                     {0}/../lib/superpoll; the Debian package has it, cargo build --release -p \
                     superpoll-watch-preload makes it, and {LIBRARY_VARIABLE} names another place",
                    folder.display()
                )
            })?
        }
    };
    check_library(&library)?;
    Ok(library)
}

fn check_library(library: &Path) -> Result<(), String> {
    let path = library.display();
    let bytes = fs::read(library).map_err(|error| format!("reading {path}: {error}"))?;
    if !bytes.windows(LAYOUT_MARK.len()).any(|window| window == LAYOUT_MARK) {
        return Err(format!(
            "{path} is not the library of this version; install both from one package, or \
             build both"
        ));
    }
    if library.as_os_str().as_bytes().iter().any(|byte| b": \t\n$".contains(byte)) {
        return Err(format!(
            "{path} cannot be named in LD_PRELOAD, where colons and spaces separate; \
             {LIBRARY_VARIABLE} names a copy elsewhere"
        ));
    }
    Ok(())
}

/// Checks that the program loads libraries, and does so as this one does.
fn check_program(program: &OsStr) -> Result<(), String> {
    // Starting a program that is not there says so.
    let Some(path) = find_program(program, env::var_os("PATH").as_deref()) else { return Ok(()) };
    let interpreter = |path: &Path| {
        interpreter(path).map_err(|error| format!("reading {}: {error}", path.display()))
    };
    let mode = fs::metadata(&path).map_or(0, |found| found.permissions().mode());
    if mode & 0o6000 != 0 {
        return Err(format!("{} has set-user-ID, and loads no library", path.display()));
    }
    let Some((file, loader)) = interpreter(&path)? else {
        let path = path.display();
        return Err(format!("{path} is no 64-bit program that loads libraries"));
    };
    let own = interpreter(Path::new("/proc/self/exe"))?.map(|(_, loader)| loader);
    let same = |path: PathBuf| fs::canonicalize(&path).unwrap_or(path);
    // It ends programs in which another library is the first.
    let bytes = fs::read(&file).map_err(|error| format!("reading {}: {error}", file.display()))?;
    for sanitizer in ["libasan.so.", "libtsan.so.", "libhwasan.so."] {
        // As one of the names in the file that it loads.
        let name = [&[0], sanitizer.as_bytes()].concat();
        if bytes.windows(name.len()).any(|window| window == name) {
            let path = file.display();
            return Err(format!("{path} loads {sanitizer}*, which has to be loaded first"));
        }
    }
    if own.map(same) != Some(same(loader.clone())) {
        let path = path.display();
        return Err(format!(
            "{path} loads its libraries by {}, unlike this command",
            loader.display()
        ));
    }
    Ok(())
}

/// Finds a program as `execvp(3)` does.
fn find_program(program: &OsStr, places: Option<&OsStr>) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        fs::metadata(path)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(is_program);
    }
    let places = places.unwrap_or(OsStr::new("/bin:/usr/bin"));
    env::split_paths(places).map(|place| place.join(program)).find(is_program)
}

/// Returns the file of a program and the loader that it names, or `None` if it has none. Of a
/// script these are those of the program that reads it.
fn interpreter(program: &Path) -> io::Result<Option<(PathBuf, PathBuf)>> {
    const HEADER: usize = 64;
    const INTERPRETER: u32 = 3;
    let mut path = program.to_owned();
    // The kernel follows four scripts, too.
    for _ in 0..5 {
        let mut file = File::open(&path)?;
        let mut head = Vec::with_capacity(256);
        file.by_ref().take(256).read_to_end(&mut head)?;
        if let Some(rest) = head.strip_prefix(b"#!") {
            let mut words = rest.split(|byte| b" \t\n".contains(byte));
            let reader = words.find(|word| !word.is_empty()).unwrap_or_default();
            path = PathBuf::from(OsStr::from_bytes(reader));
            continue;
        }
        if head.len() < HEADER || !head.starts_with(b"\x7fELF\x02") {
            return Ok(None);
        }
        let at = |bytes: &[u8], at: usize| -> u64 {
            u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
        };
        let (start, sizes) = (at(&head, 32), at(&head, 54));
        let (size, count) = (sizes as u16 as usize, (sizes >> 16) as u16 as usize);
        let mut segments = vec![0; size.max(56) * count];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut segments)?;
        let named = segments
            .chunks_exact(size.max(56))
            .find(|segment| at(segment, 0) as u32 == INTERPRETER);
        let Some(segment) = named else { return Ok(None) };
        let mut name = Vec::new();
        file.seek(SeekFrom::Start(at(segment, 8)))?;
        file.take(at(segment, 32).min(4096)).read_to_end(&mut name)?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        return Ok(Some((path, PathBuf::from(OsStr::from_bytes(name)))));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::io::Write;

    use super::*;

    /// A 64-bit program whose only segment is of this kind.
    fn program(folder: &Path, kind: u32) -> PathBuf {
        let mut bytes = vec![0; 64 + 56];
        bytes[..5].copy_from_slice(b"\x7fELF\x02");
        bytes[32..40].copy_from_slice(&64_u64.to_ne_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_ne_bytes());
        bytes[56..58].copy_from_slice(&1_u16.to_ne_bytes());
        bytes[64..68].copy_from_slice(&kind.to_ne_bytes());
        bytes[72..80].copy_from_slice(&120_u64.to_ne_bytes());
        bytes[96..104].copy_from_slice(&11_u64.to_ne_bytes());
        bytes.extend(b"/lib/other\0");
        let path = folder.join(format!("program-{kind}"));
        write_program(&path, &bytes);
        path
    }

    fn write_program(path: &Path, bytes: &[u8]) {
        File::create(path).unwrap().write_all(bytes).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn programs_that_load_no_library_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let own = env::current_exe().unwrap();
        assert_eq!(check_program(own.as_os_str()), Ok(()));
        assert_eq!(check_program(OsStr::new("/no/such/program")), Ok(()));
        let error = |path: &Path| check_program(path.as_os_str()).unwrap_err();
        let fixed = program(folder.path(), 1);
        assert!(error(&fixed).contains("loads libraries"), "{}", error(&fixed));
        let other = program(folder.path(), 3);
        assert!(error(&other).contains("by /lib/other"), "{}", error(&other));
        let checked = folder.path().join("checked");
        // Not in this program as they are.
        let names = ["", "libc.so.6", "libasan.so.8", ""].join("\0");
        let names = [&fs::read(&own).unwrap()[..], names.as_bytes()].concat();
        write_program(&checked, &names);
        assert!(error(&checked).contains("loaded first"), "{}", error(&checked));
        let script = folder.path().join("script");
        write_program(&script, format!("#! {} -x\n", fixed.display()).as_bytes());
        assert!(error(&script).contains("loads libraries"));
        write_program(&script, format!("#!{}\n", own.display()).as_bytes());
        assert_eq!(check_program(script.as_os_str()), Ok(()));
        fs::set_permissions(&script, fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(error(&script).contains("set-user-ID"));
        write_program(&script, b"");
        assert!(error(&script).contains("loads libraries"));
        let places = OsString::from(format!("/no/such:{}", folder.path().display()));
        assert_eq!(find_program(OsStr::new("program-1"), Some(&places)), Some(fixed));
        assert_eq!(find_program(OsStr::new("program-2"), Some(&places)), None);
    }

    #[test]
    fn a_library_of_another_layout_or_with_an_impossible_name_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("library.so");
        fs::write(&library, [&b"code"[..], &LAYOUT_MARK].concat()).unwrap();
        assert_eq!(check_library(&library), Ok(()));
        let spaced = folder.path().join("a library.so");
        fs::copy(&library, &spaced).unwrap();
        assert!(check_library(&spaced).unwrap_err().contains("LD_PRELOAD"));
        fs::write(&library, [&b"code"[..], MARK, &(LAYOUT + 1).to_ne_bytes()].concat()).unwrap();
        assert!(check_library(&library).unwrap_err().contains("not the library of this version"));
    }
}
