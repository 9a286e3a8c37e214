//! The loops in turn, at each ratio.

use serde_json::json;

use crate::budget::Budget;
use crate::channel::Pairs;
use crate::error::{Doing, Error, Result};
use crate::models::{FLOOR, Model, Options, aio, loops, sigio};
use crate::record::{self, Figures, Record};
use crate::run::Run;
use crate::second_thread::SecondThread;
use crate::subject::{self, Build, Entry, ReadLog};
use crate::sweep::{Row, Sweep};
use crate::sys::{descriptor, epoll, process, signal};
use crate::{options, rivals, statistics};

/// A loop of a model.
#[derive(Clone, Copy, PartialEq, Debug)]
struct ModelLoop {
    model: Model,
    entry: Entry,
}

const fn model_loop(
    model: Model,
    name: &'static str,
    about: &'static str,
    build: Build,
) -> ModelLoop {
    ModelLoop { model, entry: subject::entry(name, about, build) }
}

/// All loops.
fn loops() -> Result<Vec<ModelLoop>> {
    let of_atr = |name| Entry::known(name).map(|entry| ModelLoop { model: Model::Ask, entry });
    let mut select =
        model_loop(Model::Ask, "raw-select", "a C programmer's select loop", loops::build_select);
    select.entry.small_numbers = true;
    Ok(vec![
        model_loop(Model::Try, "spin", "read everything again and again", loops::build_spin),
        model_loop(
            Model::Signals,
            "sigio-plain",
            "SIGIO, then read everything",
            loops::build_sigio_plain,
        ),
        model_loop(Model::Signals, "sigio-wait", "sigtimedwait, one at a time", sigio::build_wait),
        model_loop(Model::Signals, "sigio-fd", "signalfd, many at a time", sigio::build_descriptor),
        select,
        of_atr("raw-poll")?,
        of_atr("raw-epoll-lt")?,
        of_atr("raw-epoll-et")?,
        of_atr("libkqueue")?,
        model_loop(Model::Register, "uring-poll", "io_uring, multishot poll", loops::build_uring),
        model_loop(
            Model::Register,
            "uring-read",
            "io_uring, a read beforehand",
            loops::build_uring_read,
        ),
        model_loop(Model::Register, "aio-poll", "Linux AIO, one-shot poll", aio::build),
    ])
}

fn chosen(text: &str) -> Result<Vec<ModelLoop>> {
    options::named(
        text,
        &loops()?,
        |one| one.entry.name,
        |_| true,
        "no loop of superpoll-lab models",
    )
}

/// Rounds before those that are measured: caches and branch predictors get warm.
const WARM_UP: usize = 8;

/// The ratios that a sweep visits, in addition to a single active descriptor.
const SHARES: [f64; 8] = [0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0];

struct Plan {
    sweep: Sweep,
    loops: Vec<ModelLoop>,
}

fn plan(options: &Options) -> Result<Plan> {
    let totals = options::numbers("--total", &options.total)?;
    let active = options.active.as_deref();
    let sweep = Sweep::new(&options.kind, &options.placement, totals, active, &SHARES)?;
    Ok(Plan { sweep, loops: chosen(&options.subjects)? })
}

/// Whether an error means that the kernel does not have a feature or does not let us use it.
pub(super) fn refused(error: &Error) -> bool {
    const CODES: [i32; 7] = [
        libc::ENOSYS,
        libc::EPERM,
        libc::EACCES,
        libc::EINVAL,
        libc::EOPNOTSUPP,
        // AIO returns EAGAIN when its requests are used up (fs.aio-max-nr); io_uring returns ENOMEM
        // when it may lock no more memory.
        libc::EAGAIN,
        libc::ENOMEM,
    ];
    match error {
        Error::System { source, .. } => source.raw_os_error().is_some_and(|c| CODES.contains(&c)),
        _ => false,
    }
}

