//! The first server of the guide, at work.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

#[path = "../../examples/tcp_echo.rs"]
#[allow(dead_code, unreachable_pub, reason = "its main function listens on a fixed port")]
mod start;

/// A test that hangs fails.
const LIMIT: Duration = Duration::from_secs(60);

/// More than the sockets' buffers hold.
const MUCH: usize = 16 << 20;

fn connect(address: std::net::SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream
}

#[test]
fn the_first_server_keeps_a_client_that_reads_slowly() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || start::serve(listener).unwrap());
    let mut slow = connect(address);
    let writer = slow.try_clone().unwrap();
    let sends = thread::spawn(move || {
        let bytes: Vec<u8> = (0..MUCH).map(|index| (index % 251) as u8).collect();
        (&writer).write_all(&bytes).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    // Further clients are served while nothing of that is read, and when one has gone.
    for _ in 0..2 {
        let mut other = connect(address);
        other.write_all(b"hello").unwrap();
        let mut bytes = [0; 5];
        other.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"hello");
    }
    let mut room = vec![0; 1 << 16];
    let mut read = 0;
    while read < MUCH {
        let count = slow.read(&mut room).unwrap();
        assert_ne!(count, 0, "it ends after {read} bytes");
        for (index, byte) in room[..count].iter().enumerate() {
            assert_eq!(*byte, ((read + index) % 251) as u8);
        }
        read += count;
    }
    sends.join().unwrap();
}
