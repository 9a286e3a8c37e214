//! Names of back-ends, as they come from the environment or a command line.
//!
//! `cargo +nightly fuzz run backend_name`. A name is accepted exactly if it is one of the list, and
//! a refusal is one line that quotes it and names the others.

#![no_main]

use libfuzzer_sys::fuzz_target;
use superpoll::{BackendKind, Error};

fuzz_target!(|name: &str| {
    match name.parse::<BackendKind>() {
        Ok(kind) => assert_eq!(kind.name(), name),
        Err(error) => {
            assert!(BackendKind::ALL.iter().all(|kind| kind.name() != name));
            let line = error.to_string();
            assert!(!line.contains('\n') && line.contains(&BackendKind::names()), "{line}");
            assert!(matches!(error, Error::UnknownBackend { name: quoted, .. } if quoted == name));
        }
    }
});
