//! Files when the process has no descriptor left.

use http_body_util::BodyExt;
use rustix::process::{Resource, getrlimit, setrlimit};
use superpoll_gateway::Body;
use superpoll_gateway::config::Files;
use superpoll_gateway::files::{Head, Site};
use superpoll_test_support::alone;

fn ask(site: &Site, path: &str) -> (u16, usize) {
    let request = http::Request::get(path).body(()).unwrap();
    futures_lite::future::block_on(async {
        let response: http::Response<Body> = site.answer(Head::from(&request), path).await;
        let status = response.status().as_u16();
        (status, response.into_body().collect().await.unwrap().to_bytes().len())
    })
}

#[test]
fn without_descriptors_uncached_files_get_503_and_cached_ones_are_served() {
    alone(|| {
        let world = tempfile::tempdir().unwrap();
        let root = world.path().join("www");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("small.txt"), b"small").unwrap();
        std::fs::write(root.join("other.txt"), b"other").unwrap();
        let site = Site::open(Files { root, ..Files::default() }).unwrap();
        assert_eq!(ask(&site, "/small.txt"), (200, 5));

        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, rustix::process::Rlimit { current: Some(0), ..limit }).unwrap();
        let cached = ask(&site, "/small.txt");
        let other = ask(&site, "/other.txt");
        setrlimit(Resource::Nofile, limit).unwrap();

        assert_eq!(cached, (200, 5));
        assert_eq!(other.0, 503);
        assert_eq!(ask(&site, "/other.txt"), (200, 5));
    });
}
