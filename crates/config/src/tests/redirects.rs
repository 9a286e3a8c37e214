//! Redirects that lead nowhere.

use super::*;

fn with(routes: &[(&str, &str)]) -> String {
    let mut text = "[[listeners]]\naddress = \"127.0.0.1:80\"\n[[hosts]]\n".to_owned();
    for (path, action) in routes {
        text += &format!("[[hosts.routes]]\npath = \"{path}\"\n{action}\n");
    }
    text
}

fn to(to: &str) -> String {
    format!("redirect = {{ to = \"{to}\" }}")
}

#[test]
fn redirects_that_lead_back_are_warnings() {
    for (routes, expected) in [
        (vec![("/a", to("/a"))], "/a -> /a"),
        (vec![("/a", to("/b")), ("/b", to("/a?again"))], "/a -> /b -> /a"),
        (vec![("/", to("/x{path}"))], "/ -> /x/"),
        (vec![("/a", to("/b/c")), ("/b", to("/b/d"))], "/a -> /b/c -> /b/d"),
    ] {
        let routes: Vec<_> = routes.iter().map(|(path, action)| (*path, action.as_str())).collect();
        let warnings = Config::parse("x", &with(&routes)).unwrap().warnings;
        let what = format!("x:6:19: the redirect leads back to itself: {expected}");
        assert_eq!(warnings[0], what, "{warnings:?}");
    }
}

#[test]
fn other_redirects_are_not_warned_of() {
    let files = "files = { root = \"/\" }".to_owned();
    for routes in [
        vec![("/", to("/new")), ("/new", files.clone())],
        vec![("/a", to("/a/b")), ("/a/b", files.clone())],
        vec![("/a", to("/b")), ("/b", to("/c"))],
        // The other scheme and other hosts may have an answer.
        vec![("/", to("https://{host}{path}{query}"))],
        vec![("/", to("//other.example/"))],
        vec![("/a", to("http://other.example/a"))],
    ] {
        let routes: Vec<_> = routes.iter().map(|(path, action)| (*path, action.as_str())).collect();
        let config = Config::parse("x", &with(&routes)).unwrap();
        assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    }
}

#[test]
fn a_host_that_redirects_what_a_proxy_decrypted_is_a_warning() {
    let text = "listeners = [{ address = \":1\", proxy_protocol = true }, \
                { address = \":2\", tls = { certificate = \"c\", key = \"k\" } }]\n\
                [[hosts]]\nhttps = \"always\"\nroutes = [{ redirect.to = \"//b.example\" }]\n";
    let config = Config::parse("x", text).unwrap();
    let [warning] = &config.warnings[..] else { panic!("{:?}", config.warnings) };
    assert!(warning.starts_with("x:3:9: all requests to :1 are redirected"), "{warning}");
    let text = text.replace("[[hosts]]", "[[hosts]]\nlisteners = [\":2\"]");
    assert_eq!(Config::parse("x", &text).unwrap().warnings, [] as [String; 0]);
}
