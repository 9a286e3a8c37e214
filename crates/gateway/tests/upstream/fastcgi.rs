//! Scripts that are run by FastCGI: servers of the tests that know each byte, and php-fpm beside
//! nginx (`php_fpm`).

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use superpoll_gateway::upstream::GroupServer;
use superpoll_rt::BackendKind;
use tempfile::TempDir;

use crate::gateway::{Gateway, LIMIT, MOST, all, wait};
use crate::origin::{Client, Origin, Reply, ServerConnection, get, refuses};

const STDOUT: u8 = 6;
const STDERR: u8 = 7;

/// A request as a server of FastCGI gets it.
struct Call {
    /// The number of the request.
    id: [u8; 2],
    keeps: bool,
    params: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// Stands for the number of the request, which [`answered`] puts in its place.
const ID: [u8; 2] = [0xee, 0xee];

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    // Padding to eight bytes, as php-fpm has it.
    let padding = content.len().wrapping_neg() % 8;
    let head = [1, kind, ID[0], ID[1], high, low, padding as u8, 0];
    [&head[..], content, &[0xaa; 8][..padding]].concat()
}

fn end(status: u8) -> Vec<u8> {
    // The last three bytes are reserved, and php-fpm leaves garbage there.
    record(3, &[0, 0, 0, 0, status, 7, 7, 7])
}

fn output(text: impl AsRef<[u8]>) -> Vec<u8> {
    text.as_ref().chunks(65_000).flat_map(|piece| record(STDOUT, piece)).collect()
}

/// Returns records with the number of their request.
fn answered(call: &Call, mut bytes: Vec<u8>) -> Vec<u8> {
    let mut at = 0;
    while bytes.len() >= at + 8 && bytes[at] == 1 && bytes[at + 2..at + 4] == ID {
        bytes[at + 2..at + 4].copy_from_slice(&call.id);
        let length = u16::from_be_bytes([bytes[at + 4], bytes[at + 5]]);
        at += 8 + usize::from(length) + usize::from(bytes[at + 6]);
    }
    bytes
}

/// A whole response.
fn whole(text: &str) -> Vec<u8> {
    [output(text), record(STDOUT, b""), end(0)].concat()
}

fn length(content: &mut &[u8]) -> usize {
    let first = content[0];
    let (length, used) = match first {
        0..128 => (usize::from(first), 1),
        _ => {
            let bytes: [u8; 4] = content[..4].try_into().unwrap();
            ((u32::from_be_bytes(bytes) & !(1 << 31)) as usize, 4)
        }
    };
    *content = &content[used..];
    length
}

fn next_record(line: &mut ServerConnection) -> io::Result<([u8; 2], u8, Vec<u8>)> {
    let mut head = [0; 8];
    line.reader.read_exact(&mut head)?;
    assert_eq!(head[0], 1, "{head:?}");
    let mut content = vec![0; usize::from(u16::from_be_bytes([head[4], head[5]]))];
    line.reader.read_exact(&mut content)?;
    io::copy(&mut line.reader.by_ref().take(u64::from(head[6])), &mut io::sink())?;
    Ok(([head[2], head[3]], head[1], content))
}

/// Reads the beginning of a request and its parameters.
fn begin(line: &mut ServerConnection) -> io::Result<Call> {
    let (id, kind, content) = next_record(line)?;
    assert_eq!((kind, content[1]), (1, 1), "the role is that of a responder");
    let (keeps, mut params) = (content[2] == 1, BTreeMap::new());
    loop {
        let (of, kind, content) = next_record(line)?;
        assert_eq!((of, kind), (id, 4));
        if content.is_empty() {
            break;
        }
        let mut rest = &content[..];
        while !rest.is_empty() {
            let (name, value) = (length(&mut rest), length(&mut rest));
            let (pair, after) = rest.split_at(name + value);
            let [name, value] = [&pair[..name], &pair[name..]]
                .map(|text| String::from_utf8(text.to_vec()).unwrap());
            assert!(params.insert(name.clone(), value).is_none(), "{name} comes twice");
            rest = after;
        }
    }
    Ok(Call { id, keeps, params, body: Vec::new() })
}

