//! Programs in Go, compiled when they are first needed and only where `go` is on the search path.
//!
//! A program is either one file that uses the standard library only, so that nothing is downloaded,
//! or a package of a module in a version, which Go downloads as it is set up to and checks against
//! its database of checksums. The compiler gets a temporary folder and a time limit. Nothing of its
//! output is left but an open descriptor, from which the program is started as often as needed,
//! here or in a forked child. So a program is compiled once in a run, and disappears with the run;
//! Go keeps the modules, and what it has compiled of them, in its caches.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::sys::process;
use crate::{rivals, say};

/// How long compiling may take. The first time the standard library is compiled too.
const PATIENCE: Duration = Duration::from_secs(120);

/// The same for a package, whose modules may have to be downloaded.
const PACKAGE_PATIENCE: Duration = Duration::from_secs(900);

/// After this long, a line says that a program is compiled.
const SILENCE: Duration = Duration::from_secs(3);

/// The only file of a program, in its folder.
const FILE: &str = "main.go";

/// The reason for the absence of a program in Go.
pub(crate) const ABSENT: &str = "no `go` on the PATH";

/// The variable for the number of processors.
const PROCESSORS: &str = "GOMAXPROCS";

#[derive(Clone, Copy, Debug)]
enum Source {
    /// The text of the only file.
    File(&'static str),
    /// A package, and the module that it is part of.
    Package { path: &'static str, module: &'static str, version: &'static str },
}

/// A program.
#[derive(Debug)]
pub(crate) struct Program {
    name: &'static str,
    source: Source,
    /// The compiled program and the process that has it open, or the compiler's error.
    built: OnceLock<Result<(File, u32), String>>,
}

impl Program {
    /// Creates a program from its only file.
    pub(crate) const fn new(name: &'static str, text: &'static str) -> Program {
        Program { name, source: Source::File(text), built: OnceLock::new() }
    }

    /// Creates a program from a package of a module, in a version.
    pub(crate) const fn of_package(
        name: &'static str,
        path: &'static str,
        module: &'static str,
        version: &'static str,
    ) -> Program {
        let source = Source::Package { path, module, version };
        Program { name, source, built: OnceLock::new() }
    }

    /// Returns the version of its module, or why there is no Go.
    pub(crate) fn version(&self) -> Result<String, String> {
        rivals::find("go").ok_or(ABSENT)?;
        match self.source {
            Source::File(_) => Ok(String::new()),
            Source::Package { version, .. } => Ok(version.trim_start_matches('v').to_owned()),
        }
    }

    /// Compiles the program, unless that was done, and returns why it cannot be. Call this before
    /// forking a child that will start it.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.built().err().map(|error| error.to_string())
    }

    /// Returns a command that runs it on one processor.
    pub(crate) fn command(&self) -> Result<Command> {
        let mut command = Command::new(self.path()?);
        command.env(PROCESSORS, "1");
        Ok(command)
    }

    /// Returns the path of the compiled program. In a child, the descriptor may be closed; the
    /// process that compiled the program still has it.
    fn path(&self) -> Result<String> {
        let (file, owner) = self.built()?;
        Ok(format!("/proc/{owner}/fd/{}", file.as_raw_fd()))
    }

    /// Returns the path of the program, and the variable with which it runs on one processor.
    pub(crate) fn command_line(&self) -> Result<[String; 2]> {
        Ok([self.path()?, format!("{PROCESSORS}=1")])
    }

    fn built(&self) -> Result<&(File, u32)> {
        self.built
            .get_or_init(|| Ok((self.compile().map_err(|e| e.to_string())?, std::process::id())))
            .as_ref()
            .map_err(Error::usage)
    }

    fn compile(&self) -> Result<File> {
        let go = rivals::find("go").ok_or_else(|| Error::usage(ABSENT))?;
        let failed = |e| Error::system(format!("compiling the program {} in Go", self.name), e);
        let folder = tempfile::tempdir().map_err(failed)?;
        let (file, text, target, patience) = match self.source {
            Source::File(text) => (FILE, text.to_owned(), FILE, PATIENCE),
            Source::Package { path, module, version } => {
                let text = format!("module lab\n\ngo 1.26.0\n\nrequire {module} {version}\n");
                ("go.mod", text, path, PACKAGE_PATIENCE)
            }
        };
        std::fs::write(folder.path().join(file), text).map_err(failed)?;
        let log = folder.path().join("log");
        let mut command = Command::new(go);
        command.args(["build", "-o", self.name, target]).current_dir(folder.path());
        // Nothing else is looked for outside of the folder and of Go's own.
        if matches!(self.source, Source::File(_)) {
            command.env("GOPROXY", "off");
        }
        command.envs([
            ("GOFLAGS", "-mod=mod"),
            ("GOTOOLCHAIN", "local"),
            ("GOWORK", "off"),
            ("CGO_ENABLED", "0"),
        ]);
        if ["GOCACHE", "XDG_CACHE_HOME", "HOME"].iter().all(|name| std::env::var_os(name).is_none())
        {
            command.env("GOCACHE", folder.path().join("cache"));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&log).map_err(failed)?);
        let (child, ..) = process::spawn(&mut command).map_err(failed)?;
        let begun = Instant::now();
        let mut is_told = false;
        while !child.has_ended() {
            if begun.elapsed() > SILENCE && !std::mem::replace(&mut is_told, true) {
                say::note(&format!("compiling {} in Go: the first time takes minutes", self.name));
            }
            if begun.elapsed() > patience {
                let seconds = patience.as_secs();
                return Err(Error::usage(format!("`go build` was not done in {seconds} s")));
            }
            process::sleep(5_000_000);
        }
        File::open(folder.path().join(self.name)).map_err(|_| {
            let mut text = String::new();
            // A log that is not text is left out.
            let _ = File::open(&log).and_then(|mut log| log.read_to_string(&mut text));
            let said = text.lines().map(str::trim).rfind(|line| !line.is_empty());
            Error::usage(format!("`go build` made nothing: {}", said.unwrap_or("it said nothing")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_compiled_once_and_started_by_its_descriptor() {
        static HELLO: Program = Program::new(
            "hello",
            "package main\n\nimport \"os\"\n\nfunc main() { os.Stdout.WriteString(os.Getenv(\"GOMAXPROCS\")) }\n",
        );
        static WRONG: Program =
            Program::new("wrong", "package main\n\nfunc main() { nonsense() }\n");
        if rivals::find("go").is_none() {
            assert_eq!(HELLO.refusal().unwrap(), ABSENT);
            return;
        }
        for _ in 0..2 {
            let output = HELLO.command().unwrap().output().unwrap();
            assert_eq!(output.stdout, b"1");
        }
        let error = WRONG.refusal().unwrap();
        assert!(error.contains("made nothing") && error.contains("nonsense"), "{error}");
    }
}
