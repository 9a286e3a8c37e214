//! A flood of connections leaves descriptors for files.

use std::net::TcpStream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use superpoll_gateway::serve::Server;
use superpoll_gateway::{Address, Config};
use superpoll_test_support::alone;

use crate::stage::{BACKENDS, Stage};

/// The most descriptors of the process; each connection takes two here, as the client is in the
/// process as well.
const LIMIT: u64 = 400;

#[test]
fn a_flood_of_connections_leaves_descriptors_for_files() {
    alone(|| {
        let folder = tempfile::tempdir().unwrap();
        for index in 0..50 {
            std::fs::write(folder.path().join(format!("{index}.txt")), "text\n").unwrap();
        }
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
         [limits]\nconnections = 390\n\
         [[hosts]]\n[[hosts.routes]]\nfiles.root = {:?}\nfiles.cache_bytes = 0\n",
            folder.path()
        );
        let config = Config::parse("test.toml", &text).unwrap();
        let excess = Server::excess(&config, LIMIT).unwrap();
        assert!(
            excess.starts_with("limits.connections is 390, but there can be 356: "),
            "{excess}"
        );

        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), ..limit }).unwrap();
        let stage = Stage::new(BACKENDS[2], 1, &text);
        // The clients of the flood need descriptors in addition to those that the server may have.
        setrlimit(Resource::Nofile, limit).unwrap();
        let mut first = stage.connect();
        assert_eq!(first.get("/0.txt").status, 200);
        let Address::Tcp { port, .. } = stage.addresses[0] else { panic!("it is TCP") };
        let clients: Vec<TcpStream> =
            (0..LIMIT).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
        stage.until(|engine| &engine.accepted, LIMIT + 1);
        stage.until(|engine| &engine.refused, LIMIT + 1 - 356);
        for index in 0..50 {
            assert_eq!(first.get(&format!("/{index}.txt")).status, 200);
        }
        drop(clients);
    });
}
