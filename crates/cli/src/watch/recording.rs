//! `--record`: the waits in a file, for `superpoll-lab replay`.

use std::error::Error;
use std::path::{Path, PathBuf};

use superpoll_watch::{Recorder, Subject, Watch};

use crate::quantity::count;

/// Options of a recording.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub(super) struct Options {
    /// Record each wait in this file, for superpoll-lab replay
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// End the recording at this size of its file
    #[arg(long, value_name = "MIB", default_value_t = 64, requires = "record",
          value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    record_size: u64,
}

/// A recording that is made.
pub(super) struct Recording {
    path: PathBuf,
    recorder: Recorder,
    limit: u64,
}

impl Options {
    /// The file of the recording that is wanted, if any.
    pub(super) fn file(&self) -> Option<&Path> {
        self.record.as_deref()
    }

    /// Attaches a watch, and begins to record to this file.
    pub(super) fn attach(
        &self,
        subject: Subject,
        path: &Path,
    ) -> Result<(Watch, Recording), Box<dyn Error>> {
        let failed = |error| format!("recording to {}: {error}", path.display());
        let file = Recorder::open(path).map_err(failed)?;
        let (watch, records) = Watch::attach_to_record(subject)?;
        let recorder = Recorder::start(records, file, self.record_size << 20).map_err(failed)?;
        Ok((watch, Recording { path: path.to_owned(), recorder, limit: self.record_size }))
    }
}

impl Recording {
    /// Ends the recording, and says what it lacks.
    pub(super) fn end(self) -> Result<(), Box<dyn Error>> {
        let path = self.path.display();
        let end = self.recorder.end().map_err(|error| format!("recording to {path}: {error}"))?;
        let seconds = end.duration_ns as f64 / 1e9;
        eprintln!("superpoll: {path} has {seconds:.1} s; superpoll-lab replay {path} judges them");
        if end.is_full {
            eprintln!(
                "superpoll: the recording has ended early, at {} MiB; --record-size allows more",
                self.limit
            );
        }
        if end.lost_waits + end.lost_changes > 0 {
            eprintln!(
                "superpoll: the recording lacks {} and {} of sets, which came faster than they \
                 could be written",
                count(end.lost_waits, "wait"),
                count(end.lost_changes, "change"),
            );
        }
        Ok(())
    }
}
