//! The admin listener: metrics, the live page, and operations on the server.

use super::rules::Rules;

/// The admin listener. Its address is that of the listener in the configuration's list that
/// [`is_admin`](super::Listener::is_admin).
#[derive(Clone, PartialEq, Debug)]
pub struct Admin {
    /// The names that requests may have as their host, in lower case, in addition to `localhost`
    /// and IP addresses. Default: none.
    pub hosts: Vec<String>,
    /// The clients and users that are served. Default: all that reach the listener.
    pub rules: Rules,
}