/// Reads a whole request.
fn call(line: &mut ServerConnection) -> io::Result<Call> {
    let mut call = begin(line)?;
    loop {
        let (of, kind, content) = next_record(line)?;
        assert_eq!((of, kind), (call.id, 5));
        if content.is_empty() {
            return Ok(call);
        }
        call.body.extend(content);
    }
}

/// Serves calls by the bytes that a function returns for each.
fn serve(
    answer: impl Fn(&Call) -> Vec<u8> + Send + Sync + 'static,
) -> impl Fn(&mut ServerConnection) -> io::Result<()> + Send + Sync + 'static {
    move |line| {
        loop {
            let call = call(line)?;
            line.send(answered(&call, answer(&call)))?;
            if !call.keeps {
                return line.stream.flush();
            }
        }
    }
}

/// Returns the parameters, as a script could print them.
fn printed(call: &Call) -> Vec<u8> {
    let params: Vec<_> =
        call.params.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let (params, body) = (params.join("\n"), call.body.len());
    whole(&format!("Content-Type: text/plain\r\n\r\n{params}\nBODY={body}\n"))
}

fn printed_value(reply: &Reply, name: &str) -> Option<String> {
    let mut lines = reply.text().lines();
    lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
}

/// A configuration whose servers run the scripts of a folder.
fn config(servers: &[&str], root: &Path, keys: &str, upstream: &str) -> String {
    let servers: Vec<_> =
        servers.iter().map(|address| format!("{{ address = \"{address}\" }}")).collect();
    let (servers, root) = (servers.join(", "), root.display());
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\n\
         fastcgi = {{ upstream = \"app\", root = \"{root}\"{keys} }}\n\
         [upstreams.app]\nservers = [{servers}]\nidle = \"1h\"\nlifetime = \"1h\"\n{upstream}\n"
    )
}

/// A folder with some files.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("index.php", "<?php // index");
    write("info.php", "<?php // info");
    write("style.css", "a {}");
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    write("sub/index.php", "<?php // sub");
    folder
}

/// The keys by which responses are passed on, and by which they are given.
const WAYS: [&str; 2] = ["", ", compress = true"];

#[test]
fn scripts_get_what_they_expect() {
    for backend in all() {
        let (origin, folder) = (Origin::start(serve(printed)), folder());
        let more = ", params = { APP_ENV = \"test\" }, server_root = \"/app\"";
        let gateway = Gateway::start(backend, &config(&[&origin.address], folder.path(), more, ""));
        let mut client = Client::connect(&gateway.address);
        client.send(
            "POST /info.php/a%20b?q=1 HTTP/1.1\r\nHost: b.example:99\r\nContent-Length: 3\r\n\
             Content-Type: a/b\r\nX_Spoofed: 1\r\nProxy: evil\r\nX-Forwarded-For: 6.6.6.6\r\n\r\nabc",
        );
        let reply = client.reply();
        assert_eq!(reply.status, 200, "{}", reply.head);
        for (name, value) in [
            ("SCRIPT_FILENAME", "/app/info.php"),
            ("SCRIPT_NAME", "/info.php"),
            ("PATH_INFO", "/a b"),
            ("QUERY_STRING", "q=1"),
            ("REQUEST_URI", "/info.php/a%20b?q=1"),
            ("REQUEST_METHOD", "POST"),
            ("CONTENT_LENGTH", "3"),
            ("CONTENT_TYPE", "a/b"),
            ("HTTP_HOST", "b.example:99"),
            ("SERVER_NAME", "b.example"),
            ("REMOTE_ADDR", "127.0.0.1"),
            ("APP_ENV", "test"),
            ("BODY", "3"),
        ] {
            assert_eq!(printed_value(&reply, name).as_deref(), Some(value), "{name}");
        }
        for name in ["HTTP_PROXY", "HTTP_X_SPOOFED", "HTTP_X_FORWARDED_FOR", "HTTPS"] {
            assert_eq!(printed_value(&reply, name), None, "{name}");
        }
        let of = |client: &mut Client, path: &str| {
            let reply = client.get(path);
            (reply.status, printed_value(&reply, "SCRIPT_NAME"))
        };
        let script = |name: &str| (200, Some(name.to_owned()));
        assert_eq!(of(&mut client, "/"), script("/index.php"));
        assert_eq!(of(&mut client, "/any/where"), script("/index.php"));
        assert_eq!(of(&mut client, "/sub/"), script("/sub/index.php"));
        assert_eq!(of(&mut client, "/nope.php"), (404, None));
        assert_eq!(of(&mut client, "/style.css/x.php"), (404, None));
        let moved = client.get("/sub?a");
        assert_eq!((moved.status, moved.field("location")), (308, Some("/sub/?a".to_owned())));
        // All of them on one connection to the server.
        assert_eq!(origin.connections(), 1);
    }
}

