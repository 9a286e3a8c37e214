//! `superpoll init`: a small configuration to begin with, which `superpoll serve` starts as it is.
//!
//! The files are those of the folder `files`. Nothing that exists is overwritten: all names are
//! looked at before the first file is written, each file is created and never opened, and if one
//! cannot be written those before it are removed again.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Write, stdout};
use std::path::{Path, PathBuf};

/// The name of the configuration.
const CONFIG: &str = "superpoll.toml";

/// A configuration to begin with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Template {
    /// A web site: a folder of files
    Site,
    /// A page with a channel that its visitors share
    Chat,
    /// A reverse proxy to an application on this machine
    Proxy,
}

/// Options of `init`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// The kind of server
    #[arg(value_enum, default_value = "site")]
    template: Template,
    /// The folder to write to, which is made if it is not there
    #[arg(value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
}

impl Template {
    /// Returns the files, by their paths in the folder.
    fn files(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Template::Site => &[
                (CONFIG, include_str!("files/site.toml")),
                ("www/index.html", include_str!("files/site.html")),
            ],
            Template::Chat => &[
                (CONFIG, include_str!("files/chat.toml")),
                ("www/index.html", include_str!("files/chat.html")),
            ],
            Template::Proxy => &[(CONFIG, include_str!("files/proxy.toml"))],
        }
    }
}

/// Writes the files, and prints their names and the next command.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let files = options.template.files();
    let path = |name: &str| match options.folder.as_path() {
        folder if folder == Path::new(".") => PathBuf::from(name),
        folder => folder.join(name),
    };
    let taken: Vec<String> = files
        .iter()
        .map(|(name, _)| path(name))
        .filter(|path| fs::symlink_metadata(path).is_ok())
        .map(|path| path.display().to_string())
        .collect();
    if !taken.is_empty() {
        let taken = taken.join(" and ");
        return Err(format!("not overwriting {taken}; name another folder, or remove that").into());
    }
    let mut written = Vec::new();
    for (name, text) in files {
        let path = path(name);
        if let Err(error) = write(&path, text) {
            for path in written {
                let _ = fs::remove_file(path);
            }
            return Err(format!("writing {}: {error}; nothing was written", path.display()).into());
        }
        written.push(path);
    }
    let mut output = stdout().lock();
    for path in &written {
        writeln!(output, "superpoll: wrote {}", path.display())?;
    }
    let config = quoted(&path(CONFIG));
    writeln!(output, "superpoll: next: superpoll serve -c {config}")?;
    Ok(output.flush()?)
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = File::create_new(path)?;
    file.write_all(text.as_bytes()).inspect_err(|_| {
        let _ = fs::remove_file(path);
    })
}

/// Returns a path as an argument of a shell.
fn quoted(path: &Path) -> String {
    let mut text = path.display().to_string();
    if text.starts_with('-') {
        text.insert_str(0, "./");
    }
    let is_plain = |one: char| one.is_alphanumeric() || "/._-+@%:,".contains(one);
    match text.chars().all(is_plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_where_a_shell_would_take_them_apart() {
        for (path, expected) in [
            ("a/b.toml", "a/b.toml"),
            ("my site/b.toml", "'my site/b.toml'"),
            ("it's/b", "'it'\\''s/b'"),
            ("-x/b", "./-x/b"),
        ] {
            assert_eq!(quoted(Path::new(path)), expected);
        }
    }
}
