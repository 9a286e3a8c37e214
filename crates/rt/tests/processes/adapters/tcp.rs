//! The TCP echo.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::thread;

use superpoll_rt::BackendKind;

use super::example::{Example, noise};

#[test]
fn each_back_end_echoes_to_many_at_a_time() {
    for kind in BackendKind::available() {
        let server = Example::start("echo", kind);
        let clients = (0..16).map(|number| {
            let stream = server.connect();
            thread::spawn(move || {
                let sent = noise(number, 300_000);
                let (mut reader, mut writer) = (&stream, &stream);
                let received = thread::scope(|scope| {
                    let reader = scope.spawn(move || {
                        let mut received = Vec::new();
                        reader.read_to_end(&mut received).unwrap();
                        received
                    });
                    writer.write_all(&sent).unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                    reader.join().unwrap()
                });
                assert!(received == sent, "client {number} gets back what it sent");
            })
        });
        for client in clients.collect::<Vec<_>>() {
            client.join().unwrap();
        }
    }
}
