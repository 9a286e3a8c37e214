//! A WebSocket client, through the reverse proxy of one process to a channel of another.

use std::net::TcpStream;
use std::process::Command;

use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

use crate::stage::{PATIENCE, Server, Site, backends, run, tool};

fn subscribe(server: &Server, path: &str) -> WebSocket<MaybeTlsStream<TcpStream>> {
    let url = format!("ws://{}{path}", server.at(0));
    let (socket, _) = tungstenite::connect(url).unwrap();
    let MaybeTlsStream::Plain(stream) = socket.get_ref() else { panic!("it is plain") };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Returns the next message that is not a ping.
fn next(socket: &mut WebSocket<MaybeTlsStream<TcpStream>>) -> Message {
    loop {
        let message = socket.read().unwrap();
        if !message.is_ping() {
            return message;
        }
    }
}

#[test]
fn messages_pass_a_proxy_both_ways_and_the_end_does_as_well() {
    for backend in backends() {
        let site = Site::new();
        let channel = site.write(
            "channel.toml",
            "
            [[listeners]]
            address = \"127.0.0.1:0\"
            [[hosts]]
            [[hosts.routes]]
            path = \"/news\"
            channel = { publish = \"anyone\" }
            [timeouts]
            park = \"50ms\"",
        );
        let channel = Server::configured(&channel, 1);
        let proxy = format!(
            "[server]
            backend = \"{}\"
            [[listeners]]
            address = \"127.0.0.1:0\"
            [[hosts]]
            [[hosts.routes]]
            path = \"/api\"
            proxy = {{ upstream = \"news\", strip_path = true }}
            [[upstreams.news.servers]]
            address = \"{}\"",
            backend.name(),
            channel.at(0)
        );
        let proxy = Server::configured(&site.write("proxy.toml", &proxy), 1);
        let mut through = subscribe(&proxy, "/api/news");
        let mut direct = subscribe(&channel, "/news");
        through.send(Message::text("from afar")).unwrap();
        for socket in [&mut through, &mut direct] {
            assert_eq!(next(socket), Message::text("from afar"), "{backend:?}");
        }
        // Both are parked by now, or soon.
        let large = "0123456789".repeat(6000);
        direct.send(Message::text(large.clone())).unwrap();
        for socket in [&mut through, &mut direct] {
            assert_eq!(next(socket), Message::text(large.clone()), "{backend:?}");
        }
        if tool("curl").is_some() {
            let mut post = Command::new("curl");
            let told = run(post.args(["-sS", "--data", "posted", &proxy.url("/api/news")]));
            assert!(told.contains("\"id\":3"), "{told}");
            for socket in [&mut through, &mut direct] {
                assert_eq!(next(socket), Message::text("posted"), "{backend:?}");
            }
        }
        through.close(None).unwrap();
        while through.read().is_ok() {}
        drop(through);
        // The end of the server is announced, also through a proxy.
        let mut through = subscribe(&proxy, "/api/news");
        channel.finish();
        for socket in [&mut through, &mut direct] {
            let Message::Close(Some(frame)) = next(socket) else { panic!("{backend:?}: no end") };
            assert_eq!(u16::from(frame.code), 1001, "{backend:?}");
        }
        drop((through, direct));
        proxy.finish();
    }
}
