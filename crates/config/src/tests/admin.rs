//! The admin listener.

use super::super::*;
use super::blamed;
const SITE: &str = "[[listeners]]\naddress = \"127.0.0.1:8080\"\n[[hosts]]\n[[hosts.routes]]\n\
                    redirect = { to = \"/x\" }\n";

#[test]
fn the_admin_listener_is_the_last_of_the_listeners() {
    let text = format!(
        "{SITE}[admin]\naddress = \"unix:/run/a\"\nmode = \"0660\"\nhosts = [\"A.Internal\"]\n\
         deny = [\"10.0.0.0/8\"]\n[log]\nlevel = \"warning\"\n"
    );
    let config = Config::parse("x", &text).unwrap_or_else(|error| panic!("{error}"));
    let [site, admin] = &config.listeners[..] else { panic!("{:?}", config.listeners) };
    assert!(admin.is_admin && !site.is_admin);
    assert_eq!((admin.address.to_string().as_str(), admin.mode), ("unix:/run/a", Some(0o660)));
    let rules = config.admin.unwrap();
    assert_eq!((rules.hosts, rules.rules.access.deny.len()), (vec!["a.internal".to_owned()], 1));
    assert_eq!(config.log.level, Some(Level::Warning));
    for address in ["127.0.0.1:9090", "[::1]:9090", "localhost:9090", "127.9.9.9:1"] {
        let text = format!("{SITE}[admin]\naddress = \"{address}\"\n");
        assert!(Config::parse("x", &text).is_ok(), "{address}");
    }
    let open = format!("{SITE}[admin]\naddress = \":9090\"\nallow = [\"10.0.0.0/8\"]\n");
    assert!(Config::parse("x", &open).is_ok());
}

#[test]
fn passwords_in_plain_text_are_a_warning_about_this_listener() {
    let users = "basic_auth.users = { joe = \"$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA\" }\n";
    let warnings = |site: &str, admin: &str| {
        let text = format!("{site}[admin]\n{admin}\n{users}");
        let config = Config::parse("x", &text).unwrap_or_else(|error| panic!("{error}"));
        let of_passwords = config.warnings.into_iter().filter(|one| one.contains("passwords"));
        of_passwords.collect::<Vec<_>>()
    };
    let public = SITE.replace("127.0.0.1", "0.0.0.0");
    assert_eq!(warnings(&public, "address = \"127.0.0.1:9090\""), [] as [String; 0]);
    assert_eq!(warnings(&public, "address = \"unix:/run/a\""), [] as [String; 0]);
    let warned = warnings(SITE, "address = \"10.0.0.5:9090\"\nallow = [\"10.0.0.0/8\"]");
    assert!(warned[0].contains("passwords are sent in plain text to 10.0.0.5:9090"), "{warned:?}");
    assert_eq!(warned.len(), 1);
}

#[test]
fn mistakes_have_their_places() {
    for (text, line, column, said) in [
        ("[admin]\n", 6, 1, "no address, expected address = \"127.0.0.1:9090\" or \"unix:PATH\""),
        ("[admin]\naddress = 9090\n", 7, 11, "expected an address as"),
        (
            "[admin]\naddress = \":9090\"\n",
            7,
            11,
            "expected a loopback address, \"unix:PATH\", or allow = [NETWORKS] next to it",
        ),
        ("[admin]\naddress = \"10.0.0.1:9090\"\nhosts = [\"a\"]\n", 7, 11, "controls the server"),
        (
            "[admin]\naddress = \"127.0.0.1:8080\"\n",
            7,
            11,
            "taken by the listener 127.0.0.1:8080, expected an address of its own",
        ),
        ("[admin]\naddress = \"127.0.0.1:1\"\nmode = \"0600\"\n", 8, 8, "mode only with unix:PATH"),
        ("[admin]\naddress = \"127.0.0.1:1\"\nhosts = [\"a:1\"]\n", 8, 10, "it has a port"),
        ("[admin]\naddress = \"127.0.0.1:1\"\nhosts = [\"*.a\"]\n", 8, 10, "expected each name"),
        ("[admin]\naddress = \"127.0.0.1:1\"\nallow = [\"x\"]\n", 8, 10, "\"x\" is no network"),
        ("[admin]\naddress = \"127.0.0.1:1\"\nport = 1\n", 8, 1, "unknown key `port`"),
        ("[log]\nlevel = \"debug\"\n", 7, 9, "\"debug\" is no level, expected one of \"info\""),
        ("[log]\nlevel = 3\n", 7, 9, "expected a string"),
    ] {
        let found = blamed(&format!("{SITE}{text}"));
        let is_there = found.iter().any(|(at, column_at, what)| {
            (*at, *column_at) == (line, column) && what.contains(said)
        });
        assert!(is_there, "{text}: {found:?}");
    }
    // The hosts are not on it.
    let text = SITE.replace("[[hosts]]\n", "[[hosts]]\nlisteners = [\"127.0.0.1:9\"]\n");
    let found = blamed(&format!("{text}[admin]\naddress = \"127.0.0.1:9\"\n"));
    assert!(found[0].2.contains("no listener of HTTP has the address 127.0.0.1:9"), "{found:?}");
}
