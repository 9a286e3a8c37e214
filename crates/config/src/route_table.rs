//! The order in which the routes of a virtual host are tried.
//!
//! A path without parameters stands for itself and all below it; a path with parameters stands for
//! the paths that fit it, and nothing below. The routes that a request is at or below are tried in
//! this order, and the first whose matchers fit answers:
//!
//! 1. the longest path first, where only the part before the first parameter counts as its length;
//!    a path with parameters counts more than one without of the same length;
//! 2. of several paths with parameters the most special one: text before a parameter, and one
//!    component before several;
//! 3. of routes with the same path those with matchers, in the order of the configuration, and then
//!    the one without.
//!
//! The server finds its routes here, and so does `superpoll explain`.

use std::cell::OnceCell;
use std::cmp::Reverse;

use crate::matcher::{Matcher, Mismatch, RequestFacts};
use crate::route_path::{has_parameters, literal_length};

/// A path, the matchers of the route, and its handler.
#[derive(Debug)]
pub struct TableRoute<H> {
    /// The path in the configuration.
    pub path: String,
    /// The matchers, if there are some.
    pub matcher: Option<Box<Matcher>>,
    /// The handler.
    pub handler: H,
}

/// A path with parameters, found by itself.
type Pattern = matchit::Router<()>;

/// The routes of a virtual host.
pub struct RouteTable<H> {
    /// Those without parameters, the longest path first, and then those with parameters. Of the
    /// same path, those with matchers come first.
    routes: Vec<TableRoute<H>>,
    /// The number of those without parameters.
    above: usize,
    /// Finds those with parameters, by their index; of the same path the first one.
    patterns: matchit::Router<usize>,
    /// Whether some route has matchers.
    has_matchers: bool,
    /// The order in which the routes are tried, by their indices, and the patterns among them. It
    /// is known at once if there are matchers.
    order: OnceCell<Vec<(usize, Option<Pattern>)>>,
}

impl<H> RouteTable<H> {
    /// Creates the table of some routes, whose patterns do not contradict one another.
    #[must_use]
    pub fn new(mut routes: Vec<TableRoute<H>>) -> RouteTable<H> {
        // Equal ones stay in their order.
        routes.sort_by_cached_key(|route| {
            (has_parameters(&route.path), Reverse(route.path.len()), route.matcher.is_none())
        });
        let above = routes.iter().take_while(|route| !has_parameters(&route.path)).count();
        let mut patterns = matchit::Router::new();
        for (index, route) in routes.iter().enumerate().skip(above) {
            // The check of the configuration has done the same; the same path comes again.
            let _ = patterns.insert(route.path.as_str(), index);
        }
        let has_matchers = routes.iter().any(|route| route.matcher.is_some());
        let table = RouteTable { routes, above, patterns, has_matchers, order: OnceCell::new() };
        if has_matchers {
            table.order();
        }
        table
    }

    /// Takes all routes; the table has none then.
    pub fn take_routes(&mut self) -> Vec<TableRoute<H>> {
        (self.above, self.patterns) = (0, matchit::Router::new());
        (self.has_matchers, self.order) = (false, OnceCell::new());
        std::mem::take(&mut self.routes)
    }

