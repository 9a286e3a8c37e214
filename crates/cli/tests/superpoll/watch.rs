//! The built command `superpoll watch`: its document, its text, and what it refuses.
//!
//! Tests that watch need BPF, and are skipped with a printed reason where it is not permitted.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::getuid;
use serde_json::Value;
use superpoll_test_support::start;
use tempfile::TempDir;

use crate::stage::{Running, has_ended, kill, until, until_readable};
use crate::superpoll;

fn watch(arguments: &[&str]) -> Output {
    superpoll().arg("watch").args(arguments).output().unwrap()
}

/// Returns the one line that the command must fail with.
fn refusal(output: &Output) -> String {
    let errors = String::from_utf8(output.stderr.clone()).unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && output.stdout.is_empty(), "{printed}\n{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    errors.trim_end().to_owned()
}

/// Whether the command has failed for shortage of a right, or of a part of the kernel.
fn is_skipped(output: &Output) -> bool {
    let errors = String::from_utf8_lossy(&output.stderr);
    let reasons = ["permits no BPF", "watching needs Linux", "is in a container"];
    let is_skipped = reasons.iter().any(|reason| errors.contains(reason));
    if is_skipped {
        eprintln!("skipped: {errors}");
    }
    is_skipped
}

/// Watches a program of Python's from its start to its end.
fn document(arguments: &[&str], program: &[&str]) -> Option<Value> {
    let mut all = vec!["--json"];
    all.extend(arguments);
    all.push("--");
    all.extend(program);
    let output = watch(&all);
    if is_skipped(&output) {
        return None;
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    Some(serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}")))
}

/// Returns the sets of one kind of all processes.
fn sets<'a>(document: &'a Value, kind: &str) -> Vec<&'a Value> {
    let processes = document["processes"].as_array().unwrap();
    let sets = processes.iter().flat_map(|process| process["sets"].as_array().unwrap());
    sets.filter(|set| set["kind"] == kind).collect()
}

#[test]
fn the_document_has_the_counts_of_the_program() {
    let script = "import select, socket\n\
                  pairs = [socket.socketpair() for _ in range(9)]\n\
                  epoll = select.epoll()\n\
                  for one, _ in pairs: epoll.register(one, select.EPOLLIN)\n\
                  for _ in range(50):\n\
                  \u{20}for _, other in pairs[:4]: other.send(b'x')\n\
                  \u{20}epoll.poll()\n\
                  \u{20}for one, _ in pairs[:4]: one.recv(8)\n\
                  for _ in range(7): epoll.poll(0)\n\
                  for _ in range(3): epoll.poll(0.002)\n\
                  epoll.modify(pairs[0][0], 0)\n\
                  epoll.unregister(pairs[1][0])\n\
                  select.select([pairs[0][0]], [], [], 0)\n";
    let Some(document) = document(&[], &["python3", "-c", script]) else { return };
    let found = sets(&document, "epoll");
    assert_eq!(found.len(), 1, "{document:#}");
    let set = found[0];
    for (name, count) in [
        ("waits", 60),
        ("events", 200),
        ("empty", 10),
        ("looks", 7),
        ("empty_looks", 7),
        ("timed_out", 3),
        ("short_timeouts", 3),
        ("failed", 0),
        ("added", 9),
        ("changed", 1),
        ("removed", 1),
        ("full", 0),
    ] {
        assert_eq!(set[name], count, "{name}: {set:#}");
    }
    assert_eq!(set["events_per_wait"]["p50"], 4, "{set:#}");
    assert_eq!(set["events_per_wait"]["histogram"].to_string(), "[[0,0,10],[4,4,50]]");
    assert_eq!(sets(&document, "select").len(), 1, "{document:#}");
    assert_eq!(document["schema"], 1);
}

