//! Listeners in the file system.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use crate::stage::{BACKENDS, Stage, folder};

#[test]
fn a_socket_file_takes_the_place_of_one_that_was_left_and_is_gone_in_the_end() {
    let folder = folder();
    let path = folder.path().join("socket");
    let text = format!(
        "[[listeners]]\naddress = \"unix:{}\"\nmode = \"600\"\n[timeouts]\npark = \"40ms\"\n\
         [[hosts]]\n[[hosts.routes]]\nfiles.root = {:?}\n",
        path.display(),
        folder.path()
    );
    for backend in BACKENDS {
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let stage = Stage::new(backend, 2, &text);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let mut client = UnixStream::connect(&path).unwrap();
        for _ in 0..2 {
            client.write_all(b"GET /small.txt HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
            let mut read = Vec::new();
            while !read.ends_with(b"\r\n\r\nhello\n") {
                let mut byte = [0];
                client.read_exact(&mut byte).unwrap();
                read.push(byte[0]);
            }
            stage.until(|engine| &engine.parked, 1);
        }
        drop(client);
        assert_eq!(stage.drained(), 0);
        assert!(!path.exists());
    }
}
