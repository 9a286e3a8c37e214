//! Where a route looks for a request (`rewrite`): another path, and maybe another query, in place
//! of those of the request.
//!
//! The text has placeholders: `{path}` is the path, `{below}` its part below the route's path,
//! `{query}` the query, and the parameters of the route's path (`/blog/{slug}`) have their names.
//! So have the groups of the route's `path_regex`, those without a name by their numbers (`{1}`); a
//! group that is not in a path is empty. The route is chosen before, so a request is rewritten once
//! and there is no loop. The query stays as it is, unless the text has one.
//!
//! Values are copied as the client sent them, percent-encoded. So they keep their meaning in a
//! path; in a query, characters that mean something there are encoded first. No value leads out of
//! the place where the text has it: a path with a part `.` or `..` is refused, also if it shows
//! only when the path is decoded, when a backslash counts as a slash (as in browsers and in
//! Windows), or when everything behind a semicolon is left out (as in servers of Java). The path
//! begins with one slash, since two would be read as a host.

use std::fmt::Write;

use http::uri::PathAndQuery;
use percent_encoding::percent_decode_str;

use crate::path_regex::PathRegex;
use crate::route_path::has_parameters;

/// The placeholders that every route has.
const KNOWN: [&str; 3] = ["path", "below", "query"];

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Literal(String),
    Path,
    Below,
    Query,
    Parameter(String),
    /// A group of the expression.
    Group(usize),
}

/// The rule of a route.
pub struct Rewrite {
    path: Vec<Part>,
    /// `None` if the query stays as it is.
    query: Option<Vec<Part>>,
    /// Finds the parameters, if the route's path has any.
    parameters: Option<matchit::Router<()>>,
    /// Finds the groups, if the text has any.
    expression: Option<PathRegex>,
    /// The length of the route's path, without a slash at its end.
    above: usize,
}

/// Returns the names of the parameters of a path.
fn parameters(route: &str) -> impl Iterator<Item = &str> {
    let names = route.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    names.map(|(name, _)| name.trim_start_matches('*'))
}

/// Reads a text with placeholders.
fn parts(text: &str, route: &str, expression: Option<&PathRegex>) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, after) = rest.split_at(at);
        let Some(end) = after.find('}').filter(|_| after.starts_with('{')) else {
            let expected = "expected {path}, {below} or {query}, and %7B and %7D for braces";
            return Err(format!("{text:?} has a brace without its other half, {expected}"));
        };
        if !before.is_empty() {
            parts.push(Part::Literal(before.to_owned()));
        }
        parts.push(match &after[1..end] {
            "path" => Part::Path,
            "below" => Part::Below,
            "query" => Part::Query,
            name if parameters(route).any(|known| known == name) => {
                Part::Parameter(name.to_owned())
            }
            other => {
                let group = expression.and_then(|expression| expression.group(other));
                if let Some(group) = group {
                    parts.push(Part::Group(group));
                    rest = &after[end + 1..];
                    continue;
                }
                let groups = expression.into_iter().flat_map(PathRegex::groups);
                let own = parameters(route).map(str::to_owned).chain(groups);
                let own = own.map(|name| format!(", {{{name}}}")).collect::<String>();
                let expected = format!("expected {{path}}, {{below}}, {{query}}{own}");
                return Err(format!(
                    "{{{other}}} is no part of a request to this route, {expected}"
                ));
            }
        });
        rest = &after[end + 1..];
    }
    if !rest.is_empty() {
        parts.push(Part::Literal(rest.to_owned()));
    }
    Ok(parts)
}

