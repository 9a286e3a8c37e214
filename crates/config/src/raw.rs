//! The configuration as it is written: every key optional, and each value that a check can find
//! wrong together with its place.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};
use superpoll::backend::Profile;
use toml::Spanned;

use super::acme::{ChallengeKind, ExternalAccount};
use super::address::Address;
use super::broker::RawBroker;
use super::channel::Channel;
use super::dns::{Dns, ServerAddress};
use super::ejection::Ejection;
use super::encryption::TlsVersion;
use super::logs::{Log, LogFormat, Metrics};
use super::mercure::Mercure;
use super::model::{Balance, Files, Health, Limits, Process, Timeouts};
use super::raw_rules::{BasicAuth, Fields, Headers, Login, RawErrorPages, RequestRate};
use super::rights::KeySource;
use super::scalar::{self, HstsText, ModeText, ProxyProtocol, SizeText};
use super::sticky::RawSticky;
use super::tracing::RawTracing;
use crate::engine::Engine;
use crate::log_field::Field;
use crate::matcher::Expected;
use crate::syslog::Syslog;
use crate::table::table;

table! {
    pub(super) struct Config {
        /// The files were read with this one: here it is a known key, of this type.
        pub(super) include: Vec<String>,
        pub(super) server: Process,
        pub(super) engine: Engine,
        pub(super) listeners: Vec<Spanned<Listener>>,
        pub(super) hosts: Vec<Spanned<Host>>,
        pub(super) upstreams: BTreeMap<Spanned<String>, Spanned<Upstream>>,
        pub(super) timeouts: Timeouts,
        pub(super) limits: Limits,
        pub(super) log: Option<Spanned<Log>>,
        pub(super) access_log: Option<Spanned<AccessLog>>,
        pub(super) metrics: Option<Spanned<Metrics>>,
        pub(super) tracing: RawTracing,
        pub(super) admin: Option<Spanned<Admin>>,
        pub(super) keeper: Option<Keeper>,
        pub(super) broker: Option<Spanned<RawBroker>>,
    }

    pub(super) struct AccessLog {
        pub(super) path: Option<PathBuf>,
        pub(super) syslog: Option<Spanned<Syslog>>,
        pub(super) format: LogFormat,
        pub(super) fields: Option<Spanned<Vec<Spanned<Field>>>>,
    }

    pub(super) struct Admin {
        pub(super) address: Option<Spanned<Address>>,
        pub(super) mode: Option<Spanned<ModeText>>,
        pub(super) hosts: Vec<Spanned<String>>,
        pub(super) allow: Option<Spanned<Vec<Spanned<String>>>>,
        pub(super) deny: Vec<Spanned<String>>,
        pub(super) basic_auth: Option<Spanned<BasicAuth>>,
    }

    pub(super) struct Listener {
        pub(super) address: Option<Spanned<Address>>,
        pub(super) tls: Option<Spanned<Tls>>,
        pub(super) proxy_protocol: bool,
        pub(super) relay: Option<Spanned<Relay>>,
        pub(super) mode: Option<Spanned<ModeText>>,
    }

    /// Encryption: a table, or `"internal"` for one with `internal = true`.
    pub(super) struct TlsTable {
        pub(super) acme: Option<Spanned<String>>,
        pub(super) internal: bool,
        pub(super) directory: Option<Spanned<String>>,
        pub(super) directory_ca: Option<Spanned<PathBuf>>,
        pub(super) challenge: Option<Spanned<ChallengeKind>>,
        pub(super) storage: Option<Spanned<PathBuf>>,
        pub(super) account: Option<Spanned<ExternalAccount>>,
        pub(super) certificate: Option<Spanned<PathBuf>>,
        pub(super) key: Option<Spanned<PathBuf>>,
        pub(super) certificates: Vec<Spanned<CertificateFiles>>,
        pub(super) min_version: TlsVersion,
        pub(super) client_ca: Option<Spanned<PathBuf>>,
        pub(super) client_certificates: Option<Spanned<ClientCertificates>>,
        pub(super) alpn: Option<Spanned<Vec<Spanned<String>>>>,
    }

    pub(super) struct CertificateFiles {
        pub(super) certificate: Option<Spanned<PathBuf>>,
        pub(super) key: Option<Spanned<PathBuf>>,
    }

    pub(super) struct Relay {
        pub(super) to: Option<Spanned<Address>>,
        pub(super) upstream: Option<Spanned<String>>,
        pub(super) routes: Vec<Spanned<RelayRoute>>,
        pub(super) names: Option<Spanned<Vec<Spanned<String>>>>,
        pub(super) idle: Option<Duration> as "scalar::some_duration",
        pub(super) proxy_protocol: ProxyProtocol,
    }

    pub(super) struct RelayRoute {
        pub(super) server_names: Vec<Spanned<String>>,
        pub(super) to: Option<Spanned<Address>>,
        pub(super) upstream: Option<Spanned<String>>,
    }

    pub(super) struct Host {
        pub(super) names: Vec<Spanned<String>>,
        pub(super) default: Option<Spanned<bool>>,
        pub(super) listeners: Option<Spanned<Vec<Spanned<Address>>>>,
        pub(super) https: Option<Spanned<HttpsText>>,
        pub(super) hsts: Option<Spanned<HstsText>>,
        pub(super) headers: Headers,
        pub(super) errors: RawErrorPages,
        pub(super) allow: Option<Spanned<Vec<Spanned<String>>>>,
        pub(super) deny: Vec<Spanned<String>>,
        pub(super) rate: Option<Spanned<RequestRate>>,
        pub(super) basic_auth: Option<Spanned<Login>>,
        pub(super) routes: Vec<Spanned<Route>>,
    }

    pub(super) struct Route {
        pub(super) path: Option<Spanned<String>>,
        pub(super) r#match: Option<Spanned<Match>>,
        pub(super) files: Option<Spanned<Files>>,
        pub(super) redirect: Option<Spanned<Redirect>>,
        pub(super) respond: Option<Spanned<Respond>>,
        pub(super) channel: Option<Spanned<Channel>>,
        pub(super) mercure: Option<Spanned<Mercure>>,
        pub(super) proxy: Option<Spanned<Proxy>>,
        pub(super) fastcgi: Option<Spanned<FastCgi>>,
        pub(super) grip: Option<Spanned<Grip>>,
        pub(super) headers: Headers,
        pub(super) errors: RawErrorPages,
        pub(super) allow: Option<Spanned<Vec<Spanned<String>>>>,
        pub(super) deny: Vec<Spanned<String>>,
        pub(super) rate: Option<Spanned<RequestRate>>,
        pub(super) basic_auth: Option<Spanned<Login>>,
        pub(super) auth_request: Option<Spanned<AuthRequest>>,
        pub(super) body_bytes: Option<SizeText>,
        pub(super) rewrite: Option<Spanned<String>>,
    }

    pub(super) struct AuthRequest {
        pub(super) upstream: Option<Spanned<String>>,
        pub(super) path: Option<Spanned<String>>,
        pub(super) timeout: Option<Duration> as "scalar::some_duration",
        pub(super) copy: Vec<Spanned<String>>,
        pub(super) cache: Option<Spanned<Duration>> as "scalar::some_spanned_duration",
        pub(super) cache_by: Option<Spanned<Vec<Spanned<String>>>>,
    }

    pub(super) struct Match {
        pub(super) methods: Option<Spanned<Vec<Spanned<String>>>>,
        pub(super) query: BTreeMap<Spanned<String>, Spanned<Expected>>,
        pub(super) headers: BTreeMap<Spanned<String>, Spanned<Expected>>,
        pub(super) extensions: Option<Spanned<Vec<Spanned<String>>>>,
        pub(super) path_regex: Option<Spanned<String>>,
    }

    pub(super) struct Redirect {
        pub(super) to: Option<Spanned<String>>,
        pub(super) status: Option<Spanned<u16>>,
    }

    pub(super) struct Respond {
        pub(super) status: Option<Spanned<u16>>,
        pub(super) body: Option<Spanned<String>>,
        pub(super) headers: Fields,
    }

    pub(super) struct Grip {
        pub(super) key: Option<Spanned<KeySource>>,
        pub(super) broker: Option<Spanned<bool>>,
    }

    pub(super) struct Proxy {
        pub(super) upstream: Option<Spanned<String>>,
        pub(super) strip_path: bool,
        pub(super) retries: Option<u32>,
        pub(super) host: Option<Spanned<String>>,
        pub(super) trust_forwarded: bool,
        pub(super) abort_on_close: Option<bool>,
        /// Accepted with a warning, and without an effect.
        pub(super) lane: Option<bool>,
        pub(super) request_headers: Headers,
        pub(super) replace_errors: bool,
        pub(super) compress: bool,
        pub(super) rewrite_location: BTreeMap<Spanned<String>, Spanned<String>>,
        pub(super) rewrite_cookie_path: BTreeMap<Spanned<String>, Spanned<String>>,
        pub(super) rewrite_cookie_domain: BTreeMap<Spanned<String>, Spanned<String>>,
        pub(super) send_files: BTreeMap<Spanned<String>, Spanned<PathBuf>>,
        pub(super) grip: Option<Spanned<Grip>>,
    }

    pub(super) struct FastCgi {
        pub(super) upstream: Option<Spanned<String>>,
        pub(super) root: Option<Spanned<PathBuf>>,
        pub(super) server_root: Option<Spanned<PathBuf>>,
        pub(super) index: Option<Spanned<String>>,
        pub(super) split: Option<Spanned<String>>,
        pub(super) params: BTreeMap<Spanned<String>, Spanned<String>>,
        pub(super) spool: bool,
        pub(super) retries: Option<u32>,
        pub(super) trust_forwarded: bool,
        pub(super) abort_on_close: Option<bool>,
        pub(super) request_headers: Headers,
        pub(super) replace_errors: bool,
        pub(super) compress: bool,
        pub(super) send_files: BTreeMap<Spanned<String>, Spanned<PathBuf>>,
        pub(super) grip: Option<Spanned<Grip>>,
    }

    pub(super) struct Upstream {
        pub(super) servers: Vec<Spanned<Server>>,
        pub(super) balance: Balance,
        pub(super) health: Option<Spanned<Health>>,
        pub(super) proxy_protocol: ProxyProtocol,
        pub(super) keep_alive: Option<usize>,
        pub(super) idle: Option<Duration> as "scalar::some_duration",
        pub(super) lifetime: Option<Duration> as "scalar::some_duration",
        pub(super) h2: bool,
        pub(super) tls: Option<Spanned<UpstreamTls>>,
        pub(super) dns: Option<Spanned<Dns>>,
        pub(super) eject: Option<Spanned<Ejection>>,
        pub(super) sticky: Option<Spanned<RawSticky>>,
        pub(super) slow_start: Option<Spanned<Duration>> as "scalar::some_spanned_duration",
    }

    pub(super) struct UpstreamTls {
        pub(super) ca: Option<PathBuf>,
        pub(super) server_name: Option<Spanned<String>>,
        pub(super) certificate: Option<Spanned<PathBuf>>,
        pub(super) key: Option<Spanned<PathBuf>>,
        pub(super) alpn: Vec<Spanned<String>>,
    }

    pub(super) struct Server {
        pub(super) address: Option<Spanned<ServerAddress>>,
        pub(super) weight: Option<NonZeroU32>,
        pub(super) backup: bool,
    }

    pub(super) struct Keeper {
        pub(super) kind: KeeperKind = KeeperKind::Process,
        pub(super) socket: PathBuf = "superpoll.keeper".into(),
        pub(super) profile: Profile as "scalar::profile" = Profile::Chat,
        pub(super) tls: Option<Spanned<bool>> = None,
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum KeeperKind {
    Thread,
    Process,
}

pub(super) struct Tls(pub(super) TlsTable);

impl<'de> Deserialize<'de> for Tls {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tls, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Tls;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table, or \"internal\" for certificates of the server's own")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Tls, E> {
                match text {
                    "internal" => Ok(Tls(TlsTable { internal: true, ..TlsTable::default() })),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<Tls, A::Error> {
                TlsTable::deserialize(MapAccessDeserializer::new(table)).map(Tls)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ClientCertificates {
    Required,
    Optional,
}

/// Whether a host is served over encrypted connections only.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum HttpsText {
    Always,
    Optional,
}
