//! The progress bar: on standard error, only if that is a terminal, and drawn by the measuring
//! thread between blocks, so that no second thread makes descriptor lookups more expensive.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar over all blocks of an experiment.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Creates a bar of this many blocks.
    pub(crate) fn new(experiment: &'static str, blocks: usize) -> Progress {
        // The target draws nothing where standard error is not a terminal.
        let target = ProgressDrawTarget::stderr_with_hz(5);
        let bar = ProgressBar::with_draw_target(Some(blocks as u64), target);
        let template = "{prefix} [{bar:32}] {pos}/{len} {msg} (about {eta} left)";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(experiment);
        Progress { bar }
    }

    /// Notes that a block is over, and that the next is about to begin.
    pub(crate) fn step(&self, what: String) {
        self.bar.set_message(what);
        self.bar.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
