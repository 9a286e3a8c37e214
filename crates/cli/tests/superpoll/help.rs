//! The list of commands, and the commands that are elsewhere now.

use crate::superpoll;

#[test]
fn the_help_lists_serve_first_and_no_laboratory() {
    let output = superpoll().arg("--help").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, list) = text.split_once("Commands:\n").expect(&text);
    let names: Vec<&str> = list
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(
        names,
        [
            "serve",
            "proxy",
            "keep",
            "init",
            "import",
            "explain",
            "reload",
            "reopen-logs",
            "upgrade",
            "drain",
            "status",
            "upstream",
            "channels",
            "connections",
            "top",
            "watch",
            "doctor",
            "help"
        ],
        "{text}"
    );
}

#[test]
fn the_keeper_has_the_name_by_which_it_is_known() {
    for name in ["keep", "sit"] {
        let output = superpoll().args([name, "--help"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("--patience"), "{name}: {text}");
    }
}

#[test]
fn experiments_are_refused_with_the_name_of_their_command() {
    for arguments in [&["lab"][..], &["lab", "--help"], &["lab", "atr", "--total", "9", "--quick"]]
    {
        let output = superpoll().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?} printed results");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
        let command = format!(": superpoll-lab{};", &arguments.join(" ")["lab".len()..]);
        assert!(errors.contains(&command) && errors.contains("cargo build"), "{errors}");
    }
}