impl Rewrite {
    /// Reads the rule of a route with this path, and with this expression for paths; the error says
    /// why it is wrong.
    pub fn parse(
        text: &str,
        route: &str,
        expression: Option<&PathRegex>,
    ) -> Result<Rewrite, String> {
        let wrong = |what: &str| {
            Err(format!("{text:?} {what}, expected one as \"/new{{below}}\", percent-encoded"))
        };
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.contains('#');
        if !is_plain || !["/", "{path}", "{below}"].iter().any(|start| text.starts_with(start)) {
            return wrong("is no path of a URL");
        }
        if let Some(name) = parameters(route).find(|name| KNOWN.contains(name)) {
            return wrong(&format!("cannot tell {{{name}}} of the route's path from its own"));
        }
        let mut groups = expression.into_iter().flat_map(PathRegex::groups);
        let is_known = |name: &String| {
            KNOWN.contains(&&**name) || parameters(route).any(|known| known == name)
        };
        if let Some(name) = groups.find(is_known) {
            return wrong(&format!("cannot tell {{{name}}} of path_regex from another {{{name}}}"));
        }
        let (path, query) = match text.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (text.strip_suffix("{query}").unwrap_or(text), None),
        };
        let (path, query) = {
            let parts = |text| parts(text, route, expression);
            (parts(path)?, query.map(parts))
        };
        if path.contains(&Part::Query) {
            return wrong("has {query} within the path");
        }
        let has_below =
            path.iter().chain(query.iter().flatten().flatten()).any(|part| *part == Part::Below);
        let parameters = match has_parameters(route) {
            true if has_below => return wrong("has {below}, and a path with parameters has none"),
            true => {
                let mut router = matchit::Router::new();
                router.insert(route, ()).map_err(|error| error.to_string())?;
                Some(router)
            }
            false => None,
        };
        let above = route.trim_end_matches('/').len();
        let query = query.transpose()?;
        let mut all = path.iter().chain(query.iter().flatten());
        let has_groups = all.any(|part| matches!(part, Part::Group(_)));
        let expression = expression.filter(|_| has_groups).cloned();
        let rewrite = Rewrite { path, query, parameters, expression, above };
        let literals = |part: &Part| match part {
            Part::Literal(literal) => literal.clone(),
            _ => "x".to_owned(),
        };
        if leads_out(&rewrite.path.iter().map(literals).collect::<String>()) {
            return wrong("has a part \".\" or \"..\"");
        }
        Ok(rewrite)
    }

    /// Returns the path and the query in place of those of a request that the route has, which has
    /// asked for this path and this query; `None` if there are none that could be meant.
    #[inline]
    pub fn of(&self, path: &str, asked: Option<&str>) -> Option<PathAndQuery> {
        let found = match &self.parameters {
            Some(router) => Some(router.at(path).ok()?),
            None => None,
        };
        let groups = match &self.expression {
            Some(expression) => Some(expression.captures(path)?),
            None => None,
        };
        let value = |part: &'_ Part| match part {
            Part::Path => Some(path),
            Part::Below => path.get(self.above..),
            Part::Parameter(name) => found.as_ref()?.params.get(name),
            Part::Group(group) => match groups.as_ref()?.get(*group) {
                Some(found) => path.get(found.range()),
                None => Some(""),
            },
            Part::Literal(_) | Part::Query => None,
        };
        let mut text = String::with_capacity(path.len() + 32);
        for part in &self.path {
            match part {
                Part::Literal(literal) => text.push_str(literal),
                part => text.push_str(value(part)?),
            }
        }
        let slashes = text.len() - text.trim_start_matches(['/', '\\']).len();
        text.replace_range(..slashes, "/");
        if leads_out(&text) {
            return None;
        }
        let start = text.len();
        let Some(query) = &self.query else {
            if let Some(query) = asked {
                // Writing to a string cannot fail.
                let _ = write!(text, "?{query}");
            }
            return target(text);
        };
        text.push('?');
        for part in query {
            match part {
                Part::Literal(literal) => text.push_str(literal),
                Part::Query => {
                    let is_first = text.ends_with(['?', '&']);
                    if let Some(query) = asked.filter(|query| !query.is_empty()) {
                        let separator = if is_first { "" } else { "&" };
                        let _ = write!(text, "{separator}{query}");
                    }
                }
                part => encode(value(part)?, &mut text),
            }
        }
        if text.len() == start + 1 {
            text.pop();
        }
        target(text)
    }
}

/// Returns a target, in which bytes are encoded that a client should have encoded.
fn target(text: String) -> Option<PathAndQuery> {
    match PathAndQuery::try_from(&text[..]) {
        Ok(target) => Some(target),
        Err(_) => encode_target(&text).try_into().ok(),
    }
}

