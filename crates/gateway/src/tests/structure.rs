//! The imports between the files of each crate of the server, and the circles among them.
//!
//! A file in a circle cannot be understood, tested or moved without all others in it. An import
//! counts for the file that defines the item, wherever the item is re-exported. So a `mod.rs` that
//! only passes names on is in no circle.
//!
//! This is no compiler: it reads names and paths, and knows no types. A call of a method imports
//! nothing. Neither do tests, and parts that are compiled for fuzzing alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The most files that may be in one circle. Lower it when a circle is cut.
const LARGEST_CIRCLE: usize = 5;

/// How many re-exports are followed from one name.
const MOST_HOPS: usize = 8;

/// A module, by its path from the root of the crate.
type Module = Vec<String>;

/// A name that a `use` brings into a module; `*` for all names.
struct Import {
    name: String,
    path: Vec<String>,
    is_public: bool,
}

/// The names in a file.
#[derive(Default)]
struct File {
    modules: BTreeSet<String>,
    items: BTreeSet<String>,
    imports: Vec<Import>,
    /// The paths outside of `use`, of one name or more.
    paths: BTreeSet<Vec<String>>,
}

/// The files of a crate, by their modules.
#[derive(Default)]
struct Sources(BTreeMap<Module, File>);

/// Splits a text into names, `::` and single characters, without comments. A literal is a `"`.
fn tokens(text: &str) -> Vec<&str> {
    let is_of_name = |one: char| one.is_alphanumeric() || one == '_';
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (token, length) = if rest.starts_with("//") {
            ("", rest.find('\n').unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            ("", rest.find("*/").map_or(rest.len(), |end| end + 2))
        } else if let Some(length) = literal(rest) {
            ("\"", length)
        } else if is_of_name(first) {
            let length = rest.find(|one| !is_of_name(one)).unwrap_or(rest.len());
            (&rest[..length], length)
        } else {
            let length = if rest.starts_with("::") { 2 } else { first.len_utf8() };
            (rest[..length].trim(), length)
        };
        tokens.extend(Some(token).filter(|token| !token.is_empty()));
        rest = &rest[length..];
    }
    tokens
}

/// Returns the length of the literal that a text begins with, if it begins with a literal of text
/// or of a character.
fn literal(text: &str) -> Option<usize> {
    let begins = |prefix: &&str| text[prefix.len()..].starts_with(['"', '#']);
    let raw = ["r", "br", "cr"].into_iter().find(|prefix| text.starts_with(prefix));
    if let Some(prefix) = raw.filter(begins) {
        let inner = text[prefix.len()..].trim_start_matches('#');
        let hashes = &text[prefix.len()..text.len() - inner.len()];
        let inner = inner.strip_prefix('"')?;
        let end = format!("\"{hashes}");
        return Some(text.len() - inner.len() + inner.find(&end)? + end.len());
    }
    let inner = text.strip_prefix(['b', 'c']).unwrap_or(text);
    let quote = inner.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let mut escapes = false;
    let end = inner.char_indices().skip(1).find(|(_, one)| {
        let is_end = *one == quote && !escapes;
        escapes = *one == '\\' && !escapes;
        is_end
    });
    let end = end?.0 + 1;
    // A lifetime has no quote after its first character.
    let is_lifetime =
        quote == '\'' && !inner.starts_with("'\\") && inner[1..end].chars().count() != 2;
    (!is_lifetime).then_some(text.len() - inner.len() + end)
}

/// Returns the place of the bracket that closes the one at a place.
fn closing(tokens: &[&str], open: usize) -> usize {
    let mut depth = 0;
    let end = tokens.iter().skip(open).position(|token| {
        match *token {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    end.map_or(tokens.len(), |length| open + length)
}

/// Takes the items out that are compiled for tests or for fuzzing alone.
fn without_tests<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if !tokens[at..].starts_with(&["#", "["]) {
            kept.push(tokens[at]);
            at += 1;
            continue;
        }
        let end = closing(tokens, at + 1);
        let words = &tokens[at + 2..end];
        at = end + 1;
        let is_for_tests = words.contains(&"test") || words.contains(&"fuzzing");
        if words.first() != Some(&"cfg") || words.contains(&"not") || !is_for_tests {
            continue;
        }
        while at < tokens.len() && !matches!(tokens[at], ";" | "," | "{") {
            at = if matches!(tokens[at], "(" | "[") { closing(tokens, at) } else { at } + 1;
        }
        at = if tokens.get(at) == Some(&"{") { closing(tokens, at) } else { at } + 1;
    }
    kept
}

/// Reads the tree of a `use` below a path.
fn read_use(tokens: &[&str], above: &[String], is_public: bool, imports: &mut Vec<Import>) {
    let mut path = above.to_vec();
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "::" => {}
            "{" => {
                let mut inner = &tokens[at + 1..closing(tokens, at)];
                while !inner.is_empty() {
                    let mut end = 0;
                    while end < inner.len() && inner[end] != "," {
                        end = if inner[end] == "{" { closing(inner, end) } else { end } + 1;
                    }
                    read_use(&inner[..end], &path, is_public, imports);
                    inner = inner.get(end + 1..).unwrap_or_default();
                }
                return;
            }
            "as" => {
                let name = tokens[at + 1].to_owned();
                return imports.push(Import { name, path, is_public });
            }
            "self" if !path.is_empty() => {}
            name => path.push(name.to_owned()),
        }
    }
    if let Some(name) = path.last().cloned() {
        imports.push(Import { name, path, is_public });
    }
}

