//! Fields in a list of their own.

use superpoll_http1::FieldList;

fn texts(list: &FieldList, from: usize) -> Option<Vec<(String, String)>> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let pair = |field: superpoll_http1::Field<'_>| {
        (text(field.name.as_bytes()), text(field.value.as_bytes()))
    };
    Some(list.fields(from..list.len().max(from))?.iter().map(pair).collect())
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[test]
fn only_fields_become_fields() {
    for (name, value, is_field) in [
        ("a", "b", true),
        ("a_b", "", true),
        ("x", "\u{e4}\t a", true),
        ("x", " a", false),
        ("x", "a\t", false),
        ("", "b", false),
        ("A", "b", false),
        (":path", "/", false),
        ("a b", "b", false),
        ("a", "b\r", false),
        ("a", "b\0c", false),
        ("a", "b\u{7f}", false),
        ("a", "a long value with a line feed\nthat is past the first block", false),
    ] {
        let mut list = FieldList::new();
        assert_eq!(list.push(name.as_bytes(), value.as_bytes()), is_field, "{name:?}: {value:?}");
        assert!(list.push(b"last", b"value"));
        assert_eq!(list.pair(0), Some((name.as_bytes(), value.as_bytes())));
        let length = name.len() + value.len();
        let lengths = [list.byte_len(0..1), list.byte_len(0..2), list.byte_len(2..2)];
        assert_eq!((lengths, list.byte_len(0..3)), ([length, length + 9, 0], 0));
        assert_eq!(texts(&list, 1), Some(vec![pair("last", "value")]));
        let all = is_field.then(|| vec![pair(name, value), pair("last", "value")]);
        assert_eq!(texts(&list, 0), all);
        // A copy has the verdict of the first check.
        let mut copy = FieldList::new();
        assert!(copy.push_from(&list, 1..2));
        assert_eq!(copy.push_from(&list, 0..1), is_field);
        assert_eq!(copy.pair(1), list.pair(0));
        assert_eq!(copy.push_from(&list, 0..2), is_field);
        assert!(copy.push_from(&list, 1..1));
        assert_eq!([copy.pair(2), copy.pair(3)], [list.pair(0), list.pair(1)]);
        assert_eq!(copy.len(), 4);
        let Some(fields) = list.fields(0..2) else { continue };
        assert_eq!(fields.has_underscore(), name.contains('_'));
        assert!(!fields.has_bare_line_feed() && !fields.is_empty());
        assert_eq!(fields.value("last").unwrap().as_bytes(), b"value");
        assert_eq!(fields.iter().next_back().unwrap().name.as_bytes(), b"last");
        assert_eq!((fields.len(), fields.iter().len()), (2, 2));
    }
}

#[test]
fn removed_pairs_leave_the_others_in_their_order() {
    let mut list = FieldList::new();
    for number in 0..9 {
        list.push(b"n", format!("{number}").as_bytes());
    }
    list.remove(0..0);
    list.remove(0..3);
    assert_eq!((list.len(), list.pair(0)), (6, Some((&b"n"[..], &b"3"[..]))));
    list.push(b"o", b"9");
    assert_eq!(list.pair(6), Some((&b"o"[..], &b"9"[..])));
    list.remove(1..3);
    assert_eq!(texts(&list, 0).unwrap()[..2], [pair("n", "3"), pair("n", "6")]);
    list.remove(3..5);
    assert_eq!(texts(&list, 0).unwrap(), [pair("n", "3"), pair("n", "6"), pair("n", "7")]);
    list.remove(0..3);
    assert!(list.is_empty() && list.pair(0).is_none());
    list.push(b"p", b"q");
    list.clear();
    assert_eq!(texts(&list, 0), Some(vec![]));
    assert_eq!(texts(&list, 1), None);
}
