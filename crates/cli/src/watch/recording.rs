//! `--record`: the waits in a file, for `superpoll-lab replay`.

use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use superpoll_watch::{End, Recorder, Records, Subject, Watch};

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

/// A recording that can begin. Until then an older one in its file stays as it is.
pub(super) struct Prepared {
    path: PathBuf,
    is_new: bool,
    file: File,
    records: Records,
    limit: u64,
}

/// A recording that is made.
pub(super) struct Recording {
    path: PathBuf,
    recorder: Recorder,
    limit: u64,
    is_end_said: bool,
}

/// A recording that has ended.
pub(super) struct Ended {
    path: PathBuf,
    end: std::io::Result<End>,
    limit: u64,
}

impl Options {
    /// The file of the recording that is wanted, if any.
    pub(super) fn file(&self) -> Option<&Path> {
        self.record.as_deref()
    }

    /// Attaches a watch, and opens this file.
    pub(super) fn attach(
        &self,
        subject: Subject,
        path: &Path,
    ) -> Result<(Watch, Prepared), Box<dyn Error>> {
        // Without rights there is no file.
        let (watch, records) = Watch::attach_to_record(subject)?;
        let is_new = fs::symlink_metadata(path).is_err();
        let file = Recorder::open(path).map_err(|error| failed(path, &error))?;
        let (path, limit) = (path.to_owned(), self.record_size);
        Ok((watch, Prepared { path, is_new, file, records, limit }))
    }
}

fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("recording to {}: {error}", path.display())
}

impl Prepared {
    /// Begins to record, once the program has started.
    pub(super) fn start(self) -> Result<Recording, Box<dyn Error>> {
        let Prepared { path, file, records, limit, .. } = self;
        let recorder = Recorder::start(records, file, limit << 20);
        let recorder = recorder.map_err(|error| failed(&path, &error))?;
        Ok(Recording { path, recorder, limit, is_end_said: false })
    }

    /// Leaves everything as it was.
    pub(super) fn abandon(self) {
        if self.is_new {
            // An empty file is left at worst.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Recording {
    /// Says once that the recording has ended by itself. The reason follows at the end.
    pub(super) fn say_early_end(&mut self) {
        if self.recorder.has_ended() && !self.is_end_said {
            self.is_end_said = true;
            eprintln!(
                "superpoll: the recording to {} has ended early; the watch continues",
                self.path.display()
            );
        }
    }

    /// Ends the recording. The watch should have ended.
    pub(super) fn end(self) -> Ended {
        Ended { path: self.path, end: self.recorder.end(), limit: self.limit }
    }
}

impl Ended {
    /// Prints the length of the recording and its gaps.
    pub(super) fn say(self) -> Result<(), Box<dyn Error>> {
        let end = self.end.map_err(|error| failed(&self.path, &error))?;
        let path = self.path.display();
        let seconds = end.duration_ns as f64 / 1e9;
        eprintln!("superpoll: {path} has {seconds:.1} s; superpoll-lab replay {path} judges them");
        if end.is_full {
            eprintln!(
                "superpoll: the recording has ended early: its file has {} MiB (--record-size \
                 allows more), or as many sets as there may be",
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
        if end.cut_waits > 0 {
            eprintln!(
                "superpoll: of {} the recording lacks descriptors or events",
                count(end.cut_waits, "wait")
            );
        }
        Ok(())
    }
}
