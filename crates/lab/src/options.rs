//! The options that experiments share, and how lists of names are read.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::channel::Kind;
use crate::error::{Error, Result};
use crate::load::Placement;
use crate::subject::{ALL, Entry};

/// Where results go and how long a run may take.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Output {
    /// Writes {schema, experiment, environment, parameters, rows} to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// The folder for CSV, SVG and the HTML report
    #[arg(long, value_name = "FOLDER", default_value = "superpoll-report")]
    pub report: PathBuf,
    /// Writes no CSV, SVG or HTML
    #[arg(long)]
    pub no_report: bool,
    /// A shorter run, of at most 60 seconds
    #[arg(long)]
    pub quick: bool,
    /// How long the run takes, in seconds, and a tenth more at most; points and turns that do not
    /// fit are left out
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
    /// Measures every point, with three rounds at least, even if that takes longer than --seconds
    #[arg(long)]
    pub paced: bool,
    /// Blocks of each subject at each point
    #[arg(long, value_name = "N")]
    pub repetitions: Option<usize>,
    /// Keeps a second thread alive, idle: descriptor lookups of the process get more expensive
    #[arg(long)]
    pub second_thread: bool,
    /// The seed of everything drawn at random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

impl Default for Output {
    /// Returns the options of the command line without arguments.
    fn default() -> Output {
        without_arguments()
    }
}

