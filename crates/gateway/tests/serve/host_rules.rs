//! The rules for clients of a host, and those of its routes.

use crate::stage::{Answer, BACKENDS, Client, Stage, folder};

/// The hash of `secret`.
const HASH: &str = "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA";
/// `Basic` and joe:secret.
const JOE: &str = "Authorization: Basic am9lOnNlY3JldA==\r\n";
/// `Basic` and ann:secret.
const ANN: &str = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
/// `Basic` and joe:wrong.
const WRONG: &str = "Authorization: Basic am9lOndyb25n\r\n";

fn ask(client: &mut Client, path: &str, fields: &str) -> Answer {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    client.answer()
}

fn users(user: &str) -> String {
    format!("basic_auth = {{ users = {{ {user} = \"{HASH}\" }} }}")
}

#[test]
fn users_of_a_host_are_those_of_its_routes_unless_they_have_their_own() {
    let folder = folder();
    for backend in BACKENDS {
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n{}\n\
             [[hosts.routes]]\npath = \"/joe\"\nfiles.root = {:?}\n\
             [[hosts.routes]]\npath = \"/ann\"\nredirect.to = \"/x\"\n{}\n\
             [[hosts.routes]]\npath = \"/all\"\nredirect.to = \"/x\"\nbasic_auth = false\n",
            users("joe"),
            folder.path(),
            users("ann")
        );
        let stage = Stage::new(backend, 1, &text);
        let mut client = stage.connect();
        for round in 0..2 {
            for (path, fields, status) in [
                ("/joe/small.txt", "", 401),
                ("/joe/small.txt", WRONG, 401),
                ("/joe/small.txt", ANN, 401),
                ("/joe/small.txt", JOE, 200),
                ("/ann", "", 401),
                ("/ann", JOE, 401),
                ("/ann", ANN, 308),
                ("/all", "", 308),
                ("/all", WRONG, 308),
                // Whether a path has a route is not for everybody.
                ("/none", "", 401),
                ("/none", ANN, 401),
                ("/none", JOE, 404),
            ] {
                let answer = ask(&mut client, path, fields);
                assert_eq!(answer.status, status, "{backend:?} {round} {path} {fields}");
                let asks = answer.head.to_lowercase().contains("www-authenticate: basic ");
                assert_eq!(asks, status == 401);
            }
        }
    }
}

#[test]
fn addresses_have_to_be_allowed_by_the_host_and_by_the_route() {
    let local = "allow = [\"127.0.0.0/8\"]";
    let other = "allow = [\"10.0.0.0/8\"]";
    let denied = "deny = [\"127.0.0.1\"]";
    for (host, route, status, without) in [
        ("", "", 308, 404),
        (local, "", 308, 404),
        (local, local, 308, 404),
        (other, "", 403, 403),
        (other, local, 403, 403),
        (local, other, 403, 404),
        (denied, local, 403, 403),
        ("", denied, 403, 404),
    ] {
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n{host}\n\
             [[hosts.routes]]\npath = \"/a\"\nredirect.to = \"/x\"\n{route}\n"
        );
        let stage = Stage::new(BACKENDS[2], 1, &text);
        let mut client = stage.connect();
        assert_eq!(ask(&mut client, "/a", "").status, status, "{host} {route}");
        assert_eq!(ask(&mut client, "/none", "").status, without, "{host} {route}");
    }
}

/// A path in an unusual spelling that another route would answer is refused, behind the rules
/// alone: a client that is not served learns of no route from it.
#[test]
fn unusual_paths_of_routes_are_refused_as_all_paths_are() {
    let local = "deny = [\"127.0.0.1\"]";
    for (host, route, fields, expected) in [
        (local.to_owned(), String::new(), "", 403),
        (String::new(), local.to_owned(), "", 403),
        (users("joe"), String::new(), "", 401),
        (users("joe"), String::new(), WRONG, 401),
        (String::new(), users("joe"), WRONG, 401),
        ("rate = \"1/m\"".to_owned(), String::new(), "", 429),
        (users("joe"), String::new(), JOE, 400),
        (String::new(), String::new(), "", 400),
    ] {
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n{host}\n\
             [[hosts.routes]]\nredirect.to = \"/x\"\n{route}\n\
             [[hosts.routes]]\npath = \"/private\"\nredirect.to = \"/y\"\n{route}\n"
        );
        let stage = Stage::new(BACKENDS[2], 1, &text);
        let mut client = stage.connect();
        if expected == 429 {
            assert_eq!(ask(&mut client, "/", "").status, 308);
        }
        for round in 0..2 {
            for path in ["/./private", "//private/x", "/%70rivate", "/x/..%2fy/%2e/private"] {
                let status = ask(&mut client, path, fields).status;
                let is_other = path.starts_with("/x");
                let expected = if is_other && expected == 400 { 308 } else { expected };
                assert_eq!(status, expected, "{host} {route} {fields} {path} {round}");
            }
        }
    }
}

#[test]
fn a_client_that_guesses_passwords_is_stopped() {
    let folder = folder();
    for backend in BACKENDS {
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\nfiles.root = {:?}\n\
             basic_auth = {{ users = {{ joe = \"{HASH}\", ann = \"{HASH}\" }}, failures = \"1/m burst 3\" }}\n",
            folder.path()
        );
        let stage = Stage::new(backend, 2, &text);
        assert_eq!(ask(&mut stage.connect(), "/small.txt", JOE).status, 200);
        for number in 0..6 {
            // Connections of both engines.
            let answer = ask(&mut stage.connect(), "/small.txt", WRONG);
            assert_eq!(answer.status, if number < 3 { 401 } else { 429 }, "{backend:?} {number}");
            let tells = answer.head.to_lowercase().contains("retry-after: ");
            assert_eq!(tells, number >= 3, "{}", answer.head);
        }
        // No further password of this client is looked at, and a known one is.
        assert_eq!(ask(&mut stage.connect(), "/small.txt", ANN).status, 429);
        assert_eq!(ask(&mut stage.connect(), "/small.txt", JOE).status, 200);
        assert_eq!(ask(&mut stage.connect(), "/small.txt", "").status, 401);
    }
}

#[test]
fn files_by_the_lane_count() {
    let folder = folder();
    for backend in BACKENDS {
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n\
             [[hosts.routes]]\npath = \"/f\"\nfiles.root = {:?}\nrate = \"1/m burst 40\"\n\
             [[hosts.routes]]\npath = \"/free\"\nredirect.to = \"/f/\"\n",
            folder.path()
        );
        let stage = Stage::new(backend, 1, &text);
        let mut admitted = 0;
        let mut client = stage.connect();
        for number in 0..60 {
            if number % 20 == 0 {
                client = stage.connect();
            }
            let answer = ask(&mut client, "/f/small.txt", "");
            admitted += usize::from(answer.status == 200);
            assert!(matches!(answer.status, 200 | 429), "{answer:?}");
        }
        assert_eq!(admitted, 40, "{backend:?}");
        assert!(stage.count(|engine| &engine.lane) > 0, "{backend:?}");
        assert_eq!(ask(&mut client, "/free", "").status, 308);
    }
}
