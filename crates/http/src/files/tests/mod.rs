//! The tests of files: their stage.

mod cache;
mod compression;
mod heads;
mod paths;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use futures_lite::future::block_on;
use http::{Request, Response, StatusCode, request};
use http_body_util::BodyExt;
use proptest::prelude::*;
use superpoll_config::Files;
use tempfile::TempDir;

use super::*;
use crate::body::Body;
use crate::head::Head;

type Answer = Response<Vec<u8>>;

/// When the tests begin by their own clock.
const START: Duration = Duration::from_secs(1000);

const SECRET: &[u8] = b"outside";

/// A folder `www` with files, next to a secret that symbolic links lead to.
fn world() -> TempDir {
    let world = tempfile::tempdir().unwrap();
    let root = world.path().join("www");
    std::fs::create_dir_all(root.join("sub/empty")).unwrap();
    std::fs::create_dir(root.join(".git")).unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(root.join(name), bytes).unwrap();
    write("a.txt", b"0123456789");
    write("a.txt.gz", b"gzip");
    write("a.txt.br", b"br");
    write("empty.bin", b"");
    write("page one.html", b"<p>");
    write("sub/index.html", b"<h1>");
    write("sub/empty/<&>.js", b"1");
    write(".git/config", b"hidden");
    std::fs::write(world.path().join("secret"), SECRET).unwrap();
    symlink("../secret", root.join("out")).unwrap();
    symlink(world.path().join("secret"), root.join("absolute")).unwrap();
    symlink("..", root.join("up")).unwrap();
    symlink("a.txt", root.join("inside")).unwrap();
    world
}

fn options(world: &Path) -> Files {
    Files { root: world.join("www"), ..Files::default() }
}

fn head(method: &str, path: &str, fields: &[(&str, &str)]) -> request::Parts {
    let mut request = Request::builder().method(method).uri("/");
    if let Ok(uri) = path.parse::<http::Uri>() {
        request = request.uri(uri);
    }
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

/// Returns the answer with its whole body, whose length must match the head.
fn ask_at(site: &Site, method: &str, path: &str, fields: &[(&str, &str)], now: Duration) -> Answer {
    let head = head(method, path, fields);
    let (parts, body) = block_on(site.answer_at(Head::from(&head), path, now)).into_parts();
    let expected = http_body::Body::size_hint(&body).exact().unwrap();
    let bytes = block_on(body.collect()).unwrap().to_bytes().to_vec();
    assert_eq!(bytes.len() as u64, expected);
    Response::from_parts(parts, bytes)
}

fn ask(site: &Site, method: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
    ask_at(site, method, path, fields, START)
}

fn text(response: &Answer) -> Vec<u8> {
    response.body().clone()
}

fn field<'a>(response: &'a Answer, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

/// Returns bytes that do not repeat.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Long enough ago that the file does not count as one that may change without another stamp.
const AGO: Duration = Duration::from_secs(5);

fn restored(response: &Answer) -> Vec<u8> {
    use std::io::Read;

    let mut out = Vec::new();
    let body = response.body().as_slice();
    match field(response, "content-encoding") {
        "gzip" => flate2::read::GzDecoder::new(body).read_to_end(&mut out).unwrap(),
        "zstd" => zstd::Decoder::new(body).unwrap().read_to_end(&mut out).unwrap(),
        "br" => brotli::Decompressor::new(body, 4096).read_to_end(&mut out).unwrap(),
        "" => return body.to_vec(),
        other => panic!("{other}"),
    };
    out
}
