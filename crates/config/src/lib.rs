//! The configuration of the Superpoll server: from text to checked values.
//!
//! It is TOML with nothing left unchecked. [`Config::parse`] reads a text, [`Draft`] a file, and
//! both report all mistakes: an operator who made three mistakes wants to hear of three. Each
//! mistake is one line, `FILE:LINE:COLUMN: what is wrong, what is expected`, in the order of the
//! file; editors and terminals turn this form into a link. Lines and columns count from 1, columns
//! in characters.
//!
//! This crate opens no socket and loads no key or certificate. A thing outside of the text, such as
//! a file, is a [`Resource`] of the draft, and the server looks at it
//! (`superpoll_gateway::prepare`). So a configuration is data, which each part of a server can
//! import, and which imports none of them.
//!
//! Functions that requests call are `#[inline]`: the border between two crates costs them nothing.
//!
//! | part | files |
//! |---|---|
//! | the text as it is written, with places | `raw.rs`, `raw_rules.rs`, `scalar.rs`, `include.rs`, `variables.rs` |
//! | the rules that types cannot express | `check.rs` and the modules below it |
//! | the checked values | `model.rs`, and a file for each part of the text, as `rules.rs` |
//! | the choice of the host and of the route for a request | `host_table.rs`, `route_table.rs`, `matcher.rs` |
//! | values with parsers of their own | `address.rs`, `authority.rs`, `broker_url.rs`, `password.rs`, `redirect_target.rs`, `rewrite.rs`, `token_key.rs` |

mod acme;
mod address;
mod authority;
pub mod bounded_file;
mod broker;
mod broker_url;
mod built_in;
mod certified;
mod channel;
mod check;
mod dns;
mod draft;
mod ejection;
mod encryption;
mod engine;
mod host_table;
mod include;
mod log_field;
mod logs;
mod matcher;
mod mercure;
mod mistake;
mod model;
mod origins;
mod overlap;
mod password;
mod path_regex;
mod place;
mod rate;
mod raw;
mod raw_rules;
mod redirect_target;
mod relay;
mod resource;
mod rewrite;
mod rights;
mod route_path;
mod route_table;
mod rules;
mod scalar;
mod sticky;
mod suggestion;
mod syslog;
mod table;
mod template;
#[cfg(test)]
mod tests;
mod token_key;
mod tracing;
mod variables;
mod workers;

pub use self::acme::{Acme, Automatic, ChallengeKind, ExternalAccount, Internal, is_local};
pub use self::address::{Address, AddressError};
pub use self::authority::Authority;
pub use self::broker::Broker;
pub use self::broker_url::{BrokerTarget, BrokerUrl};
pub use self::certified::{NoNamesError, UncertifiedName, UncertifiedReason};
pub use self::channel::{Channel, HubOptions, Slow};
pub use self::dns::{DNS_PORT, Dns, Family, ServerAddress, is_host_name};
pub use self::draft::{Draft, HostPlaces};
pub use self::ejection::{Ejection, Percentage};
pub use self::encryption::{CertificateFiles, ClientCertificates, Https, Tls, TlsVersion};
pub use self::engine::Engine;
pub use self::host_table::{HostReason, HostTable, is_served_on};
pub use self::log_field::Field;
pub use self::logs::{AccessLog, Level, Log, LogFormat, MessageFormat, Metrics};
pub use self::matcher::{Expected, Matcher, Mismatch, RequestFacts};
pub use self::mercure::MERCURE_PATH;
pub use self::mistake::{ConfigError, Mistake};
pub use self::model::{
    Action, Admin, Balance, Config, FastCgi, Files, Grip, Health, HealthKind, Host, Keeper,
    KeeperKind, Limits, Listener, Otherwise, Process, Proxy, Redirect, Respond, Route, Server,
    SocketPath, Timeouts, Upstream, UpstreamTls,
};
pub use self::origins::Origins;
pub use self::password::{PasswordHash, PasswordHashError};
pub use self::path_regex::PathRegex;
pub use self::rate::Rate;
pub use self::redirect_target::RedirectTarget;
pub use self::relay::{Relay, RelayEnd, RelayRoute};
pub use self::resource::{Place, Resource};
pub use self::rewrite::{Rewrite, encode_target};
pub use self::rights::{
    AuthorizeRule, CallbackEvent, CallbackRule, KeySource, Right, TokenRule, is_private,
};
pub use self::route_path::{has_parameters, literal_length};
pub use self::route_table::{RouteTable, TableRoute};
pub use self::rules::{
    Access, AuthRequest, BasicAuth, ClientRange, ErrorKind, ErrorPages, HeaderChanges,
    LARGEST_PAGE, RateKey, RequestRate, Rules, UserNameError, check_user,
};
pub use self::scalar::ProxyVersion;
pub use self::sticky::{SameSite, Sticky};
pub use self::syslog::{Facility, LogPlace, Syslog, SyslogServer};
pub use self::template::{Part, Template, Variable};
pub use self::token_key::{TokenKey, TokenKeyError};
pub use self::tracing::{RequestIds, Traces, Tracing};
pub use self::workers::{Workers, parse_processes};
