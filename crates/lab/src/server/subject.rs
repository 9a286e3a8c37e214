//! Servers and runtimes by name: an experiment's list of them, and those that take part in a run.

use serde_json::{Value, json};
use superpoll::BackendKind;

use crate::error::{Error, Result};
use crate::{environment, options, rivals};

/// A server in the list of an experiment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<Start> {
    /// Its name in tables and records.
    pub name: &'static str,
    about: &'static str,
    /// Returns why it cannot run here, if it needs a facility that not every system has.
    refusal: fn() -> Option<String>,
    /// How the experiment starts it, or the feature without which it is not built in.
    start: Result<Start, &'static str>,
}

/// A server that takes part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Subject<Start> {
    /// Its name in tables and records.
    pub name: &'static str,
    /// A description for the reader.
    pub about: &'static str,
    /// How the experiment starts it.
    pub start: Start,
}

/// The entry of a server that is built in with a feature.
macro_rules! rival {
    ($feature:literal, $name:literal, $about:literal, $start:expr) => {{
        #[cfg(feature = $feature)]
        let start = Ok($start);
        #[cfg(not(feature = $feature))]
        let start = Err($feature);
        $crate::server::subject::Entry::built_in($name, $about, start)
    }};
}
pub(crate) use rival;

impl<Start: Copy> Entry<Start> {
    /// Creates the entry of a server that every program has and every system can run.
    pub(crate) const fn new(name: &'static str, about: &'static str, start: Start) -> Entry<Start> {
        Entry::built_in(name, about, Ok(start))
    }

    /// Like [`new`](Entry::new), for a server that may not be built in: see [`rival`].
    pub(crate) const fn built_in(
        name: &'static str,
        about: &'static str,
        start: Result<Start, &'static str>,
    ) -> Entry<Start> {
        Entry { name, about, refusal: || None, start }
    }

    /// Returns the entry of a server that cannot run where this returns a reason.
    pub(crate) const fn unless(self, refusal: fn() -> Option<String>) -> Entry<Start> {
        Entry { refusal, ..self }
    }

    /// Returns the entry of a server that needs io_uring.
    pub(crate) const fn with_ring(self) -> Entry<Start> {
        self.unless(|| (!BackendKind::Uring.is_available()).then(environment::why_no_uring))
    }

    fn subject(&self, start: Start) -> Subject<Start> {
        Subject { name: self.name, about: self.about, start }
    }
}

/// Returns the reason for the absence of a program that is not installed.
pub(crate) fn not_installed(program: &str) -> Option<String> {
    rivals::find(program).is_none().then(|| format!("{program} is not installed"))
}

/// Returns the names of all servers in a list.
pub(crate) fn names<Start>(all: &[Entry<Start>]) -> Vec<&'static str> {
    all.iter().map(|entry| entry.name).collect()
}

/// Returns what a record says of those that take part: the names, the descriptions, and the
/// versions of the rivals among `all`.
pub(crate) fn parameters<Start>(
    subjects: &[Subject<Start>],
    all: Vec<&'static str>,
) -> [(&'static str, Value); 3] {
    let names: Vec<&str> = subjects.iter().map(|subject| subject.name).collect();
    let about = subjects.iter().map(|one| (one.name.to_owned(), json!(one.about)));
    let rivals = rivals::versions(all);
    [("subjects", json!(names)), ("about", about.collect()), ("rivals", rivals)]
}

/// Returns the servers that a list with commas names, or all that are built in, each once; and a
/// note for each that this system cannot run. `nothing` is the beginning of the message about an
/// unknown name.
pub(crate) fn chosen<Start: Copy>(
    all: &[Entry<Start>],
    names: Option<&str>,
    nothing: &str,
) -> Result<(Vec<Subject<Start>>, Vec<String>)> {
    let is_here = |entry: &Entry<Start>| entry.start.is_ok();
    let named = options::named(names.unwrap_or("all"), all, |entry| entry.name, is_here, nothing)?;
    let (mut subjects, mut notes) = (Vec::new(), Vec::new());
    for entry in named {
        let start = entry.start.map_err(|feature| {
            let name = entry.name;
            let text = format!("subject {name} is not built in: build with --features {feature}");
            Error::usage(text)
        })?;
        match (entry.refusal)() {
            None => subjects.push(entry.subject(start)),
            Some(reason) => notes.push(format!("{} left out: {reason}", entry.name)),
        }
    }
    Ok((subjects, notes))
}

/// Like [`chosen`], but a server that is asked for by name has to be here, and one that is not
/// built in is noted too.
pub(crate) fn present<Start: Copy>(
    all: &[Entry<Start>],
    names: Option<&str>,
    nothing: &str,
) -> Result<(Vec<Subject<Start>>, Vec<String>)> {
    let missing = |entry: &Entry<Start>| match entry.start {
        Ok(_) => (entry.refusal)(),
        Err(feature) => Some(format!("it is not built in: build with --features {feature}")),
    };
    let (entries, notes) = options::present(names, all, |entry| entry.name, missing, nothing)?;
    let subjects = entries.iter().filter_map(|entry| Some(entry.subject(entry.start.ok()?)));
    Ok((subjects.collect(), notes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[Entry<u8>] = &[
        Entry::new("poll", "", 1),
        Entry::new("kqueue", "", 2).unless(|| Some("this is Linux".to_owned())),
        Entry::built_in("libuv", "", Err("rivals-c")),
        Entry::new("epoll", "", 3),
    ];

    fn starts((subjects, notes): (Vec<Subject<u8>>, Vec<String>)) -> (Vec<u8>, Vec<String>) {
        (subjects.into_iter().map(|subject| subject.start).collect(), notes)
    }

    #[test]
    fn each_is_chosen_once_and_those_that_cannot_run_are_noted() {
        let of = |names| chosen(ALL, names, "no server").map(starts);
        let noted = vec!["kqueue left out: this is Linux".to_owned()];
        assert_eq!(of(None).unwrap(), (vec![1, 3], noted.clone()));
        assert_eq!(of(Some("epoll, all,poll")).unwrap(), (vec![3, 1], noted.clone()));
        assert_eq!(of(Some("kqueue")).unwrap(), (vec![], noted));
        let error = of(Some("poll,iocp")).unwrap_err().to_string();
        assert!(error.contains("no server is called \"iocp\": choose among poll, kq"), "{error}");
        let error = of(Some("libuv")).unwrap_err().to_string();
        assert!(error.contains("libuv is not built in: build with --features rivals-c"), "{error}");
    }

    #[test]
    fn those_that_have_to_be_present_are_noted_among_all_and_refused_by_name() {
        let of = |names| present(ALL, names, "no server").map(starts);
        let (found, notes) = of(None).unwrap();
        assert_eq!((found, notes.len()), (vec![1, 3], 2));
        assert!(notes[1].contains("libuv left out: it is not built in"), "{notes:?}");
        assert_eq!(of(Some("epoll,poll,epoll")).unwrap(), (vec![3, 1], vec![]));
        for (name, reason) in [("kqueue", "this is Linux"), ("libuv", "--features rivals-c")] {
            let error = of(Some(name)).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(reason), "{error}");
        }
        assert!(of(Some("iocp")).is_err());
    }
}
