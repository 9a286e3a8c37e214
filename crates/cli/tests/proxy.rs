//! The built command `superpoll proxy`, from the outside.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;

const BACKENDS: [&str; 4] = ["select", "poll", "epoll", "adaptive"];

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_superpoll"));
    command.arg("proxy").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts it and reads where it listens.
fn start(arguments: &[&str]) -> (Child, String) {
    let mut child = command(arguments).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.split(' ').nth(3).unwrap_or_else(|| panic!("it wrote {line:?}")).to_owned();
    (child, address)
}

fn terminate(child: &Child) {
    let number = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &number]).status().unwrap().success());
}

#[test]
fn five_hundred_connections_and_an_end_that_waits_for_the_last() {
    const MANY: usize = 500;
    for backend in BACKENDS {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap().to_string();
        // 500 pairs are more than select can number.
        let many = if backend == "select" { MANY / 2 } else { MANY };
        let (mut child, address) = start(&[
            "--listen",
            "127.0.0.1:0",
            "--to",
            &to,
            "--backend",
            backend,
            "--workers",
            "2",
        ]);
        let mut pairs = Vec::new();
        for _ in 0..many {
            let client = TcpStream::connect(&address).unwrap();
            pairs.push((client, listener.accept().unwrap().0));
        }
        // Which client belongs to which server is the relay's affair.
        for (number, (client, _)) in pairs.iter_mut().enumerate() {
            client.write_all(&(number as u32).to_le_bytes()).unwrap();
        }
        for (_, server) in &mut pairs {
            let mut bytes = [0; 4];
            server.read_exact(&mut bytes).unwrap();
            server.write_all(&bytes).unwrap();
        }
        for (number, (client, _)) in pairs.iter_mut().enumerate() {
            let mut bytes = [0; 4];
            client.read_exact(&mut bytes).unwrap();
            assert_eq!(u32::from_le_bytes(bytes), number as u32);
        }
        terminate(&child);
        // It listens no more, and what there is goes on.
        while TcpStream::connect(&address).is_ok() {
            thread::yield_now();
        }
        for (client, _) in &mut pairs {
            client.write_all(b"last").unwrap();
        }
        for (_, server) in &mut pairs {
            let mut bytes = [0; 4];
            server.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"last");
        }
        drop(pairs);
        assert!(child.wait().unwrap().success(), "{backend}");
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert_eq!(errors, "", "{backend}");
    }
}

#[test]
fn an_upstream_that_refuses_is_one_line_and_what_is_wrong_from_the_start_another() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let used = listener.local_addr().unwrap().to_string();
    // Of `taken` only the number is left.
    let (mut child, address) = start(&["--listen", "127.0.0.1:0", "--to", &taken]);
    for _ in 0..2 {
        let mut client = TcpStream::connect(&address).unwrap();
        assert!(!client.read(&mut [0]).is_ok_and(|count| count > 0));
    }
    terminate(&child);
    assert!(child.wait().unwrap().success());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(errors.lines().count(), 2, "{errors}");
    assert!(errors.contains(&format!("connecting to {taken}: Connection refused")), "{errors}");

    for (listen, to, reason) in [
        (&*used, "127.0.0.1:1", "in use"),
        ("unix:/no/such/folder/a", "127.0.0.1:1", "No such file"),
        ("127.0.0.1:0", "127.0.0.1:0", "port 0"),
        ("localhost", "127.0.0.1:1", "no address"),
    ] {
        let output = command(&["--listen", listen, "--to", to]).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && errors.contains(reason), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}
