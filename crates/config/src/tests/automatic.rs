//! Certificates that the server gets by itself.

use super::super::*;
use super::blamed;

const HOSTS: &str =
    "[[hosts]]\nnames = [\"example.org\"]\nroutes = [{ files = { root = \"/\" } }]\n";

fn listener(tls: &str) -> String {
    format!("[[listeners]]\naddress = \":443\"\ntls = {tls}\n")
}

fn automatic(tls: &str, hosts: &str) -> Automatic {
    let config = Config::parse("test", &format!("{}{hosts}", listener(tls)));
    let config = config.unwrap_or_else(|error| panic!("{tls}: {error}"));
    config.listeners[0].tls.clone().unwrap().automatic.unwrap()
}

#[test]
fn a_mail_address_is_enough() {
    let acme = Acme { email: "mail@example.org".to_owned(), ..Acme::default() };
    assert_eq!(automatic("{ acme = \"mail@example.org\" }", HOSTS), Automatic::Acme(acme));
    assert_eq!(automatic("{ acme = \"\" }", HOSTS), Automatic::Acme(Acme::default()));
    let internal = Automatic::Internal(Internal::default());
    for tls in ["\"internal\"", "{ internal = true }"] {
        assert_eq!(automatic(tls, HOSTS), internal);
    }
}

#[test]
fn mistakes_are_named() {
    for (tls, expected) in [
        ("\"acme\"", "\"internal\" for certificates of the server's own"),
        ("{ acme = \"example.org\" }", "is no address of mail"),
        ("{ acme = \"a@b.c\", directory = \"http://a.example/\" }", "expected an https: URL"),
        ("{ acme = \"a@b.c\", challenge = \"dns-01\" }", "unknown variant `dns-01`"),
        ("{ acme = \"a@b.c\", certificate = \"a\", key = \"b\" }", "one source for a listener"),
        ("{ acme = \"a@b.c\", internal = true }", "one source for a listener"),
        ("{ acme = \"a@b.c\", account = { id = \"a\" } }", "the account is not complete"),
        ("{ internal = true, directory = \"https://a.example/\" }", "expected acme = \"MAIL\""),
        ("{ storage = \"a\", certificate = \"a\", key = \"b\" }", "storage without certificates"),
        ("{ internal = true, certificate = \"a\", key = \"b\" }", "expected either"),
    ] {
        let found = blamed(&format!("{}{HOSTS}", listener(tls)));
        assert_eq!(found.len(), 1, "{tls}: {found:?}");
        assert!(found[0].2.contains(expected), "{tls}: {found:?}");
    }
}

#[test]
fn names_that_no_authority_certifies_are_warned_of() {
    let text = listener("{ acme = \"a@b.c\" }");
    let names = "names = [\"example.org\", \"*.example.org\", \"localhost\", \"10.0.0.1\"]";
    let hosts = HOSTS.replace("names = [\"example.org\"]", names);
    let config = Config::parse("test", &format!("{text}{hosts}")).unwrap();
    assert_eq!(config.warnings.len(), 3, "{:?}", config.warnings);
    let hosts = HOSTS.replace("example.org", "*.example.org");
    let found = blamed(&format!("{text}{hosts}"));
    assert!(found[0].2.contains("in the DNS only"), "{found:?}");
    // The hosts of another listener do not count.
    let other = "[[listeners]]\naddress = \":80\"\n";
    let apart = HOSTS.replace("routes", "listeners = [\":80\"]\nroutes");
    let found = blamed(&format!("{text}{other}{apart}"));
    assert!(found[0].2.contains("acme needs names of hosts"), "{found:?}");
    // Another authority may certify names of one machine.
    let own = listener("{ acme = \"\", directory = \"https://ca.internal/\" }");
    let hosts = HOSTS.replace("example.org", "localhost");
    assert_eq!(Config::parse("test", &format!("{own}{hosts}")).unwrap().warnings, [""; 0]);
}
