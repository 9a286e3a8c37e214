//! Relays in front of a real server: Redis, with its own client.

use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::stage::{Running, Server, free_port, run, tool, until};

#[test]
fn redis_is_reached_through_tls_by_its_client_by_another_relay_and_by_name() {
    let (Some(program), Some(cli)) = (tool("redis-server"), tool("redis-cli")) else { return };
    let folder = tempfile::tempdir().unwrap();
    let port = free_port().to_string();
    let mut redis = Command::new(program);
    redis.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    let redis = redis.current_dir(folder.path()).stdout(Stdio::null());
    let _redis = Running(redis.spawn().unwrap());
    let address = format!("127.0.0.1:{port}");
    until("Redis listens", || TcpStream::connect(&address).is_ok());
    let (sealed, plain, routed) =
        (free_port().to_string(), free_port().to_string(), free_port().to_string());
    let state = folder.path().join("state");
    let text = format!(
        r#"
# Decrypts.
[[listeners]]
address = "127.0.0.1:{sealed}"
tls = {{ internal = true, storage = {state:?} }}
relay = {{ upstream = "redis", names = ["cache.localhost"] }}
# Encrypts.
[[listeners]]
address = "127.0.0.1:{plain}"
relay = {{ upstream = "sealed" }}
# Passes TLS on by name.
[[listeners]]
address = "127.0.0.1:{routed}"
[[listeners.relay.routes]]
server_names = ["cache.localhost"]
to = "127.0.0.1:{sealed}"
[upstreams.redis]
servers = [{{ address = "localhost:{port}" }}]
health = {{ kind = "connect", interval = "100ms" }}
[upstreams.sealed]
servers = [{{ address = "127.0.0.1:{sealed}" }}]
tls = {{ ca = "state/internal/root.pem", server_name = "cache.localhost" }}
"#
    );
    let path = folder.path().join("superpoll.toml");
    // The authority of the server's own has no certificate before its first start.
    let first = text.split("# Encrypts.").next().unwrap().to_owned()
        + "[upstreams.redis]\nservers = [{ address = \"127.0.0.1:1\" }]\n";
    std::fs::write(&path, first).unwrap();
    Server::configured(&path, 1).finish();
    std::fs::write(&path, text).unwrap();
    let server = Server::configured(&path, 3);
    let root = folder.path().join("state/internal/root.pem");
    let ask = |port: &str, tls: &[&str], command: &[&str]| {
        let mut cli = Command::new(&cli);
        cli.args(["-p", port]).args(tls).args(command);
        run(&mut cli)
    };
    let tls = ["--tls", "--cacert", root.to_str().unwrap(), "--sni", "cache.localhost"];
    let large = "x".repeat(100_000);
    assert_eq!(ask(&sealed, &tls, &["set", "a", &large]), "OK\n");
    assert_eq!(ask(&plain, &[], &["get", "a"]), format!("{large}\n"));
    assert_eq!(ask(&routed, &tls, &["append", "a", "y"]), "100001\n");
    assert_eq!(ask(&plain, &[], &["strlen", "a"]), "100001\n");
    // Another name has no route, and Redis does not hear of it.
    let other = ["--tls", "--cacert", root.to_str().unwrap(), "--sni", "other.localhost"];
    let mut refused = Command::new(&cli);
    let refused = refused.args(["-p", &routed]).args(other).arg("ping").output().unwrap();
    assert!(!String::from_utf8_lossy(&refused.stdout).contains("PONG"));
    server.finish();
}
