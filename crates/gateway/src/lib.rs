//! A web server, reverse proxy and publish-subscribe server, as a library: the command `superpoll`
//! without its command line.
//!
//! A [`serve::Server`] serves a [`Config`] on all engines of a runtime. Events of operation go to a
//! function of the caller. The server ends when it is dropped; [`serve::Server::change`] gives it
//! another configuration without closing a connection.
//!
//! ```no_run
//! use superpoll_gateway::Config;
//! use superpoll_gateway::serve::Server;
//! use superpoll_rt::Runtime;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = r#"
//!     [[listeners]]
//!     address = "127.0.0.1:8080"
//!
//!     [[hosts]]
//!     names = ["localhost"]
//!     [[hosts.routes]]
//!     [hosts.routes.files]
//!     root = "/srv/www"
//! "#;
//! let config = Config::parse("site.toml", text)?;
//! let runtime = Runtime::new()?;
//! let server = Server::start(&runtime, &config, |event| eprintln!("{event}"))?;
//! for address in server.fronts() {
//!     println!("serving {address}");
//! }
//! runtime.block_on(std::future::pending::<()>());
//! # Ok(())
//! # }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

#[cfg_attr(not(feature = "acme"), path = "without_acme.rs")]
mod acme;
mod automatic_error;
pub mod causes {
    //! The causes of an [`Error`](crate::serve::Error) that name a file or a setting.

    pub use superpoll_config::{
        NoNamesError, PasswordHashError, TokenKeyError, UncertifiedName, UncertifiedReason,
        UserNameError,
    };
    pub use superpoll_http::answers::PageError;
    pub use superpoll_http::certificates::{
        CertificateError, PemKind, UntimelyReason, UnusableReason,
    };
    pub use superpoll_http::htpasswd::{LineError, UsersError, UsersErrorKind};
    pub use superpoll_http::rules::RulesError;
    pub use superpoll_http::token::{KeyError, KeyPlace, KeySetError};
    pub use superpoll_http::upstream::{AuthoritiesError, ClientTlsError};
    pub use superpoll_hub::channel::{ChannelKeyError, GripKeyError};

    pub use crate::automatic_error::{
        AutomaticError, Damage, IssuedError, StorageError, StorageErrorKind,
    };
}
pub mod channel {
    //! The channels of a server, for the program that it runs in.

    pub use superpoll_hub::channel::{Cursor, Hub, Message, Since};
}
pub mod control;
pub mod files {
    //! Files as answers, of a folder or of this program.

    pub use superpoll_http::files::{Embedded, Folder, Site};
    pub use superpoll_http::head::{Fields, Head, Values};
}
mod inherited;
pub mod prepare;
pub mod processes;
pub mod relay;
pub mod serve;
pub mod telemetry;
#[cfg(test)]
mod tests;

pub use inherited::Inherited;
pub mod upstream {
    //! The groups of servers that a server passes requests on to.

    pub use superpoll_http::upstream::{Group, GroupServer, ServerList};
}

pub use superpoll_config as config;
pub use superpoll_config::{Address, AddressError, Config, ConfigError, Field, Level};
pub use superpoll_http::body::Body;
pub use superpoll_http::log::{ErrorLog, Event, LogLevel};
