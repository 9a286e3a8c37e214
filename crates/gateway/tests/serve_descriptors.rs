//! What a server has taken of an engine is given back when it ends. The only test of its process, as it counts the
//! descriptors of that.

use std::time::{Duration, Instant};

use superpoll_gateway::serve::Server;
use superpoll_gateway::{Address, Config, config};
use superpoll_rt::{Runtime, time};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_server_that_has_ended_leaves_no_descriptor_behind() {
    let runtime = Runtime::builder().build().unwrap();
    let mut config = Config::demo();
    let address: Address = "127.0.0.1:0".parse().unwrap();
    config.listeners = vec![config::Listener::plain(address)];
    let start = || Server::start(&runtime, &config, |failure| panic!("{failure}")).unwrap();
    let rest = || runtime.block_on(time::sleep(Duration::from_millis(10))).unwrap();
    drop(start());
    rest();
    let before = descriptors();
    for _ in 0..20 {
        drop(start());
    }
    let end = Instant::now() + Duration::from_secs(20);
    while descriptors() > before {
        assert!(Instant::now() < end, "{} descriptors, {before} before", descriptors());
        rest();
    }
}
