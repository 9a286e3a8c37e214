//! The access log.

use super::super::*;
use super::blamed;

#[test]
fn the_fields_of_a_line_are_read_in_their_order() {
    let text = "[access_log]\nformat = \"json\"\nfields = [\"status\", \"time\", \"sni\"]\n\
                [[listeners]]\naddress = \":1\"\nrelay.to = \"127.0.0.1:2\"\n";
    let config = Config::parse("x", text).unwrap();
    let fields = config.access_log.unwrap().fields;
    assert_eq!(fields, [Field::Status, Field::Time, Field::Sni]);
    let usual = text.replace("fields = [\"status\", \"time\", \"sni\"]\n", "");
    let fields = Config::parse("x", &usual).unwrap().access_log.unwrap().fields;
    assert_eq!((fields.len(), fields.contains(&Field::Sni)), (Field::ALL.len() - 1, false));
}

#[test]
fn wrong_fields_are_refused_with_their_place() {
    for (text, line, column, expected) in [
        (
            "format = \"json\"\nfields = [\"time\", \"statsu\"]",
            3,
            19,
            "unknown variant `statsu`, did you mean `status`? Expected one of `time`, `client`",
        ),
        (
            "format = \"json\"\nfields = [\"port\"]",
            3,
            11,
            "unknown variant `port`, expected one of",
        ),
        (
            "format = \"json\"\nfields = [\"time\", \"status\", \"time\"]",
            3,
            29,
            "the field \"time\" is listed twice, expected once",
        ),
        ("format = \"json\"\nfields = []", 3, 10, "there is no field, expected at least one"),
        (
            "fields = [\"time\"]",
            2,
            10,
            "lines of format \"combined\" have the same fields always, expected fields only with \
             format = \"json\"",
        ),
        (
            "format = \"json\"\nfields = \"time\"",
            3,
            10,
            "invalid type: string \"time\", expected a sequence",
        ),
        ("format = \"json\"\nfields = [1]", 3, 11, "wanted string or table"),
        ("field = [\"time\"]", 2, 1, "unknown key `field`, did you mean `fields`?"),
    ] {
        let found = blamed(&format!("[access_log]\n{text}"));
        let is_it = |(at, column_at, what): &(usize, usize, String)| {
            (*at, *column_at) == (line, column) && what.contains(expected)
        };
        assert!(found.iter().any(is_it), "{text}: {found:?}");
    }
    // Several at once.
    let found = blamed("[access_log]\nfields = [\"time\", \"time\"]");
    assert!(found.iter().filter(|(line, ..)| *line == 2).count() == 2, "{found:?}");
}

#[test]
fn a_log_goes_to_a_syslog_server() {
    let listener = "[[listeners]]\naddress = \":1\"\nrelay.to = \"127.0.0.1:2\"\n";
    let text = format!(
        "[access_log]\nsyslog = {{ server = \"udp:[::1]:514\", facility = \"news\", tag = \"web-1\" }}\n\
         [log]\npath = \"stderr\"\nsyslog = {{}}\n{listener}"
    );
    let config = Config::parse("x", &text).unwrap();
    let syslog = config.access_log.as_ref().unwrap().syslog.clone().unwrap();
    assert_eq!(syslog.server, SyslogServer::Udp("::1".into(), 514));
    assert_eq!((syslog.facility, &*syslog.tag), (Facility::News, "web-1"));
    assert_eq!(config.access_log.unwrap().place().to_string(), "syslog:udp:[::1]:514");
    assert_eq!(config.log.syslog, Some(Syslog::default()));
    assert_eq!(config.log.place().to_string(), "syslog:unix:/dev/log");
    for (server, expected) in [
        ("unix:/run/log", SyslogServer::Unix("/run/log".into())),
        ("/run/log", SyslogServer::Unix("/run/log".into())),
        ("tcp:logs.example.org:601", SyslogServer::Tcp("logs.example.org".into(), 601)),
    ] {
        let text = format!("[log]\nsyslog.server = \"{server}\"\n{listener}");
        let syslog = Config::parse("x", &text).unwrap().log.syslog.unwrap();
        assert_eq!(syslog.server, expected);
    }
}

#[test]
fn wrong_syslog_servers_are_refused_with_their_place() {
    let expected = "expected \"unix:PATH\", \"udp:HOST:PORT\" or \"tcp:HOST:PORT\"";
    let server = |reason: &str| format!("is no syslog server{reason}, {expected}");
    let tag = "is no tag, expected 1 to 48 ASCII letters, digits, \"-\", \"_\" and \".\"";
    let long = format!("tag = \"{}\"", "a".repeat(49));
    let far = format!("server = \"unix:/{}\"", "a".repeat(107));
    for (key, column, wanted) in [
        ("server = \"10.0.0.1:514\"", 21, server("")),
        ("server = \"udp:10.0.0.1\"", 21, server(": \"10.0.0.1\" is no address: ")[..40].into()),
        ("server = \"udp::514\"", 21, server(": the host or the port is missing")),
        ("server = \"tcp:a:0\"", 21, server(": the host or the port is missing")),
        ("server = \"udp:/dev/log\"", 21, server(": the host or the port is missing")),
        (&*far, 21, "the path of a Unix socket has at most 107 bytes".into()),
        ("facility = \"local8\"", 23, "unknown variant `local8`, did you mean `local".into()),
        ("tag = \"a b\"", 18, format!("\"a b\" {tag}")),
        ("tag = \"a:\"", 18, format!("\"a:\" {tag}")),
        ("tag = \"\"", 18, format!("\"\" {tag}")),
        (&*long, 18, tag.into()),
        ("severity = \"info\"", 12, "unknown key `severity`".into()),
    ] {
        for log in ["log", "access_log"] {
            let found = blamed(&format!("[{log}]\nsyslog = {{ {key} }}"));
            let is_it = |(at, column_at, what): &(usize, usize, String)| {
                (*at, *column_at) == (2, column) && what.contains(&wanted)
            };
            assert!(found.iter().any(is_it), "{log} {key}, {wanted}: {found:?}");
        }
    }
    for log in ["log", "access_log"] {
        let found = blamed(&format!("[{log}]\npath = \"/var/log/a\"\nsyslog = {{}}"));
        let what = "the log has the file /var/log/a as well, expected either path or syslog";
        assert!(found.contains(&(3, 10, what.into())), "{log}: {found:?}");
    }
}

#[test]
fn names_are_read_as_they_are_written() {
    fn read<'a, T: serde::Deserialize<'a>>(name: &'a str) -> Option<T> {
        let text = serde::de::value::StrDeserializer::<serde::de::value::Error>::new(name);
        T::deserialize(text).ok()
    }
    for value in Field::ALL {
        assert_eq!(read(value.name()), Some(value));
    }
    for value in Level::ALL {
        assert_eq!(read(value.name()), Some(value));
    }
    for value in Facility::ALL {
        assert_eq!(read(value.name()), Some(value));
    }
    for value in ChallengeKind::ALL {
        assert_eq!(read(value.name()), Some(value));
    }
}
