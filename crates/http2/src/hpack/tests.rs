//! The examples of RFC 7541, appendix C, and the edges of the code.

use super::*;
use crate::limits::Limits;
use crate::section::Section;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap())
        .collect()
}

fn entries(table: &Table) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let pair = |(name, value)| (text(name), text(value));
    (0..table.len()).map(|index| pair(table.pair(index).unwrap())).collect()
}

/// Decodes a block; the values of its fields.
fn decode(decoder: &mut Decoder, hex: &str) -> Result<Vec<String>, crate::ConnectionError> {
    let mut section = Section::default();
    section.clear(Limits::DEFAULT);
    decoder.decode(&bytes(hex), &mut Texts::default(), &mut section)?;
    let pseudo = [Name::Method, Name::Scheme, Name::Path, Name::Authority];
    let pseudo = pseudo.map(|name| section.pseudo(name));
    let mut values: Vec<String> =
        pseudo.into_iter().flatten().map(|text| section.text(text).unwrap().to_owned()).collect();
    let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
    if let Some(fields) = section.fields() {
        values.extend(fields.iter().map(|field| text(field.value.as_bytes())));
    }
    Ok(values)
}

/// C.2: each representation alone, with the table after it.
#[test]
fn each_representation_is_decoded() {
    for (hex, value, table) in [
        (
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            "custom-header",
            vec![("custom-key", "custom-header")],
        ),
        ("040c 2f73 616d 706c 652f 7061 7468", "/sample/path", vec![]),
        ("1008 7061 7373 776f 7264 0673 6563 7265 74", "secret", vec![]),
        ("82", "GET", vec![]),
    ] {
        let mut decoder = Decoder::new(4096, 4096);
        assert_eq!(decode(&mut decoder, hex).unwrap(), [value]);
        let expected: Vec<(String, String)> =
            table.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        assert_eq!(entries(&decoder.table), expected);
    }
}

/// C.3 and C.4: three requests, without and with Huffman codes.
#[test]
fn requests_of_the_standard_are_decoded() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let coded = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    let values = [
        &["GET", "http", "/", "www.example.com"][..],
        &["GET", "http", "/", "www.example.com", "no-cache"],
        &["GET", "https", "/index.html", "www.example.com", "custom-value"],
    ];
    for blocks in [plain, coded] {
        let mut decoder = Decoder::new(4096, 4096);
        for ((block, values), size) in blocks.into_iter().zip(values).zip([57, 110, 164]) {
            assert_eq!(decode(&mut decoder, block).unwrap(), values);
            assert_eq!(decoder.table.size(), size);
        }
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [
            pair("custom-key", "custom-value"),
            pair("cache-control", "no-cache"),
            pair(":authority", "www.example.com"),
        ];
        assert_eq!(entries(&decoder.table), expected);
    }
}

/// C.5 and C.6: three responses with a table of 256 bytes, which evicts entries.
#[test]
fn responses_of_the_standard_are_decoded() {
    let plain = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
    ];
    let coded = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    for blocks in [plain, coded] {
        let mut decoder = Decoder::new(256, 4096);
        for (block, size) in blocks.into_iter().zip([222, 222, 215]) {
            decode(&mut decoder, block).unwrap();
            assert_eq!(decoder.table.size(), size);
        }
        let names: Vec<String> = entries(&decoder.table).into_iter().map(|pair| pair.0).collect();
        assert_eq!(names, ["set-cookie", "content-encoding", "date"]);
        let (_, cookie) = decoder.table.pair(0).unwrap();
        assert_eq!(cookie, b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1");
    }
}

/// C.1: the numbers 10 and 1337 with a prefix of 5 bits, as sizes of the table.
#[test]
fn numbers_of_the_standard_are_decoded() {
    for (hex, size) in [("2a", 10), ("3f9a0a", 1337), ("3f00", 31), ("3fe11f", 4096)] {
        let mut decoder = Decoder::new(4096, 4096);
        decode(&mut decoder, hex).unwrap();
        assert_eq!(decoder.table.limit(), size, "{hex}");
    }
}

