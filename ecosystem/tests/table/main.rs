//! Runs a program for each library on every back-end, prints the table, and compares it with
//! `docs/ecosystem.md`.

use std::path::Path;
use std::process::ExitCode;

use superpoll_ecosystem::Table;
use superpoll_rt::{Handle, spawn};

mod axum;
mod messages;
mod reqwest;
mod sql;
mod tonic;
mod tower_http;

fn main() -> ExitCode {
    let rows = axum::rows()
        .chain(tower_http::rows())
        .chain(tonic::rows())
        .chain(reqwest::rows())
        .chain(messages::rows())
        .chain(sql::rows());
    let table = Table::make(rows.collect(), include_str!("../../Cargo.lock"));
    print!("{table}");
    let failures = table.failures();
    if !failures.is_empty() {
        eprintln!("\n{}", failures.join("\n"));
        return ExitCode::FAILURE;
    }
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ecosystem.md");
    match check(&table, &document) {
        Ok(()) => ExitCode::SUCCESS,
        Err(difference) => {
            eprintln!("\n{}: {difference}", document.display());
            eprintln!("SUPERPOLL_REWRITE=1 writes the table into the document");
            ExitCode::FAILURE
        }
    }
}

fn check(table: &Table, document: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(document).map_err(|error| error.to_string())?;
    if std::env::var_os("SUPERPOLL_REWRITE").is_some() {
        let text = table.put_into(&text)?;
        return std::fs::write(document, text).map_err(|error| error.to_string());
    }
    table.compare(&text)
}

/// Spawns a task on the runtime's last engine: with several it is not the client's.
fn spawn_apart<F: Future<Output: 'static> + 'static>(make: impl FnOnce() -> F + Send + 'static) {
    let handle = Handle::current().expect("a runtime");
    let call = move || spawn(make()).detach();
    handle.call_on(handle.engines() - 1, call).expect("the runtime runs");
}