    /// Returns all routes.
    pub fn iter(&self) -> std::slice::Iter<'_, TableRoute<H>> {
        self.routes.iter()
    }

    /// Returns the place of a route of this table.
    #[must_use]
    pub fn place_of(&self, route: &TableRoute<H>) -> Option<usize> {
        self.routes.iter().position(|one| std::ptr::eq(one, route))
    }

    /// Returns the route of a place.
    #[must_use]
    pub fn at_place(&self, place: usize) -> Option<&TableRoute<H>> {
        self.routes.get(place)
    }

    /// Returns the route that a path is at or below, of those without matchers.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<&TableRoute<H>> {
        if self.has_matchers {
            return self.candidates(path).find(|route| route.matcher.is_none());
        }
        let above = self.routes[..self.above].iter().find(|route| is_above(&route.path, path));
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

    /// Returns the route that answers a request for a path.
    #[inline]
    pub fn find_for(&self, path: &str, facts: &impl RequestFacts) -> Option<&TableRoute<H>> {
        if !self.has_matchers {
            return self.find(path);
        }
        self.tried(path, facts).find(|(_, mismatch)| mismatch.is_none()).map(|(route, _)| route)
    }

    /// Returns the routes that are tried for a request for a path, in their order, each with the
    /// first matcher that the request does not fit. The first route without one answers.
    pub fn tried<'t, 'r, F: RequestFacts>(
        &'t self,
        path: &'r str,
        facts: &'r F,
    ) -> impl Iterator<Item = (&'t TableRoute<H>, Option<Mismatch<'t>>)> + use<'t, 'r, H, F> {
        self.candidates(path).map(move |route| {
            let matcher = route.matcher.as_deref();
            (route, matcher.and_then(|matcher| matcher.mismatch(path, facts)))
        })
    }

    /// Returns the routes that a path is at or below, in the order in which they are tried.
    pub fn candidates<'t, 'r>(
        &'t self,
        path: &'r str,
    ) -> impl Iterator<Item = &'t TableRoute<H>> + use<'t, 'r, H> {
        self.order().iter().filter_map(move |(index, pattern)| {
            let route = &self.routes[*index];
            let has_path = match pattern {
                Some(pattern) => pattern.at(path).is_ok(),
                None => is_above(&route.path, path),
            };
            has_path.then_some(route)
        })
    }

    fn order(&self) -> &[(usize, Option<Pattern>)] {
        self.order.get_or_init(|| {
            let mut order: Vec<usize> = (0..self.routes.len()).collect();
            order.sort_by_cached_key(|index| {
                let path = &self.routes[*index].path;
                let is_plain = !has_parameters(path);
                let pieces = if is_plain { Vec::new() } else { pieces(path) };
                (Reverse(literal_length(path)), is_plain, pieces)
            });
            let pattern = |index: usize| {
                let path = Some(&self.routes[index].path).filter(|path| has_parameters(path))?;
                let mut pattern = Pattern::new();
                pattern.insert(path.as_str(), ()).ok().map(|()| pattern)
            };
            order.into_iter().map(|index| (index, pattern(index))).collect()
        })
    }

    /// Whether a path belongs to another route in its usual spelling: without empty and `.`
    /// components, and without needless escapes. The target of `route`, a folder or a server, may
    /// read the path so, and would answer in the place of the other route.
    pub fn leads_elsewhere(
        &self,
        route: &TableRoute<H>,
        path: &str,
        facts: &impl RequestFacts,
    ) -> bool {
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
        self.find_for(&usual, facts).is_none_or(|found| !std::ptr::eq(found, route))
    }
}

impl<H> std::fmt::Debug for RouteTable<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.routes.iter().map(|route| &route.path)).finish()
    }
}

/// Whether a path without parameters is another path, or is above it.
#[inline]
fn is_above(above: &str, path: &str) -> bool {
    let rest = path.strip_prefix(above);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || above.ends_with('/'))
}

/// A piece of a path with parameters; the most special one is the least.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Piece {
    Byte(u8),
    /// Behind a parameter, text is more special than the end of the path.
    End,
    Component,
    Rest,
}

