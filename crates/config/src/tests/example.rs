//! The example configuration.

use super::super::*;
use super::blamed;

/// The example with its defaults written out.
fn with_defaults(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase()) => format!("{rest}\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

#[test]
fn the_example_has_every_key_and_its_true_default() {
    let text = include_str!("../../../../docs/superpoll.toml");
    let config = |text: &str| {
        Config::parse("superpoll.toml", text).unwrap_or_else(|error| panic!("{error}"))
    };
    let written_out = with_defaults(text);
    assert_ne!(written_out, text);
    assert_eq!(config(text), config(&written_out));
    // A default that is not the real default makes a difference.
    assert_ne!(config(text), config(&written_out.replace("rise = 2", "rise = 3")));

    // The keys of each table, as the message for an unknown key lists them.
    let mut keys = 0;
    for table in [
        "zzz = 1\n",
        "[server]\nzzz = 1",
        "[broker]\nzzz = 1",
        "[[listeners]]\nzzz = 1",
        "[[listeners]]\ntls = { zzz = 1 }",
        "[[listeners]]\nrelay = { zzz = 1 }",
        "[[listeners]]\nrelay = { routes = [{ zzz = 1 }] }",
        "[[hosts]]\nzzz = 1",
        "[[hosts]]\nheaders = { zzz = 1 }",
        "[[hosts]]\nroutes = [{ zzz = 1 }]",
        "[[hosts]]\nroutes = [{ basic_auth = { zzz = 1 } }]",
        "[[hosts]]\nroutes = [{ rate = { zzz = 1 } }]",
        "[[hosts]]\nroutes = [{ files = { zzz = 1 } }]",
        "[[hosts]]\nroutes = [{ redirect = { zzz = 1 } }]",
        "[[hosts]]\nroutes = [{ respond = { zzz = 1 } }]",
        "[[hosts]]\nroutes = [{ match = { zzz = 1 } }]",
        "[[hosts]]\nroutes = [{ channel = { zzz = 1 } }]",
        "[[hosts]]\nroutes = [{ channel = { token = { zzz = 1 } } }]",
        "[[hosts]]\nroutes = [{ channel = { authorize = { zzz = 1 } } }]",
        "[[hosts]]\nroutes = [{ mercure = { zzz = 1 } }]",
        "[[hosts]]\nroutes = [{ proxy = { zzz = 1 } }]",
        "[[hosts]]\nroutes = [{ proxy = { request_headers = { zzz = 1 } } }]",
        "[[hosts]]\nroutes = [{ fastcgi = { zzz = 1 } }]",
        "[[hosts]]\nroutes = [{ auth_request = { zzz = 1 } }]",
        "[upstreams.app]\nzzz = 1",
        "[upstreams.app]\nservers = [{ zzz = 1 }]",
        "[upstreams.app]\nhealth = { zzz = 1 }",
        "[upstreams.app]\ntls = { zzz = 1 }",
        "[upstreams.app]\ndns = { zzz = 1 }",
        "[upstreams.app]\neject = { zzz = 1 }",
        "[upstreams.app]\nsticky = { zzz = 1 }",
        "[timeouts]\nzzz = 1",
        "[limits]\nzzz = 1",
        "[log]\nzzz = 1",
        "[access_log]\nzzz = 1",
        "[access_log]\nsyslog = { zzz = 1 }",
        "[metrics]\nzzz = 1",
        "[tracing]\nzzz = 1",
        "[tracing]\nrequest_id = { zzz = 1 }",
        "[tracing]\ntrace = { zzz = 1 }",
        "[admin]\nzzz = 1",
    ] {
        let found = blamed(table);
        let said = found.iter().map(|(_, _, what)| what).find(|what| what.contains("`zzz`"));
        let known =
            said.unwrap_or_else(|| panic!("{table}: {found:?}")).split('`').skip(3).step_by(2);
        // `lane` has no effect, and a warning.
        for key in known.filter(|key| *key != "lane") {
            keys += 1;
            let is_set = written_out.lines().any(|line| {
                let table = line.trim_matches(['[', ']']);
                line.starts_with(&format!("{key} = "))
                    || (line.starts_with('[') && table.split('.').any(|part| part == key))
            });
            assert!(is_set, "{table}: the example lacks {key}");
        }
    }
    assert!(keys > 60, "{keys} keys were looked for");
}