/// The file that a path names is sent, but never the text of a script.
#[test]
fn files_come_first_and_scripts_are_not_files() {
    let (origin, folder) = (Origin::start(serve(printed)), folder());
    let text = config(&[&origin.address], folder.path(), "", "");
    let root = folder.path().display();
    let files = format!("files = {{ root = \"{root}\", otherwise = \"fastcgi\" }}\nfastcgi =");
    let gateway = Gateway::start(BackendKind::Adaptive, &text.replacen("fastcgi =", &files, 1));
    std::fs::write(folder.path().join("shout.PHP"), "<?php // a secret").unwrap();
    // Twice: from the disk, and from the cache.
    for _ in 0..2 {
        let style = get(&gateway.address, "/style.css");
        assert_eq!((style.status, style.text()), (200, "a {}"));
        for (path, name) in [
            ("/info.php", "/info.php"),
            ("/%69nfo.php", "/info.php"),
            ("/info.ph%70/x", "/info.php"),
            ("/sub/", "/sub/index.php"),
            ("/none.css", "/index.php"),
            ("/shout.PHP", "/index.php"),
        ] {
            let reply = get(&gateway.address, path);
            assert_eq!(printed_value(&reply, "SCRIPT_NAME").as_deref(), Some(name), "{path}");
        }
        assert_eq!(get(&gateway.address, "/sub").status, 308);
    }
    let mut client = Client::connect(&gateway.address);
    client.send("POST /style.css HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\na");
    assert_eq!(printed_value(&client.reply(), "SCRIPT_NAME").as_deref(), Some("/index.php"));
}

/// A response is the same however its records are cut.
#[test]
fn records_may_be_cut_anywhere() {
    let text = "Status: 404 Not here\nSet-Cookie: a\nX-A: b\nSet-Cookie: c\n\nsome body";
    let mut bytes = record(STDOUT, &text.as_bytes()[..20]);
    bytes.extend(record(STDERR, b"a word"));
    bytes.extend(record(STDOUT, &text.as_bytes()[20..]));
    bytes.extend([record(STDOUT, b""), end(0)].concat());
    let length = bytes.len();
    let sent = bytes.clone();
    let origin = Origin::start(move |line| {
        loop {
            let call = call(line)?;
            let at: usize = call.params["QUERY_STRING"].parse().unwrap();
            let sent = answered(&call, sent.clone());
            line.send(&sent[..at])?;
            // The gateway has read the first part when it has written something, or soon.
            std::thread::sleep(std::time::Duration::from_micros(300));
            line.send(&sent[at..])?;
        }
    });
    let folder = folder();
    for way in WAYS {
        let text = config(&[&origin.address], folder.path(), way, "keep_alive = 8\n");
        let gateway = Gateway::start(BackendKind::Adaptive, &text);
        let mut client = Client::connect(&gateway.address);
        for at in 0..=length {
            let reply = client.get(&format!("/info.php?{at}"));
            assert_eq!((reply.status, reply.text()), (404, "some body"), "{at}");
            assert!(reply.head.starts_with("HTTP/1.1 404 Not here\r\n"), "{}", reply.head);
            let cookies: Vec<_> =
                reply.head.lines().filter_map(|line| line.strip_prefix("set-cookie: ")).collect();
            assert_eq!(cookies, ["a", "c"], "{at}");
        }
        wait(|| gateway.told().iter().any(|told| told.0 == "script-errors"));
        assert!(gateway.told().iter().any(|told| told.1.contains("says: a word")));
    }
}