/// Encodes the bytes of a target that clients send as they are, and that [`Uri`](http::Uri) does
/// not take.
#[must_use]
pub fn encode_target(text: &str) -> String {
    text.replace('<', "%3C").replace('>', "%3E").replace('`', "%60")
}

/// Whether a path has a part that some server takes for the place above, or for the same place.
fn leads_out(path: &str) -> bool {
    let decoded: Vec<u8> = percent_decode_str(path).collect();
    decoded.split(|byte| matches!(byte, b'/' | b'\\')).any(|part| {
        let part = part.split(|byte| *byte == b';').next().unwrap_or_default();
        matches!(part, b"." | b"..")
    })
}

/// Adds a part of a path to a query, without the meaning that its characters would have there.
fn encode(value: &str, query: &mut String) {
    for character in value.chars() {
        match character {
            '&' | '=' | '+' | ';' | '?' | '#' => {
                let _ = write!(query, "%{:02X}", u32::from(character));
            }
            other => query.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Uri;
    use proptest::prelude::*;

    use super::*;

    fn to(text: &str, route: &str, uri: &str) -> Option<String> {
        let rewrite = Rewrite::parse(text, route, None).unwrap_or_else(|error| panic!("{error}"));
        let uri: Uri = uri.parse().unwrap();
        rewrite.of(uri.path(), uri.query()).map(|target| target.to_string())
    }

    #[test]
    fn placeholders_are_parts_of_the_request() {
        for (text, route, uri, expected) in [
            ("/v2{path}", "/", "/a/b", "/v2/a/b"),
            ("/v2{path}", "/a", "/a/b?c=d", "/v2/a/b?c=d"),
            ("{below}", "/api", "/api/a?b", "/a?b"),
            ("{below}", "/api/", "/api/a", "/a"),
            ("{below}", "/api", "/api", "/"),
            ("{below}", "/api", "/api?b", "/?b"),
            ("/x{below}", "/api", "/api", "/x"),
            ("{path}", "/", "/a", "/a"),
            ("/index.html", "/app", "/app/any?b=c", "/index.html?b=c"),
            ("/index.html?", "/app", "/app/any?b=c", "/index.html"),
            ("/x?a=1", "/", "/y?b=2", "/x?a=1"),
            ("/x?a=1{query}", "/", "/y?b=2", "/x?a=1&b=2"),
            ("/x?a=1&{query}", "/", "/y?b=2", "/x?a=1&b=2"),
            ("/x?a=1{query}", "/", "/y", "/x?a=1"),
            ("/x?{query}", "/", "/y?b=2", "/x?b=2"),
            ("/x?{query}", "/", "/y", "/x"),
            ("/x{query}", "/", "/y?b=2", "/x?b=2"),
            ("/x{query}", "/", "/y", "/x"),
            ("/i.php?q={path}{query}", "/", "/a&b=c/d+e?f=g", "/i.php?q=/a%26b%3Dc/d%2Be&f=g"),
            ("/posts/{slug}.html", "/blog/{slug}", "/blog/a-b%20c", "/posts/a-b%20c.html"),
            ("/{b}/{a}?x={a}", "/{a}/to/{b}", "/1;y=z/to/2", "/2/1;y=z?x=1%3By%3Dz"),
            ("/all/{rest}", "/t/{*rest}", "/t/a/b/c", "/all/a/b/c"),
            // Two slashes at the start are those of a host.
            ("{below}", "/api", "/api//evil.test/x", "/evil.test/x"),
            ("{path}", "/", "//evil.test/x", "/evil.test/x"),
            ("{below}", "/api", "/api/\\evil.test", "/evil.test"),
            ("/x{path}", "/", "//a", "/x//a"),
            // A part that is no way up stays.
            ("/x{path}", "/", "/a..b/...", "/x/a..b/..."),
        ] {
            assert_eq!(to(text, route, uri).as_deref(), Some(expected), "{text} {route} {uri}");
        }
    }

    #[test]
    fn groups_of_an_expression_are_values() {
        let to = |text: &str, route: &str, expression: &str, uri: &str| {
            let expression = PathRegex::parse(expression).unwrap();
            let rewrite = Rewrite::parse(text, route, Some(&expression));
            let rewrite = rewrite.unwrap_or_else(|error| panic!("{error}"));
            let uri: Uri = uri.parse().unwrap();
            rewrite.of(uri.path(), uri.query()).map(|target| target.to_string())
        };
        let user = "^/u/(?<user>[a-z]+)/(\\d+)(/x)?$";
        for (text, route, expression, uri, expected) in [
            ("/{user}/{2}", "/u", user, "/u/joe/42?a=b", Some("/joe/42?a=b")),
            ("/{1}{3}", "/u", user, "/u/joe/42/x", Some("/joe/x")),
            // A group that is not there is empty.
            ("/{1}{3}", "/u", user, "/u/joe/42", Some("/joe")),
            ("/i.php?u={user}&n={2}{query}", "/", user, "/u/joe/42?a", Some("/i.php?u=joe&n=42&a")),
            ("/x?p={1}", "/", "^/(.*)$", "/a&b=c%2F", Some("/x?p=a%26b%3Dc%2F")),
            ("{path}", "/u", user, "/u/joe/42", Some("/u/joe/42")),
            ("/{1}-{a}", "/{a}", "^/(.)", "/xy", Some("/x-xy")),
            ("/in/{1}", "/", "^/t/(.*)$", "/t/a/b", Some("/in/a/b")),
            ("/{1}", "/", "^/t/(.*)$", "/t//evil.test/x", Some("/evil.test/x")),
            // It does not lead out of its place.
            ("/in/{1}", "/", "^/t/(.*)$", "/t/..", None),
            ("/in/{1}", "/", "^/t/(.*)$", "/t/a/%2e%2e/b", None),
            ("/in/.{1}", "/", "^/t/(.*)$", "/t/.", None),
        ] {
            assert_eq!(to(text, route, expression, uri).as_deref(), expected, "{text} {uri}");
        }
        let user = PathRegex::parse(user).unwrap();
        let own = PathRegex::parse("(?<path>x)").unwrap();
        let parameter = PathRegex::parse("(?<slug>x)").unwrap();
        for (text, route, expression, what) in [
            ("/{4}", "/", &user, "expected {path}, {below}, {query}, {user}, {2}, {3}"),
            ("/{0}", "/", &user, "{0} is no part of a request to this route"),
            ("/{usr}", "/{s}", &user, "expected {path}, {below}, {query}, {s}, {user}, {2}, {3}"),
            ("/x", "/", &own, "cannot tell {path} of path_regex from another {path}"),
            ("/x", "/{slug}", &parameter, "cannot tell {slug} of path_regex from another {slug}"),
        ] {
            let Err(error) = Rewrite::parse(text, route, Some(expression)) else {
                panic!("{text}")
            };
            assert!(error.contains(what) && error.contains("expected"), "{error}");
        }
    }

    #[test]
    fn no_value_leads_out_of_its_place() {
        for part in [
            "..",
            ".",
            "%2e%2e",
            "%2E.",
            "a%2f..%2fb",
            "..%5cx",
            "%2e%2e%2fx",
            "..;",
            "..;x=y",
            ".%3bx",
            "%2e%2e;/x",
            "a/../../b",
            "a/./b",
            "a\\..\\b",
        ] {
            assert_eq!(to("/in/{rest}/x", "/t/{*rest}", &format!("/t/{part}")), None, "{part}");
            assert_eq!(to("/in{below}", "/t", &format!("/t/{part}")), None, "{part}");
            assert_eq!(to("/in{path}", "/", &format!("/{part}")), None, "{part}");
        }
        assert_eq!(to("/a/.{x}", "/{x}", "/."), None);
        assert_eq!(to("/a/%2e{x}", "/{x}", "/%2e"), None);
        // In a query such a part leads nowhere.
        assert_eq!(to("/in?p={rest}", "/t/{*rest}", "/t/..").as_deref(), Some("/in?p=.."));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, route, what) in [
            ("", "/", "is no path"),
            ("x", "/", "is no path"),
            ("https://a/", "/", "is no path"),
            ("{query}", "/", "is no path"),
            ("/a b", "/", "is no path"),
            ("/a#b", "/", "is no path"),
            ("/é", "/", "is no path"),
            (
                "/{slug}",
                "/",
                "{slug} is no part of a request to this route, expected {path}, {below}, {query}",
            ),
            ("/{slog}", "/{slug}", "expected {path}, {below}, {query}, {slug}"),
            ("/?x={slog}", "/{slug}", "{slog} is no part"),
            ("/{", "/", "has a brace without its other half"),
            ("/}{path}", "/", "has a brace without its other half"),
            ("/a{query}/b", "/", "has {query} within the path"),
            ("/a/../b", "/", "has a part \".\" or \"..\""),
            ("/a/%2e%2E/{path}", "/", "has a part \".\" or \"..\""),
            ("/a{below}", "/b/{c}", "has {below}, and a path with parameters has none"),
            ("/a?b={below}", "/b/{*c}", "has {below}"),
            ("/a{path}", "/{path}", "cannot tell {path} of the route's path"),
        ] {
            let Err(error) = Rewrite::parse(text, route, None) else { panic!("{text} {route}") };
            assert!(error.contains(what) && error.contains("expected"), "{text} {route}: {error}");
        }
    }

    /// Resolves a path as the most careless server does: decodes it, takes backslashes for slashes
    /// and leaves out what is behind semicolons. Returns its parts; `None` above the root.
    fn resolved(path: &str) -> Option<Vec<Vec<u8>>> {
        let decoded: Vec<u8> = percent_decode_str(path).collect();
        let mut parts = Vec::new();
        for part in decoded.split(|byte| b"/\\".contains(byte)) {
            let end = part.iter().position(|byte| *byte == b';').unwrap_or(part.len());
            match &part[..end] {
                b".." => drop(parts.pop()?),
                b"" | b"." => {}
                part => parts.push(part.to_vec()),
            }
        }
        Some(parts)
    }

    /// Reads a query as forms are read.
    fn form(query: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
        let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).collect();
        let pairs = query.split(['&', ';']).map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        pairs.map(|(name, value)| (decode(name), decode(value))).collect()
    }

    proptest! {
        /// Whatever a client sends: the path stays below the folder that the text names, the parts
        /// of the request are there unchanged, and a value in a query is one value.
        #[test]
        fn values_stay_in_their_places(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "a", "b.c", ".", "..", "/", "//", "%2e", "%2E", "%2f", "%5C", "\\", ";", "=", "&", "+",
                    "%26", "%", "%zz", "...", "~", "%00", "%c3%a9", ":", "@", "*", "'", "\"", "{", "}",
                ]),
                1..12,
            ),
            query in prop::option::of("[a-z]{1,3}=[a-z0-9%&]{0,5}"),
        ) {
            let rest = parts.concat();
            let uri = match &query {
                Some(query) => format!("/t/{rest}?{query}"),
                None => format!("/t/{rest}"),
            };
            let Ok(uri) = uri.parse::<Uri>() else { return Ok(()) };
            let rewritten = |text, route| {
                Rewrite::parse(text, route, None).unwrap().of(uri.path(), uri.query())
            };
            if let Some(target) = rewritten("/in{below}", "/t") {
                let expected = [vec![b"in".to_vec()], resolved(&uri.path()[2..]).unwrap()].concat();
                prop_assert_eq!(resolved(target.path()), Some(expected));
                prop_assert_eq!(target.path(), format!("/in{}", &uri.path()[2..]));
                prop_assert_eq!(target.query(), uri.query());
            } else {
                // Nothing is refused but a way up, or one that leads nowhere.
                let decoded = percent_decode_str(uri.path()).collect::<Vec<_>>();
                prop_assert!(decoded.contains(&b'.'));
            }
            if let Some(target) = rewritten("{below}", "/t") {
                let bytes = target.path().as_bytes();
                prop_assert!(bytes[0] == b'/' && !matches!(bytes.get(1), Some(b'/' | b'\\')));
            }
            // With matchit a part is not empty.
            if let Some(target) = rewritten("/x?p={rest}&q=1", "/t/{*rest}") {
                let pairs = form(target.query().unwrap());
                prop_assert_eq!(pairs.len(), 2, "{}", target);
                let decoded: Vec<u8> = percent_decode_str(&rest).collect();
                prop_assert_eq!(&pairs[0], &(b"p".to_vec(), decoded));
                prop_assert_eq!(&pairs[1], &(b"q".to_vec(), b"1".to_vec()));
            }
        }
    }
}