/// Returns the loops that work on these pairs, and the reasons for the missing ones.
fn working(loops: &[ModelLoop], pairs: &Pairs) -> Result<(Vec<ModelLoop>, Vec<String>)> {
    let (mut working, mut notes) = (Vec::new(), Vec::new());
    for &one in loops {
        let out = |why: String| {
            format!("{} is left out with {} descriptors: {why}", one.entry.name, pairs.len())
        };
        if let Some(reason) = one.entry.missing() {
            notes.push(out(reason));
            continue;
        }
        if !one.entry.suits(pairs) {
            let beyond = pairs.readers().iter().copied().find(|&fd| fd >= libc::FD_SETSIZE as i32);
            notes.push(out(loops::beyond(beyond.unwrap_or(libc::FD_SETSIZE as i32))));
            continue;
        }
        match one.entry.build(pairs).map(drop) {
            Ok(()) => working.push(one),
            Err(error) if refused(&error) => notes.push(out(error.to_string())),
            Err(error) => return Err(error),
        }
    }
    Ok((working, notes))
}

/// Runs the experiment.
pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    let Plan { mut sweep, loops: wanted } = plan(options)?;
    let floor = Entry::named(FLOOR)?;
    let _second = options.output.second_thread.then(SecondThread::start);
    let budget = Budget::of_sizes(&options.output, sweep.sizes(), 15.0, 30.0);
    let blocks = sweep.len() * (wanted.len() + 1) * 5;
    let notes = std::mem::take(&mut sweep.notes);
    let mut run = Run::new("models", &options.output, notes, blocks, budget);
    let mut rows = Vec::new();
    // The reason why there was nothing to measure somewhere: a remark, unless it is so everywhere.
    let mut nothing = Vec::new();
    let prepare = |run: &mut Run<'_>, pairs: &Pairs| {
        let (loops, reasons) = working(&wanted, pairs)?;
        if loops.is_empty() {
            nothing.extend(reasons);
            return Ok(None);
        }
        reasons.into_iter().for_each(|reason| run.note(reason));
        let quiet = quiet_shares(pairs, &loops)?;
        let entries: Vec<Entry> =
            std::iter::once(floor).chain(loops.iter().map(|one| one.entry)).collect();
        Ok(Some((loops, entries, quiet)))
    };
    sweep.visit(&mut run, prepare, |run, point, (loops, entries, quiet)| {
        let relate = |point: &mut [(&str, &mut Figures)]| {
            record::relate_to(point, |name| name != FLOOR);
        };
        for mut row in point.rows(run, entries, (WARM_UP, WARM_UP), relate)? {
            let own = loops.iter().position(|one| one.entry.name == row.subject);
            row.model = Some(own.map_or("none", |own| loops[own].model.name()).to_owned());
            row.quiet_processor_share = own.map(|own| quiet[own]);
            rows.push(row);
        }
        Ok(())
    })?;
    if rows.is_empty() && !nothing.is_empty() {
        return Err(Error::usage(format!("nothing is left to measure: {}", nothing.join("; "))));
    }
    nothing.into_iter().for_each(|reason| run.note(reason));
    let about = |one: &ModelLoop| {
        (one.entry.name.to_owned(), json!(format!("{}: {}", one.model.name(), one.entry.about)))
    };
    let own = [
        ("total_asked", json!(options.total)),
        ("subjects", wanted.iter().map(about).collect()),
        ("warm_up_rounds", json!(WARM_UP)),
        ("quiet_nanoseconds", json!(NANOSECONDS)),
        ("signal_queue", json!(signal::queue_limit())),
        ("epoll_mmap", json!(epoll_mmap()?)),
        ("bytes_verified", json!(true)),
        ("rivals", rivals::versions(wanted.iter().map(|one| one.entry.name))),
    ];
    Ok(run.record(sweep.parameters().into_iter().chain(own), rows))
}

/// Returns why an epoll set cannot be mapped into a program; none if it can.
fn epoll_mmap() -> Result<Option<String>> {
    let set = epoll::create().doing("creating an epoll set")?;
    Ok(epoll::map(&set).err().map(|error| error.to_string()))
}

/// How often the share of a processor is measured: such a share hardly varies.
const QUIET_TURNS: usize = 3;

/// Measures the share of a processor that each loop takes while nothing happens, as the median of
/// several turns.
fn quiet_shares(pairs: &Pairs, loops: &[ModelLoop]) -> Result<Vec<f64>> {
    let mut shares: Vec<Vec<f64>> = loops.iter().map(|_| Vec::new()).collect();
    for _ in 0..QUIET_TURNS {
        for (one, shares) in loops.iter().zip(&mut shares) {
            shares.push(share(pairs, &one.entry)?);
        }
    }
    Ok(shares.iter().map(|shares| statistics::median(shares)).collect())
}