#[test]
fn a_process_that_executes_forks_and_shares_a_set_is_counted_rightly() {
    let script = "import os, select\n\
                  epoll = select.epoll()\n\
                  child = os.fork()\n\
                  for _ in range(5 if child else 8): epoll.poll(0)\n\
                  if child: os.waitpid(child, 0)\n";
    let shell = "exec python3 -c \"$1\"";
    let Some(document) = document(&[], &["sh", "-c", shell, "sh", script]) else { return };
    let mut waits: Vec<u64> =
        sets(&document, "epoll").iter().map(|set| set["waits"].as_u64().unwrap()).collect();
    waits.sort_unstable();
    assert_eq!(waits, [5, 8], "{document:#}");
}

#[test]
fn calls_beyond_the_last_slot_are_told() {
    let script = "import os, resource, select\n\
                  hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n\
                  resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))\n\
                  epoll = select.epoll()\n\
                  sets = [select.epoll.fromfd(os.dup(epoll.fileno())) for _ in range(1100)]\n\
                  for one in sets: one.poll(0)\n";
    let program = ["python3", "-c", script];
    let Some(document) = document(&[], &program) else { return };
    let waits: u64 =
        sets(&document, "epoll").iter().map(|set| set["waits"].as_u64().unwrap()).sum();
    let uncounted = document["uncounted_calls"].as_u64().unwrap();
    assert!(uncounted > 70 && waits + uncounted == 1100, "{waits} {uncounted}");
    assert_eq!(document["unfollowed_processes"], 0);
    let text = watch(&[&["--"], &program[..]].concat()).stdout;
    let text = String::from_utf8(text).unwrap();
    for part in ["not counted: at least ", "there is room for 1024 processes"] {
        assert!(text.contains(part), "{text}");
    }
}

/// A child that polls once for each line that it reads.
fn poller() -> Child {
    let script = "import select, sys\n\
                  epoll = select.epoll()\n\
                  print('ready', flush=True)\n\
                  for line in sys.stdin:\n\
                  \u{20}epoll.poll(0)\n";
    let mut command = Command::new("python3");
    start(command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()))
}

/// Watches a process.
fn watcher(child: &Child) -> Running {
    let number = child.id().to_string();
    let mut command = superpoll();
    command.args(["watch", "-p", &number]).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running(start(&mut command))
}

/// The links of BPF that a process has, each as the kernel describes it.
fn links(process: u32) -> Vec<String> {
    let folder = format!("/proc/{process}/fdinfo");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    texts.filter(|text| text.contains("link_id:")).collect()
}

/// Waits until a watch has attached: it has five links then, the last of which is that of the exit
/// of system calls. Returns whether it has not failed instead.
fn has_attached(watcher: &mut Child) -> bool {
    let mut is_over = false;
    until("it has attached, or has failed", || {
        is_over = watcher.try_wait().unwrap().is_some();
        is_over || links(watcher.id()).len() == 5
    });
    !is_over
}

/// Prints which of the programs and links of BPF the kernel still has.
const LEFT: &str = r#"
import ctypes, os, platform, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": 321, "aarch64": 280}[platform.machine()]
def has(command, identity):
    attributes = ctypes.create_string_buffer(struct.pack("III", identity, 0, 0))
    descriptor = libc.syscall(number, command, attributes, 12)
    if descriptor >= 0:
        os.close(descriptor)
    return descriptor >= 0 or ctypes.get_errno() != 2
for line in sys.argv[1:]:
    name, identity = line.split()
    # BPF_PROG_GET_FD_BY_ID and BPF_LINK_GET_FD_BY_ID.
    if has(13 if name == "prog_id:" else 30, int(identity)):
        print(line)
"#;

#[test]
fn nothing_is_left_of_a_watch_that_was_killed_and_the_program_continues() {
    let mut child = Running(poller());
    let mut output = BufReader::new(child.0.stdout.take().unwrap());
    output.read_line(&mut String::new()).unwrap();
    let mut watcher = watcher(&child.0);
    if !has_attached(&mut watcher.0) {
        return eprintln!("skipped: BPF is not permitted");
    }
    let mine = links(watcher.0.id()).concat();
    let mine =
        mine.lines().filter(|line| line.starts_with("link_id:") || line.starts_with("prog_id:"));
    let mine: Vec<String> = mine.map(str::to_owned).collect();
    assert_eq!(mine.len(), 10, "{mine:?}");
    let left = || {
        let output = Command::new("python3").args(["-c", LEFT]).args(&mine).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().lines().count()
    };
    assert_eq!(left(), 10, "they are there");
    watcher.0.kill().unwrap();
    watcher.0.wait().unwrap();
    // The kernel frees them a moment later.
    until("none is left", || left() == 0);
    child.0.stdin.as_mut().unwrap().write_all(b"1\n2\n3\n").unwrap();
    drop(child.0.stdin.take());
    assert!(child.0.wait().unwrap().success());
}

