//! Configurations of several files.

use std::path::Path;

use tempfile::TempDir;

use crate::{Config, ConfigError, Draft, Mistake};

/// Reads a file, and looks at nothing that it names.
fn read(path: impl AsRef<Path>) -> Result<Config, ConfigError> {
    Draft::read(path)?.finish()
}

/// A folder with some files, of which the first is the main one.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

/// The mistakes in the files, with the places relative to their folder.
fn mistakes(files: &[(&str, &str)]) -> Vec<String> {
    let folder = folder(files);
    let relative = |mistake: Mistake| {
        let text = mistake.to_string();
        text.replace(&format!("{}/", folder.path().display()), "")
    };
    match read(folder.path().join(files[0].0)) {
        Ok(config) => panic!("{config:?}"),
        Err(ConfigError::Wrong { mistakes }) => mistakes.into_iter().map(relative).collect(),
        Err(error) => panic!("{error}"),
    }
}

const MAIN: &str = "include = [\"sites/*.toml\", \"more\"]\n[server]\nworkers = 2\n\
                    [[listeners]]\naddress = \"127.0.0.1:1\"\n[upstreams.a]\nservers = [{ address = \":2\" }]\n";

#[test]
fn unreadable_files_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    let error = read(&path).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot read the configuration /") && error.contains("No such file"),
        "{error}"
    );
    std::fs::write(&path, b"a\xff").unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(error.ends_with("byte 1 is not UTF-8"), "{error}");
}

#[test]
fn lists_follow_one_another_and_upstreams_are_joined() {
    let folder = folder(&[
        ("main.toml", MAIN),
        (
            "sites/b.toml",
            "[[hosts]]\nnames = [\"b\"]\nroutes = [{ proxy = { upstream = \"b\" } }]\n",
        ),
        ("sites/a.toml", "[[hosts]]\nnames = [\"a\"]\nroutes = [{ files = { root = \"www\" } }]\n"),
        ("sites/.hidden.toml", "nonsense"),
        ("sites/a.toml~", "nonsense"),
        (
            "more",
            "[[listeners]]\naddress = \"127.0.0.1:3\"\n[upstreams.b]\nservers = [{ address = \":4\" }]\n\
                  [limits]\nconnections = 7\n",
        ),
        ("www/index.html", ""),
    ]);
    let path = folder.path().join("main.toml");
    let config = read(&path).unwrap_or_else(|error| panic!("{error}"));
    let names: Vec<_> = config.hosts.iter().map(|host| &*host.names[0]).collect();
    assert_eq!(names, ["a", "b"]);
    let listeners: Vec<_> = config.listeners.iter().map(|one| one.address.to_string()).collect();
    assert_eq!(listeners, ["127.0.0.1:1", "127.0.0.1:3"]);
    assert_eq!(config.upstreams.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(config.limits.connections.unwrap().get(), 7);
    // A supervisor hands the text on; the files may have changed since.
    let text = Config::read_text(&path).unwrap();
    std::fs::remove_file(folder.path().join("more")).unwrap();
    std::fs::write(folder.path().join("sites/a.toml"), "nonsense").unwrap();
    let again = Draft::parse_file(&path, &text).finish().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again, config);
}

#[test]
fn a_mistake_has_its_file_line_and_column() {
    let found = mistakes(&[
        ("main.toml", &format!("{MAIN}[timeouts]\nidle = 1\n")),
        ("sites/a.toml", "\n[[hosts]]\nname = [\"a\"]\n"),
        ("more", "[limits]\nconnections = \"many\"\n"),
    ]);
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(found[0].starts_with("main.toml:9:8: "), "{found:#?}");
    assert!(
        found[1].starts_with("sites/a.toml:3:1: unknown key `name`, did you mean `names`"),
        "{found:#?}"
    );
    assert!(found[2].starts_with("more:2:15: invalid type: string \"many\""), "{found:#?}");
    // Mistakes of the language itself.
    let found = mistakes(&[("main.toml", MAIN), ("more", "a = \nb = 2"), ("sites/a.toml", "[c")]);
    assert!(found[0].starts_with("sites/a.toml:1:"), "{found:#?}");
    assert!(found.iter().any(|one| one.starts_with("more:1:")), "{found:#?}");
    // Rules that types cannot express.
    let host = "[[hosts]]\nroutes = [{ proxy = { upstream = \"c\" } }]\n";
    let found = mistakes(&[("main.toml", MAIN), ("more", ""), ("sites/a.toml", host)]);
    assert!(found.iter().any(|one| one.starts_with("sites/a.toml:2:34: ")), "{found:#?}");
}

