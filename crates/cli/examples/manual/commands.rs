//! A manual page for each command.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// Entries of a section: a term and its explanation.
type Entries = &'static [(&'static str, &'static str)];

/// The sections that follow the options, by the command that they belong to.
const SECTIONS: &[(&str, &str, Entries)] = &[
    (
        "superpoll-serve",
        "SIGNALS",
        &[
            (
                "SIGTERM, SIGINT",
                "Drain: no new connections are accepted, requests under way end in their own time (drain in \
             [timeouts]), then the server ends. A second signal ends it at once.",
            ),
            (
                "SIGHUP",
                "Read the configuration and open the logs again, without closing a connection. With a mistake \
             nothing else changes, and the log names it.",
            ),
            (
                "SIGUSR1",
                "Open the files of the logs again, which were moved away. The configuration is not read.",
            ),
            (
                "SIGUSR2",
                "Upgrade: the program on disk, which may be another version, takes over listeners, channels and \
             idle connections. It needs a keeper, or several processes.",
            ),
        ],
    ),
    (
        "superpoll-serve",
        "ENVIRONMENT",
        &[
            ("SUPERPOLL_BACKEND", "The back-end, unless an option or the configuration names one."),
            ("SUPERPOLL_POLICY", "The placement policy, unless the configuration names one."),
            (
                "STATE_DIRECTORY",
                "The folder for keys and certificates, unless the configuration names one.",
            ),
            (
                "LISTEN_FDS",
                "The number of sockets that a service manager passes on, see sd_listen_fds(3).",
            ),
            (
                "NOTIFY_SOCKET",
                "The socket of a service manager that is told about the state, see sd_notify(3).",
            ),
        ],
    ),
    (
        "superpoll-serve",
        "FILES",
        &[
            (
                "/etc/superpoll/superpoll.toml",
                "The configuration of the service that packages install.",
            ),
            (
                "/run/superpoll/stats",
                "The statistics socket of that service, for superpoll-top(1).",
            ),
            ("/run/superpoll-keeper/socket", "The socket of that service's keeper."),
            ("/var/lib/superpoll", "Keys and certificates of that service."),
            (
                "/var/log/superpoll",
                "The access log of that service. Its events are in the journal.",
            ),
        ],
    ),
    (
        "superpoll-import",
        "RESULT",
        &[
            (
                "0",
                "All directives are imported, or have nothing to set here. Comments name the latter.",
            ),
            (
                "3",
                "A configuration is written, and some directives are not imported: comments with NOT \
             IMPORTED name them, with their places.",
            ),
        ],
    ),
    (
        "superpoll-keep",
        "SIGNALS",
        &[
            ("SIGTERM, SIGINT", "End, and close the connections that are held."),
            ("SIGHUP, SIGUSR1, SIGUSR2", "Change nothing: they are meant for servers."),
        ],
    ),
    (
        "superpoll-proxy",
        "SIGNALS",
        &[(
            "SIGTERM, SIGINT",
            "Drain: no new connections are accepted, and those under way have the time of --drain.",
        )],
    ),
    (
        "superpoll-proxy",
        "ENVIRONMENT",
        &[
            ("SUPERPOLL_BACKEND", "The back-end, unless --backend names one."),
            ("SUPERPOLL_POLICY", "The placement policy."),
            (
                "LISTEN_FDS",
                "The number of sockets that a service manager passes on, see sd_listen_fds(3).",
            ),
        ],
    ),
];

/// The exit statuses of every command.
const EXIT: Entries = &[
    ("0", "The command has done its work, or was told to end."),
    ("1", "It failed; a line on standard error has the reason."),
    ("2", "The command line cannot be parsed."),
];

/// Returns the command without hidden subcommands and options, as users see it. Its names are
/// leaked, as clap has names for the life of the program unless one more of its features is on.
pub(crate) fn visible(command: Command) -> Command {
    let mut shown = Command::new(leaked(command.get_name()))
        .disable_help_flag(command.is_disable_help_flag_set())
        .disable_help_subcommand(true)
        .subcommand_required(command.is_subcommand_required_set())
        .visible_aliases(command.get_visible_aliases().map(leaked).collect::<Vec<_>>());
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(about) = command.get_long_about() {
        shown = shown.long_about(about.clone());
    }
    if let Some(version) = command.get_version() {
        shown = shown.version(leaked(version));
    }
    shown = shown.args(command.get_arguments().filter(|argument| !argument.is_hide_set()));
    let subcommands: Vec<Command> = command
        .get_subcommands()
        .filter(|subcommand| !subcommand.is_hide_set())
        .map(|subcommand| visible(subcommand.clone()))
        .collect();
    shown.subcommands(subcommands)
}

fn leaked(name: &str) -> &'static str {
    name.to_owned().leak()
}

