//! UDP, on every back-end.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use futures_lite::future::{poll_once, zip};
use superpoll_rt::net::UdpSocket;
use superpoll_rt::time::timeout;
use superpoll_rt::{BackendKind, Runtime, spawn};

fn each<F: Future<Output = io::Result<()>>>(test: impl Fn() -> F) {
    for backend in BackendKind::available() {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        runtime.block_on(test()).unwrap_or_else(|error| panic!("{backend}: {error}"));
    }
}

async fn two() -> io::Result<(UdpSocket, UdpSocket)> {
    Ok((UdpSocket::bind("127.0.0.1:0").await?, UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?))
}

#[test]
fn datagrams_come_back_to_their_sender() {
    each(|| async {
        let (client, server) = two().await?;
        let address = server.local_addr()?;
        let echo = spawn(async move {
            let mut buffer = [0; 64];
            for _ in 0..100 {
                let (length, peer) = server.recv_from(&mut buffer).await?;
                server.send_to(&buffer[..length], peer).await?;
            }
            io::Result::Ok(())
        });
        let mut buffer = [0; 64];
        for number in 0..100u8 {
            let datagram = vec![number; usize::from(number) % 60];
            assert_eq!(client.send_to(&datagram, address).await?, datagram.len());
            assert_eq!(client.recv_from(&mut buffer).await?, (datagram.len(), address));
            assert_eq!(&buffer[..datagram.len()], datagram);
        }
        echo.await.unwrap()
    });
}

/// A datagram that fills only a part of the buffer says nothing about the next one.
#[test]
fn datagrams_that_wait_are_all_received() {
    each(|| async {
        let (client, server) = two().await?;
        let (mut first_buffer, mut buffer) = ([0; 64], [0; 64]);
        let mut first = std::pin::pin!(server.recv(&mut first_buffer));
        assert!(poll_once(first.as_mut()).await.is_none());
        for number in 0..50 {
            client.send_to(&[number], server.local_addr()?).await?;
        }
        assert_eq!(first.await?, 1);
        for number in 1..50 {
            assert_eq!(server.recv(&mut buffer).await?, 1);
            assert_eq!(buffer[0], number);
        }
        Ok(())
    });
}

#[test]
fn a_connected_socket_hears_only_its_peer() {
    each(|| async {
        let (one, other) = two().await?;
        let stranger = UdpSocket::bind("127.0.0.1:0").await?;
        assert_eq!(one.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
        one.connect(other.local_addr()?).await?;
        other.connect(one.local_addr()?).await?;
        assert_eq!(one.peer_addr()?, other.local_addr()?);
        stranger.send_to(b"spam", one.local_addr()?).await?;
        let mut buffer = [0; 16];
        let (sent, received) = zip(other.send(b"mail"), one.recv(&mut buffer)).await;
        assert_eq!((sent?, received?), (4, 4));
        assert_eq!(&buffer[..4], b"mail");
        Ok(())
    });
}

#[test]
fn a_port_without_a_listener_refuses() {
    each(|| async {
        let (one, other) = two().await?;
        one.connect(other.local_addr()?).await?;
        let mut buffers = [[0; 16]; 2];
        let [buffer, waiting] = &mut buffers;
        let mut waiting = std::pin::pin!(one.recv(waiting));
        assert!(poll_once(waiting.as_mut()).await.is_none());
        drop(other);
        // Another test may be given the port for a while; this sends again until the port is free.
        let error = loop {
            one.send(b"anybody?").await?;
            if let Ok(answer) = timeout(Duration::from_millis(100), waiting.as_mut()).await {
                break answer.unwrap_err();
            }
        };
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        // It stays usable.
        let other = UdpSocket::bind(one.peer_addr()?).await?;
        one.send(b"again").await?;
        assert_eq!(other.recv(buffer).await?, 5);
        Ok(())
    });
}

#[test]
fn a_datagram_that_does_not_fit_is_cut_off_and_peek_leaves_it() {
    each(|| async {
        let (client, server) = two().await?;
        let (from, to) = (client.local_addr()?, server.local_addr()?);
        client.send_to(b"a long datagram", to).await?;
        client.send_to(b"next", to).await?;
        let mut buffer = [0; 6];
        assert_eq!(server.peek_from(&mut buffer).await?, (6, from));
        assert_eq!(server.peek(&mut buffer).await?, 6);
        assert_eq!(server.recv_from(&mut buffer).await?, (6, from));
        assert_eq!(&buffer, b"a long");
        assert_eq!(server.recv_from(&mut buffer).await?, (4, from));
        assert_eq!(&buffer[..4], b"next");
        let error = client.send_to(&vec![0; 70_000], to).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(90), "EMSGSIZE");
        Ok(())
    });
}

#[test]
fn tries_and_readiness() {
    each(|| async {
        let (client, server) = two().await?;
        let mut buffer = [0; 6];
        assert_eq!(server.try_recv_from(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        let mut readable = std::pin::pin!(server.readable());
        assert!(poll_once(readable.as_mut()).await.is_none());
        client.writable().await?;
        client.try_send_to(b"hello", server.local_addr()?)?;
        readable.await?;
        assert_eq!(server.try_recv_from(&mut buffer)?, (5, client.local_addr()?));
        Ok(())
    });
}

#[test]
fn options_are_set() {
    each(|| async {
        let (socket, _) = two().await?;
        socket.set_broadcast(true)?;
        socket.set_ttl(44)?;
        socket.set_multicast_loop_v4(true)?;
        socket.set_multicast_ttl_v4(2)?;
        assert!(socket.broadcast()?);
        assert_eq!(socket.ttl()?, 44);
        let not_a_group = Ipv4Addr::new(10, 0, 0, 1);
        assert!(socket.join_multicast_v4(not_a_group, Ipv4Addr::LOCALHOST).is_err());
        assert!(socket.leave_multicast_v4(not_a_group, Ipv4Addr::LOCALHOST).is_err());
        let again = UdpSocket::from_std(socket.into_std())?;
        assert_eq!(again.ttl()?, 44);
        Ok(())
    });
}

#[test]
fn a_group_is_heard() {
    each(|| async {
        let group = Ipv4Addr::new(239, 255, 77, 7);
        let receiver = UdpSocket::bind("0.0.0.0:0").await?;
        receiver.join_multicast_v4(group, Ipv4Addr::LOCALHOST)?;
        let sender = UdpSocket::bind("127.0.0.1:0").await?;
        sender.set_multicast_loop_v4(true)?;
        let port = receiver.local_addr()?.port();
        sender.send_to(b"all", SocketAddr::from((group, port))).await?;
        let mut buffer = [0; 8];
        assert_eq!(receiver.recv(&mut buffer).await?, 3);
        receiver.leave_multicast_v4(group, Ipv4Addr::LOCALHOST)
    });
}
