//! Network namespaces, each with a pair of virtual devices to the machine: a link that can be cut.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use crate::error::{Error, Result};
use crate::programs;
use crate::sys::process;

/// The program that makes namespaces.
const PROGRAM: &str = "ip";

/// A namespace, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Namespace {
    name: String,
    device: String,
    /// The address of the machine, as seen from inside.
    pub outside: Ipv4Addr,
    /// The address inside.
    pub inside: Ipv4Addr,
}

impl Namespace {
    /// Makes a namespace; they are counted from zero.
    pub(super) fn new(number: u8) -> Result<Namespace> {
        let own = std::process::id();
        // Addresses for tests of networks (RFC 2544), which lead nowhere else.
        let address = |last| Ipv4Addr::new(198, 18, (own % 250) as u8, 4 * number + last);
        let namespace = Namespace {
            name: format!("superpoll-{own}-{number}"),
            device: format!("sp{own}-{number}"),
            outside: address(1),
            inside: address(2),
        };
        let Namespace { name, device, outside, inside } = &namespace;
        let (outside, inside) = (format!("{outside}/30"), format!("{inside}/30"));
        let within = ["-n", name];
        ip(&["netns", "add", name])?;
        ip(&["link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", name])?;
        ip(&["address", "add", &outside, "dev", device])?;
        ip(&["link", "set", device, "up"])?;
        ip(&[&within[..], &["address", "add", &inside, "dev", "eth0"]].concat())?;
        ip(&[&within[..], &["link", "set", "eth0", "up"]].concat())?;
        ip(&[&within[..], &["link", "set", "lo", "up"]].concat())?;
        Ok(namespace)
    }

    /// Returns the words before a command that runs inside.
    pub(super) fn words(&self) -> [&str; 4] {
        [PROGRAM, "netns", "exec", &self.name]
    }

    /// Cuts the link, or mends it.
    pub(super) fn set_up(&self, is_up: bool) -> Result<()> {
        ip(&["link", "set", &self.device, if is_up { "up" } else { "down" }])
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Its device inside goes with it, and so does the other end.
        let _ = ip(&["link", "del", &self.device]);
        let _ = ip(&["netns", "del", &self.name]);
    }
}

/// Returns why namespaces cannot be made here.
pub(super) fn refusal() -> Option<String> {
    if programs::find(PROGRAM).is_none() {
        return Some("ip is not installed (Debian: iproute2)".to_owned());
    }
    if process::user() != 0 {
        return Some("network namespaces need root".to_owned());
    }
    Namespace::new(63).err().map(|error| error.to_string())
}

fn ip(words: &[&str]) -> Result<()> {
    let mut command = Command::new(PROGRAM);
    let output = command.args(words).stdin(Stdio::null()).output();
    let failed = |text: String| Error::usage(format!("ip {}: {text}", words.join(" ")));
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(failed(text.lines().next().unwrap_or("it failed").to_owned()))
}
