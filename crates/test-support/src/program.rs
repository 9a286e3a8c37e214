//! Starting programs so that nothing around the tests influences them: neither a service manager
//! that has started the tests, nor a choice of the user's, nor servers of the same user.

use std::process::Command;

/// Variables by which the environment would have a say.
pub const FOREIGN: [&str; 9] = [
    "SUPERPOLL_BACKEND",
    "SUPERPOLL_POLICY",
    "NOTIFY_SOCKET",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    // It may be another user's, after `su`. Without it there is a folder of this user's in that for
    // temporary files.
    "XDG_RUNTIME_DIR",
];

/// A program without those variables.
pub fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    for variable in FOREIGN {
        command.env_remove(variable);
    }
    command
}
