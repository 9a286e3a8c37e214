//! The fields of forms and of queries (`application/x-www-form-urlencoded`, the URL standard,
//! section 5.1).

use std::borrow::Cow;

use percent_encoding::percent_decode;

/// Returns the names and values of a form, or of a query, as bytes.
fn pairs(form: &[u8]) -> impl Iterator<Item = (Cow<'_, [u8]>, Cow<'_, [u8]>)> {
    let pairs = form.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| {
        let end = pair.iter().position(|&byte| byte == b'=');
        let (name, value) = end.map_or((pair, &[][..]), |end| (&pair[..end], &pair[end + 1..]));
        (decode(name), decode(value))
    })
}

fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return text.into();
    }
    let spaced: Vec<u8> = text.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
    percent_decode(&spaced).collect::<Vec<u8>>().into()
}

/// Returns the names and values of a form, or of a query.
///
/// # Errors
///
/// The name of a field that is not UTF-8.
pub(super) fn fields(form: &[u8]) -> impl Iterator<Item = Result<(String, String), String>> {
    pairs(form).map(|(name, value)| {
        let name = String::from_utf8_lossy(&name).into_owned();
        match String::from_utf8(value.into_owned()) {
            Ok(value) => Ok((name, value)),
            Err(_) => Err(format!("{name} is not UTF-8")),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_decoded() {
        let read = |form: &str| fields(form.as_bytes()).collect::<Result<Vec<_>, _>>();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read(""), Ok(vec![]));
        assert_eq!(
            read("topic=https%3A%2F%2Fa%2F%7Bx%7D&&data=a+b%2Bc=d&private&%61=%C3%A4"),
            Ok(vec![
                pair("topic", "https://a/{x}"),
                pair("data", "a b+c=d"),
                pair("private", ""),
                pair("a", "\u{e4}"),
            ])
        );
        assert_eq!(read("data=%ff"), Err("data is not UTF-8".to_owned()));
        assert_eq!(read("a=%zz%"), Ok(vec![pair("a", "%zz%")]));
    }
}
