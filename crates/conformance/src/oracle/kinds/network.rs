//! TCP and UDP.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use superpoll::Readiness;

use super::Peer;
use crate::oracle::scene::Scene;
use crate::oracle::sys;
use crate::sys::{send_urgent, shutdown};

const IN: Readiness = Readiness::READABLE;

/// An address of this machine on which no socket listens.
const NOBODY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 77, 1, 1), 1);

fn pair() -> io::Result<(OwnedFd, Peer)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let (other, _) = listener.accept()?;
    one.set_nonblocking(true)?;
    other.set_nonblocking(true)?;
    other.set_nodelay(true)?;
    Ok((one.into(), Peer::new(other)))
}

pub(super) fn urgent_data() -> io::Result<Option<Scene>> {
    let (one, peer) = pair()?;
    let [more, last, end] = [0; 3].map(|_| peer.clone());
    let scene = Scene::of([one])
        .then("urgent data", move |_| {
            peer.with(|peer| send_urgent(peer));
            Ok(())
        })
        .until(Readiness::PRIORITY)
        .then("data", move |_| {
            more.with(|peer| sys::write(peer, b"abc"));
            Ok(())
        })
        .until(IN)
        .then("urgent data taken", |fds| {
            sys::receive_urgent(&fds[0]);
            Ok(())
        })
        .then("a byte read", |fds| {
            sys::read(&fds[0], 1);
            Ok(())
        })
        .then("all read", |fds| {
            sys::drain(&fds[0]);
            Ok(())
        })
        .then("urgent data again", move |_| {
            last.with(|peer| send_urgent(peer));
            Ok(())
        })
        .until(Readiness::PRIORITY)
        .then("closed", move |_| {
            end.close();
            Ok(())
        })
        .until(Readiness::READ_CLOSED)
        .then("all read", |fds| {
            sys::drain(&fds[0]);
            Ok(())
        });
    Ok(Some(scene))
}

pub(super) fn half_closed() -> io::Result<Option<Scene>> {
    let (one, peer) = pair()?;
    let end = peer.clone();
    let scene = Scene::of([one])
        .then("data and end", move |_| {
            peer.with(|peer| {
                sys::write(peer, b"abc");
                let _ = shutdown(peer.as_raw_fd(), libc::SHUT_WR);
            });
            Ok(())
        })
        .until(Readiness::READ_CLOSED)
        .then("all read", |fds| {
            sys::drain(&fds[0]);
            Ok(())
        })
        .then("shut down", |fds| shutdown(fds[0].as_raw_fd(), libc::SHUT_WR))
        .until(Readiness::HANG_UP)
        .then("closed", move |_| {
            end.close();
            Ok(())
        });
    Ok(Some(scene))
}

pub(super) fn reset() -> io::Result<Option<Scene>> {
    let (one, peer) = pair()?;
    peer.with(sys::reset_on_close);
    let scene = Scene::of([one])
        .then("reset", move |_| {
            peer.close();
            Ok(())
        })
        .until(Readiness::ERROR)
        .then("error taken", |fds| {
            sys::take_error(&fds[0]);
            Ok(())
        })
        .then("all read", |fds| {
            sys::drain(&fds[0]);
            Ok(())
        });
    Ok(Some(scene))
}

pub(super) fn reading_shut_down() -> io::Result<Option<Scene>> {
    let (one, peer) = pair()?;
    let end = peer.clone();
    let scene = Scene::of([one])
        .then("reading shut down", |fds| shutdown(fds[0].as_raw_fd(), libc::SHUT_RD))
        .then("data", move |_| {
            peer.with(|peer| sys::write(peer, b"abc"));
            Ok(())
        })
        .then("all read", |fds| {
            sys::drain(&fds[0]);
            Ok(())
        })
        .then("writing shut down", |fds| {
            // The peer may have been reset by then.
            let _ = shutdown(fds[0].as_raw_fd(), libc::SHUT_WR);
            Ok(())
        })
        .then("closed", move |_| {
            end.close();
            Ok(())
        });
    Ok(Some(scene))
}

pub(super) fn connect_refused() -> io::Result<Option<Scene>> {
    let scene = Scene::of([sys::tcp_socket()?])
        .then("refused", |fds| {
            sys::connect(&fds[0], NOBODY);
            Ok(())
        })
        .until(Readiness::HANG_UP)
        .then("error taken", |fds| {
            sys::take_error(&fds[0]);
            Ok(())
        });
    Ok(Some(scene))
}

pub(super) fn connect_and_listen() -> io::Result<Option<Scene>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    let scene = Scene::of([sys::tcp_socket()?, listener.into()])
        .then("connected", move |fds| {
            sys::connect(&fds[0], SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
            Ok(())
        })
        .until_of(1, IN)
        .then("accepted and closed", |fds| {
            let listener = TcpListener::from(fds[1].try_clone()?);
            listener.accept().map(drop)
        })
        .until(Readiness::READ_CLOSED)
        .then("listener shut down", |fds| shutdown(fds[1].as_raw_fd(), libc::SHUT_RDWR))
        .until_of(1, Readiness::HANG_UP);
    Ok(Some(scene))
}

pub(super) fn icmp_error() -> io::Result<Option<Scene>> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(NOBODY)?;
    socket.set_nonblocking(true)?;
    let socket = OwnedFd::from(socket);
    sys::set_option(&socket, libc::SOL_IP, libc::IP_RECVERR, 1i32)?;
    let scene = Scene::of([socket])
        .then("sent without a receiver", |fds| {
            sys::write(&fds[0], b"x");
            Ok(())
        })
        .until(Readiness::ERROR)
        .then("error received", |fds| {
            sys::read(&fds[0], 64);
            Ok(())
        })
        .then("queue of errors emptied", |fds| {
            sys::receive_errors(&fds[0]);
            Ok(())
        })
        .then("sent without a receiver again", |fds| {
            sys::write(&fds[0], b"x");
            Ok(())
        })
        .until(Readiness::ERROR);
    Ok(Some(scene))
}

pub(super) fn low_water_mark() -> io::Result<Option<Scene>> {
    let (one, peer) = pair()?;
    sys::set_option(&one, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 10i32)?;
    let more = peer.clone();
    let scene = Scene::of([one])
        .then("less than the mark", move |_| {
            peer.with(|peer| sys::write(peer, b"12345"));
            Ok(())
        })
        .then("as much as the mark", move |_| {
            more.with(|peer| sys::write(peer, b"67890"));
            Ok(())
        })
        .until(IN)
        .then("seven read", |fds| {
            sys::read(&fds[0], 7);
            Ok(())
        })
        .then("all read", |fds| {
            sys::drain(&fds[0]);
            Ok(())
        });
    Ok(Some(scene))
}