// The cost of a model while nothing happens.
//
// In the timed rounds everything is ready before the loop looks, so it never sleeps, and processor
// time equals the time on the clock. The difference between trying and waiting shows when there is
// nothing to read. A child process sleeps for a while and then writes one byte. Meanwhile the loop
// runs as usual, and the kernel's clock of this thread says how long it ran.

/// How long nothing happens, in nanoseconds.
pub(super) const NANOSECONDS: u64 = 20_000_000;

const BYTE: u8 = 0x5a;

/// The share of a processor that a subject takes while it waits for the byte; the byte is checked.
pub(super) fn share(pairs: &Pairs, entry: &Entry) -> Result<f64> {
    let mut subject = entry.build(pairs)?;
    let mut log = ReadLog::new(pairs.len());
    let last = pairs.len() - 1;
    let active = [last as u32];
    let writer = pairs.writers()[last];
    process::watch(entry.name);
    let child = process::fork(|| {
        process::sleep(NANOSECONDS);
        descriptor::write_byte(writer, BYTE);
    })
    .doing("starting a process that writes later")?;
    let before = (process::now(), process::thread_time());
    subject.round(&active, &mut log)?;
    let after = (process::now(), process::thread_time());
    process::unwatch();
    drop(child);
    log.close(entry.name, &active, BYTE)?;
    pairs.answer(&active)?;
    Ok((after.1 - before.1) as f64 / (after.0 - before.0).max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Kind;
    use crate::load::Load;
    use crate::measure::{self, Rounds, Sample};
    use crate::options::Output;
    use crate::rivals::Lost;
    use crate::subject::tests::do_rounds;
    use crate::sys::descriptor;

    #[test]
    fn every_loop_does_rounds_of_every_size_on_every_kind() {
        for kind in Kind::ALL {
            let pairs = Pairs::open(kind, 24).unwrap();
            let (loops, _) = working(&loops().unwrap(), &pairs).unwrap();
            assert!(loops.len() >= 6, "{loops:?}");
            for one in loops {
                let subject = do_rounds(&one.entry, &pairs);
                // The calls that a library makes are not for us to count.
                let name = one.entry.name;
                assert!(subject.calls().is_some() != rivals::is_rival(name), "{name}");
            }
        }
    }

    #[test]
    fn system_calls_are_counted() {
        let _queue = sigio::tests::the_queue();
        let pairs = Pairs::open(Kind::Pipe, 10).unwrap();
        let load = Load::constant(vec![2, 5]);
        let rounds = Rounds { warm_up_adaptive: 1, warm_up: 1, measured: 16 };
        let calls = |name: &str| {
            let one = loops().unwrap().into_iter().find(|one| one.entry.name == name).unwrap();
            let outcomes = measure::interleave(
                &pairs,
                &[one.entry],
                &load,
                rounds,
                &mut Budget::of_rounds(2),
                &mut Lost::default(),
                |_| {},
            )
            .unwrap();
            outcomes[0].figures(Sample::Round)
        };
        // All ten are read for two events; one wait and two reads; two waits and two reads.
        assert_eq!(calls("spin").calls_per_event, Some(5.0));
        assert_eq!(calls("spin").empty_reads, 8 * 16 * 2);
        for name in ["raw-select", "raw-poll", "raw-epoll-lt", "raw-epoll-et", "sigio-fd"] {
            assert_eq!(calls(name).calls_per_event, Some(1.5), "{name}");
            assert_eq!(calls(name).empty_reads, 0, "{name}");
        }
        assert_eq!(calls("sigio-wait").calls_per_event, Some(2.0));
        // One signal for two events, and then all ten are read.
        assert_eq!(calls("sigio-plain").calls_per_event, Some(5.5));
        assert_eq!(calls("sigio-plain").empty_reads, 8 * 16 * 2);
        let (here, _) = working(&chosen("uring-read").unwrap(), &pairs).unwrap();
        if !here.is_empty() {
            // A call to wait and one to hand over the next two, and no other reads.
            let figures = calls("uring-read");
            assert_eq!((figures.calls_per_event, figures.empty_reads), (Some(1.0), 0));
        }
    }

    #[test]
    fn nothing_is_watched_any_more_when_a_loop_is_gone() {
        let pairs = Pairs::open(Kind::Pipe, 8).unwrap();
        let (loops, _) = working(&loops().unwrap(), &pairs).unwrap();
        // Signals that are still registered would end this process.
        for one in loops.iter().chain(&loops) {
            drop(one.entry.build(&pairs).unwrap());
            for (&reader, &writer) in pairs.readers().iter().zip(pairs.writers()) {
                assert!(descriptor::write_byte(writer, 1));
                assert_eq!(descriptor::read_byte(reader), Some(1), "{}", one.entry.name);
            }
        }
    }

    #[test]
    fn a_byte_that_comes_late_is_read_by_every_loop() {
        for kind in Kind::ALL {
            let pairs = Pairs::open(kind, 4).unwrap();
            for one in working(&loops().unwrap(), &pairs).unwrap().0 {
                let share = share(&pairs, &one.entry).unwrap();
                // One thread has one processor; the two clocks are not read at the same moment.
                assert!((0.0..1.1).contains(&share), "{}: {share}", one.entry.name);
            }
        }
    }

    #[test]
    fn refusals_are_distinguished_from_failures() {
        let of = |code| Error::system("trying", std::io::Error::from_raw_os_error(code));
        assert!([libc::ENOSYS, libc::EPERM, libc::ENOMEM].iter().all(|&code| refused(&of(code))));
        assert!(!refused(&of(libc::EBADF)) && !refused(&of(libc::EMFILE)));
        assert!(!refused(&Error::usage("nonsense")));
    }

    #[test]
    fn refused_loops_are_left_out_with_the_reason_and_failures_are_errors() {
        fn build(_: &Pairs, code: i32) -> Result<Box<dyn subject::Subject + '_>> {
            Err(Error::system("setting up", std::io::Error::from_raw_os_error(code)))
        }
        let pairs = Pairs::open(Kind::Pipe, 2).unwrap();
        let spin = model_loop(Model::Try, "spin", "", loops::build_spin);
        let absent = model_loop(Model::Register, "absent", "", |pairs| build(pairs, libc::ENOSYS));
        let (loops, notes) = working(&[absent, spin], &pairs).unwrap();
        assert_eq!(loops, [spin]);
        let parts = ["absent is left out with 2 descriptors", "setting up", "not implemented"];
        assert!(parts.iter().all(|part| notes[0].contains(part)), "{notes:?}");
        let broken = model_loop(Model::Register, "broken", "", |pairs| build(pairs, libc::EBADF));
        assert!(working(&[broken, spin], &pairs).is_err());
    }

    #[test]
    fn loops_are_chosen_by_name() {
        let names = |text| -> Vec<&str> {
            chosen(text).unwrap().iter().map(|one| one.entry.name).collect()
        };
        assert_eq!(names("uring-poll,spin,uring-poll"), ["uring-poll", "spin"]);
        assert_eq!(names("spin,all").len(), loops().unwrap().len());
        let error = chosen("kqueue").unwrap_err().to_string();
        assert!(error.contains("\"kqueue\"") && error.contains("sigio-fd"), "{error}");
    }

    #[test]
    fn the_floor_is_no_yardstick_and_has_no_model() {
        let run = |subjects: &str| {
            run(&Options {
                total: "12".to_owned(),
                active: Some("3".to_owned()),
                subjects: subjects.to_owned(),
                output: Output {
                    seconds: Some(0.05),
                    repetitions: Some(1),
                    quick: true,
                    ..Output::default()
                },
                ..Options::default()
            })
        };
        let record = run("spin,raw-epoll-lt").unwrap();
        let names: Vec<&str> = record.rows.iter().map(|row| row.subject.as_str()).collect();
        assert_eq!(names, ["floor", "spin", "raw-epoll-lt"]);
        let models: Vec<&str> = record.rows.iter().filter_map(|row| row.model.as_deref()).collect();
        assert_eq!(models, ["none", "try", "ask"]);
        let best =
            record.rows[1..].iter().filter_map(|row| row.figures.loop_ratio).fold(9.0, f64::min);
        assert_eq!(best, 1.0);
        assert!(record.rows[0].quiet_processor_share.is_none());
        assert!(record.rows[1].quiet_processor_share.is_some());
    }
}
