//! The document of a report: all measurements and the conclusions from them, in one JSON file.
//!
//! `superpoll-lab all` and every experiment write it next to the page, which also contains it;
//! `superpoll-lab compare` and `superpoll-lab verify` read it. Its structure is given by the types
//! here. Fields may be added in the same version, so readers skip those that they do not know.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::claims::{self, Finding};
use crate::error::{Error, Result};
use crate::experiments::{self, Records};
use crate::record::{self, Journal, SCHEMA};

/// Its file in a report's folder.
pub(crate) const FILE: &str = "report.json";

/// A report as data.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Document {
    /// The version of its shape.
    pub schema: u32,
    /// The run that measured, if it was `superpoll-lab all`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Journal>,
    /// The verdict on each claim.
    #[serde(default)]
    pub claims: Vec<Finding>,
    /// The measurements.
    pub records: Records,
    /// The files that could not be read, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Document {
    /// Returns the document of a folder: its records and the conclusions from them.
    pub(crate) fn of(folder: &Path) -> Document {
        let (records, mut notes) = Records::load(folder);
        let run = Journal::load(folder, &mut notes);
        Document { schema: SCHEMA, run, claims: claims::evaluate(&records), records, notes }
    }

    /// Reads a report's document, or the record of one experiment. Claims are judged again.
    pub(crate) fn read(path: &Path) -> Result<Document> {
        #[derive(Deserialize)]
        struct Shape {
            experiment: Option<String>,
        }
        let text = record::read(path)?;
        let document = match experiments::parsed(&text) {
            Ok(Shape { experiment: None }) => experiments::parsed(&text),
            Ok(Shape { experiment: Some(name) }) => {
                Records::only(&name, &text).map(|records| Document {
                    schema: SCHEMA,
                    run: None,
                    claims: Vec::new(),
                    records,
                    notes: Vec::new(),
                })
            }
            Err(why) => Err(why),
        };
        let mut document = document.map_err(|why| {
            let shown = path.display();
            Error::usage(format!(
                "{shown} is not a report of superpoll-lab: {why}; give a {FILE}, or a file that --json wrote"
            ))
        })?;
        document.claims = claims::evaluate(&document.records);
        Ok(document)
    }

    /// Returns the document as JSON text.
    pub(crate) fn to_json(&self) -> Result<String> {
        serde_json::to_string(self)
            .map(|text| text + "\n")
            .map_err(|error| Error::usage(format!("writing the report as JSON: {error}")))
    }

    /// Writes it into the folder of a report.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        record::write(&folder.join(FILE), &self.to_json()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    #[test]
    fn other_files_are_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        for (text, part) in [
            ("[", "EOF"),
            ("{}", "no \"schema\""),
            ("{\"schema\":99}", "version is 99"),
            ("{\"schema\":2,\"experiment\":\"x\"}", "\"x\", which is no experiment"),
            ("{\"schema\":2,\"experiment\":\"atr\"}", "missing field"),
            ("{\"schema\":2,\"records\":{\"atr\":7}}", "invalid type"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Document::read(&path).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("a.json"), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
        let error = Document::read(&folder.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("reading"), "{error}");
    }

    #[test]
    fn a_broken_record_is_noted_and_the_others_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let empty: Record<crate::wake::Row> =
            Record::new("wake", crate::environment::Environment::default(), [], Vec::new());
        std::fs::write(folder.path().join("wake.json"), empty.to_json().unwrap()).unwrap();
        std::fs::write(folder.path().join("atr.json"), "half of").unwrap();
        let document = Document::of(folder.path());
        assert!(document.records.wake.is_some() && document.records.atr.is_none());
        assert!(document.notes.len() == 1 && document.notes[0].starts_with("atr.json left out"));
        document.write(folder.path()).unwrap();
        let again = Document::read(&folder.path().join(FILE)).unwrap();
        assert!(again.records.wake.is_some() && again.notes == document.notes);
        let one = Document::read(&folder.path().join("wake.json")).unwrap();
        assert!(one.records.wake.is_some());
    }
}