impl File {
    fn read(text: &str) -> File {
        let tokens = without_tests(&tokens(text));
        let token = |at: usize| tokens.get(at).copied().unwrap_or_default();
        let is_name = |at| token(at).starts_with(|one: char| one.is_alphabetic() || one == '_');
        let mut file = File::default();
        let (mut at, mut depth) = (0, 0);
        while at < tokens.len() {
            match tokens[at] {
                "{" => depth += 1,
                "}" => depth -= 1,
                "use" => {
                    let end = at + tokens[at..].iter().position(|one| *one == ";").unwrap_or(0);
                    let before = at.checked_sub(1).map_or("", token);
                    let is_public = depth == 0 && matches!(before, "pub" | ")");
                    read_use(&tokens[at + 1..end], &[], is_public, &mut file.imports);
                    at = end;
                }
                "mod" if token(at + 2) == ";" => {
                    file.modules.insert(token(at + 1).to_owned());
                    at += 1;
                }
                "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static"
                    if depth == 0 =>
                {
                    file.items.insert(token(at + 1).to_owned());
                }
                "macro_rules" => drop(file.items.insert(token(at + 2).to_owned())),
                _ if is_name(at) => {
                    let mut path = vec![tokens[at].to_owned()];
                    while token(at + 1) == "::" && is_name(at + 2) {
                        path.push(tokens[at + 2].to_owned());
                        at += 2;
                    }
                    file.paths.insert(path);
                }
                _ => {}
            }
            at += 1;
        }
        file
    }

    /// Returns the paths that this file takes something by. A name that the file re-exports, or may
    /// have by `*`, is taken only if its own code uses it, too.
    fn taken(&self) -> impl Iterator<Item = &Vec<String>> {
        let may_bring = |name: &String| {
            let brings = |one: &Import| one.name == "*" || (one.is_public && one.name == *name);
            self.imports.iter().any(brings)
        };
        let imports = self.imports.iter().filter(|import| !import.is_public);
        let is_taken = move |path: &&Vec<String>| path.len() > 1 || may_bring(&path[0]);
        imports.map(|import| &import.path).chain(self.paths.iter().filter(is_taken))
    }
}

impl Sources {
    /// Reads a crate by its modules, whose texts a function returns.
    fn read(text: impl Fn(&[String]) -> String) -> Sources {
        let mut sources = Sources::default();
        let mut left = vec![Module::new()];
        while let Some(module) = left.pop() {
            let file = File::read(&text(&module));
            left.extend(file.modules.iter().map(|name| child(&module, name)));
            sources.0.insert(module, file);
        }
        sources
    }

    /// Returns the module that defines what a path in a module stands for; `None` if that is a
    /// module itself, or of another crate.
    fn defining(&self, module: &[String], path: &[String], hops: usize) -> Option<Module> {
        let (first, below) = path.split_first()?;
        match &**first {
            "crate" => return self.defining(&[], below, hops),
            "self" => return self.defining(module, below, hops),
            "super" => return self.defining(module.split_last()?.1, below, hops),
            _ => {}
        }
        let file = self.0.get(module)?;
        if file.items.contains(first) {
            return Some(module.to_vec());
        }
        if file.modules.contains(first) {
            return self.defining(&child(module, first), below, hops);
        }
        let hops = hops.checked_sub(1)?;
        file.imports.iter().find_map(|import| match &*import.name {
            // A path that begins with its own name is one of another crate, as `time::time`.
            name if name == first && import.path[0] != *first => {
                self.defining(module, &[&import.path, below].concat(), hops)
            }
            "*" if import.path[0] != *first => {
                let above = &import.path[..import.path.len() - 1];
                self.defining(module, &[above, path].concat(), hops)
            }
            _ => None,
        })
    }

