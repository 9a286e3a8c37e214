//! The same with a real server of Redis, which is skipped where there is none.

use super::*;
use crate::broker::redis::connector;

/// A server of Redis, for one test.
pub(super) struct Redis {
    process: std::process::Child,
    _folder: tempfile::TempDir,
    pub url: String,
    saved: Mutex<Vec<(Vec<u8>, Vec<u8>)>>,
}

impl Redis {
    /// Starts a server, if it is installed.
    pub(super) fn start() -> Option<Redis> {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("redis.sock");
        let process = std::process::Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(&socket)
            .current_dir(folder.path())
            .stdout(std::process::Stdio::null())
            .spawn();
        let Ok(process) = process else {
            eprintln!("skipped: the program redis-server is not there");
            return None;
        };
        let url = format!("redis+unix://{}", socket.display());
        let (_folder, saved) = (folder, Mutex::default());
        let redis = Redis { process, _folder, url, saved };
        while redis.connection().is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(redis)
    }

    fn connection(&self) -> redis::RedisResult<redis::Connection> {
        redis::Client::open(self.url.as_str())?.get_connection()
    }

    fn keys(connection: &mut redis::Connection) -> Vec<Vec<u8>> {
        redis::cmd("KEYS").arg("*").query(connection).unwrap()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Disaster for Redis {
    fn flush(&self) {
        redis::cmd("FLUSHALL").exec(&mut self.connection().unwrap()).unwrap();
    }

    fn save(&self) {
        let mut connection = self.connection().unwrap();
        let mut saved = Vec::new();
        for key in Redis::keys(&mut connection) {
            let dump: Option<Vec<u8>> =
                redis::cmd("DUMP").arg(&key).query(&mut connection).unwrap();
            saved.extend(dump.map(|dump| (key, dump)));
        }
        *self.saved.lock().unwrap() = saved;
    }

    /// As another process would: its connections are new ones, and so is its name.
    fn go_back(&self) {
        let mut connection = self.connection().unwrap();
        let mut all = redis::pipe();
        all.atomic().cmd("FLUSHALL");
        for (key, dump) in &*self.saved.lock().unwrap() {
            all.cmd("RESTORE").arg(key).arg(0).arg(dump);
        }
        all.cmd("SET").arg("test:{servers}:run").arg("another process");
        all.cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").arg("SKIPME").arg("yes");
        all.exec(&mut connection).unwrap();
    }

    fn log(&self, key: &str) -> Vec<(Position, String)> {
        type Fields = Vec<(String, Vec<u8>)>;
        let mut connection = self.connection().unwrap();
        let entries: Vec<(String, Fields)> =
            redis::cmd("XRANGE").arg(key).arg("-").arg("+").query(&mut connection).unwrap();
        let messages = entries.into_iter().filter_map(|(id, fields)| {
            let (epoch, id) = id.split_once('-').unwrap();
            let at = Position { epoch: epoch.parse().unwrap(), id: id.parse().unwrap() };
            let (_, data) = fields.into_iter().find(|(name, _)| name == "d")?;
            Some((at, String::from_utf8(data).unwrap()))
        });
        messages.collect()
    }
}

fn run_on_redis(plan: &Plan) {
    let Some(redis) = Redis::start() else { return };
    let config = superpoll_config::Broker { url: redis.url.parse().unwrap(), ..broker_config() };
    let runtime = Runtime::new().unwrap();
    let connectors = [(); 3].map(|()| connector(&config).unwrap()).into();
    runtime.block_on(run(plan, connectors, &redis, runtime.handle()));
}

#[test]
fn nothing_is_lost_or_doubled() {
    for seed in seeds(2) {
        run_on_redis(&Plan { seed, steps: 600, history: 1000, faults: 30, loses: false });
        run_on_redis(&Plan { seed, steps: 600, history: 3, faults: 30, loses: false });
    }
}

#[test]
fn a_redis_that_is_emptied_or_goes_back_in_time_says_what_is_missed() {
    for seed in seeds(3) {
        run_on_redis(&Plan { seed, steps: 1500, history: 2000, faults: 10, loses: true });
    }
}