/// Returns the pieces of a path with parameters.
fn pieces(path: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = path;
    while let Some(first) = rest.bytes().next() {
        let end = rest.find('}').filter(|_| first == b'{' && !rest.starts_with("{{"));
        let (piece, length) = match end {
            Some(end) if rest.starts_with("{*") => (Piece::Rest, end + 1),
            Some(end) => (Piece::Component, end + 1),
            None => (Piece::Byte(first), 1),
        };
        pieces.push(piece);
        rest = rest.get(length..).unwrap_or_default();
    }
    pieces.push(Piece::End);
    pieces
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
    use proptest::prelude::*;

    use super::*;
    use crate::matcher::Expected;
    use crate::matcher::tests::Asked;

    const GET: Asked = Asked("GET", None, &[]);

    fn table(paths: &[&str]) -> RouteTable<()> {
        let route =
            |path: &&str| TableRoute { path: (*path).to_owned(), matcher: None, handler: () };
        RouteTable::new(paths.iter().map(route).collect())
    }

    /// A table of paths and methods; an empty list of methods is no matcher. The handler is the
    /// number in the list.
    fn matched(routes: &[(&str, &str)]) -> RouteTable<usize> {
        let route = |(handler, (path, methods)): (usize, &(&str, &str))| {
            let methods: Vec<String> = methods.split_whitespace().map(str::to_owned).collect();
            let matcher = Matcher { methods, ..Matcher::default() };
            let matcher = Some(Box::new(matcher)).filter(|matcher| !matcher.is_empty());
            TableRoute { path: (*path).to_owned(), matcher, handler }
        };
        RouteTable::new(routes.iter().enumerate().map(route).collect())
    }

    #[test]
    fn routes_are_tried_in_their_order() {
        let routes = matched(&[
            ("/", ""),
            ("/a", ""),
            ("/a", "POST PUT"),
            ("/a", "POST GET"),
            ("/a/b", "PATCH"),
            ("/r/{x}", ""),
            ("/r/{x}", "POST"),
            ("/r/{*rest}", "POST GET"),
            ("/r/x", "PUT"),
            ("/r", "DELETE"),
        ]);
        for (method, path, tried) in [
            ("GET", "/x", &[0][..]),
            ("GET", "/a", &[2, 3]),
            ("POST", "/a/x", &[2]),
            ("PATCH", "/a", &[2, 3, 1]),
            ("GET", "/a/b", &[4, 2, 3]),
            ("PATCH", "/a/b/c", &[4]),
            ("BREW", "/a/b", &[4, 2, 3, 1]),
            ("POST", "/r/y", &[6]),
            ("GET", "/r/y", &[6, 5]),
            ("GET", "/r/x", &[8, 6, 5]),
            ("PUT", "/r/x", &[8]),
            ("GET", "/r/y/z", &[7]),
            ("DELETE", "/r/y/z", &[7, 9]),
            ("PUT", "/r/y/z", &[7, 9, 0]),
            ("PUT", "/r", &[9, 0]),
        ] {
            let facts = Asked(method, None, &[]);
            let mut found = Vec::new();
            for (route, mismatch) in routes.tried(path, &facts) {
                found.push(route.handler);
                if mismatch.is_none() {
                    break;
                }
            }
            assert_eq!(found, tried, "{method} {path}");
            let answers = routes.find_for(path, &facts).map(|route| route.handler);
            assert_eq!(answers, tried.last().copied(), "{method} {path}");
        }
        // Where no request is known, routes with matchers are passed over.
        assert_eq!(routes.find("/a/b").map(|route| route.handler), Some(1));
        assert!(matched(&[("/a", "GET")]).find("/a").is_none());
        assert!(matched(&[("/a", "PUT")]).find_for("/a", &GET).is_none());
        let route = routes.find("/a").unwrap();
        let place = routes.place_of(route).unwrap();
        assert!(std::ptr::eq(routes.at_place(place).unwrap(), route));
        assert!(routes.at_place(10).is_none());
    }

    #[test]
    fn several_matchers_at_a_path_are_in_the_order_of_the_configuration() {
        let routes = |names: &[&str]| {
            let route = |name: &&str| {
                let query = vec![((*name).to_owned(), Expected::Present)];
                let matcher = Matcher { query, ..Matcher::default() };
                let matcher = (!name.is_empty()).then(|| Box::new(matcher));
                TableRoute { path: "/".to_owned(), matcher, handler: (*name).to_owned() }
            };
            RouteTable::new(names.iter().map(route).collect())
        };
        let facts = Asked("GET", Some("a&b"), &[]);
        for (names, expected) in [
            (["", "a", "b"], "a"),
            (["b", "", "a"], "b"),
            (["c", "a", ""], "a"),
            (["c", "", "d"], ""),
        ] {
            let table = routes(&names);
            assert_eq!(table.find_for("/x", &facts).unwrap().handler, expected, "{names:?}");
        }
    }

    #[test]
    fn a_path_that_normalizes_to_a_route_that_does_not_fit_belongs_to_the_next_one() {
        let routes = matched(&[("/", ""), ("/private", "POST"), ("/{x}/y", "PUT")]);
        for (method, path, expected) in [
            ("GET", "/./private", false),
            ("POST", "/./private", true),
            ("POST", "/private/./x", false),
            ("PUT", "/a/%79", true),
            ("GET", "/a/%79", false),
        ] {
            let facts = Asked(method, None, &[]);
            let route = routes.find_for(path, &facts).unwrap();
            let elsewhere = routes.leads_elsewhere(route, path, &facts);
            assert_eq!(elsewhere, expected, "{method} {path}");
        }
        // Another extension or expression is another route as well.
        let matcher = Matcher { extensions: vec!["php".to_owned()], ..Matcher::default() };
        let route = |matcher, handler| TableRoute { path: "/".to_owned(), matcher, handler };
        let routes = RouteTable::new(vec![route(None, 0), route(Some(Box::new(matcher)), 1)]);
        let route = routes.find_for("/a.ph%70", &GET).unwrap();
        assert!(route.handler == 0 && routes.leads_elsewhere(route, "/a.ph%70", &GET));
        assert_eq!(routes.find_for("/a.php", &GET).unwrap().handler, 1);
    }

    proptest! {
        /// The order is that in which routes without matchers are found.
        #[test]
        fn the_first_candidate_is_the_route_that_is_found(
            paths in prop::collection::vec(
                prop::sample::select(vec![
                    "/", "/a", "/a/", "/a/b", "/b", "/{x}", "/a/{x}", "/a/{x}/c", "/a/{x}/{y}", "/a/{*rest}",
                    "/{x}/b", "/{x}/b/{y}", "/a/{x}.c", "/a/b{x}", "/a/b/{*rest}", "/b/{*rest}", "/abc",
                ]),
                1..8,
            ),
            asked in "/[abc.]{0,2}(/[abc.]{0,3}){0,3}",
        ) {
            let mut known = std::collections::BTreeSet::new();
            let mut patterns = matchit::Router::new();
            let paths: Vec<&str> = paths.into_iter().filter(|path| {
                known.insert(*path) && (!has_parameters(path) || patterns.insert(*path, ()).is_ok())
            }).collect();
            let routes = table(&paths);
            let found = routes.find(&asked).map(|route| &route.path);
            let first = routes.candidates(&asked).next().map(|route| &route.path);
            prop_assert_eq!(found, first, "{:?}", paths);
        }
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
            assert_eq!(routes.leads_elsewhere(route, path, &GET), expected, "{path}");
        }
    }
}
