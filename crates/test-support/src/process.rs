//! Tests that run again in a process of their own.
//!
//! Tests of one program run at the same time and share its limits, its descriptors, its threads,
//! its environment and its memory. A test of any of these belongs in a process of its own, and not
//! in a program of its own: linking one takes seconds.

use std::any::type_name;
use std::io::{self, Read};
use std::process::{Child, Command, ExitCode, Output, Stdio, Termination};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::wait::PATIENCE;

/// Has the name of the test that runs in this process.
const ALONE: &str = "SUPERPOLL_TEST_ALONE";

/// How long a process of some tests may take.
const LONGEST: Duration = Duration::from_secs(600);

/// Held for writing while a child starts.
static STARTS: RwLock<()> = RwLock::new(());

/// Runs a test in a process of its own.
///
/// `test` is a closure of the test's function itself, whose name is found by it.
///
/// # Panics
///
/// If the test fails there, with its output.
pub fn alone<R: Termination, F: FnOnce() -> R>(test: F) {
    Alone::default().run(test);
}

/// A process for one test.
#[derive(Default)]
pub struct Alone {
    limits: Option<String>,
    variables: Vec<(String, String)>,
}

impl Alone {
    /// Lets a shell execute a command first, such as `ulimit -n 64`.
    #[must_use]
    pub fn under(mut self, command: &str) -> Alone {
        self.limits = Some(command.to_owned());
        self
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Alone {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs a test in such a process, as [`alone`] does.
    ///
    /// # Panics
    ///
    /// If the test fails there, with its output.
    pub fn run<R: Termination, F: FnOnce() -> R>(self, test: F) {
        let name = test_of::<F>();
        if std::env::var_os(ALONE).is_some_and(|alone| alone == name) {
            // It has printed its error.
            return assert_eq!(test().report(), ExitCode::SUCCESS, "the test returns an error");
        }
        let program = std::env::current_exe().unwrap();
        let mut command = match self.limits {
            None => Command::new(program),
            Some(limits) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("{limits} && exec \"$0\" \"$@\"")]).arg(program);
                shell
            }
        };
        command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
        let output = output(command.env(ALONE, name).envs(self.variables));
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{name}: {text}\n{errors}");
        // If it was skipped there, this is why.
        eprint!("{errors}");
    }
}

/// Runs the tests of some modules again, such as `"time::"`, in a process for which `prepare`
/// changes something.
///
/// # Panics
///
/// If a test fails there, with the output, or if a module has none.
pub fn rerun(modules: &[&str], prepare: impl FnOnce(&mut Command)) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    prepare(command.args(modules));
    let output = output(&mut command);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let all = text.contains(" 0 failed; 0 ignored; 0 measured;");
    assert!(output.status.success() && all, "{command:?}: {text}\n{errors}");
    for module in modules {
        assert!(text.contains(&format!("test {module}")), "no test {module} has run: {text}");
    }
}

/// Returns the name by which a test program knows the test whose function has a closure.
fn test_of<F>() -> &'static str {
    let path = type_name::<F>();
    let function = path.find("::{{closure}}").map_or(path, |end| &path[..end]);
    function.split_once("::").expect("a test is in a crate").1
}

/// Keeps children from starting: until it has its own program, a child has copies of all
/// descriptors of this process. A test that looks for the effect of a close at once holds this.
pub fn no_child_starts() -> RwLockReadGuard<'static, ()> {
    STARTS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a child, while no test holds [`no_child_starts`].
///
/// # Panics
///
/// If it cannot be started.
pub fn start(command: &mut Command) -> Child {
    let _starts = STARTS.write().unwrap_or_else(PoisonError::into_inner);
    let end = Instant::now() + PATIENCE;
    loop {
        match command.spawn() {
            // The program was copied just now, and a child of another test still has its file open
            // for writing until it executes its own program.
            Err(error)
                if error.kind() == io::ErrorKind::ExecutableFileBusy && Instant::now() < end =>
            {
                thread::yield_now();
            }
            outcome => return outcome.unwrap_or_else(|error| panic!("{command:?}: {error}")),
        }
    }
}

/// Runs a test program, and returns its output but for the empty line with which it begins.
fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let starts = STARTS.write().unwrap_or_else(PoisonError::into_inner);
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    // The spawn may be over before the kernel has closed the copies, but the program prints later.
    let _ = child.stdout.as_mut().unwrap().read(&mut [0]);
    drop(starts);
    let id = child.id().to_string();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(child.wait_with_output().unwrap()));
    told.recv_timeout(LONGEST).unwrap_or_else(|_| {
        let _ = Command::new("kill").args(["-KILL", &id]).status();
        panic!("it did not end within {LONGEST:?}: {command:?}");
    })
}

/// A process that is ended with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