#[test]
fn a_response_without_its_end_is_not_whole() {
    for way in WAYS {
        let origin = Origin::start(|line| {
            let call = call(line)?;
            let bytes = match &*call.params["QUERY_STRING"] {
                "nothing" => Vec::new(),
                "head" => output("Content-Type: a/b\r\nX-"),
                "body" => output("Content-Type: a/b\r\n\r\nhalf"),
                "short" => [output("Content-Length: 9\r\n\r\nhalf"), end(0)].concat(),
                "no-end" => [output("X-A: b\r\n\r\nall"), record(STDOUT, b"")].concat(),
                "long" => whole("Content-Length: 4\r\n\r\nhalf and more"),
                "overloaded" => end(2),
                "role" => end(3),
                "silent" => end(0),
                "none" => whole("\r\nbody alone"),
                "html" => whole("<html>\r\n\r\n"),
                "blank" => whole("Transfer-Encoding : chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"),
                "status" => whole("Status: abc\r\n\r\n"),
                "switch" => whole("Status: 101 Switching\r\nUpgrade: a\r\n\r\n"),
                "huge" => output("X: y\r\n".repeat(12_000)),
                "http" => b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec(),
                "chunked" => whole("Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n"),
                other => panic!("{other}"),
            };
            line.send(answered(&call, bytes))
        });
        let folder = folder();
        let text = config(&[&origin.address], folder.path(), &format!("{way}, retries = 0"), "");
        let gateway = Gateway::start(BackendKind::Adaptive, &text);
        let status = |query: &str| get(&gateway.address, &format!("/info.php?{query}")).status;
        for query in [
            "nothing",
            "head",
            "overloaded",
            "role",
            "silent",
            "html",
            "blank",
            "status",
            "switch",
            "http",
        ] {
            assert_eq!(status(query), 502, "{query}");
        }
        assert_eq!(status("huge"), 502);
        for query in ["body", "short"] {
            let mut client = Client::connect(&gateway.address);
            client.send(format!("GET /info.php?{query} HTTP/1.1\r\nHost: a\r\n\r\n"));
            // A response that nothing was sent of yet may be another one.
            let is_cut = match client.reply_to("GET") {
                Ok(reply) => reply.status == 502,
                Err(_) => true,
            };
            assert!(is_cut, "{query}");
        }
        let of = |query: &str| get(&gateway.address, &format!("/info.php?{query}")).body;
        assert_eq!(of("no-end"), b"all");
        assert_eq!(of("long"), b"half");
        assert_eq!(of("none"), b"body alone");
        // The lines are the script's output.
        assert_eq!(of("chunked"), b"4\r\nabcd\r\n0\r\n\r\n");
    }
}

#[test]
fn an_overloaded_server_is_left_for_another() {
    let full = Origin::start(serve(|_| end(2)));
    let (_held, closed) = refuses();
    let well = Origin::start(serve(printed));
    let folder = folder();
    let servers = [&*full.address, &*closed, &*well.address];
    let text = config(&servers, folder.path(), ", retries = 2", "");
    let gateway = Gateway::start(BackendKind::Adaptive, &text);
    for _ in 0..6 {
        assert_eq!(get(&gateway.address, "/info.php").status, 200);
        let mut client = Client::connect(&gateway.address);
        client.send("POST /info.php HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\na");
        // Nothing was begun, so it may go elsewhere.
        assert_eq!(client.reply().status, 200);
    }
}

/// A response without a body leaves its connection as one with a body does.
#[test]
fn head_and_304_have_no_body_whatever_a_script_writes() {
    for way in WAYS {
        let origin = Origin::start(serve(|call| {
            whole(match &*call.params["QUERY_STRING"] {
                "304" => "Status: 304\r\nETag: \"a\"\r\n\r\na body",
                "204" => "Status: 204\r\n\r\na body",
                _ => "X-A: b\r\nContent-Length: 6\r\n\r\na body",
            })
        }));
        let folder = folder();
        let gateway =
            Gateway::start(BackendKind::Epoll, &config(&[&origin.address], folder.path(), way, ""));
        let mut client = Client::connect(&gateway.address);
        for _ in 0..3 {
            client.send("HEAD /info.php HTTP/1.1\r\nHost: a\r\n\r\n");
            let reply = client.reply_to("HEAD").unwrap();
            assert_eq!(reply.field("content-length").as_deref(), Some("6"));
            assert_eq!(client.get("/info.php?304").status, 304);
            assert_eq!(client.get("/info.php?204").status, 204);
            assert_eq!(client.get("/info.php").text(), "a body");
        }
        assert_eq!(origin.connections(), 1);
    }
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 7) >> 3) as u8).collect()
}

