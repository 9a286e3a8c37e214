//! The table: a row for each library, a column for each back-end.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use superpoll_rt::{BackendKind, Runtime};

use crate::servers::Server;

/// How long a program may take on one back-end with one number of engines.
const LIMIT: Duration = Duration::from_secs(60);

/// The numbers of engines that each program runs on.
const ENGINES: [usize; 2] = [1, 3];

/// The lines around the table in the document.
const BEGIN: &str = "<!-- libraries: made by a test -->\n";
const END: &str = "<!-- end -->\n";

type Program = Pin<Box<dyn Future<Output = ()>>>;

/// A library, and a program that panics if the library does not work.
pub struct Row {
    library: &'static str,
    feature: &'static str,
    server: Option<fn() -> Result<Server, String>>,
    program: Box<dyn Fn(SocketAddr) -> Program + Send + Sync>,
}

impl Row {
    /// A row whose program needs no server of another project.
    pub fn new<F: Future<Output = ()> + 'static>(
        library: &'static str,
        feature: &'static str,
        program: impl Fn() -> F + Send + Sync + 'static,
    ) -> Row {
        let program = move |_: SocketAddr| Box::pin(program()) as Program;
        Row { library, feature, server: None, program: Box::new(program) }
    }

    /// A row whose program gets the address of a server that is started for it.
    pub fn with_server<F: Future<Output = ()> + 'static>(
        library: &'static str,
        feature: &'static str,
        server: fn() -> Result<Server, String>,
        program: impl Fn(SocketAddr) -> F + Send + Sync + 'static,
    ) -> Row {
        let program = move |address: SocketAddr| Box::pin(program(address)) as Program;
        Row { library, feature, server: Some(server), program: Box::new(program) }
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row").field("library", &self.library).finish_non_exhaustive()
    }
}

/// The outcome of a program on a back-end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Each result was right.
    Passes,
    /// The program did not run, for this reason.
    Skipped(String),
    /// The message of the failed check.
    Fails(String),
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Passes => f.write_str("passes"),
            Cell::Skipped(reason) => write!(f, "skipped: {reason}"),
            Cell::Fails(message) => write!(f, "fails: {message}"),
        }
    }
}

/// The outcomes of all programs.
#[derive(Debug)]
pub struct Table {
    rows: Vec<(String, Vec<Cell>)>,
}

impl Table {
    /// Runs the programs. `lock` is the text of the `Cargo.lock` that has the versions of the
    /// libraries.
    pub fn make(rows: Vec<Row>, lock: &str) -> Table {
        let cells = |row: Row| {
            let version = version(lock, row.library);
            let name = format!("{} {version}: {}", row.library, row.feature);
            let cells = run_row(row);
            eprintln!("{name}: {}", join(&cells, ", "));
            (name, cells)
        };
        Table { rows: rows.into_iter().map(cells).collect() }
    }

    /// Returns the messages of the programs that failed.
    pub fn failures(&self) -> Vec<String> {
        let failed = |cells: &[Cell]| cells.iter().any(|cell| matches!(cell, Cell::Fails(_)));
        let rows = self.rows.iter().filter(|(_, cells)| failed(cells));
        rows.map(|(name, cells)| format!("{name}: {}", join(cells, ", "))).collect()
    }

    /// Puts the table into the text of a document.
    ///
    /// # Errors
    ///
    /// If the document has no place for the table.
    pub fn put_into(&self, document: &str) -> Result<String, String> {
        let (start, end) = place(document)?;
        Ok(format!("{}{self}{}", &document[..start], &document[end..]))
    }

    /// Compares the table with a document's. A cell that was skipped equals every cell.
    ///
    /// # Errors
    ///
    /// The first difference.
    pub fn compare(&self, document: &str) -> Result<(), String> {
        let (start, end) = place(document)?;
        let made = self.to_string();
        let mut written = document[start..end].lines();
        for made in made.lines() {
            let line = written.next().unwrap_or_default();
            let (ours, theirs) = (made.split(" | "), line.split(" | "));
            let is_equal = |(ours, theirs): (&str, &str)| {
                ours == theirs || ours.trim_start_matches("| ").starts_with("skipped: ")
            };
            if ours.clone().count() != theirs.clone().count() || !ours.zip(theirs).all(is_equal) {
                return Err(format!("the document has\n{line}\nand the programs make\n{made}"));
            }
        }
        written.next().map_or(Ok(()), |line| Err(format!("the document has also\n{line}")))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = BackendKind::ALL.map(|kind| format!("`{kind}`"));
        writeln!(f, "| library | {} |", names.join(" | "))?;
        writeln!(f, "|---|{}", "---|".repeat(names.len()))?;
        for (name, cells) in &self.rows {
            writeln!(f, "| {name} | {} |", join(cells, " | "))?;
        }
        Ok(())
    }
}

fn join(cells: &[Cell], separator: &str) -> String {
    cells.iter().map(Cell::to_string).collect::<Vec<_>>().join(separator)
}

/// Returns where the table begins and ends in a document.
fn place(document: &str) -> Result<(usize, usize), String> {
    let start =
        document.find(BEGIN).ok_or_else(|| format!("the document lacks the line {BEGIN}"))?;
    let start = start + BEGIN.len();
    let length = document[start..].find(END).ok_or_else(|| format!("it lacks the line {END}"))?;
    Ok((start, start + length))
}

/// Returns the version of a package in a `Cargo.lock`.
fn version<'a>(lock: &'a str, package: &str) -> &'a str {
    let start = format!("\nname = \"{package}\"\nversion = \"");
    let (_, rest) = lock.split_once(&start).unwrap_or_else(|| panic!("{package} is locked"));
    rest.split('"').next().unwrap_or_default()
}

fn run_row(row: Row) -> Vec<Cell> {
    let server = row.server.map(|start| start()).transpose();
    let server = match server {
        Ok(server) => server,
        Err(reason) => return vec![Cell::Skipped(reason); BackendKind::ALL.len()],
    };
    let address = server.as_ref().map_or(([127, 0, 0, 1], 0).into(), |server| server.address);
    let program = std::sync::Arc::new(row.program);
    let cell = |backend: BackendKind| {
        if !backend.is_available() {
            return Cell::Skipped(format!("this system has no {backend}"));
        }
        for engines in ENGINES {
            let program = program.clone();
            let run = move || run(backend, engines, program(address));
            if let Err(message) = in_time(run) {
                let message = message.replace(['\n', '|'], " ");
                return Cell::Fails(format!("{engines} engines: {message}"));
            }
        }
        Cell::Passes
    };
    BackendKind::ALL.into_iter().map(cell).collect()
}

fn run(backend: BackendKind, engines: usize, program: Program) {
    let engines = NonZeroUsize::new(engines).expect("there is an engine");
    let runtime = Runtime::builder().backend(backend).workers(engines).tokio(true).build();
    runtime.expect("the back-end is available").block_on(program);
}

/// Runs a program on a thread, and returns its panic or that it takes too long. The thread of a
/// program that hangs ends with the process.
fn in_time(run: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let (sender, receiver) = mpsc::channel();
    let run = move || {
        let outcome = panic::catch_unwind(AssertUnwindSafe(run));
        // The receiver has gone if this took too long.
        let _ = sender.send(outcome.map_err(|panic| message(&*panic)));
    };
    thread::Builder::new().name("program".to_owned()).spawn(run).expect("a thread");
    receiver.recv_timeout(LIMIT).unwrap_or_else(|_| Err(format!("it takes more than {LIMIT:?}")))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}
