//! The levels of blocks around a location, which inherits their directives.

use std::cell::Cell;
use std::rc::Rc;

use super::super::directive::Directive;

/// The most looks at directives of one import. Each location looks at those of all levels above, so
/// a file could make them the product of two large numbers.
const MOST_LOOKS: usize = 5_000_000;

/// The blocks around a place, the outermost first.
#[derive(Clone, Debug)]
pub(super) struct Scope<'a> {
    levels: Vec<&'a [Directive]>,
    looks_left: Rc<Cell<usize>>,
}

impl<'a> Scope<'a> {
    pub(super) fn new(level: &'a [Directive]) -> Scope<'a> {
        Scope { levels: vec![level], looks_left: Rc::new(Cell::new(MOST_LOOKS)) }
    }

    /// Returns the scope of a block in this one.
    pub(super) fn below(&self, level: &'a [Directive]) -> Scope<'a> {
        let mut scope = self.clone();
        scope.levels.push(level);
        scope
    }

    /// Whether the import has looked at too much.
    pub(super) fn is_exhausted(&self) -> bool {
        self.looks_left.get() == 0
    }

    fn of_level(&self, level: &'a [Directive], names: &[&str]) -> Vec<&'a Directive> {
        self.looks_left.set(self.looks_left.get().saturating_sub(level.len()));
        match self.is_exhausted() {
            true => Vec::new(),
            false => level.iter().filter(|one| names.contains(&&*one.name)).collect(),
        }
    }

    /// Returns the directives of the innermost block alone.
    pub(super) fn own(&self, name: &str) -> Vec<&'a Directive> {
        self.levels.last().map_or_else(Vec::new, |level| self.of_level(level, &[name]))
    }

    /// Returns the first directive of the innermost block.
    pub(super) fn own_first(&self, name: &str) -> Option<&'a Directive> {
        self.own(name).first().copied()
    }

    /// Returns the directives of these names in the innermost block that has one, as nginx inherits
    /// them.
    pub(super) fn all(&self, names: &[&str]) -> Vec<&'a Directive> {
        let mut levels = self.levels.iter().rev().map(|level| self.of_level(level, names));
        levels.find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// Returns the directive of a name that counts.
    pub(super) fn last(&self, name: &str) -> Option<&'a Directive> {
        self.all(&[name]).last().copied()
    }

    /// Whether a directive counts and is `on`.
    pub(super) fn is_on(&self, name: &str) -> Option<&'a Directive> {
        self.last(name).filter(|directive| directive.first() == "on")
    }
}