#[test]
fn what_can_be_in_one_file_only_is_in_one() {
    let host = "[[hosts]]\nroutes = [{ channel = {} }]\n";
    for (more, expected) in [
        (
            "[server]\nworkers = 1",
            "more:1:2: another file has `server`, too, expected it in one of them",
        ),
        (
            "[upstreams.a]\nservers = [{ address = \":2\" }]",
            "more:1:12: another file has the upstream \"a\", too",
        ),
        ("include = []", "more:1:1: an included file includes no others"),
        (
            "listeners = 3",
            "more:1:1: another file has `listeners`, too, expected it in one of them",
        ),
    ] {
        let found = mistakes(&[("main.toml", MAIN), ("more", more), ("sites/a.toml", host)]);
        assert_eq!(found, [expected]);
    }
}

#[test]
fn files_that_cannot_be_read_and_patterns_without_sense_are_mistakes() {
    let rest =
        "\n[[listeners]]\naddress = \"127.0.0.1:1\"\n[[hosts]]\nroutes = [{ channel = {} }]\n";
    let expected = "expected a file, or all files as in \"sites/*.toml\"";
    for (include, what) in [
        ("[\"none\"]", "main.toml:1:11: cannot include none: No such file"),
        (
            "[\"none/*\"]",
            "main.toml:1:11: cannot include none/*: cannot read the folder none: No such file",
        ),
        (
            "[\"*/a\"]",
            &*format!("main.toml:1:11: cannot include */a: \"*/a\" names no files, {expected}"),
        ),
        (
            "[\"a*b*\"]",
            &*format!("main.toml:1:11: cannot include a*b*: \"a*b*\" names no files, {expected}"),
        ),
        ("[\"\"]", &*format!("main.toml:1:11: cannot include : \"\" names no files, {expected}")),
        ("[\"nul\"]", "main.toml:1:11: cannot include nul: it has a NUL"),
        (
            "[\"${SUPERPOLL_NONE}\"]",
            "main.toml:1:12: the environment variable SUPERPOLL_NONE is not set",
        ),
        ("\"nul\"", "main.toml:1:11: invalid type: string \"nul\", expected a sequence"),
        ("[3]", "main.toml:1:12: invalid type: integer `3`, expected a string"),
    ] {
        let text = format!("include = {include}{rest}");
        let found = mistakes(&[("main.toml", &text), ("nul", "a = 1\0name\0text\0b = 2")]);
        assert_eq!(found.len(), 1, "{include}: {found:#?}");
        assert!(found[0].starts_with(what), "{include}: {found:#?}");
    }
    // A folder may have no file that fits.
    let files = folder(&[
        ("main.toml", &format!("include = [\"*.conf\", \"${{SUPERPOLL_NONE:-more}}\"]{rest}")),
        ("more", ""),
    ]);
    assert!(read(files.path().join("main.toml")).is_ok());
    let main = folder(&[("main.toml", "a = 1\0name\0text\0")]);
    let error = read(main.path().join("main.toml")).unwrap_err();
    assert!(matches!(error, ConfigError::Unreadable { .. }), "{error}");
    // No text is dropped that was not made of files.
    assert!(Config::parse("x", "a = 1\0b").unwrap_err().to_string().starts_with("x:1:"));
    let error = Config::parse("x", "include = [\"a\"]").unwrap_err().to_string();
    assert_eq!(error, "x:1:12: only a file can include others");
}
