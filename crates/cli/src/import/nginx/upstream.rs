//! `upstream` of nginx.

use super::super::directive::Directive;
use super::super::output::{Table, Value, json};
use super::super::upstreams::{Protocol, Upstreams, server_address};
use super::value;
use super::verdict::sweep;

/// The upstreams of the file and those that are made from them.
pub(super) struct NamedUpstreams<'a> {
    blocks: Vec<&'a Directive>,
    pub(super) made: Upstreams,
}

impl<'a> NamedUpstreams<'a> {
    pub(super) fn new() -> NamedUpstreams<'a> {
        NamedUpstreams { blocks: Vec::new(), made: Upstreams::default() }
    }

    /// Adds the blocks of a level.
    pub(super) fn add_blocks(&mut self, level: &'a [Directive]) {
        self.blocks.extend(level.iter().filter(|one| one.name == "upstream"));
    }

    /// Whether there is an upstream of a name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.blocks.iter().any(|block| block.first() == name)
    }

    /// Returns the upstream for the text after `proxy_pass` and its like, without a path.
    pub(super) fn of(
        &mut self,
        text: &str,
        protocol: Protocol,
        from: &Directive,
    ) -> Result<String, String> {
        let block = self.blocks.iter().find(|block| block.first() == text).copied();
        let Some(block) = block else {
            return self.made.of_addresses(&[text.to_owned()], protocol, from);
        };
        match self.made.known(text, protocol) {
            Some(name) => Ok(name),
            None => self.add_block(block, protocol),
        }
    }

    fn add_block(&mut self, block: &Directive, protocol: Protocol) -> Result<String, String> {
        let mut servers = block.children().iter().filter(|one| one.name == "server");
        if !servers.any(|one| server_address(one.first(), protocol).is_ok()) {
            return Err("the upstream has no server with an address".to_owned());
        }
        Ok(self.made.add(block.first(), protocol, |table| {
            table.comes_from(block);
            fill(block.children(), protocol, table);
        }))
    }

    /// Adds the upstreams that no route has asked for.
    pub(super) fn add_unused(&mut self, top: &mut Table) {
        for block in self.blocks.clone() {
            if self.made.tables.iter().all(|(name, _)| !name.starts_with(block.first()))
                && let Err(why) = self.add_block(block, Protocol::Http)
            {
                top.not_imported(block, &why);
            }
        }
    }
}

fn fill(children: &[Directive], protocol: Protocol, table: &mut Table) {
    let (mut servers, mut from) = (Vec::new(), Vec::new());
    let mut addresses: Vec<String> = Vec::new();
    let mut ejection = Value::Null;
    for directive in children.iter().filter(|one| one.name == "server") {
        let address = match server_address(directive.first(), protocol) {
            Ok(address) if addresses.contains(&address) => {
                table
                    .not_imported(directive, "another server has this address; weight counts more");
                continue;
            }
            Ok(address) => address,
            Err(why) => {
                table.not_imported(directive, &why);
                continue;
            }
        };
        let mut server = json!({ "address": address.as_str() });
        let mut is_down = false;
        for word in &directive.words[1..] {
            let (key, given) = word.split_once('=').unwrap_or((word, ""));
            let number = given.parse::<u64>();
            match (key, number) {
                ("weight", Ok(weight)) => server["weight"] = weight.into(),
                ("backup", _) => server["backup"] = true.into(),
                ("down", _) => is_down = true,
                ("max_fails", Ok(errors)) if errors > 0 => {
                    ejection["errors"] = errors.into();
                }
                ("max_fails" | "resolve", _) => {}
                ("fail_timeout", _) => {
                    let fails = directive.words.iter().any(|word| word.starts_with("max_fails="));
                    if let Some((time, _)) = value::duration(given).filter(|_| fails) {
                        ejection["within"] = time.as_str().into();
                        ejection["for"] = time.into();
                    } else {
                        table.remark(directive, "a server is left out for a while only with eject");
                    }
                }
                ("slow_start", _) => {
                    let why = format!("\"{word}\" is slow_start of the whole upstream");
                    table.not_imported(directive, &why);
                }
                _ => table.not_imported(directive, &format!("\"{word}\" has no counterpart here")),
            }
        }
        if is_down {
            table.not_needed(directive, "the server is down; superpoll upstream takes one out");
            continue;
        }
        addresses.push(address);
        servers.push(server);
        from.push(directive);
    }
    table.set("servers", servers, &from);
    if !ejection.is_null() {
        let what = "Here eject is one rule for all servers, and answers with 5xx count as well.";
        table.comment(what);
        table.set("eject", ejection, &[]);
    }
    for directive in children.iter().filter(|one| one.name != "server") {
        let time = value::duration(directive.first());
        match (directive.name.as_str(), time) {
            ("least_conn", _) => table.set("balance", "least-connections", &[directive]),
            ("ip_hash", _) => table.set("balance", "hash", &[directive]),
            ("hash", _) if matches!(directive.first(), "$remote_addr" | "$binary_remote_addr") => {
                table.set("balance", "hash", &[directive]);
            }
            ("keepalive", _) => match directive.first().parse::<u64>() {
                Ok(number) => table.set("keep_alive", number, &[directive]),
                Err(_) => table.not_imported(directive, "expected a number"),
            },
            ("keepalive_timeout", Some((time, _))) => table.set("idle", time, &[directive]),
            ("keepalive_time", Some((time, _))) => table.set("lifetime", time, &[directive]),
            ("zone" | "keepalive_requests" | "queue", _) => {
                table.not_needed(directive, "workers have their own state, which needs no size");
            }
            ("hash" | "random" | "sticky" | "least_time", _) => {
                let why = "balance is by turns, by connections or by the client; sticky has a \
                           cookie";
                table.not_imported(directive, why);
            }
            _ => sweep(std::slice::from_ref(directive), table),
        }
    }
}
