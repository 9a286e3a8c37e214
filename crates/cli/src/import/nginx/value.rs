//! Values of nginx in the forms of this server: durations, sizes and texts with variables.

/// Variables of nginx, with those of the values of fields.
const FIELD_VARIABLES: [(&str, &str); 17] = [
    ("remote_addr", "{client}"),
    ("realip_remote_addr", "{client}"),
    ("proxy_protocol_addr", "{client}"),
    ("remote_port", "{client_port}"),
    ("host", "{host}"),
    ("http_host", "{host}"),
    ("request_method", "{method}"),
    ("uri", "{path}"),
    ("document_uri", "{path}"),
    ("args", "{query}"),
    ("query_string", "{query}"),
    ("request_uri", "{uri}"),
    ("scheme", "{scheme}"),
    ("server_addr", "{server_address}"),
    ("server_port", "{server_port}"),
    ("ssl_cipher", "{tls.cipher}"),
    ("ssl_protocol", "{tls.version}"),
];

/// Variables of nginx, with those of redirects.
const REDIRECT_VARIABLES: [(&str, &str); 8] = [
    ("host", "{host}"),
    ("http_host", "{host}"),
    ("request_uri", "{path}{query}"),
    ("uri", "{path}"),
    ("document_uri", "{path}"),
    ("is_args$args", "{query}"),
    ("is_args$query_string", "{query}"),
    ("is_args${args}", "{query}"),
];

/// Whether a text has a variable.
pub(super) fn has_variables(text: &str) -> bool {
    text.contains('$')
}

/// Returns a text with other variables; the error is the first that has no counterpart.
fn with_variables(text: &str, known: &[(&str, &str)]) -> Result<String, String> {
    let mut all = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        all.push_str(before);
        let is_name = |one: char| one.is_ascii_alphanumeric() || one == '_';
        let longer = known.iter().find_map(|(name, value)| {
            let behind = after.strip_prefix(name).filter(|_| name.contains('$'))?;
            Some((value, behind)).filter(|_| !behind.starts_with(is_name))
        });
        if let Some((value, behind)) = longer {
            all.push_str(value);
            rest = behind;
            continue;
        }
        let (name, behind) = match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((name, behind)) => (name, behind),
            None => after.split_at(after.find(|one| !is_name(one)).unwrap_or(after.len())),
        };
        let Some((_, value)) = known.iter().find(|(known, _)| *known == name) else {
            return Err(format!("${name} has no counterpart here"));
        };
        all.push_str(value);
        rest = behind;
    }
    all.push_str(rest);
    Ok(all)
}

/// Returns the value of a field.
pub(super) fn field(text: &str) -> Result<String, String> {
    with_variables(text, &FIELD_VARIABLES)
}

/// Returns the destination of a redirect. `scheme` is that of all requests, if they have one.
pub(super) fn redirect(text: &str, scheme: Option<&str>, name: &str) -> Result<String, String> {
    if text.contains(['{', '}']) && !text.contains("${") {
        return Err("a brace is a variable here".to_owned());
    }
    let text = match scheme {
        Some(scheme) => text.replace("$scheme", scheme),
        None => text.to_owned(),
    };
    let text = text.replace("?$args", "$is_args$args").replace("$server_name", name);
    with_variables(&text, &REDIRECT_VARIABLES)
}

/// Returns a duration, as `1m 30s`; `None` if it is none, or zero. A number alone is in seconds.
pub(super) fn duration(text: &str) -> Option<(String, u64)> {
    let mut milliseconds: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|one: char| !one.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest[..digits].parse().ok()?;
        let unit_end = rest[digits..].find(|one: char| one.is_ascii_digit() || one == ' ');
        let end = digits + unit_end.unwrap_or(rest.len() - digits);
        let factor: u64 = match &rest[digits..end] {
            "ms" => 1,
            "" | "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            "M" => 30 * 86_400_000,
            "y" => 365 * 86_400_000,
            _ => return None,
        };
        milliseconds = milliseconds.checked_add(number.checked_mul(factor)?)?;
        rest = rest[end..].trim_start();
    }
    (milliseconds > 0).then(|| (milliseconds_text(milliseconds), milliseconds))
}

/// Returns so many milliseconds as a text.
pub(super) fn milliseconds_text(milliseconds: u64) -> String {
    let (number, unit) = match milliseconds {
        all if all % 86_400_000 == 0 => (all / 86_400_000, "d"),
        all if all % 3_600_000 == 0 => (all / 3_600_000, "h"),
        all if all % 60_000 == 0 => (all / 60_000, "m"),
        all if all % 1_000 == 0 => (all / 1_000, "s"),
        all => (all, "ms"),
    };
    format!("{number}{unit}")
}

/// Returns a size, as `10MiB`, and its bytes; zero stands for no limit.
pub(super) fn size(text: &str) -> Option<(String, u64)> {
    let lower = text.to_ascii_lowercase();
    let (number, unit, factor) = match lower.as_bytes().last()? {
        b'k' => (&lower[..lower.len() - 1], "KiB", 1 << 10),
        b'm' => (&lower[..lower.len() - 1], "MiB", 1 << 20),
        b'g' => (&lower[..lower.len() - 1], "GiB", 1 << 30),
        _ => (lower.as_str(), "B", 1_u64),
    };
    let number: u64 = number.parse().ok()?;
    Some((format!("{number}{unit}"), number.checked_mul(factor)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_other_forms() {
        for (text, expected) in [
            ("60", Some("1m")),
            ("1h30m", Some("90m")),
            ("1d 12h", Some("36h")),
            ("500ms", Some("500ms")),
            ("0", None),
            ("x", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(duration(text).map(|found| found.0).as_deref(), expected, "{text}");
        }
        assert_eq!(size("10m"), Some(("10MiB".to_owned(), 10 << 20)));
        assert_eq!(size("99999999999g"), None);
        assert_eq!(field("$remote_addr:${remote_port}").as_deref(), Ok("{client}:{client_port}"));
        assert!(field("$upstream_addr").is_err());
        let to = redirect("$scheme://$server_name/x$is_args$args", Some("https"), "a.test");
        assert_eq!(to.as_deref(), Ok("https://a.test/x{query}"));
    }
}