#[test]
fn a_process_that_ends_ends_the_watch_with_its_summary() {
    if !getuid().is_root() {
        return eprintln!("skipped: attaching BPF needs root");
    }
    let mut child = Running(poller());
    let mut output = BufReader::new(child.0.stdout.take().unwrap());
    output.read_line(&mut String::new()).unwrap();
    let mut watcher = watcher(&child.0);
    let is_over = !has_attached(&mut watcher.0);
    if !is_over {
        child.0.stdin.as_mut().unwrap().write_all(b"1\n2\n3\n").unwrap();
        drop(child.0.stdin.take());
    }
    let mut text = String::new();
    let mut errors = String::new();
    watcher.0.stdout.as_mut().unwrap().read_to_string(&mut text).unwrap();
    watcher.0.stderr.as_mut().unwrap().read_to_string(&mut errors).unwrap();
    if is_over {
        return eprintln!("skipped: {errors}");
    }
    assert!(watcher.0.wait().unwrap().success(), "{errors}");
    for part in
        ["each other system call of any process took", "epoll set", "verdict: nothing to gain"]
    {
        assert!(text.contains(part), "{part} in\n{text}\n{errors}");
    }
    assert!(text.contains("3 waits ("), "{text}");
}

#[test]
fn a_terminal_shows_the_last_second_until_ctrl_c() {
    let mut child = Running(poller());
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let (pty, pts) = pty_process::blocking::open().unwrap();
    pty.resize(pty_process::Size::new(5, 100)).unwrap();
    let number = child.0.id().to_string();
    let command = pty_process::blocking::Command::new(env!("CARGO_BIN_EXE_superpoll"));
    let watcher = command.args(["watch", "-p", &number]).spawn(pts).unwrap();
    let mut watcher = Running(watcher);
    let mut text = String::new();
    let mut is_interrupted = false;
    loop {
        until_readable(&pty, "the command writes");
        let mut room = [0; 4096];
        // Without a process at the other end there is an error.
        let Ok(count @ 1..) = (&pty).read(&mut room) else { break };
        text += &String::from_utf8_lossy(&room[..count]);
        let screens = text.split("\x1b[H\x1b[2J");
        // Two seconds were shown, each in the five lines that there are, so without the verdict.
        if screens.clone().count() >= 3 && !is_interrupted {
            assert!(screens.clone().all(|screen| screen.lines().count() <= 5), "{text}");
            (&pty).write_all(b"\x03").unwrap();
            is_interrupted = true;
        }
    }
    let status = watcher.0.wait().unwrap();
    let reasons = ["permits no BPF", "watching needs Linux", "is in a container"];
    if reasons.iter().any(|reason| text.contains(reason)) {
        return eprintln!("skipped: {text}");
    }
    assert!(status.success() && is_interrupted, "{text}");
    let (_, summary) = text.rsplit_once("\x1b[H\x1b[2J").unwrap();
    assert!(summary.contains("verdict: none, without a wait"), "{text}");
}

#[test]
fn the_time_ends_the_watch_and_not_the_program() {
    // It keeps no end of the pipes by which this test reads.
    let shell = "exec sleep 60 >/dev/null 2>&1";
    // Also without BPF, in one of the other ways.
    let output = watch(&["--seconds", "0.2", "--", "sh", "-c", shell]);
    let errors = String::from_utf8(output.stderr).unwrap();
    let line = errors.lines().find(|line| line.ends_with("continues, and is not watched"));
    let number = line.and_then(|line| line.split_whitespace().nth(2)?.parse().ok());
    let number: u32 = number.unwrap_or_else(|| panic!("{errors}"));
    assert!(!has_ended(number), "{errors}");
    kill(number, "KILL");
}

