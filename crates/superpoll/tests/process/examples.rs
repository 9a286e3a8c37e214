//! The example servers, at work.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use superpoll::{Events, Interest, Poller};

#[path = "../../examples/tcp_chat.rs"]
#[allow(dead_code, unreachable_pub, reason = "its main function listens on a fixed port")]
mod tcp_chat;
#[path = "../../examples/udp.rs"]
#[allow(dead_code, unreachable_pub, reason = "its main function listens on a fixed port")]
mod udp;

/// A test that hangs fails.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_line_goes_to_all_other_clients() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let join = || {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        BufReader::new(stream)
    };
    let say = |client: &BufReader<TcpStream>, text: &str| {
        // In two parts, which the other clients get as one line.
        let (start, end) = text.split_at(2);
        client.get_ref().write_all(start.as_bytes()).unwrap();
        client.get_ref().write_all(end.as_bytes()).unwrap();
    };
    let read_line = |client: &mut BufReader<TcpStream>| {
        let mut line = String::new();
        client.read_line(&mut line).unwrap();
        line
    };
    // Connections are accepted in the order in which they were ready, so a client that is heard is
    // known, and so is the first, which is ready before the next one joins.
    let mut first = join();
    let mut poller = Poller::new().unwrap();
    poller.register(&listener, Interest::READABLE).unwrap();
    assert_eq!(poller.wait(&mut Events::with_limit(1), Some(LIMIT)).unwrap(), 1);
    drop(poller);
    thread::spawn(move || tcp_chat::serve(listener).unwrap());
    let mut second = join();
    say(&second, "hello\n");
    assert_eq!(read_line(&mut first), "hello\n");
    let mut third = join();
    say(&third, "here, too\n");
    assert_eq!(
        (read_line(&mut first), read_line(&mut second)),
        ("here, too\n".into(), "here, too\n".into())
    );
    say(&first, "welcome\n");
    assert_eq!(
        (read_line(&mut second), read_line(&mut third)),
        ("welcome\n".into(), "welcome\n".into())
    );
    // The other clients go on without a client that leaves.
    drop(first);
    say(&second, "bye\n");
    assert_eq!(read_line(&mut third), "bye\n");
}

#[test]
fn datagrams_come_back() {
    let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = server.local_addr().unwrap();
    thread::spawn(move || udp::serve(server).unwrap());
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    client.connect(address).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    for length in [1, 1_000, 0, 60_000] {
        client.send(&vec![7; length]).unwrap();
        let mut room = vec![0; 65_535];
        let count = client.recv(&mut room).unwrap();
        assert!(count == length && room[..count].iter().all(|&byte| byte == 7));
    }
}