/// Answers with the length of the body, if it is that of [`bytes`].
fn checked(call: &Call) -> Vec<u8> {
    let length = call.body.len();
    let said = match &*call.params["CONTENT_LENGTH"] {
        "" => Ok(0),
        said => said.parse(),
    };
    let is_right = call.body == bytes(length) && said == Ok(length);
    whole(&format!("\r\n{length} {is_right}"))
}

#[test]
fn bodies_of_all_lengths_arrive() {
    for backend in MOST {
        for spools in ["", ", spool = true"] {
            let origin = Origin::start(serve(checked));
            let folder = folder();
            let text = config(&[&origin.address], folder.path(), spools, "");
            let gateway = Gateway::start(backend, &text);
            for length in [0, 1, 16_384, 65_528, 65_536, 65_537, 131_072, 3_000_000] {
                let body = bytes(length);
                let mut client = Client::connect(&gateway.address);
                client.send(format!(
                    "POST /info.php HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
                ));
                client.send(&body);
                assert_eq!(client.reply().text(), format!("{length} true"), "{spools}");
                client.send("PUT /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
                for piece in body.chunks(40_000) {
                    client.send(format!("{:x}\r\n", piece.len()));
                    client.send(piece);
                    client.send("\r\n");
                }
                client.send("0\r\n\r\n");
                assert_eq!(client.reply().text(), format!("{length} true"), "{spools}");
            }
        }
    }
}

/// Of a body that is read to its end first, its server gets nothing before that.
#[test]
fn a_slow_upload_keeps_no_server_busy() {
    let origin = Origin::start(serve(checked));
    let folder = folder();
    let text = config(&[&origin.address], folder.path(), ", spool = true", "");
    let gateway = Gateway::start(BackendKind::Adaptive, &text);
    let (mut client, body) = (Client::connect(&gateway.address), bytes(300_000));
    client.send("POST /info.php HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n");
    client.send(&body[..200_000]);
    // Another request is answered meanwhile, on the first connection.
    assert_eq!(get(&gateway.address, "/info.php").text(), "0 true");
    assert_eq!(origin.connections(), 1);
    client.send(&body[200_000..]);
    assert_eq!(client.reply().text(), "300000 true");
    assert_eq!(origin.connections(), 1);
    // An upload that breaks off reaches no server.
    let mut client = Client::connect(&gateway.address);
    client.send("POST /info.php HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n");
    client.send(&body[..200_000]);
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert!(client.is_closed());
    assert_eq!(get(&gateway.address, "/info.php").text(), "0 true");
}

#[test]
fn files_of_bodies_have_a_bound() {
    let origin = Origin::start(serve(checked));
    let folder = folder();
    let text = config(&[&origin.address], folder.path(), "", "");
    superpoll_test_support::alone(|| {
        let text = format!("{text}[limits]\nspool_bytes = \"1MiB\"\n");
        let gateway = Gateway::start(BackendKind::Adaptive, &text);
        let send = |length: usize| {
            let mut client = Client::connect(&gateway.address);
            client.send("POST /info.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
            let body = bytes(length);
            let chunk = [format!("{length:x}\r\n").as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
            // The server may answer before it has read all.
            let _ = client.stream.write_all(&chunk);
            client.reply()
        };
        for _ in 0..3 {
            assert_eq!(send(900_000).text(), "900000 true");
            assert_eq!(send(2_000_000).status, 503);
        }
        let told = gateway.told();
        let told = told.iter().find(|told| told.0 == "body-not-kept").unwrap();
        assert!(told.1.contains("limits.spool_bytes"), "{}", told.1);
    });
}

/// A server may answer before it has read all of a request.
#[test]
fn an_early_answer_is_passed_on() {
    for way in WAYS {
        let origin = Origin::start(|line| {
            let call = begin(line)?;
            line.send(answered(&call, whole("Status: 413 Too much\r\n\r\nno")))?;
            let mut rest = Vec::new();
            line.reader.read_to_end(&mut rest).map(drop)
        });
        let folder = folder();
        let text = config(&[&origin.address], folder.path(), way, "");
        let gateway = Gateway::start(BackendKind::Adaptive, &text);
        let mut client = Client::connect(&gateway.address);
        client.send("POST /info.php HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
        client.send(bytes(100_000));
        let reply = client.reply();
        assert_eq!((reply.status, reply.text()), (413, "no"));
    }
}

/// Closing the connection is the one way to cancel a script.
#[test]
fn a_script_ends_with_its_client() {
    let (tell, told) = std::sync::mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let origin = Origin::start(move |line| {
        let call = call(line)?;
        line.send(answered(&call, output("X-A: b\r\n\r\nbegun")))?;
        let ended = line.reader.read(&mut [0]).unwrap_or(0);
        tell.lock().unwrap().send(ended).unwrap();
        Ok(())
    });
    let folder = folder();
    let text = config(&[&origin.address], folder.path(), "", "");
    let gateway = Gateway::start(BackendKind::Adaptive, &text);
    let mut client = Client::connect(&gateway.address);
    client.send("GET /info.php HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().unwrap().status, 200);
    drop(client);
    assert_eq!(told.recv_timeout(LIMIT), Ok(0));
}

#[test]
fn a_parameter_that_no_server_takes_is_refused() {
    let origin = Origin::start(serve(printed));
    let folder = folder();
    let text = config(&[&origin.address], folder.path(), "", "");
    let text = format!("{text}[limits]\nheader_bytes = \"256KiB\"\n");
    let gateway = Gateway::start(BackendKind::Adaptive, &text);
    let mut client = Client::connect(&gateway.address);
    let long = "x".repeat(70_000);
    client.send(format!("GET /info.php HTTP/1.1\r\nHost: a\r\nX-Long: {long}\r\n\r\n"));
    assert_eq!(client.reply().status, 431);
    let (most, few) = ("x".repeat(20_000), ["a", "b", "c", "d", "e"]);
    let fields: String = few.iter().map(|name| format!("X-{name}: {most}\r\n")).collect();
    client.send(format!("GET /info.php HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    let reply = client.reply();
    assert_eq!(printed_value(&reply, "HTTP_X_E").map(|value| value.len()), Some(20_000));
}

/// A server tells which file is sent, with ranges and conditions, of its folders only.
#[test]
fn files_are_sent_for_a_server() {
    for way in WAYS {
        let folder = folder();
        let private = tempfile::tempdir().unwrap();
        std::fs::write(private.path().join("a b.bin"), bytes(100_000)).unwrap();
        let at = private.path().display().to_string();
        let root = at.clone();
        let origin = Origin::start(serve(move |call| {
            let field = match &*call.params["QUERY_STRING"] {
                "url" => "X-Accel-Redirect: /private/a b.bin".to_owned(),
                "file" => format!("X-Sendfile: {root}/a b.bin"),
                "outside" => "X-Sendfile: /etc/passwd".to_owned(),
                "dots" => "X-Accel-Redirect: /private/../etc/passwd".to_owned(),
                "missing" => "X-Accel-Redirect: /private/none".to_owned(),
                _ => "X-Accel-Expires: 3".to_owned(),
            };
            whole(&format!(
                "{field}\r\nContent-Type: a/own\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\
                 Content-Disposition: attachment\r\nETag: \"x\"\r\n\r\nunused"
            ))
        }));
        let keys = format!(", send_files = {{ \"/private\" = \"{at}\" }}{way}");
        let text = config(&[&origin.address], folder.path(), &keys, "");
        let gateway = Gateway::start(BackendKind::Adaptive, &text);
        for query in ["url", "file"] {
            let mut client = Client::connect(&gateway.address);
            let reply = client.get(&format!("/info.php?{query}"));
            assert_eq!((reply.status, reply.body.len()), (200, 100_000), "{query}");
            assert!(reply.body == bytes(100_000));
            assert_eq!(reply.field("content-type").as_deref(), Some("a/own"));
            assert_eq!(reply.field("content-disposition").as_deref(), Some("attachment"));
            assert_eq!(reply.head.matches("set-cookie").count(), 2, "{}", reply.head);
            assert!(reply.field("x-accel-redirect").is_none(), "{}", reply.head);
            assert!(reply.field("x-sendfile").is_none(), "{}", reply.head);
            let tag = reply.field("etag").unwrap();
            assert_ne!(tag, "\"x\"");
            client.send(format!(
                "GET /info.php?{query} HTTP/1.1\r\nHost: a\r\nRange: bytes=10-19\r\n\r\n"
            ));
            let part = client.reply();
            assert_eq!((part.status, &*part.body), (206, &bytes(100_000)[10..20]));
            client.send(format!(
                "GET /info.php?{query} HTTP/1.1\r\nHost: a\r\nRange: bytes=1-2,90-99\r\n\r\n"
            ));
            let parts = client.reply();
            let kind = parts.field("content-type").unwrap();
            assert!(kind.starts_with("multipart/byteranges; boundary="), "{kind}");
            client.send(format!(
                "GET /info.php?{query} HTTP/1.1\r\nHost: a\r\nIf-None-Match: {tag}\r\n\r\n"
            ));
            assert_eq!(client.reply().status, 304);
            client.send(format!("HEAD /info.php?{query} HTTP/1.1\r\nHost: a\r\n\r\n"));
            let head = client.reply_to("HEAD").unwrap();
            assert_eq!(head.field("content-length").as_deref(), Some("100000"));
        }
        assert_eq!(get(&gateway.address, "/info.php?outside").status, 502);
        assert_eq!(get(&gateway.address, "/info.php?dots").status, 502);
        assert_eq!(get(&gateway.address, "/info.php?missing").status, 404);
        let other = get(&gateway.address, "/info.php?none");
        assert_eq!((other.status, other.text()), (200, "unused"));
        assert!(other.field("x-accel-expires").is_none());
    }
}

/// The same fields of a server of HTTP; a route without folders passes them on.
#[test]
fn files_are_sent_for_a_server_of_http() {
    let private = tempfile::tempdir().unwrap();
    std::fs::write(private.path().join("a.txt"), "the file").unwrap();
    let origin = Origin::start(|line| {
        loop {
            line.request()?;
            line.send(
                "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /p/a.txt\r\nContent-Length: 6\r\n\r\nunused",
            )?;
        }
    });
    let at = private.path().display();
    for (keys, body) in
        [(format!(", send_files = {{ \"/p\" = \"{at}\" }}"), "the file"), (String::new(), "unused")]
    {
        let text = crate::gateway::config(&[&origin.address], "", &keys);
        let gateway = Gateway::start(BackendKind::Adaptive, &text);
        let reply = get(&gateway.address, "/");
        assert_eq!(reply.text(), body);
        assert_eq!(reply.field("x-accel-redirect").is_some(), body == "unused");
    }
}

/// A check calls the path, as php-fpm's `ping.path` expects.
#[test]
fn servers_are_checked_by_a_call() {
    let origin = Origin::start(serve(|call| {
        let is_ping = call.params["SCRIPT_NAME"] == "/ping"
            && call.params["SCRIPT_FILENAME"] == "/ping"
            && call.params["REQUEST_METHOD"] == "GET";
        whole(if is_ping { "\r\npong" } else { "Status: 404\r\n\r\n" })
    }));
    let folder = folder();
    for (path, is_up) in [("/ping", true), ("/other", false)] {
        let upstream =
            format!("health = {{ path = \"{path}\", interval = \"10ms\", fall = 1, rise = 1 }}\n");
        let text = config(&[&origin.address], folder.path(), "", &upstream);
        let gateway = Gateway::start(BackendKind::Adaptive, &text);
        gateway.wait_for(&[is_up]);
    }
}

/// A program without files answers for all paths below its route.
#[test]
fn a_program_answers_for_all_paths() {
    let origin = Origin::start(serve(printed));
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\npath = \"/app\"\n\
         fastcgi = {{ upstream = \"app\" }}\n[upstreams.app]\nservers = [{{ address = \"{}\" }}]\n",
        origin.address
    );
    let gateway = Gateway::start(BackendKind::Adaptive, &text);
    let reply = get(&gateway.address, "/app/a%20b/c.php?d");
    for (name, value) in [
        ("SCRIPT_NAME", "/app"),
        ("PATH_INFO", "/a b/c.php"),
        ("REQUEST_URI", "/app/a%20b/c.php?d"),
    ] {
        assert_eq!(printed_value(&reply, name).as_deref(), Some(value));
    }
    assert_eq!(printed_value(&reply, "SCRIPT_FILENAME"), None);
}

/// A connection gets no request once it is old, so that requests that wait for its process have it.
#[test]
fn old_connections_are_not_kept() {
    let origin = Origin::start(serve(printed));
    let folder = folder();
    let text = config(&[&origin.address], folder.path(), "", "");
    let gateway = Gateway::start(BackendKind::Adaptive, &text.replace("lifetime = \"1h\"", ""));
    let mut client = Client::connect(&gateway.address);
    for number in 1..4 {
        client.get("/info.php");
        assert_eq!(origin.connections(), number);
        gateway.elapse(std::time::Duration::from_millis(201));
    }
}

/// What a server sends late is not the response to the next request.
#[test]
fn late_records_belong_to_no_other_request() {
    let origin = Origin::start(|line| {
        let first = call(line)?;
        line.send(answered(&first, whole("\r\nfirst")))?;
        let second = call(line)?;
        line.send(answered(&first, whole("\r\nevil")))?;
        line.send(answered(&second, whole("\r\nsecond")))
    });
    let folder = folder();
    let text = config(&[&origin.address], folder.path(), ", retries = 0", "");
    let gateway = Gateway::start(BackendKind::Adaptive, &text);
    let mut client = Client::connect(&gateway.address);
    assert_eq!(client.get("/info.php").text(), "first");
    assert_eq!(client.get("/info.php").status, 502);
}

/// A script that writes nonsense says nothing about the server that has run it.
#[test]
fn a_bad_script_takes_no_server_out() {
    let origin = Origin::start(serve(|call| {
        whole(if call.params["QUERY_STRING"] == "bad" { "nonsense\r\n\r\n" } else { "\r\nwell" })
    }));
    let folder = folder();
    let text = config(&[&origin.address], folder.path(), ", retries = 0", "");
    let gateway = Gateway::start(BackendKind::Adaptive, &text);
    for _ in 0..8 {
        assert_eq!(get(&gateway.address, "/info.php?bad").status, 502);
    }
    assert_eq!(gateway.up(), [true]);
    assert!(gateway.told().iter().all(|told| told.0 == "upstream-failed"), "{:?}", gateway.told());
    assert_eq!(get(&gateway.address, "/info.php").text(), "well");
}

/// Each connection has a process of its server, so few are kept, and none while others may wait.
#[test]
fn connections_are_kept_while_they_are_few() {
    let (tell, told) = std::sync::mpsc::sync_channel::<()>(0);
    let held = std::sync::Mutex::new(told);
    let origin = Origin::start(serve(move |call| {
        match &*call.params["QUERY_STRING"] {
            "waits" => drop(held.lock().unwrap().recv()),
            // Longer than the turn of a connection.
            "slow" => std::thread::sleep(Duration::from_millis(5)),
            // Shorter, so that the connection may be kept.
            "short" => std::thread::sleep(Duration::from_micros(500)),
            _ => {}
        }
        printed(call)
    }));
    let folder = folder();
    let text = config(&[&origin.address], folder.path(), "", "keep_alive = 1\n");
    let gateway = Gateway::start(BackendKind::Adaptive, &text);
    let mut client = Client::connect(&gateway.address);
    client.get("/info.php?slow");
    client.get("/info.php?slow");
    assert_eq!(origin.connections(), 1);
    let mut waits = Client::connect(&gateway.address);
    waits.send("GET /info.php?waits HTTP/1.1\r\nHost: a\r\n\r\n");
    let count = |of: fn(&GroupServer) -> &AtomicU64| {
        gateway.call(move |_, server| {
            of(&server.upstreams()["app"].members()[0]).load(Ordering::Relaxed)
        })
    };
    wait(|| count(|server| &server.active) == 1);
    client.get("/info.php?slow");
    client.get("/info.php?slow");
    assert_eq!(origin.connections(), 3);
    tell.send(()).unwrap();
    assert_eq!(waits.reply().status, 200);
    // More are idle for a moment alone.
    let mut clients: Vec<_> = (0..4).map(|_| Client::connect(&gateway.address)).collect();
    for _ in 0..20 {
        clients.iter_mut().for_each(|client| {
            client.send("GET /info.php?short HTTP/1.1\r\nHost: a\r\n\r\n");
        });
        clients.iter_mut().for_each(|client| assert_eq!(client.reply().status, 200));
        wait(|| count(|server| &server.idle) <= 1);
    }
}