#[test]
fn the_command_ends_with_the_status_of_the_program() {
    for (script, code) in [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 128 + 9)] {
        let output = watch(&["--", "sh", "-c", script]);
        if is_untraceable(&output) {
            return;
        }
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(errors.contains("the program has ended: "), code != 0, "{errors}");
    }
}

/// Ctrl-C is for all processes of a terminal. The program says something before it ends.
#[test]
fn the_end_of_a_program_that_control_c_ends_is_awaited() {
    let script = "trap 'sleep 0.3; echo bye; exit 4' INT; echo ready; while :; do sleep 0.05; done";
    let mut command = superpoll();
    command.args(["watch", "--", "sh", "-c", script]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut watcher = Running(command.spawn().unwrap());
    let mut lines = BufReader::new(watcher.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let group = format!("-{}", watcher.0.id());
    assert!(Command::new("kill").args(["-INT", "--", &group]).status().unwrap().success());
    let text = lines.map(Result::unwrap).collect::<Vec<_>>().join("\n");
    let status = watcher.0.wait().unwrap();
    assert!(text.contains("bye") && text.contains("verdict: "), "{text}");
    assert_eq!(status.code(), Some(4), "{text}");
}

#[test]
fn wrong_arguments_are_refused_in_one_line() {
    for (arguments, part) in [
        (&[][..], "--pid"),
        (&["-p", "1", "--all"], "cannot be used with"),
        (&["-p", "1", "--", "true"], "cannot be used with"),
        (&["--all", "--seconds", "0"], "must be more than zero"),
        (&["-p", "none"], "invalid value"),
    ] {
        let line = refusal(&watch(arguments));
        assert!(line.contains(part), "{arguments:?}: {line}");
    }
    let output = watch(&["--", "/no/such/program"]);
    if !is_skipped(&output) {
        assert!(refusal(&output).contains("starting /no/such/program: "), "{output:?}");
    }
}

#[test]
fn a_process_that_is_not_there_or_has_ended_is_refused() {
    let line = refusal(&watch(&["-p", "4194305"]));
    assert!(line.contains("no process 4194305") && line.contains("container"), "{line}");
    // Its status is not read.
    let zombie = start(&mut Command::new("true"));
    until("it has ended", || has_ended(zombie.id()));
    let mut zombie = Running(zombie);
    let line = refusal(&watch(&["-p", &zombie.0.id().to_string()]));
    assert!(line.contains("has ended"), "{line}");
    zombie.0.wait().unwrap();
}

#[test]
fn another_user_s_process_and_what_needs_bpf_are_refused_without_rights() {
    if !getuid().is_root() {
        let line = refusal(&watch(&["--all"]));
        return assert!(line.contains("CAP_BPF"), "{line}");
    }
    let nobody = Nobody::new();
    let line = refusal(&nobody.watch(&["-p", &std::process::id().to_string()]));
    assert!(line.contains("belongs to user 0") && line.contains("CAP_SYS_PTRACE"), "{line}");
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let path = folder.path().join("recording");
    for arguments in [&["--all"][..], &["--record", path.to_str().unwrap(), "--", "true"]] {
        let line = refusal(&nobody.watch(arguments));
        assert!(line.contains("CAP_BPF"), "{line}");
    }
    assert!(!path.exists(), "what cannot be recorded leaves no file");
    let line = nobody.watch(&["--", "/no/such/program"]);
    let line = String::from_utf8(line.stderr).unwrap();
    assert!(line.contains("superpoll: starting /no/such/program: No such file"), "{line}");
}

/// Runs the command without rights.
struct Nobody {
    folder: TempDir,
    program: PathBuf,
}

impl Nobody {
    fn new() -> Nobody {
        let folder = TempDir::new().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let program = folder.path().join("superpoll");
        fs::copy(env!("CARGO_BIN_EXE_superpoll"), &program).unwrap();
        Nobody { folder, program }
    }

    fn start(&self, program: &str, arguments: &[&str]) -> Child {
        const NOBODY: u32 = 65_534;
        let mut command = Command::new(program);
        command.args(arguments).uid(NOBODY).gid(NOBODY).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A program that was just copied may be busy while another thread starts a child.
        start(&mut command)
    }

    fn start_watch(&self, arguments: &[&str]) -> Child {
        let arguments = [&["watch"], arguments].concat();
        self.start(self.program.to_str().unwrap(), &arguments)
    }

    fn watch(&self, arguments: &[&str]) -> Output {
        self.start_watch(arguments).wait_with_output().unwrap()
    }
}

/// Whether the kernel lets no one trace here, as it does in some containers.
fn is_untraceable(output: &Output) -> bool {
    let errors = String::from_utf8_lossy(&output.stderr);
    let is_untraceable = errors.contains("superpoll: tracing ");
    if is_untraceable {
        eprintln!("skipped: {errors}");
    }
    is_untraceable
}

#[test]
fn a_program_is_traced_without_rights() {
    if !getuid().is_root() {
        return eprintln!("skipped: becoming another user needs root");
    }
    let nobody = Nobody::new();
    let script = "import select, sys, threading\n\
                  epoll = select.epoll()\n\
                  thread = threading.Thread(target=lambda: [epoll.poll(0) for _ in range(40)])\n\
                  thread.start(); thread.join()\n\
                  for _ in range(3): epoll.poll(0.002)\n\
                  sys.exit(9)";
    let output = nobody.watch(&["--json", "--", "python3", "-c", script]);
    if is_untraceable(&output) {
        return;
    }
    let errors = String::from_utf8(output.stderr).unwrap();
    let first = errors.lines().next().unwrap();
    // The command was copied without its library.
    let library = "libsuperpoll_watch_preload.so, which would count with less delay, is not in";
    for part in ["the program is traced", "us longer", "CAP_BPF", library] {
        assert!(first.contains(part), "{errors}");
    }
    assert!(errors.contains("has ended: exit status: 9"), "{errors}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["method"], "ptrace");
    let set = sets(&document, "epoll")[0];
    assert_eq!((&set["waits"], &set["looks"]), (&43.into(), &40.into()), "{document:#}");
    assert_eq!(set["short_timeouts"], 3, "{document:#}");
}

/// The same with the library in its place: beside the command, and where its package has it.
#[test]
fn a_program_is_counted_by_a_library_without_rights() {
    if !getuid().is_root() {
        return eprintln!("skipped: becoming another user needs root");
    }
    let built = Path::new(env!("CARGO_BIN_EXE_superpoll")).with_file_name("deps");
    let library = "libsuperpoll_watch_preload.so";
    let script = "import select, sys\n\
                  epoll = select.epoll()\n\
                  for _ in range(40): epoll.poll(0)\n\
                  for _ in range(3): epoll.poll(0.002)\n\
                  sys.exit(9)";
    for place in ["libsuperpoll_watch_preload.so", "../lib/superpoll/libsuperpoll_watch_preload.so"]
    {
        let mut nobody = Nobody::new();
        let folder = nobody.folder.path().join("bin");
        fs::create_dir(&folder).unwrap();
        let program = folder.join("superpoll");
        fs::rename(&nobody.program, &program).unwrap();
        nobody.program = program;
        fs::create_dir_all(folder.join(place).parent().unwrap()).unwrap();
        fs::copy(built.join(library), folder.join(place)).unwrap();
        let output = nobody.watch(&["--json", "--", "python3", "-c", script]);
        let errors = String::from_utf8(output.stderr).unwrap();
        let first = errors.lines().next().unwrap();
        for part in ["a library that the program loads", "the C library are not seen", "CAP_BPF"] {
            assert!(first.contains(part), "{errors}");
        }
        assert!(errors.contains("has ended: exit status: 9"), "{errors}");
        assert!(!errors.contains("ld.so"), "{errors}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["method"], "preload");
        let set = sets(&document, "epoll")[0];
        assert_eq!((&set["waits"], &set["looks"]), (&43.into(), &40.into()), "{document:#}");
        assert_eq!(set["short_timeouts"], 3, "{document:#}");
        let text = nobody.watch(&["--", "python3", "-c", script]);
        let text = String::from_utf8(text.stdout).unwrap();
        assert!(text.contains("by a preloaded library: each wait of the program took"), "{text}");
        assert!(!text.contains("has not loaded the library"), "{text}");
    }
}

/// A program that runs is sampled for two seconds at most, and continues also if the command is
/// killed meanwhile.
#[test]
fn a_process_is_traced_for_a_sample_and_continues() {
    if !getuid().is_root() {
        return eprintln!("skipped: becoming another user needs root");
    }
    let nobody = Nobody::new();
    let script = "import select, sys\n\
                  epoll = select.epoll()\n\
                  for line in sys.stdin:\n\
                  \u{20}epoll.poll(0)\n\
                  \u{20}print('waited', flush=True)\n";
    let mut child = Running(nobody.start("python3", &["-c", script]));
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut input = child.0.stdin.take().unwrap();
    let mut wait = || {
        input.write_all(b"wait\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "waited");
    };
    wait();
    let number = child.0.id().to_string();
    let is_traced = || {
        let status = fs::read_to_string(format!("/proc/{number}/status")).unwrap();
        !status.lines().any(|line| line.replace('\t', "") == "TracerPid:0")
    };
    for signal in ["KILL", "INT", ""] {
        // The longest sample, however much time is asked for.
        let arguments = ["-p", &number, "--seconds", if signal.is_empty() { "100" } else { "2" }];
        let mut watcher = Running(nobody.start_watch(&arguments));
        let mut is_over = false;
        until("it is traced", || {
            is_over = watcher.0.try_wait().unwrap().is_some();
            is_over || is_traced()
        });
        if !is_over {
            wait();
        }
        if !signal.is_empty() {
            kill(watcher.0.id(), signal);
        }
        let (mut text, mut errors) = (String::new(), String::new());
        watcher.0.stdout.as_mut().unwrap().read_to_string(&mut text).unwrap();
        watcher.0.stderr.as_mut().unwrap().read_to_string(&mut errors).unwrap();
        let status = watcher.0.wait().unwrap();
        if errors.contains("superpoll: tracing ") {
            return eprintln!("skipped: {errors}");
        }
        assert!(errors.contains("is traced for two seconds at most"), "{errors}");
        if signal != "KILL" {
            assert!(status.success() && text.contains("by ptrace: each system call"), "{text}");
            // On a machine that pauses, the sample may be over before the wait.
            assert!(text.contains("1 wait (") || text.contains("no wait has ended"), "{text}");
        }
        until("it is not traced", || !is_traced());
        wait();
    }
}

#[test]
fn a_recording_is_written_beside_the_summary_and_other_files_are_kept() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("recording");
    let name = path.to_str().unwrap();
    let script = "import select; epoll = select.epoll(); [epoll.poll(0) for _ in range(31)]";
    let output = watch(&["--json", "--record", name, "--", "python3", "-c", script]);
    if is_skipped(&output) {
        return;
    }
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains(&format!("superpoll-lab replay {name}")), "{errors}");
    assert!(!errors.contains("lacks") && !errors.contains("early"), "{errors}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(sets(&document, "epoll")[0]["waits"], 31, "{document:#}");
    let file = fs::File::open(&path).unwrap();
    let mut reader = superpoll_watch::RecordingReader::new(BufReader::new(file)).unwrap();
    let mut waits = 0;
    while let Some(entry) = reader.entry().unwrap() {
        waits += usize::from(matches!(entry, superpoll_watch::Entry::Wait(_)));
    }
    assert_eq!(waits, 31);

    // A program that cannot be started leaves an older recording, and no new one.
    let before = fs::read(&path).unwrap();
    let other = folder.path().join("other");
    for name in [name, other.to_str().unwrap()] {
        let line = refusal(&watch(&["--record", name, "--", "/no/such/program"]));
        assert!(line.contains("starting /no/such/program: "), "{line}");
    }
    assert_eq!(fs::read(&path).unwrap(), before);
    assert!(!other.exists());

    fs::write(&path, "notes of mine").unwrap();
    let line = refusal(&watch(&["--record", name, "--", "true"]));
    assert!(line.contains(name) && line.contains("another kind of file"), "{line}");
    assert_eq!(fs::read(&path).unwrap(), b"notes of mine");
    let line = refusal(&watch(&["--record", "/no/such/folder/file", "--", "true"]));
    assert!(line.contains("recording to /no/such/folder/file: No such file"), "{line}");
    let line = refusal(&watch(&["--record-size", "5", "--", "true"]));
    assert!(line.contains("--record"), "{line}");
}

/// Whoever reads the summary may have ended, as in `superpoll watch ... | true`.
#[test]
fn a_recording_has_its_end_though_the_summary_cannot_be_printed() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("recording");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    for (output, is_told) in [(Stdio::from(writer), false), (full.into(), true)] {
        let mut command = superpoll();
        command.args(["watch", "--record", path.to_str().unwrap(), "--", "python3", "-c"]);
        command.arg("import select; epoll = select.epoll(); [epoll.poll(0) for _ in range(31)]");
        let output = command.stdout(output).output().unwrap();
        if is_skipped(&output) {
            return;
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{errors}");
        // The closed pipe ends the command by a signal.
        for part in ["writing to the standard output", "superpoll-lab replay"] {
            assert_eq!(errors.contains(part), is_told, "{errors}");
        }
        let file = fs::File::open(&path).unwrap();
        let mut reader = superpoll_watch::RecordingReader::new(BufReader::new(file)).unwrap();
        let mut waits = 0;
        while let Some(entry) = reader.entry().unwrap() {
            waits += usize::from(matches!(entry, superpoll_watch::Entry::Wait(_)));
        }
        assert_eq!(waits, 31);
        fs::remove_file(&path).unwrap();
    }
}

/// The file is full while the program runs, and that is said before its end.
#[test]
fn the_early_end_of_a_recording_is_said_while_the_watch_continues() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("recording");
    // The recorder may miss waits on a busy machine, so the program waits until it is told to end.
    let script = "import select, socket, sys, threading\n\
                  pairs = [socket.socketpair() for _ in range(400)]\n\
                  epoll = select.epoll()\n\
                  for one, other in pairs: epoll.register(one, select.EPOLLIN); other.send(b'x')\n\
                  reader = threading.Thread(target=sys.stdin.read)\n\
                  reader.start()\n\
                  while reader.is_alive(): epoll.poll(0)\n";
    let mut command = superpoll();
    command.args(["watch", "--record-size", "1", "--record", path.to_str().unwrap()]);
    command.args(["--", "python3", "-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut watcher = Running(start(&mut command));
    let mut errors = BufReader::new(watcher.0.stderr.take().unwrap());
    let mut said = String::new();
    errors.read_line(&mut said).unwrap();
    if ["permits no BPF", "watching needs Linux", "is in a container"]
        .iter()
        .any(|reason| said.contains(reason))
    {
        return eprintln!("skipped: {said}");
    }
    assert!(said.contains("has ended early; the watch continues"), "{said}");
    drop(watcher.0.stdin.take());
    errors.read_to_string(&mut said).unwrap();
    assert!(said.contains("has ended early: its file has 1 MiB"), "{said}");
    watcher.0.wait().unwrap();
}

/// A 32-bit program of these instructions.
fn program_of_32_bits(folder: &TempDir, code: &[u8]) -> String {
    const BASE: u32 = 0x0804_8000;
    const HEADERS: u32 = 52 + 32;
    let mut file = b"\x7fELF\x01\x01\x01".to_vec();
    file.resize(16, 0);
    // An executable of i386, version 1, where it starts, and where its one segment is described.
    file.extend([2, 0, 3, 0]);
    for word in [1, BASE + HEADERS, 52, 0, 0] {
        file.extend(u32::to_le_bytes(word));
    }
    for half in [52, 32, 1, 40, 0, 0] {
        file.extend(u16::to_le_bytes(half));
    }
    let length = HEADERS + code.len() as u32;
    for word in [1, 0, BASE, BASE, length, length, 5, 0x1000] {
        file.extend(u32::to_le_bytes(word));
    }
    file.extend(code);
    let path = folder.path().join("program");
    fs::write(&path, file).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
#[cfg(target_arch = "x86_64")]
fn programs_of_32_bits_are_refused_and_their_calls_are_not_mistaken() {
    let folder = TempDir::new().unwrap();
    // pause() for good.
    let path = program_of_32_bits(&folder, &[0xb8, 29, 0, 0, 0, 0xcd, 0x80, 0xeb, 0xf7]);
    let child = match Command::new(&path).spawn() {
        Ok(child) => Running(child),
        Err(error) => return eprintln!("skipped: no 32-bit programs here: {error}"),
    };
    let line = refusal(&watch(&["-p", &child.0.id().to_string()]));
    assert!(line.contains("32-bit"), "{line}");
    drop(child);
    // Ten calls of brk(2), which has the number of the 64-bit recvfrom(2), and three of a poll(2)
    // of nothing, which has that of swapoff(2), then exit(2).
    fs::remove_file(&path).unwrap();
    let code = [
        0xb9, 10, 0, 0, 0, // mov ecx, 10
        0xb8, 45, 0, 0, 0, 0x31, 0xdb, 0xcd, 0x80, // mov eax, 45; xor ebx, ebx; int 0x80
        0x49, 0x75, 0xf4, // dec ecx; jnz
        0xbf, 3, 0, 0, 0, // mov edi, 3
        0xb8, 168, 0, 0, 0, // mov eax, 168
        0x31, 0xdb, 0x31, 0xc9, 0x31, 0xd2, 0xcd, 0x80, // xor ebx, ecx, edx; int 0x80
        0x4f, 0x75, 0xf0, // dec edi; jnz
        0xb8, 1, 0, 0, 0, 0x31, 0xdb, 0xcd, 0x80, // exit(0)
    ];
    let path = program_of_32_bits(&folder, &code);
    let Some(document) = document(&[], &[&path]) else { return };
    assert_eq!(document["uncounted_32_bit_calls"], 3, "{document:#}");
    if !getuid().is_root() {
        return eprintln!("skipped: becoming another user needs root");
    }
    // So it is where the program is traced.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let output = Nobody::new().watch(&["--json", "--", &path]);
    if !is_untraceable(&output) {
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["method"], "ptrace", "{document:#}");
        assert_eq!(document["uncounted_32_bit_calls"], 3, "{document:#}");
    }
}

#[test]
fn a_container_s_processes_are_watched_from_outside_and_not_from_inside() {
    if !getuid().is_root() {
        return eprintln!("skipped: a namespace of processes needs root");
    }
    let unshare = ["unshare", "--pid", "--fork"];
    let inside = superpoll();
    let inside = inside.get_program().to_str().unwrap();
    let mut command = Command::new(unshare[0]);
    let output = command.args(&unshare[1..]).arg("--mount-proc").arg(inside);
    let output = output.args(["watch", "--", "true"]).output();
    match output {
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("unshare") => {
            return eprintln!("skipped: {output:?}");
        }
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(errors.contains("is in a container"), "{output:?}");
            assert!(errors.contains("a library that the program loads"), "{output:?}");
        }
        Err(error) => return eprintln!("skipped: unshare: {error}"),
    }
    let script = "import select; [select.epoll().poll(0) for _ in range(23)]";
    let mut program = unshare.to_vec();
    program.extend(["python3", "-c", script]);
    let Some(document) = document(&[], &program) else { return };
    let waits =
        sets(&document, "epoll").iter().map(|set| set["waits"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(waits, 23, "{document:#}");
}
