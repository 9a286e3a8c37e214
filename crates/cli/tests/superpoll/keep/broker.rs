//! Channels whose messages are a broker's, with a keeper: a server of Redis, which is skipped where
//! there is none.

use std::process::{Command, Stdio};

use crate::keep::succession::{AT_REST_SOON, Nursery, subscribers_go_on};
use crate::stage::{Running, until};

#[test]
fn subscribers_of_a_broker_go_on_through_many_upgrades_and_crashes() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("redis.sock");
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket);
    command.current_dir(folder.path()).stdout(Stdio::null());
    let Ok(redis) = command.spawn() else {
        eprintln!("skipped: the program redis-server is not there");
        return;
    };
    let _redis = Running(redis);
    until("Redis listens", || socket.exists());
    let channel = "publish = \"anyone\", history = 1000, poll = \"10m\", broker = true";
    let url = format!("redis+unix://{}", socket.display());
    let options = format!("{AT_REST_SOON}[broker]\nurl = {url:?}\n");
    subscribers_go_on(&Nursery::with_channel(channel, &options));
}
