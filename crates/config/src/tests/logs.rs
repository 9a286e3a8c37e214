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
    for value in ChallengeKind::ALL {
        assert_eq!(read(value.name()), Some(value));
    }
}
