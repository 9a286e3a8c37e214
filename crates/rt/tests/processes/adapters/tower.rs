//! A stack of tower layers behind hyper.

use std::rc::Rc;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use superpoll_rt::{BackendKind, Runtime, spawn};

use super::example::Example;

async fn get(server: &Example, path: &str) -> (StatusCode, Bytes) {
    let (mut requests, connection) = http1::handshake(server.connect_async().await).await.unwrap();
    spawn(connection).detach();
    let request = Request::get(path).header("host", "tower").body(Empty::<Bytes>::new()).unwrap();
    let answer = requests.send_request(request).await.unwrap();
    (answer.status(), answer.into_body().collect().await.unwrap().to_bytes())
}

#[test]
fn endless_requests_time_out_and_at_most_four_run() {
    for kind in BackendKind::available() {
        let server = Rc::new(Example::start("tower", kind));
        Runtime::builder().backend(kind).build().unwrap().block_on(async {
            assert_eq!(get(&server, "/").await, (StatusCode::OK, "OK\n".into()));
            assert_eq!(get(&server, "/most").await, (StatusCode::OK, "1".into()));
            // Eight ask at a time. Four are let in until the time limit ends them; the other
            // four follow.
            let tasks = (0..8).map(|_| {
                let server = server.clone();
                spawn(async move { get(&server, "/never").await.0 })
            });
            for task in tasks.collect::<Vec<_>>() {
                assert_eq!(task.await.unwrap(), StatusCode::GATEWAY_TIMEOUT);
            }
            let (_, most) = get(&server, "/most").await;
            let most: usize = std::str::from_utf8(&most).unwrap().parse().unwrap();
            assert!((1..=4).contains(&most), "{most} requests were at work at a time");
            assert_eq!(get(&server, "/else").await.0, StatusCode::NOT_FOUND);
        });
    }
}