/// Declares the options of an experiment's command: of each field its type, the name of its value
/// in the help (none for a flag), and its default. The options for the output are added. The
/// default of all is the command line without arguments. An option in parentheses is a word without
/// a name.
macro_rules! options {
    (
        $(#[$about:meta])* pub(crate) struct Options
            $(($(#[$word_about:meta])* $word:ident: $word_type:ty))?;
        $($(#[$more:meta])* $field:ident: $type:ty $(= $value:ident $($default:literal)?)?,)*
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, clap::Args)]
        pub(crate) struct Options {
            $(
                $(#[$word_about])*
                pub $word: $word_type,
            )?
            $(
                #[arg(long $(, value_name = stringify!($value) $(, default_value = concat!($default))?)?)]
                $(#[$more])*
                pub $field: $type,
            )*
            /// Where results go.
            #[command(flatten)]
            pub output: crate::options::Output,
        }

        impl Default for Options {
            fn default() -> Options {
                crate::options::without_arguments()
            }
        }

        impl AsRef<crate::options::Output> for Options {
            fn as_ref(&self) -> &crate::options::Output {
                &self.output
            }
        }
    };
}
pub(crate) use options;

/// The options of a command line without arguments.
///
/// # Panics
///
/// If an argument is required, which an experiment's options never are.
pub(crate) fn without_arguments<T: clap::Args>() -> T {
    let matches = T::augment_args(clap::Command::new("")).get_matches_from([""]);
    T::from_arg_matches(&matches).expect("no argument is required")
}

impl Output {
    /// Refuses options that make no sense, before the first measurement.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(seconds) = self.seconds.filter(|s| !(*s > 0.0 && s.is_finite())) {
            return Err(Error::usage(format!(
                "--seconds {seconds} measures nothing: give a number above 0"
            )));
        }
        if self.repetitions == Some(0) {
            return Err(Error::usage("--repetitions 0 measures nothing: give 1 or more"));
        }
        Ok(())
    }

    /// Returns the options that a record repeats.
    pub(crate) fn parameters(&self) -> [(&'static str, Value); 3] {
        [
            ("quick", json!(self.quick)),
            ("second_thread", json!(self.second_thread)),
            ("seed", json!(self.seed)),
        ]
    }

    /// Returns how long to measure, in seconds: the requested time, otherwise the shorter or the
    /// longer default.
    pub(crate) fn budget(&self, quick: f64, full: f64) -> f64 {
        match (self.seconds, self.quick) {
            (Some(seconds), true) => seconds.min(quick),
            (Some(seconds), false) => seconds,
            (None, true) => quick,
            (None, false) => full,
        }
    }
}

/// Kinds of descriptors from `pipe,unix` or `all`.
pub(crate) fn kinds(text: &str) -> Result<Vec<Kind>> {
    named(text, &Kind::ALL, |kind| kind.name(), |_| true, "no kind of descriptor")
}

/// Placements from `end,front` or `all`.
pub(crate) fn placements(text: &str) -> Result<Vec<Placement>> {
    named(text, &Placement::ALL, |place| place.name(), |_| true, "no placement")
}

/// Returns subjects by name; `all` means all that are here, and `None` the defaults.
pub(crate) fn subjects(text: Option<&str>, defaults: &[&str]) -> Result<Vec<Entry>> {
    let Some(text) = text else {
        let built_in = |entry: &&Entry| defaults.contains(&entry.name) && entry.is_here();
        return Ok(ALL.iter().filter(built_in).copied().collect());
    };
    let chosen = named(text, ALL, |entry| entry.name, Entry::is_here, "no subject")?;
    chosen.into_iter().map(Entry::present).collect()
}

/// Drops entries that need io_uring where there is none; returns the rest, and a note that names
/// the dropped ones.
pub(crate) fn without_rings<T>(
    chosen: Vec<T>,
    rings: bool,
    name_of: impl Fn(&T) -> &'static str,
    needs: impl Fn(&T) -> bool,
) -> (Vec<T>, Vec<String>) {
    let (kept, out): (Vec<T>, Vec<T>) = chosen.into_iter().partition(|one| rings || !needs(one));
    let names: Vec<&str> = out.iter().map(name_of).collect();
    let note = || format!("{} left out: {}", names.join(", "), crate::environment::why_no_uring());
    (kept, (!names.is_empty()).then(note).into_iter().collect())
}

/// Returns the entries of `all` that a list with commas names, each once; the word `all` stands for
/// the entries that are present here. `nothing` is the beginning of the message about an unknown
/// name.
pub(crate) fn named<T: Copy>(
    text: &str,
    all: &[T],
    name_of: impl Fn(&T) -> &'static str,
    is_here: impl Fn(&T) -> bool,
    nothing: &str,
) -> Result<Vec<T>> {
    let mut chosen: Vec<T> = Vec::new();
    for name in text.split(',').map(str::trim) {
        let named = |one: &&T| if name == "all" { is_here(one) } else { name_of(one) == name };
        let named: Vec<&T> = all.iter().filter(named).collect();
        if named.is_empty() {
            let names: Vec<_> = all.iter().map(&name_of).collect();
            return Err(Error::usage(format!(
                "{nothing} is called {name:?}: choose among {} or all",
                names.join(", ")
            )));
        }
        for one in named {
            if chosen.iter().all(|other| name_of(other) != name_of(one)) {
                chosen.push(*one);
            }
        }
    }
    Ok(chosen)
}

/// Returns the entries of `all` that a list with commas names, or all of them, each once; and a
/// note for each entry that is left out because it is not present here, as `missing` says.
/// `nothing` is the beginning of the message about an unknown name.
pub(crate) fn present<T: Copy>(
    names: Option<&str>,
    all: &[T],
    name_of: impl Fn(&T) -> &'static str,
    missing: impl Fn(&T) -> Option<String>,
    nothing: &str,
) -> Result<(Vec<T>, Vec<String>)> {
    let text = names.unwrap_or("all");
    let (mut kept, mut notes) = (Vec::new(), Vec::new());
    for one in named(text, all, &name_of, |_| true, nothing)? {
        let name = name_of(&one);
        match missing(&one) {
            None => kept.push(one),
            Some(reason) if text.split(',').any(|named| named.trim() == name) => {
                return Err(Error::usage(format!("subject {name}: {reason}")));
            }
            Some(reason) => notes.push(format!("{name} left out: {reason}")),
        }
    }
    Ok((kept, notes))
}

/// Refuses a value of an option outside of this range.
pub(crate) fn within(option: &str, value: usize, range: RangeInclusive<usize>) -> Result<()> {
    let (least, most) = (range.start(), range.end());
    let text = || format!("{option} {value} is not possible: give {least} to {most}");
    range.contains(&value).then_some(()).ok_or_else(|| Error::usage(text()))
}

/// Numbers with commas.
pub(crate) fn numbers(option: &str, text: &str) -> Result<Vec<usize>> {
    text.split(',')
        .map(|one| {
            one.trim().parse().map_err(|_| {
                Error::usage(format!("{option} takes whole numbers with commas, not {one:?}"))
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_order_and_drop_repeats() {
        assert_eq!(kinds("tcp,pipe,tcp").unwrap(), [Kind::Tcp, Kind::Pipe]);
        assert_eq!(kinds("tcp,all").unwrap(), [Kind::Tcp, Kind::Pipe, Kind::Unix]);
        assert_eq!(placements("all").unwrap(), Placement::ALL);
        assert!(
            kinds("").is_err() && placements("end,,").is_err() && placements("middle").is_err()
        );
        let error = kinds("fifo").unwrap_err().to_string();
        assert!(error.contains("\"fifo\"") && error.contains("pipe, unix, tcp"), "{error}");
        assert_eq!(numbers("--active", "1, 20").unwrap(), [1, 20]);
        assert!(numbers("--active", "1,x").unwrap_err().to_string().contains("--active"));
    }

    #[test]
    fn names_are_taken_once_and_all_are_those_that_are_here() {
        let of = |text| {
            named(text, &["poll", "epoll", "kqueue"], |one| one, |one| *one != "kqueue", "nothing")
        };
        assert_eq!(of("epoll, poll,epoll").unwrap(), ["epoll", "poll"]);
        assert_eq!(of("epoll,all").unwrap(), ["epoll", "poll"]);
        assert_eq!(of("kqueue").unwrap(), ["kqueue"]);
        for bad in ["", "poll,iocp"] {
            let error = of(bad).unwrap_err().to_string();
            let name = bad.rsplit(',').next().unwrap();
            assert!(
                error.contains(&format!("nothing is called {name:?}: choose among poll")),
                "{error}"
            );
        }
    }

    #[test]
    fn absent_entries_are_noted_and_refused_by_name() {
        let of = |names| {
            let missing = |one: &&str| (*one == "kqueue").then(|| "this is Linux".to_owned());
            present(names, &["poll", "kqueue"], |one| one, missing, "nothing")
        };
        let noted = (vec!["poll"], vec!["kqueue left out: this is Linux".to_owned()]);
        assert_eq!((of(None).unwrap(), of(Some("all,poll")).unwrap()), (noted.clone(), noted));
        let refused = of(Some("all, kqueue")).unwrap_err().to_string();
        assert_eq!(refused, "subject kqueue: this is Linux");
        assert!(of(Some("iocp")).is_err());
    }

    #[test]
    fn defaults_leave_out_subjects_that_are_not_here_and_names_require_them() {
        let entries = subjects(None, &["poll", "libuv"]).unwrap();
        assert!(entries.iter().all(Entry::is_here));
        assert_eq!(entries[0].name, "poll");
        assert_eq!(subjects(Some("epoll-et,epoll-et"), &[]).unwrap().len(), 1);
        assert!(subjects(Some("epoll-et,nonsense"), &[]).is_err());
    }
}
