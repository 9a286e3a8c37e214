//! The client of channels for pages, as a host serves it.

use std::io::Read;

use flate2::read::GzDecoder;

use crate::clients::{field, stage, text};
use crate::stage::{Answer, BACKENDS, Client, Stage};

/// The most bytes of the compressed script.
const MOST: usize = 5 << 10;

fn get(client: &mut Client, path: &str, host: &str, fields: &str) -> Answer {
    client.send(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n"));
    client.answer()
}

#[test]
fn the_script_is_small_and_for_everybody() {
    let stage = stage(BACKENDS[2], 1, "");
    let mut client = stage.connect();
    let mut whole = Vec::new();
    for (path, end) in [
        ("/_superpoll/client.js", "})();\n"),
        ("/_superpoll/client.mjs", "export default superpoll;\n"),
    ] {
        // A client that is no program on this machine, as far as the server can tell.
        let fields = "x-forwarded-for: 192.0.2.1\r\norigin: https://elsewhere.example\r\n";
        let plain = get(&mut client, path, "pub.test", fields);
        assert_eq!(plain.status, 200, "{plain:?}");
        assert_eq!(field(&plain, "content-type"), "text/javascript; charset=utf-8");
        assert_eq!(field(&plain, "access-control-allow-origin"), "*");
        let source = String::from_utf8(plain.body).unwrap();
        assert!(source.ends_with(end) && source.contains("superpoll.v1"), "{source}");

        let fields = "accept-encoding: gzip\r\n";
        let packed = get(&mut client, path, "pub.test", fields);
        assert_eq!(field(&packed, "content-encoding"), "gzip");
        assert!(packed.body.len() <= MOST, "{path} has {} bytes", packed.body.len());
        let mut unpacked = String::new();
        GzDecoder::new(&*packed.body).read_to_string(&mut unpacked).unwrap();
        assert_eq!(unpacked, source);

        let tag = field(&packed, "etag");
        let fields = format!("accept-encoding: gzip\r\nif-none-match: {tag}\r\n");
        assert_eq!(get(&mut client, path, "pub.test", &fields).status, 304);
        client.send(format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"));
        assert_eq!(client.answer().status, 405);
        whole.push(source);
    }
    assert!(whole[1].starts_with(&whole[0]));
    assert_eq!(get(&mut client, "/_superpoll/client.css", "pub.test", "").status, 404);
}

#[test]
fn the_script_is_where_channels_are() {
    let other = "[[hosts]]\nnames = [\"plain.test\"]\n[[hosts.routes]]\nredirect.to = \"/x\"\n";
    for page in ["", "server.page = false\n", "server.page = true\n"] {
        let stage = Stage::new(BACKENDS[1], 1, &format!("{page}{}{other}", text("")));
        let mut client = stage.connect();
        for (host, status) in [("any.test", 200), ("plain.test", 308)] {
            let answer = get(&mut client, "/_superpoll/client.js", host, "");
            // The page, which is for all here, has no such file.
            let status = if page.contains("true") && status == 308 { 404 } else { status };
            assert_eq!(answer.status, status, "{page} {host}");
        }
    }
    // Without the page the paths are free for routes.
    let own = "[[hosts.routes]]\npath = \"/_superpoll\"\nredirect.to = \"/y\"\n";
    let stage = Stage::new(BACKENDS[1], 1, &format!("server.page = false\n{}{own}", text("")));
    let mut client = stage.connect();
    assert_eq!(client.get("/_superpoll/client.js").status, 308);
}