#[test]
fn malformed_blocks_are_refused() {
    for hex in [
        "80",                  // Index 0.
        "be",                  // An entry that is not there.
        "7f",                  // A number without its end.
        "ff80808080808001",    // A number with too many octets.
        "40",                  // No name.
        "4003 6162",           // A name that is cut.
        "0001 6181 38",        // A code whose padding is not that of the end.
        "0001 6181 ff",        // Padding of 8 bits.
        "0001 6182 1fff",      // Padding of more than 7 bits.
        "0001 6184 ffff fffc", // The symbol of the end.
        "82 20",               // A size after a field.
    ] {
        let mut decoder = Decoder::new(4096, 4096);
        let error = decode(&mut decoder, hex);
        assert_eq!(error, Err(crate::ConnectionError::Compression), "{hex}");
    }
}

#[test]
fn a_size_is_bounded_and_followed() {
    let mut decoder = Decoder::new(4096, 4096);
    decode(&mut decoder, "4001 6101 62 4001 6301 64").unwrap();
    assert_eq!(decoder.table.len(), 2);
    // 34 bytes keep the newest entry alone.
    decode(&mut decoder, "3f03").unwrap();
    assert_eq!(entries(&decoder.table), [("c".to_owned(), "d".to_owned())]);
    assert_eq!(decode(&mut decoder, "bf"), Err(crate::ConnectionError::Compression));
    let mut decoder = Decoder::new(4096, 4096);
    decoder.set_limit(0);
    // The client has to shrink its table first.
    assert_eq!(decode(&mut decoder, "82"), Err(crate::ConnectionError::TableSize));
    assert_eq!(decode(&mut decoder, "3f03 82"), Err(crate::ConnectionError::TableSize));
    decode(&mut decoder, "20 82").unwrap();
    decode(&mut decoder, "82 4001 6101 62").unwrap();
    assert_eq!(decoder.table.len(), 0);
}

/// An entry may take its name from the one that it evicts (RFC 7541, section 4.4).
#[test]
fn an_evicted_entry_gives_its_name() {
    let mut decoder = Decoder::new(40, 4096);
    decode(&mut decoder, "4003 6161 6101 62").unwrap();
    assert_eq!(decode(&mut decoder, "7e05 6161 6161 61").unwrap(), ["aaaaa"]);
    assert_eq!(entries(&decoder.table), [("aaa".to_owned(), "aaaaa".to_owned())]);
    // One that is larger than the table empties it.
    assert_eq!(decode(&mut decoder, "7e06 6161 6161 6161").unwrap(), ["aaaaaa"]);
    assert_eq!(decoder.table.len(), 0);
}

#[test]
fn many_evictions_leave_the_table_whole() {
    let mut decoder = Decoder::new(200, 4096);
    for number in 0..500_u32 {
        let value = format!("{number:03}");
        let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
        decode(&mut decoder, &format!("4001 6103 {hex}")).unwrap();
        let newest = entries(&decoder.table);
        assert_eq!(newest.len(), (number as usize + 1).min(200 / 36));
        for (age, (_, kept)) in newest.iter().enumerate() {
            assert_eq!(*kept, format!("{:03}", number as usize - age));
        }
    }
}

#[test]
fn numbers_and_secrets_are_encoded() {
    let mut to = Vec::new();
    let long = [b'v'; 300];
    put_field(b"Set-Cookie", b"a=b", &mut to);
    put_field(b"date", b"x", &mut to);
    put_field(b"Connection", b"close", &mut to);
    put_field(b"transfer-encoding", b"chunked", &mut to);
    put_field(b"X", &long, &mut to);
    put_field(b"etag", b"", &mut to);
    let mut decoder = Decoder::new(0, 0);
    assert_eq!(to[0], 0x10);
    assert_eq!(to[16..20], [0x0f, 0x12, 1, b'x']);
    let hex: String = to.iter().map(|byte| format!("{byte:02x}")).collect();
    let long = String::from_utf8(long.to_vec()).unwrap();
    assert_eq!(decode(&mut decoder, &hex).unwrap(), ["a=b", "x", &long, ""]);
}
