//! Addresses of IP as the kernel has them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// An address, where the kernel reads or writes it.
pub(super) struct Room {
    pub address: libc::sockaddr_storage,
    pub length: libc::socklen_t,
}

impl Room {
    pub(super) fn empty() -> Room {
        // SAFETY: all zero is an address of no family.
        let address = unsafe { std::mem::zeroed() };
        Room { address, length: size_of::<libc::sockaddr_storage>() as libc::socklen_t }
    }

    pub(super) fn of(address: SocketAddr) -> Room {
        let mut room = Room::empty();
        let storage = &raw mut room.address;
        match address {
            SocketAddr::V4(address) => {
                let raw = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
                    sin_zero: [0; 8],
                };
                // SAFETY: there is room for an address of each family, and it is aligned for them.
                unsafe { storage.cast::<libc::sockaddr_in>().write(raw) };
                room.length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            }
            SocketAddr::V6(address) => {
                let raw = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                };
                // SAFETY: as above.
                unsafe { storage.cast::<libc::sockaddr_in6>().write(raw) };
                room.length = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            }
        }
        room
    }

    /// The address that the kernel has written, if it is one of IP.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        let storage = &raw const self.address;
        let length = self.length as usize;
        match i32::from(self.address.ss_family) {
            libc::AF_INET if length >= size_of::<libc::sockaddr_in>() => {
                // SAFETY: an address of this family is one of this type, and it was written whole.
                let raw = unsafe { storage.cast::<libc::sockaddr_in>().read() };
                let ip = Ipv4Addr::from(u32::from_be(raw.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(raw.sin_port)).into())
            }
            libc::AF_INET6 if length >= size_of::<libc::sockaddr_in6>() => {
                // SAFETY: as above.
                let raw = unsafe { storage.cast::<libc::sockaddr_in6>().read() };
                let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
                let port = u16::from_be(raw.sin6_port);
                Some(SocketAddrV6::new(ip, port, raw.sin6_flowinfo, raw.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_were() {
        for text in ["127.0.0.1:80", "[::1]:65535", "[fe80::1%7]:1", "255.254.253.252:513"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(Room::of(address).address(), Some(address));
        }
        assert_eq!(Room::empty().address(), None);
    }
}
