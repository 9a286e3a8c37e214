//! A page of `docs/how-to`, and the server with its configuration.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::stage::{Server, run};
use crate::superpoll;

/// A page with its configuration, in which the test has put addresses and folders of its own.
pub(super) struct Page {
    folder: TempDir,
    page: String,
    pub(super) text: String,
    variables: Vec<(&'static str, String)>,
}

impl Page {
    /// Reads a page. Its listeners of TCP get ports of the kernel's choice.
    pub(super) fn read(name: &str) -> Page {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to");
        let page = std::fs::read_to_string(folder.join(name)).unwrap();
        let blocks = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
        let text = blocks.filter(|block| block.contains("[[listeners]]")).collect::<Vec<_>>();
        assert_eq!(text.len(), 1, "{name} has one configuration");
        let mut text = text[0].to_owned();
        for port in [":80", ":443", ":8080"] {
            text = text.replace(&format!("address = \"{port}\""), "address = \"127.0.0.1:0\"");
        }
        let folder = tempfile::tempdir().unwrap();
        Page { folder, page, text, variables: Vec::new() }
    }

    /// Replaces a part of the configuration, which must be there.
    pub(super) fn put(&mut self, from: &str, to: &str) {
        assert!(self.text.contains(from), "{from} is not in {}", self.text);
        self.text = self.text.replace(from, to);
    }

    pub(super) fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.variables.push((name, value.into()));
    }

    /// Returns a path below the folder of the configuration.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file below the folder of the configuration.
    pub(super) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Returns the indented lines of the page from one that begins so, until a line that does not.
    pub(super) fn commands(&self, first: &str) -> String {
        let lines = self.page.lines().skip_while(|line| !line.trim_start().starts_with(first));
        let lines = lines.take_while(|line| line.starts_with("    ") || line.is_empty());
        lines.map(|line| line.trim_start().to_owned() + "\n").collect()
    }

    /// Returns the block of another program's configuration.
    pub(super) fn block(&self, language: &str) -> String {
        let (_, rest) = self.page.split_once(&format!("```{language}\n")).unwrap();
        rest.split("```").next().unwrap().to_owned()
    }

    /// Checks the configuration, and starts the server with it.
    pub(super) fn start(&self, listeners: usize) -> Server {
        self.write("superpoll.toml", &self.text);
        let command = |arguments: &[&str]| {
            let mut command = superpoll();
            command.arg("serve").args(arguments).current_dir(self.folder.path());
            command.envs(self.variables.iter().map(|(name, value)| (name, value)));
            command
        };
        let told = run(&mut command(&["-c", "superpoll.toml", "--check"]));
        assert!(told.starts_with("superpoll: the configuration is right\n"), "{told}");
        Server::of(command(&["-c", "superpoll.toml"]), listeners)
    }
}

/// Runs curl, and returns the head and the body of the answer.
pub(super) fn curl(url: &str, more: &[&str]) -> (String, String) {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--include", "--max-time", "60", "--noproxy", "*"]);
    let answer = run(command.args(more).arg(url)).replace("\r\n", "\n");
    let (head, body) = answer.split_once("\n\n").unwrap_or_else(|| panic!("{url}: {answer}"));
    (head.to_ascii_lowercase(), body.to_owned())
}

/// Returns the status of an answer's head.
pub(super) fn status(head: &str) -> u16 {
    head.split(' ').nth(1).unwrap().trim().parse().unwrap()
}
