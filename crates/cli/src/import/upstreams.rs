//! The upstreams of the output: those that the file has, and those for addresses alone.

use std::collections::BTreeMap;

use superpoll_gateway::Address;

use super::directive::Directive;
use super::output::{Table, Value, caddy_text, json};
use super::source::is_among;

/// The protocol that the servers of an upstream speak: one upstream has one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Protocol {
    Http,
    Https,
    /// HTTP/2 without encryption.
    Http2,
    /// HTTP/2 with TLS.
    Http2Tls,
    FastCgi,
}

impl Protocol {
    /// Returns the port where an address has none.
    fn port(self) -> u16 {
        match self {
            Protocol::Https | Protocol::Http2Tls => 443,
            Protocol::Http | Protocol::Http2 => 80,
            Protocol::FastCgi => 9000,
        }
    }

    /// Whether connections to the servers are encrypted.
    pub(super) fn has_tls(self) -> bool {
        matches!(self, Protocol::Https | Protocol::Http2Tls)
    }

    /// Whether the servers speak HTTP/2.
    pub(super) fn has_http2(self) -> bool {
        matches!(self, Protocol::Http2 | Protocol::Http2Tls)
    }

    fn suffix(self) -> &'static str {
        match self {
            Protocol::Http => "",
            Protocol::Https => "-tls",
            Protocol::Http2 => "-h2",
            Protocol::Http2Tls => "-h2-tls",
            Protocol::FastCgi => "-fastcgi",
        }
    }
}

/// Whether servers get a field by themselves.
pub(super) fn is_forwarded(field: &str) -> bool {
    let names = "connection upgrade early-data x-scheme x-forwarded-for x-forwarded-host \
                 x-forwarded-proto x-forwarded-scheme x-forwarded-port x-forwarded-server \
                 x-forwarded-ssl x-forwarded-protocol";
    is_among(names, &field.to_ascii_lowercase())
}

/// Returns the address of a server, as it is written here; the error says why it is none.
pub(super) fn server_address(text: &str, protocol: Protocol) -> Result<String, String> {
    let path = text.strip_prefix("unix:").or_else(|| text.strip_prefix("unix/"));
    let address = match path {
        Some(path) => format!("unix:{}", path.trim_end_matches(':').replace("//", "/")),
        None => {
            let host_end = text.rfind(']').map_or(0, |end| end + 1);
            match text[host_end..].contains(':') {
                true => text.to_owned(),
                false => format!("{text}:{}", protocol.port()),
            }
        }
    };
    if address.contains(['$', '{']) {
        return Err("the address has a variable".to_owned());
    }
    match address.parse::<Address>() {
        Ok(Address::Tcp { port: 0, .. }) => Err("port 0 cannot be connected to".to_owned()),
        Ok(_) => Ok(address),
        Err(error) => Err(error.to_string()),
    }
}

/// Upstreams by the text and the protocol by which routes name them.
#[derive(Default)]
pub(super) struct Upstreams {
    names: BTreeMap<(String, Protocol), String>,
    pub(super) tables: Vec<(String, Table)>,
}

impl Upstreams {
    /// Returns the name of the upstream for a text, if there already is one.
    pub(super) fn known(&self, text: &str, protocol: Protocol) -> Option<String> {
        self.names.get(&(text.to_owned(), protocol)).cloned()
    }

    /// Adds an upstream, whose table a function fills, and returns its name.
    pub(super) fn add(
        &mut self,
        text: &str,
        protocol: Protocol,
        fill: impl FnOnce(&mut Table),
    ) -> String {
        let is_plain = |one: char| one.is_ascii_alphanumeric() || "-_".contains(one);
        let plain: String = text.chars().map(|one| if is_plain(one) { one } else { '-' }).collect();
        let plain = match plain.trim_matches('-') {
            "" => "servers",
            plain => plain,
        };
        let is_taken = |name: &String| self.tables.iter().any(|(known, _)| known == name);
        let suffixed = format!("{plain}{}", protocol.suffix());
        let numbered = (2..).map(|number| format!("{suffixed}-{number}"));
        let mut names = [plain.to_owned(), suffixed.clone()].into_iter().chain(numbered);
        let name = names.find(|name| !is_taken(name)).unwrap_or_default();
        let mut table = Table::named("upstreams", &name);
        fill(&mut table);
        self.names.insert((text.to_owned(), protocol), name.clone());
        self.tables.push((name.clone(), table));
        name
    }

    /// Returns the name of the upstream with some addresses alone.
    pub(super) fn of_addresses(
        &mut self,
        addresses: &[String],
        protocol: Protocol,
        from: &Directive,
    ) -> Result<String, String> {
        let text = addresses.join(" ");
        if let Some(name) = self.known(&text, protocol) {
            return Ok(name);
        }
        let mut servers: Vec<Value> = Vec::new();
        for address in addresses {
            // The server that is started knows the variable.
            let address = match address.contains("{$") {
                true => caddy_text(address),
                false => server_address(address, protocol)?.into(),
            };
            servers.push(json!({ "address": address }));
        }
        let first = addresses.first().ok_or("there is no address")?;
        Ok(self.add(first, protocol, |table| {
            // Several texts of one name differ by their number.
            table.set("servers", servers, &[from]);
        }))
        .inspect(|name| drop(self.names.insert((text, protocol), name.clone())))
    }

    /// Sets a key of an upstream.
    pub(super) fn set(
        &mut self,
        name: &str,
        key: &str,
        value: impl Into<Value>,
        from: &[&Directive],
    ) {
        if let Some((_, table)) = self.tables.iter_mut().find(|(known, _)| known == name) {
            table.set(key, value, from);
        }
    }
}
