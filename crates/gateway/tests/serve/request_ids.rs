//! Ids of requests in the answers that the server makes by itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_rustls::TlsConnector;
use superpoll_rt::Runtime;

use crate::http2::{Trust, port};
use crate::stage::{BACKENDS, Client, Stage, folder};
use crate::websocket2::Connection2;

fn is_new(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The one id in a head.
#[track_caller]
fn id(head: &str) -> String {
    let ids = head.lines().filter_map(|line| line.strip_prefix("x-request-id: "));
    let ids: Vec<&str> = ids.collect();
    let [id] = ids[..] else { panic!("{head}") };
    id.to_owned()
}

fn text(site: &std::path::Path, tracing: &str) -> String {
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[timeouts]\npark = \"40ms\"\n\
         [tracing]\n{tracing}\n\
         [[hosts]]\nnames = [\"a\"]\nheaders = {{ remove = [\"x-request-id\"], add = {{ x-own = \"1\" }} }}\n\
         [[hosts.routes]]\nfiles.root = {site:?}\n\
         [[hosts.routes]]\npath = \"/old\"\nredirect.to = \"/new\"\n\
         [[hosts.routes]]\npath = \"/denied\"\ndeny = [\"127.0.0.1\"]\nfiles.root = {site:?}\n\
         [[hosts.routes]]\npath = \"/locked\"\nfiles.root = {site:?}\n\
         basic_auth.users = {{ joe = \"$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA\" }}\n\
         [[hosts.routes]]\npath = \"/down\"\nproxy.upstream = \"none\"\n\
         [upstreams.none]\nservers = [{{ address = \"127.0.0.1:1\" }}]\nhealth = {{ fall = 1 }}\n"
    )
}

fn ask(client: &mut Client, method: &str, path: &str, host: &str, fields: &str) -> (u16, String) {
    client.send(format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n"));
    let answer = match method {
        "HEAD" => client.head_only(),
        _ => client.answer(),
    };
    (answer.status, answer.head)
}

#[test]
fn every_answer_has_an_id_and_no_client_chooses_it() {
    let folder = folder();
    for backend in BACKENDS {
        let stage =
            Stage::new(backend, 1, &text(folder.path(), "request_id = true\nvia = \"gate\""));
        let (mut client, mut ids) = (stage.connect(), BTreeSet::new());
        for round in 0..2 {
            for (method, path, host, status) in [
                // The second time it is in memory, and takes the lane.
                ("GET", "/small.txt", "a", 200),
                ("GET", "/small.txt", "a", 200),
                ("HEAD", "/small.txt", "a", 200),
                ("GET", "/missing", "a", 404),
                ("POST", "/small.txt", "a", 405),
                ("GET", "/old/a", "a", 308),
                ("GET", "/denied", "a", 403),
                ("GET", "/locked", "a", 401),
                ("GET", "//denied", "a", 400),
                ("GET", "/small.txt", "b", 421),
                ("TRACE", "/", "a", 405),
                ("PROPFIND", "/", "a", 501),
            ] {
                let fields = "X-Request-Id: mine\r\nVia: 1.1 gate\r\n";
                let fields = if round == 0 { "X-Request-Id: mine\r\n" } else { fields };
                let (found, head) = ask(&mut client, method, path, host, fields);
                assert_eq!(found, status, "{backend:?} {method} {path}");
                let id = id(&head);
                assert!(is_new(&id) && ids.insert(id), "{method} {path} {head}");
                // This server has made the answer.
                assert!(!head.contains("via:"), "{head}");
            }
        }
        assert!(stage.count(|engine| &engine.lane) > 0, "no request has taken the lane");
        let (status, head) = ask(&mut stage.connect(), "GET", "/down", "a", "");
        assert!(matches!(status, 502 | 503), "{head}");
        assert!(is_new(&id(&head)));
    }
}

#[test]
fn a_trusted_id_is_kept_and_answers_may_leave_it_out() {
    let folder = folder();
    let trusting = "request_id = { trust = [\"127.0.0.0/8\"], field = \"X-Correlation-Id\" }";
    let stage = Stage::new(BACKENDS[2], 1, &text(folder.path(), trusting));
    for path in ["/small.txt", "/small.txt", "/missing", "/old"] {
        let fields = "X-Correlation-Id: mine-1\r\nX-Request-Id: other\r\n";
        let (_, head) = ask(&mut stage.connect(), "GET", path, "a", fields);
        assert_eq!(head.matches("x-correlation-id: mine-1\r\n").count(), 1, "{head}");
        assert!(!head.contains("x-request-id"), "{head}");
    }
    let silent = "request_id = { respond = false }\ntrace = true";
    let stage = Stage::new(BACKENDS[2], 1, &text(folder.path(), silent));
    for path in ["/small.txt", "/small.txt", "/missing", "/old"] {
        let (_, head) = ask(&mut stage.connect(), "GET", path, "a", "X-Request-Id: mine\r\n");
        assert!(!head.contains("x-request-id") && !head.contains("traceparent"), "{head}");
    }
}

#[test]
fn requests_of_http_2_have_ids_too() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    let text = trust.text(folder.path());
    let stage = Stage::new(BACKENDS[2], 1, &format!("{text}[tracing]\nrequest_id = true\n"));
    let connector = TlsConnector::from(Arc::new(trust.config.clone()));
    Runtime::new().unwrap().block_on(async {
        let address = format!("127.0.0.1:{}", port(&stage));
        let mut connection = Connection2::new(&connector, &address, "/small.txt").await;
        let mut ids = BTreeSet::new();
        for (path, status) in [("/small.txt", 200), ("/missing", 404)] {
            let response = connection.send("GET", path, &[("x-request-id", "mine")], "").await;
            assert_eq!(response.status(), status);
            let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
            assert!(is_new(&id) && ids.insert(id));
        }
        // A handshake of a WebSocket for something that is none.
        let response = connection.ask("websocket", "/small.txt", &[]).await;
        assert_eq!(response.status(), 501);
        assert!(is_new(response.headers()["x-request-id"].to_str().unwrap()));
    });
}