/// Returns the names and texts of the pages: that of the program, and one for each of its commands.
pub(crate) fn pages(command: Command) -> Vec<(String, String)> {
    let mut program = visible(command);
    program.build();
    let version = program.render_version().trim().to_owned();
    let commands: Vec<String> =
        program.get_subcommands().map(|command| page_name(command.get_name())).collect();
    let mut pages = Vec::new();
    for subcommand in program.get_subcommands() {
        let name = page_name(subcommand.get_name());
        let others = commands.iter().filter(|other| **other != name);
        let see: Vec<&str> =
            std::iter::once("superpoll").chain(others.map(String::as_str)).collect();
        pages.push((name.clone(), page(subcommand.clone().display_name(&name), &version, &see)));
    }
    let see: Vec<&str> = commands.iter().map(String::as_str).collect();
    pages.insert(0, ("superpoll".to_owned(), page(program, &version, &see)));
    pages
}

fn page_name(subcommand: &str) -> String {
    format!("superpoll-{subcommand}")
}

fn page(command: Command, version: &str, see: &[&str]) -> String {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let has_commands = command.has_subcommands();
    let man = Man::new(command).title(&name).source(version).manual("Superpoll");
    let mut text = Vec::new();
    let mut render = || {
        man.render_title(&mut text)?;
        man.render_name_section(&mut text)?;
        man.render_synopsis_section(&mut text)?;
        man.render_description_section(&mut text)?;
        man.render_options_section(&mut text)?;
        if has_commands {
            man.render_subcommands_section(&mut text)?;
        }
        for (_, title, entries) in SECTIONS.iter().filter(|section| section.0 == name) {
            section(title, entries).to_writer(&mut text)?;
        }
        section("EXIT STATUS", EXIT).to_writer(&mut text)?;
        see_also(see).to_writer(&mut text)
    };
    render().expect("memory can be written to");
    String::from_utf8(text).expect("the parts are text")
}

fn section(title: &str, entries: Entries) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    for (term, explanation) in entries {
        roff.control("TP", []).text([bold(*term)]).text([roman(*explanation)]);
    }
    roff
}

fn see_also(pages: &[&str]) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    let mut words = Vec::new();
    for page in pages {
        words.extend([bold(*page), roman("(1), ")]);
    }
    words.extend([bold("superpoll.toml"), roman("(5)")]);
    roff.text(words);
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text of a page without the marks of roff.
    fn plain(page: &str) -> String {
        page.replace("\\fB", "").replace("\\fI", "").replace("\\fR", "").replace("\\-", "-")
    }

    #[test]
    fn each_command_has_a_page_with_its_options() {
        let pages = pages(superpoll_cli::command());
        let page_of =
            |name: &str| pages.iter().find(|page| page.0 == name).map(|page| plain(&page.1));
        let mut options = 0;
        for command in superpoll_cli::command().get_subcommands() {
            let page = page_of(&page_name(command.get_name()));
            assert_eq!(page.is_some(), !command.is_hide_set(), "{}", command.get_name());
            let Some(page) = page else { continue };
            for option in command.get_arguments().filter_map(|argument| {
                Some((format!("--{}", argument.get_long()?), argument.is_hide_set()))
            }) {
                let is_there = page.lines().any(|line| {
                    line.split([' ', ',', '='])
                        .any(|word| word == option.0 || word == format!("[{}]", option.0))
                });
                assert_eq!(is_there, !option.1, "{} of {}: {page}", option.0, command.get_name());
                options += 1;
            }
        }
        assert!(options > 20, "{options} options");
        let program = page_of("superpoll").unwrap();
        assert!(program.contains("superpoll-serve(1)"), "{program}");
    }

    #[test]
    fn sections_belong_to_commands_that_exist() {
        let pages = pages(superpoll_cli::command());
        for (name, title, entries) in SECTIONS {
            let page = pages.iter().find(|page| page.0 == *name).expect(name);
            assert!(
                page.1.contains(&format!(".SH {title}"))
                    || page.1.contains(&format!(".SH \"{title}\""))
            );
            let first = entries[0].0.replace('-', "\\-");
            assert!(page.1.contains(&first), "{first}: {}", page.1);
        }
    }

    #[test]
    fn hidden_options_are_not_completed() {
        let mut completions = Vec::new();
        let mut command = visible(superpoll_cli::command());
        clap_complete::generate(
            clap_complete::Shell::Bash,
            &mut command,
            "superpoll",
            &mut completions,
        );
        let text = String::from_utf8(completions).unwrap();
        assert!(text.contains("--keeper") && text.contains("doctor"), "{text}");
        for hidden in superpoll_cli::command()
            .get_subcommands()
            .flat_map(|command| command.get_arguments())
            .filter(|argument| argument.is_hide_set())
        {
            let option = format!("--{} ", hidden.get_long().unwrap());
            assert!(!text.contains(&option), "{option}");
        }
    }
}
