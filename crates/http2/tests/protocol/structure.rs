//! The files of the crate: their sizes, their imports, and the table of the essay.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The most lines of a file, which is one concept.
const LONGEST: usize = 399;

/// The most files that may import each other in a circle. Lower it when a circle is cut.
const LARGEST_CIRCLE: usize = 2;

/// The text of each file, by its path without the end.
fn files() -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = BTreeMap::new();
    for folder in ["", "hpack"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|end| end == "rs") {
                let name = path.strip_prefix(&root).unwrap().with_extension("");
                let text = std::fs::read_to_string(&path).unwrap();
                found.insert(name.to_str().unwrap().to_owned(), text);
            }
        }
    }
    found
}

/// The files that a file imports by name. An item of `hpack` is one of the file that defines it.
fn imports(name: &str, text: &str, files: &BTreeMap<String, String>) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]").next().unwrap();
    let code: String = code.lines().filter(|line| !line.trim().starts_with("//")).collect();
    let mut found = BTreeSet::new();
    for path in code.split("crate::").skip(1) {
        let is_of_name = |one: char| one.is_alphanumeric() || one == '_';
        let module = path.split(|one| !is_of_name(one)).next().unwrap();
        let rest = &path[module.len()..path.find(';').unwrap_or(path.len()).max(module.len())];
        if module != "hpack" {
            found.extend(files.contains_key(module).then(|| module.to_owned()));
            continue;
        }
        for (file, text) in files.iter().filter(|(file, _)| file.starts_with("hpack/")) {
            let defines = |item: &str| {
                ["fn ", "struct ", "enum "].iter().any(|kind| {
                    let item = format!("{kind}{item}");
                    text.match_indices(&item)
                        .any(|(at, _)| !text[at + item.len()..].starts_with(is_of_name))
                })
            };
            let mut items = rest.split(|one| !is_of_name(one)).filter(|item| !item.is_empty());
            found.extend(items.any(defines).then(|| file.clone()));
        }
    }
    for (_, path) in code.match_indices("super::").map(|(at, _)| (at, &code[at + 7..])) {
        let module = path.split([':', ';', ',']).next().unwrap();
        let file = format!("hpack/{module}");
        found.extend((name.starts_with("hpack/") && files.contains_key(&file)).then_some(file));
    }
    found.remove(name);
    found
}

#[test]
fn no_file_is_too_long() {
    let files = files();
    assert!(files.len() > 20, "only {} files were found", files.len());
    for (name, text) in files {
        let lines = text.lines().count();
        assert!(lines <= LONGEST, "{name}.rs has {lines} lines");
    }
}

#[test]
fn no_circle_of_imports_is_larger_than_the_limit() {
    let files = files();
    let edges: BTreeMap<&str, BTreeSet<String>> =
        files.iter().map(|(name, text)| (&**name, imports(name, text, &files))).collect();
    assert!(edges["incoming"].contains("connection") && edges["event"].contains("hpack/decode"));
    assert!(edges["hpack/decode"].contains("hpack/table"));
    let reached = |from: &str| {
        let (mut reached, mut left) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(file) = left.pop() {
            for next in &edges[&*file] {
                if reached.insert(next.clone()) {
                    left.push(next.clone());
                }
            }
        }
        reached
    };
    for name in files.keys() {
        let circle: Vec<String> =
            reached(name).into_iter().filter(|other| reached(other).contains(name)).collect();
        assert!(circle.len() <= LARGEST_CIRCLE, "{circle:?} import each other in a circle");
    }
}

#[test]
fn the_essay_names_each_module() {
    let files = files();
    for name in files.keys().filter(|name| *name != "lib" && !name.contains('/')) {
        assert!(files["lib"].contains(&format!("`{name}`")), "{name} is not in the table");
    }
}
