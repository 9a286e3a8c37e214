//! `superpoll-lab png`: the plots of a report as PNG, for slides and for readers that show no SVG.
//!
//! Built with the feature `png` only: it draws with `resvg`, which brings a few dozen crates. Text
//! needs a font of the system, since none is part of a plot; without any, a plot would have lines
//! and no words, so that is refused.

use std::path::{Path, PathBuf};

#[cfg(feature = "png")]
use crate::error::Doing;
use crate::error::{Error, Result};

/// Options of `superpoll-lab png`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// The folder of a report
    #[arg(value_name = "FOLDER", default_value = "superpoll-report")]
    pub report: PathBuf,
    /// The width of each picture, in pixels
    #[arg(long, value_name = "N", default_value_t = 1800)]
    pub width: u32,
}

/// Draws every SVG of a report's folder as a PNG next to it, and prints their names.
pub(crate) fn run(options: &Options) -> Result<()> {
    if !(100..=10_000).contains(&options.width) {
        return Err(Error::usage(format!(
            "--width {} is out of range: give 100 to 10000",
            options.width
        )));
    }
    let plots = plots(&options.report)?;
    for path in draw(&plots, options.width)? {
        crate::say!("{}", path.display())?;
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

#[cfg(not(feature = "png"))]
fn draw(_: &[PathBuf], _: u32) -> Result<Vec<PathBuf>> {
    Err(Error::usage("PNG is not built in: build with --features png"))
}

#[cfg(feature = "png")]
fn draw(plots: &[PathBuf], width: u32) -> Result<Vec<PathBuf>> {
    use std::sync::Arc;

    use resvg::{tiny_skia, usvg};

    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_system_fonts();
    // Plots ask for "sans-serif", for which a system need not have the family that the library
    // expects.
    let families = ["DejaVu Sans", "Liberation Sans", "Noto Sans", "Arial", "Helvetica"];
    let known = |family: &&str| {
        fonts.faces().any(|face| face.families.iter().any(|(name, _)| name == family))
    };
    let family = families.iter().find(|family| known(family)).map(|&family| family.to_owned());
    let first = || fonts.faces().next().and_then(|face| Some(face.families.first()?.0.clone()));
    let Some(family) = family.or_else(first) else {
        return Err(Error::usage(
            "no font is installed, so the plots would have no words: install one (Debian: fonts-dejavu-core)",
        ));
    };
    fonts.set_sans_serif_family(family);
    let options = usvg::Options { fontdb: Arc::new(fonts), ..usvg::Options::default() };
    let mut drawn = Vec::new();
    for path in plots {
        let shown = path.display();
        let text = crate::record::read(path)?;
        let refused = |why: String| Error::usage(format!("drawing {shown}: {why}"));
        let tree = usvg::Tree::from_str(&text, &options).map_err(|e| refused(e.to_string()))?;
        let scale = width as f32 / tree.size().width();
        let height = (tree.size().height() * scale).ceil() as u32;
        let mut picture = tiny_skia::Pixmap::new(width, height)
            .ok_or_else(|| refused(format!("{width} by {height} pixels are too many")))?;
        let transform = tiny_skia::Transform::from_scale(scale, scale);
        resvg::render(&tree, transform, &mut picture.as_mut());
        let target = path.with_extension("png");
        let png = picture.encode_png().map_err(|e| refused(e.to_string()))?;
        std::fs::write(&target, png).doing(format_args!("writing {}", target.display()))?;
        drawn.push(target);
    }
    Ok(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(folder: &Path, width: u32) -> Options {
        Options { report: folder.to_owned(), width }
    }

    #[test]
    fn an_invalid_drawing_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let said = |options: &Options| run(options).unwrap_err().to_string();
        assert!(said(&options(folder.path(), 50)).contains("--width 50"));
        assert!(said(&options(folder.path(), 800)).contains("no plot"));
        assert!(said(&options(&folder.path().join("none"), 800)).contains("reading the folder"));
        std::fs::write(folder.path().join("a.svg"), "<svg").unwrap();
        let error = said(&options(folder.path(), 800));
        let reason = if cfg!(feature = "png") { "a.svg" } else { "--features png" };
        assert!(error.contains(reason) || error.contains("no font"), "{error}");
    }

    #[cfg(feature = "png")]
    #[test]
    fn a_plot_becomes_a_picture_of_the_width_that_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let curves = crate::plot::curves(&[(0.1, 5.0), (1.0, 1.0)], |&at| Some(("curve", at)));
        let plot = crate::plot::Plot::of("a title".to_owned(), "x", "y", curves);
        let svg = crate::plot::standalone(&plot.svg().unwrap());
        std::fs::write(folder.path().join("a.svg"), svg).unwrap();
        let made = draw(&plots(folder.path()).unwrap(), 450);
        let Ok(made) = made else {
            let error = made.unwrap_err().to_string();
            assert!(error.contains("no font"), "{error}");
            println!("skipped: {error}");
            return;
        };
        let png = std::fs::read(&made[0]).unwrap();
        assert_eq!(&png[1..4], b"PNG");
        // The width and height of the header, as the format has them.
        assert_eq!(png[16..24], [0, 0, 1, 194, 0, 0, 1, 4]);
    }
}