    /// Returns the circles of more than one file, each in words, the largest first.
    fn circles(&self) -> Vec<Vec<String>> {
        let modules: Vec<&Module> = self.0.keys().collect();
        let imports: Vec<BTreeSet<usize>> = (self.0.iter())
            .map(|(module, file)| {
                let found = file.taken().filter_map(|path| self.defining(module, path, MOST_HOPS));
                found.filter_map(|found| modules.binary_search(&&found).ok()).collect()
            })
            .collect();
        let reached: Vec<Vec<bool>> = (0..modules.len())
            .map(|from| {
                let (mut reached, mut left) = (vec![false; modules.len()], vec![from]);
                while let Some(module) = left.pop() {
                    for &next in &imports[module] {
                        if !std::mem::replace(&mut reached[next], true) {
                            left.push(next);
                        }
                    }
                }
                reached
            })
            .collect();
        let mut circles: Vec<Vec<String>> = Vec::new();
        for (one, reaches) in reached.iter().enumerate() {
            let is_with = |other: &usize| reaches[*other] && reached[*other][one];
            let circle: Vec<usize> = (0..modules.len()).filter(is_with).collect();
            // Each circle is listed at its first file.
            if circle.len() > 1 && circle[0] == one {
                circles.push(circle.into_iter().map(|one| modules[one].join("::")).collect());
            }
        }
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }
}

fn child(module: &[String], name: &str) -> Module {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

/// The crates of the server, each with a number of files that it has at least.
const CRATES: [(&str, usize); 3] = [("http", 150), ("hub", 70), ("gateway", 85)];

/// Returns the file of a module of a crate of the server.
fn path_of(name: &str, module: &[String]) -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let root = crates.join(name).join("src");
    if module.is_empty() {
        return root.join("lib.rs");
    }
    let folder = root.join(module.join("/"));
    let beside = folder.with_extension("rs");
    if beside.exists() { beside } else { folder.join("mod.rs") }
}

#[test]
fn no_circle_of_imports_is_larger_than_the_limit() {
    for (name, files) in CRATES {
        let sources = Sources::read(|module| {
            let path = path_of(name, module);
            std::fs::read_to_string(&path)
                .unwrap_or_else(|error| panic!("reading {}: {error}", path.display()))
        });
        assert!(sources.0.len() >= files, "only {} files were found of {name}", sources.0.len());
        let circles = sources.circles();
        let largest = circles.first().map_or(0, Vec::len);
        assert!(
            largest <= LARGEST_CIRCLE,
            "{largest} files of {name} import each other in a circle, at most {LARGEST_CIRCLE} may: \
             {}\nmove what two of them share to a file below both",
            circles[0].join(", ")
        );
    }
}

/// The circles of a crate whose files are these.
fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    Sources::read(|module| {
        let name = module.join("::");
        let file = files.iter().find(|(known, _)| *known == name);
        file.unwrap_or_else(|| panic!("no module {name}")).1.to_owned()
    })
    .circles()
}

#[test]
fn a_circle_is_found_in_each_form_of_import() {
    let root = ("", "mod a;\nmod b;\npub(crate) mod c;\n");
    let b = ("b", "use crate::c::{self, deep::{Deep as Other, More}};\npub struct B;\n");
    let c = ("c", "pub mod deep;\npub use deep::{Deep, More};\npub(crate) use crate::a::A;\n");
    for a in [
        "use super::b::B;\npub struct A;\n",
        "use crate::{b, c};\npub(crate) fn make() -> b::B {}\npub enum A {}\n",
        "use crate::b::*;\npub struct A(B);\n",
        "pub(super) struct A<'a>(&'a crate::b::B, &'static str);\n",
        "pub(crate) use crate::b::B;\npub type A = Option<B>;\n",
        "const NOT_A_COMMENT: &str = \"// \\\" /*\";\nconst C: char = '\"';\nuse super::b::B;\npub struct A;\n",
    ] {
        for deep in [
            "pub struct Deep(crate::c::A);\npub struct More;\n",
            "use super::A;\n\
             pub struct Deep;\nmacro_rules! More { () => {} }\n",
        ] {
            let found = circles_of(&[root, ("a", a), b, c, ("c::deep", deep)]);
            assert_eq!(found, [["a", "b", "c::deep"]], "{a}{deep}");
        }
    }
}

#[test]
fn names_that_are_passed_on_and_tests_make_no_circle() {
    let root = ("", "mod a;\nmod b;\nuse time::time;\n");
    let b = ("b", "use crate::a::A;\npub struct B;\n");
    for a in [
        "pub use crate::b::B;\npub struct A;\n",
        "pub struct A;\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\nuse crate::b::B;\n",
        "pub struct A;\n#[cfg(any(test, fuzzing))]\nfn f<T>(b: [T; 3]) { crate::b::B; }\n",
        "// use crate::b::B;\npub struct A; /* crate::b::B */\nconst S: &str = \"crate::b::B\";\n",
        "pub struct A;\nconst S: &str = r#\"\" crate::b::B\"#;\nconst B: u8 = b'\\'';\n",
    ] {
        assert_eq!(circles_of(&[root, ("a", a), b]), [[""; 0]; 0], "{a}");
    }
}
