//! In a terminal: a pseudo terminal whose screen is read as a terminal emulator does.

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pty_process::Size;
use pty_process::blocking::{Command, Pty};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::termios::{LocalModes, Termios, tcgetattr};

use crate::stage::{PATIENCE, Server, Site, get, signal, until};
use superpoll_test_support::program::FOREIGN;

/// `superpoll top` in a terminal.
struct Terminal {
    pty: Arc<Pty>,
    child: Child,
    screen: Arc<Mutex<vt100::Parser>>,
    before: Termios,
    closed: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

fn size(rows: u16, columns: u16) -> (NonZeroU16, NonZeroU16) {
    (NonZeroU16::new(rows).unwrap(), NonZeroU16::new(columns).unwrap())
}

impl Terminal {
    fn new(arguments: &[&str]) -> Terminal {
        let (pty, pts) = pty_process::blocking::open().unwrap();
        pty.resize(Size::new(24, 80)).unwrap();
        let before = tcgetattr(&pty).unwrap();
        let command = Command::new(env!("CARGO_BIN_EXE_superpoll")).arg("top").args(arguments);
        let command =
            FOREIGN.iter().fold(command, |command, variable| command.env_remove(variable));
        let child = command.env("TERM", "xterm").spawn(pts).unwrap();
        let (rows, columns) = size(24, 80);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 100)));
        let closed = Arc::new(AtomicBool::new(false));
        let pty = Arc::new(pty);
        let (shows, source, ends) = (screen.clone(), pty.clone(), closed.clone());
        let read = move || {
            let tick = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            while !ends.load(Ordering::Relaxed) {
                let mut asked = [PollFd::new(&*source, PollFlags::IN)];
                if rustix::event::poll(&mut asked, Some(&tick)).unwrap() == 0 {
                    continue;
                }
                let mut room = [0; 4096];
                // No process has the other end any more.
                let Ok(count @ 1..) = (&*source).read(&mut room) else { return };
                shows.lock().unwrap().process(&room[..count]);
            }
        };
        let reader = Some(thread::spawn(read));
        Terminal { pty, child, screen, before, closed, reader }
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    fn shows(&self, part: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.text().contains(part) {
            assert!(Instant::now() < end, "{part:?} is not on the screen:\n{}", self.text());
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn press(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).unwrap();
    }

    fn resize(&self, rows: u16, columns: u16) {
        let (height, width) = size(rows, columns);
        self.screen.lock().unwrap().set_size(height, width);
        self.pty.resize(Size::new(rows, columns)).unwrap();
    }

    fn has_the_screen(&self) -> bool {
        let taken = self.screen.lock().unwrap().screen().alternate_screen();
        let modes = tcgetattr(&self.pty).unwrap().local_modes;
        taken && !modes.intersects(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// Waits for the end; the terminal must be restored. Returns the status and the screen.
    fn ended(mut self) -> (ExitStatus, String) {
        let status = wait(&mut self.child);
        let is_back = || {
            let screen = self.screen.lock().unwrap();
            !screen.screen().alternate_screen() && !screen.screen().hide_cursor()
        };
        until("the screen is given back", is_back);
        let after = tcgetattr(&self.pty).unwrap();
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
        self.reader.take().unwrap().join().unwrap();
        (status, self.text())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait(child: &mut Child) -> ExitStatus {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < end, "it does not end");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Starts a server and returns the path of its socket.
fn server() -> (Site, Server, String) {
    let site = Site::new();
    let path = site.path("stats").to_str().unwrap().to_owned();
    let server = Server::folder(&site.www(), &["--workers", "2", "--stats", &path]);
    (site, server, path)
}

#[test]
fn it_shows_the_process_takes_keys_and_gives_the_terminal_back() {
    let (_site, server, path) = server();
    let terminal = Terminal::new(&[&path, "--interval", "0.1"]);
    terminal.shows(&format!("superpoll serve [{}] ", server.child().id()));
    for part in ["no request has come yet", "req/s", "p99", "q quit"] {
        terminal.shows(part);
    }
    assert!(terminal.has_the_screen());
    assert!(terminal.screen.lock().unwrap().screen().hide_cursor());
    // Activity shows: a connection that stays.
    let mut client = server.connect();
    get(&mut client, "/small");
    get(&mut client, "/small");
    terminal.shows(" 1 conns");
    for part in ["ROUTES 1", "4xx/s", "requests"] {
        terminal.shows(part);
    }
    for (keys, part) in [
        ("p", "paused"),
        ("+", "+/- 0.25 s"),
        ("-", "+/- 0.1 s"),
        ("s", "s by p99"),
        ("4", "no channels to show"),
        ("1/nothing", "/nothing_"),
        ("\r", "no name has \"nothing\" in it"),
        // The first escape ends the filter only.
        ("\x1b", "ROUTES 1"),
        ("?", "half, and 99 of 100"),
        ("\t", "ROUTES 1"),
        ("\t", "→hot"),
        ("", "slowest turns of late"),
        ("", "break-even: the ratio"),
        ("\x1b[B", "Up/Down engine 1"),
        ("\x1b[A", "Up/Down engine 0"),
        ("s", "s by events"),
        ("\x1b[Z", "ROUTES 1"),
    ] {
        terminal.press(keys);
        terminal.shows(part);
    }
    terminal.press("p");
    drop(client);
    terminal.shows(" 0 conns");
    terminal.resize(10, 40);
    terminal.shows("ROUTES 1");
    terminal.resize(9, 40);
    terminal.shows("at least 40 columns and 10 rows");
    terminal.resize(50, 200);
    terminal.shows("of late");
    terminal.shows("errors/s");
    terminal.press("q");
    let (status, _) = terminal.ended();
    assert!(status.success(), "{status}");
    server.finish();
}

#[test]
fn escape_control_c_and_signals_end_it_and_the_terminal_is_given_back() {
    let (_site, server, path) = server();
    for key in ["\x1b", "\x03"] {
        let terminal = Terminal::new(&[&path]);
        terminal.shows("q quit");
        terminal.press(key);
        assert!(terminal.ended().0.success(), "{key:?}");
    }
    for name in ["TERM", "INT", "HUP"] {
        let terminal = Terminal::new(&[&path]);
        terminal.shows("q quit");
        until("it has the screen", || terminal.has_the_screen());
        signal(&terminal.child, name);
        assert!(terminal.ended().0.success(), "{name}");
    }
    server.finish();
}

#[test]
fn the_end_of_the_server_is_reported_on_a_restored_terminal() {
    for name in ["TERM", "KILL"] {
        let (_site, server, path) = server();
        let terminal = Terminal::new(&[&path]);
        terminal.shows("q quit");
        server.signal(name);
        let (status, text) = terminal.ended();
        assert_eq!(status.code(), Some(1), "{name}: {text}");
        assert!(text.contains("superpoll: the server has ended"), "{name}: {text}");
        server.ended();
    }
}

#[test]
fn it_ends_when_its_terminal_is_closed() {
    let (_site, server, path) = server();
    let mut terminal = Terminal::new(&[&path]);
    terminal.shows("q quit");
    terminal.closed.store(true, Ordering::Relaxed);
    terminal.reader.take().unwrap().join().unwrap();
    // The last owner of the terminal's own end.
    let (spare, _) = pty_process::blocking::open().unwrap();
    let pty = std::mem::replace(&mut terminal.pty, Arc::new(spare));
    assert_eq!(Arc::strong_count(&pty), 1);
    drop(pty);
    wait(&mut terminal.child);
    server.finish();
}
