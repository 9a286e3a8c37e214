//! The argument that names a running server, the same in all commands.

/// A running server.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ServerName {
    /// A server by the number of its process, or by the path of its statistics socket [default: the
    /// only one of this user]
    #[arg(value_name = "PID|PATH", conflicts_with = "of")]
    server: Option<String>,
    /// The same, as in the commands that have other arguments
    #[arg(long, value_name = "PID|PATH")]
    of: Option<String>,
}

impl ServerName {
    /// Returns the number or the path, if one is given.
    pub(crate) fn get(&self) -> Option<&str> {
        self.server.as_deref().or(self.of.as_deref())
    }
}
