//! Values of fields that depend on the request: texts with variables, as `{client}`.
//!
//! Braces around anything but the shape of a name are text, since values in JSON have them. A name
//! that is none of a variable is a mistake: it would go to servers as it is, and be believed.

/// Something about a request that a value can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variable {
    /// The address of the client.
    Client,
    /// Its port.
    ClientPort,
    /// The host that was asked for, with its port.
    Host,
    /// The method.
    Method,
    /// The path as the client has sent it.
    Path,
    /// The query without its `?`.
    Query,
    /// The id of the request.
    RequestId,
    /// `http` or `https`.
    Scheme,
    /// The address that the client has connected to.
    ServerAddress,
    /// Its port.
    ServerPort,
    /// The cipher suite of the connection, by its name.
    TlsCipher,
    /// The version of TLS: `TLSv1.2` or `TLSv1.3`.
    TlsVersion,
    /// The path with the query.
    Uri,
}

impl Variable {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Variable); 13] = [
        ("client", Variable::Client),
        ("client_port", Variable::ClientPort),
        ("host", Variable::Host),
        ("method", Variable::Method),
        ("path", Variable::Path),
        ("query", Variable::Query),
        ("request_id", Variable::RequestId),
        ("scheme", Variable::Scheme),
        ("server_address", Variable::ServerAddress),
        ("server_port", Variable::ServerPort),
        ("tls.cipher", Variable::TlsCipher),
        ("tls.version", Variable::TlsVersion),
        ("uri", Variable::Uri),
    ];

    fn by_name(name: &str) -> Option<Variable> {
        Variable::ALL.iter().find(|(known, _)| *known == name).map(|(_, variable)| *variable)
    }
}

/// A part of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// Text as it is.
    Text(String),
    /// Something about the request.
    Variable(Variable),
}

/// A value with at least one variable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template(pub Vec<Part>);

impl Template {
    /// Reads a value; `None` if it has no variable.
    ///
    /// # Errors
    ///
    /// A name in braces is none of a variable. The error says what is expected.
    pub(crate) fn parse(text: &str) -> Result<Option<Template>, String> {
        let (mut parts, mut rest, mut plain) = (Vec::new(), text, String::new());
        while let Some((before, after)) = rest.split_once('{') {
            plain.push_str(before);
            let name = after.split_once('}').filter(|(name, _)| is_name(name));
            let Some((name, after)) = name else {
                plain.push('{');
                rest = after;
                continue;
            };
            let Some(variable) = Variable::by_name(name) else {
                let names: Vec<_> = Variable::ALL.iter().map(|(name, _)| *name).collect();
                let names = names.join(", ");
                return Err(format!("there is no variable {name:?}, expected one of {names}"));
            };
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain)));
            }
            parts.push(Part::Variable(variable));
            rest = after;
        }
        if parts.is_empty() {
            return Ok(None);
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Some(Template(parts)))
    }
}

fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || b"._".contains(&byte);
    !text.is_empty() && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_found_among_text() {
        let text = |text: &str| Part::Text(text.to_owned());
        let of = |text: &str| Template::parse(text).unwrap().map(|template| template.0);
        assert_eq!(of("plain"), None);
        assert_eq!(of("{\"group\": {\"a\": 1}} {} {A} { client }"), None);
        let expected = vec![text("for="), Part::Variable(Variable::Client), text(";{x=1")];
        assert_eq!(of("for={client};{x=1"), Some(expected));
        let expected = vec![Part::Variable(Variable::Scheme), Part::Variable(Variable::TlsCipher)];
        assert_eq!(of("{scheme}{tls.cipher}"), Some(expected));
        let error = Template::parse("{clint}").unwrap_err();
        assert!(error.starts_with("there is no variable \"clint\", expected one of client,"));
    }
}
