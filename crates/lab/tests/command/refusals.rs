//! Requests that cannot be met or make no sense, and their error messages.

use crate::program::program;
use crate::record::{check_record, json};
use crate::start::{SMALL, lab, refused, run};

#[test]
fn refusals_of_invalid_options_have_one_line() {
    let cases: [(&[&str], &[&str]); 35] = [
        (&["atr", "--total", "0"], &["--total 0"]),
        (&["atr", "--total", "many"], &["--total", "\"many\""]),
        (&["atr", "--total", "10", "--active", "11"], &["--active 11", "10"]),
        (&["atr", "--active", "0"], &["--active 0"]),
        (&["atr", "--kind", "fifo"], &["\"fifo\"", "pipe, unix, tcp"]),
        (&["atr", "--placement", "middle"], &["\"middle\"", "end, spread, front"]),
        (&["atr", "--subjects", "kqueue"], &["\"kqueue\"", "raw-poll"]),
        (&["atr", "--seconds", "0"], &["--seconds 0"]),
        (&["atr", "--repetitions", "0"], &["--repetitions 0"]),
        (&["mix", "--size", "5"], &["--size", "50/950"]),
        (&["mix", "--load", "heavy"], &["\"heavy\"", "mixed, shift"]),
        (&["mix", "--shift", "0"], &["--shift 0"]),
        (&["wake", "--total", "0"], &["--total 0"]),
        (&["wake", "--total", "5", "--hot", "6"], &["--hot 6"]),
        (&["wake", "--subjects", "floor"], &["floor"]),
        (&["ring", "--total", "1"], &["--total 1", "give 2"]),
        (&["ring", "--total", "1000000"], &["--total 1000000", "descriptors"]),
        (&["ring", "--total", "10", "--in-flight", "11"], &["--in-flight 11", "10"]),
        (&["ring", "--in-flight", "1.5"], &["--in-flight", "\"1.5\""]),
        (&["ring", "--subjects", "goroutines"], &["\"goroutines\"", "raw-epoll-lt"]),
        (&["ring", "--sweep", "--total", "5"], &["--sweep", "--total"]),
        (&["herd", "--processes", "16385"], &["--processes 16385", "16384"]),
        (&["herd", "--connects", "0"], &["--connects 0"]),
        (&["herd", "--subjects", "wait"], &["\"wait\"", "epoll-exclusive"]),
        (&["herd", "--dups", "5", "--subjects", "accept"], &["--subjects", "--dups"]),
        (&["models", "--subjects", "kqueue"], &["\"kqueue\"", "spin, sigio-plain, sigio-wait"]),
        (&["models", "--active", "0"], &["--active 0"]),
        (&["models", "--total", "5", "--active", "6"], &["--active 6", "5 descriptors"]),
        (&["registrations", "--total", "0"], &["--total 0"]),
        (&["registrations", "--subjects", "kqueue"], &["\"kqueue\"", "raw-epoll"]),
        (&["timers", "--timers", "0"], &["--timers 0"]),
        (&["timers", "--ending", "0"], &["--ending 0"]),
        (&["timers", "--subjects", "libuv"], &["\"libuv\"", "superpoll-rt, tokio"]),
        (&["art"], &["art"]),
        (&["atr", "--no-such-option"], &["--no-such-option"]),
    ];
    for (arguments, parts) in cases {
        let line = refused(arguments);
        for part in parts {
            assert!(line.contains(part), "{arguments:?}: {part:?} is missing in {line:?}");
        }
    }
}

#[cfg(not(feature = "rivals-c"))]
#[test]
fn a_rival_that_is_not_built_in_names_its_feature() {
    for rival in ["libevent", "libev", "libuv"] {
        let line = refused(&["atr", "--subjects", rival]);
        assert!(line.contains("--features rivals-c"), "{line}");
    }
}

#[test]
fn more_descriptors_than_the_limit_allows_are_cut_down_and_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let command = format!(
        "ulimit -n 200 && exec {} atr --total 1000 --active 1 --subjects poll --no-report \
         --json x --quick --seconds 0.1 --repetitions 1",
        env!("CARGO_BIN_EXE_superpoll-lab")
    );
    let output = program("sh").current_dir(folder.path()).args(["-c", &command]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("may open 200") && errors.contains("ulimit"), "{errors}");
    assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
    let record = json(&folder.path().join("x"));
    assert_eq!(record["rows"][0]["total"], 68);
    assert_eq!(record["parameters"]["total_asked"], "1000");
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("taken"), "").unwrap();
    let fixed = ["atr", "--total", "4", "--active", "1", "--report", "taken"];
    let output = run(folder.path(), &[&fixed[..], &SMALL].concat());
    assert!(!output.status.success());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("creating the folder taken"), "{errors}");
}

#[test]
fn a_full_disk_under_the_output_ends_it_in_one_line_and_keeps_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let wake = ["wake", "--total", "4", "--hot", "1", "--samples", "1", "--no-report"];
    let wake = [&wake[..], &["--json", "wake.json"], &SMALL].concat();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = lab().current_dir(folder.path()).args(wake).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
    assert!(errors.contains("writing to the standard output: No space left"), "{errors}");
    check_record(&json(&folder.path().join("wake.json")), "wake", &[]);
}
