//! The paths of routes, which may have parameters: `{name}` stands for one component of a path, and
//! `{*name}` at its end for one or more.

/// Returns the length of the part of a route's path before its first parameter.
#[must_use]
pub fn literal_length(path: &str) -> usize {
    path.find('{').unwrap_or(path.len())
}

/// Whether a route's path has parameters.
#[must_use]
pub fn has_parameters(path: &str) -> bool {
    path.contains('{')
}
