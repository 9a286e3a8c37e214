//! The routes of a virtual host by their paths.
//!
//! A path without parameters stands for itself and all below it; a path with parameters stands for
//! the paths that fit it, and nothing below. Of the routes that a request fits, the one with the
//! longest path counts, where only the part before the first parameter counts as its length; a path
//! with parameters counts more than one without of the same length.

use crate::config::{has_parameters, literal_length};

/// A path and its handler.
pub(super) struct Route<H> {
    pub path: String,
    pub handler: H,
}

/// The routes of a virtual host.
pub(super) struct RouteTable<H> {
    /// Those without parameters, the longest path first, and then those with parameters.
    routes: Vec<Route<H>>,
    /// The number of those without parameters.
    above: usize,
    /// Finds those with parameters, by their index.
    patterns: matchit::Router<usize>,
}

impl<H> RouteTable<H> {
    /// Creates the table of some routes, whose patterns do not contradict one another.
    pub(super) fn new(mut routes: Vec<Route<H>>) -> RouteTable<H> {
        routes.sort_by_cached_key(|route| {
            (has_parameters(&route.path), std::cmp::Reverse(route.path.len()))
        });
        let above = routes.iter().take_while(|route| !has_parameters(&route.path)).count();
        let mut patterns = matchit::Router::new();
        for (index, route) in routes.iter().enumerate() {
            if has_parameters(&route.path) {
                // The check of the configuration has done the same.
                let _ = patterns.insert(route.path.as_str(), index);
            }
        }
        RouteTable { routes, above, patterns }
    }

    /// Takes all routes; the table has none then.
    pub(super) fn take_routes(&mut self) -> Vec<Route<H>> {
        (self.above, self.patterns) = (0, matchit::Router::new());
        std::mem::take(&mut self.routes)
    }

    /// Returns all routes.
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Route<H>> {
        self.routes.iter()
    }

    /// Returns the route that a path is at or below.
    pub(super) fn find(&self, path: &str) -> Option<&Route<H>> {
        let fits = |route: &&Route<H>| {
            let rest = path.strip_prefix(route.path.as_str());
            rest.is_some_and(|rest| {
                rest.is_empty() || rest.starts_with('/') || route.path.ends_with('/')
            })
        };
        let above = self.routes[..self.above].iter().find(fits);
        if self.above == self.routes.len() {
            return above;
        }
        let fitting = self.patterns.at(path).ok().map(|found| &self.routes[*found.value]);
        match (above, fitting) {
            (Some(above), Some(fitting)) => {
                let is_longer = above.path.len() > literal_length(&fitting.path);
                Some(if is_longer { above } else { fitting })
            }
            (above, fitting) => fitting.or(above),
        }
    }

    /// Whether a path belongs to another route in its usual spelling: without empty and `.`
    /// components, and without needless escapes. The target of `route`, a folder or a server, may
    /// read the path so, and would answer in the place of the other route.
    pub(super) fn leads_elsewhere(&self, route: &Route<H>, path: &str) -> bool {
        let is_odd = |pair: &[u8]| matches!(pair, [b'%', _] | [b'/', b'/' | b'.']);
        if self.routes.len() < 2 || !path.as_bytes().windows(2).any(is_odd) {
            return false;
        }
        let mut usual = String::with_capacity(path.len());
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let before = usual.len();
            usual.push('/');
            unescape(part, &mut usual);
            if &usual[before..] == "/." {
                usual.truncate(before);
            }
        }
        if usual.is_empty() || path.ends_with('/') {
            usual.push('/');
        }
        self.find(&usual).is_none_or(|found| !std::ptr::eq(found, route))
    }
}

/// Adds a part of a path without the escapes of bytes that need none (RFC 3986, section 6.2.2.2).
fn unescape(part: &str, out: &mut String) {
    let mut rest = part;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let byte = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let is_usual = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
        rest = match byte.filter(is_usual) {
            Some(byte) => {
                out.push(char::from(byte));
                &after[2..]
            }
            None => {
                out.push('%');
                after
            }
        };
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(paths: &[&str]) -> RouteTable<()> {
        let route = |path: &&str| Route { path: (*path).to_owned(), handler: () };
        RouteTable::new(paths.iter().map(route).collect())
    }

    #[test]
    fn the_longest_path_counts() {
        let routes =
            table(&["/", "/rooms/{room}", "/rooms/lobby", "/rooms", "/t/{*rest}", "/t/a/b"]);
        for (path, expected) in [
            ("/", "/"),
            ("/x", "/"),
            ("/rooms", "/rooms"),
            ("/rooms/", "/rooms"),
            ("/rooms/42", "/rooms/{room}"),
            ("/rooms/lobby", "/rooms/lobby"),
            ("/rooms/lobby/x", "/rooms/lobby"),
            ("/rooms/42/x", "/rooms"),
            ("/t/x/y", "/t/{*rest}"),
            ("/t/a/b/c", "/t/a/b"),
            ("/t/a/c", "/t/{*rest}"),
            ("/t", "/"),
        ] {
            assert_eq!(routes.find(path).map(|route| &*route.path), Some(expected), "{path}");
        }
        assert!(table(&["/rooms/{room}"]).find("/rooms/a/b").is_none());
    }

    #[test]
    fn a_path_that_normalizes_to_another_route_is_found() {
        let routes = table(&["/private/deep", "/private", "/", "/rooms/{room}"]);
        for (path, expected) in [
            ("/private", false),
            ("/x", false),
            ("/./x", false),
            ("//x//y/.", false),
            ("/a%2Fb", false),
            ("/.well-known/x", false),
            ("/%zz%", false),
            ("/private/./x", false),
            ("/%2Fprivate", false),
            ("/./private", true),
            ("//private/x", true),
            ("/%70rivate/x", true),
            ("/%2e/private", true),
            ("/private//deep", true),
            ("/private/%64eep/x", true),
            ("/rooms/%34%32", false),
            ("/rooms/a%2fb", false),
            ("/room%73/42", true),
            ("/rooms//42", true),
            ("/rooms/./42", true),
        ] {
            let route = routes.find(path).unwrap();
            assert_eq!(routes.leads_elsewhere(route, path), expected, "{path}");
        }
    }
}
