//! `superpoll-lab png`: the plots of a report as PNG, for slides and for readers that show no SVG.
//!
//! The program `rsvg-convert` draws them (Debian: librsvg2-bin), with the system's fonts.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};

/// Options of `superpoll-lab png`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// The folder of a report
    #[arg(value_name = "FOLDER", default_value = "superpoll-report")]
    pub report: PathBuf,
    /// The width of each picture, in pixels
    #[arg(long, value_name = "N", default_value_t = 1800, value_parser = clap::value_parser!(u32).range(100..=10_000))]
    pub width: u32,
}

/// Draws every SVG of a report's folder as a PNG next to it, and prints their names.
pub(crate) fn run(options: &Options) -> Result<()> {
    for plot in plots(&options.report)? {
        let target = plot.with_extension("png");
        let failed = |why: String| Error::usage(format!("drawing {}: {why}", plot.display()));
        let width = format!("--width={}", options.width);
        let mut program = Command::new("rsvg-convert");
        program.arg(width).arg("--output").args([&target, &plot]);
        let output = program.output().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => failed("install rsvg-convert (Debian: librsvg2-bin)".into()),
            _ => Error::system("starting rsvg-convert", error),
        })?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        crate::say!("{}", target.display())?;
    }
    Ok(())
}

/// Returns the SVG files of a folder, by name.
fn plots(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |e| Error::system(format!("reading the folder {}", folder.display()), e);
    let mut plots = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "svg") {
            plots.push(path);
        }
    }
    if plots.is_empty() {
        return Err(Error::usage(format!(
            "there is no plot in {}: run superpoll-lab all, or give the folder of a report",
            folder.display()
        )));
    }
    plots.sort();
    Ok(plots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(folder: &Path) -> String {
        run(&Options { report: folder.to_owned(), width: 450 }).unwrap_err().to_string()
    }

    #[test]
    fn an_invalid_drawing_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(said(folder.path()).contains("no plot"));
        assert!(said(&folder.path().join("none")).contains("reading the folder"));
        std::fs::write(folder.path().join("a.svg"), "<svg").unwrap();
        assert!(said(folder.path()).contains("a.svg"));
    }

    #[test]
    fn a_plot_becomes_a_picture_of_the_width_that_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let curves = crate::plot::curves(&[(0.1, 5.0), (1.0, 1.0)], |&at| Some(("curve", at)));
        let plot = crate::plot::Plot::of("a title".to_owned(), "x", "y", curves);
        let svg = crate::plot::standalone(&plot.svg().unwrap());
        std::fs::write(folder.path().join("a.svg"), svg).unwrap();
        let made = run(&Options { report: folder.path().to_owned(), width: 450 });
        if let Err(error) = made {
            let error = error.to_string();
            assert!(error.contains("install rsvg-convert"), "{error}");
            println!("skipped: {error}");
            return;
        }
        let png = std::fs::read(folder.path().join("a.png")).unwrap();
        assert_eq!(&png[1..4], b"PNG");
        // The width of the header, as the format has it; the height is below 256.
        assert_eq!(png[16..20], [0, 0, 1, 194]);
        assert_eq!(png[20..23], [0, 0, 0]);
    }
}
