//! Without descriptors: an operation that needs one reports that and leaves nothing behind, and
//! open sockets work on. In a process of its own, whose limit is lowered.

use std::any::Any;
use std::error::Error;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_rt::blocking::unblock;
use superpoll_rt::net::unix::{
    UnixDatagram, UnixListener, UnixSeqpacket, UnixSeqpacketListener, UnixStream,
};
use superpoll_rt::net::{Listeners, Spread, TcpListener, TcpStream, UdpSocket};
use superpoll_rt::pipe::pipe;
use superpoll_rt::signal::{SignalKind, signal};
use superpoll_rt::time::sleep;
use superpoll_rt::{AsyncFd, BackendKind, Runtime, process, spawn};
use superpoll_test_support::{Alone, until};

mod sys {
    /// Returns the number of open descriptors, counted without opening one.
    pub(crate) fn open() -> usize {
        // SAFETY: F_GETFD only looks a number up.
        (0..super::LIMIT).filter(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0).count()
    }

    /// Sends a signal, which is caught, to this process.
    pub(crate) fn raise(signal: i32) {
        // SAFETY: kill takes two numbers.
        assert_eq!(unsafe { libc::kill(libc::getpid(), signal) }, 0);
    }
}

const LIMIT: i32 = 64;

const LONG: Duration = Duration::from_secs(60);

fn few_descriptors<F: FnOnce()>(test: F) {
    Alone::default().under(&format!("ulimit -n {LIMIT}")).run(test);
}

/// Opens files until there is room for `room` descriptors.
fn leave(room: usize) -> Vec<File> {
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
        assert!(files.len() < LIMIT as usize, "the limit is in force");
    }
    files.truncate(files.len() - room);
    files
}

type Made = Result<Box<dyn Any>, Box<dyn Error>>;

fn made<T: 'static>(outcome: Result<T, impl Error + 'static>) -> Made {
    match outcome {
        Ok(made) => Ok(Box::new(made)),
        Err(error) => Err(Box::new(error)),
    }
}

/// Tries to make something with ever more room, until there is enough for it.
fn refused_until_there_is_room(what: &str, make: impl Fn() -> Made) {
    for room in 0.. {
        let files = leave(room);
        let before = sys::open();
        assert_eq!(before, LIMIT as usize - room);
        let outcome = make();
        let text = match outcome {
            Ok(made) => {
                assert!(room > 0, "{what} needs a descriptor");
                drop(made);
                assert_eq!(sys::open(), before, "{what}, dropped, leaves descriptors open");
                return;
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(sys::open(), before, "{what}, refused for lack of {room} descriptors, leaks");
        drop(files);
        for part in [what, "Too many open files", "may open 64 descriptors", "ulimit -n"] {
            assert!(text.contains(part), "{part:?} is missing in {text:?}");
        }
        assert!(!text.contains('\n'), "{text}");
        assert!(room < 30, "{what} is never made: {text}");
    }
}

fn any() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

fn name(kind: &str) -> UnixAddr {
    let name = format!("superpoll-test-{}-{kind}", std::process::id());
    UnixAddr::from_abstract_name(name).unwrap()
}

#[test]
fn an_operation_that_lacks_a_descriptor_reports_it_and_leaves_nothing_behind() {
    few_descriptors(|| {
        let runtime = Runtime::new().unwrap();
        let each = |what: &str, make: &dyn Fn() -> Made| refused_until_there_is_room(what, make);
        each("making a pipe", &|| made(pipe()));
        each("making a pair of Unix streams", &|| made(UnixStream::pair()));
        each("making a pair of Unix datagram sockets", &|| made(UnixDatagram::pair()));
        each("making a pair of Unix sockets", &|| made(UnixSeqpacket::pair()));
        each("making a Unix datagram socket", &|| made(UnixDatagram::unbound()));
        each("making a Unix datagram socket", &|| made(UnixDatagram::bind_addr(&name("datagram"))));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        each("making a Unix datagram socket", &|| {
            let outcome = made(UnixDatagram::bind(&path));
            let _ = std::fs::remove_file(&path);
            outcome
        });
        each("listener", &|| made(UnixListener::bind_addr(&name("listener"))));
        each("listener", &|| made(UnixSeqpacketListener::bind_addr(&name("listener"))));
        each("listener", &|| made(runtime.block_on(TcpListener::bind(any()))));
        each("making a UDP socket", &|| made(runtime.block_on(UdpSocket::bind(any()))));

        let listener = runtime.block_on(TcpListener::bind(any())).unwrap();
        let address = listener.local_addr().unwrap();
        each("connecting a TCP socket", &|| made(runtime.block_on(TcpStream::connect(address))));
        let _listener = UnixListener::bind_addr(&name("stream")).unwrap();
        each("connecting a Unix socket", &|| {
            made(runtime.block_on(UnixStream::connect_addr(&name("stream"))))
        });
        let _listener = UnixSeqpacketListener::bind_addr(&name("packets")).unwrap();
        each("connecting a Unix socket", &|| {
            made(runtime.block_on(UnixSeqpacket::connect_addr(&name("packets"))))
        });

        each("catching a signal", &|| made(signal(SignalKind::user_defined1())));
    });
}

#[test]
fn a_runtime_that_cannot_start_leaves_nothing_behind() {
    few_descriptors(|| {
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        for backend in BackendKind::available() {
            for workers in [1, 3] {
                let before = threads();
                refused_until_there_is_room("", || {
                    let workers = NonZeroUsize::new(workers).unwrap();
                    made(Runtime::builder().backend(backend).workers(workers).build())
                });
                // A thread that was joined may be listed for a moment more.
                let start = Instant::now();
                while threads() > before {
                    assert!(start.elapsed() < LONG, "{backend}: a worker of {workers} runs on");
                    std::thread::yield_now();
                }
            }
        }
        for spread in Spread::ALL {
            let workers = NonZeroUsize::new(3).unwrap();
            let runtime =
                Runtime::builder().backend(BackendKind::Epoll).workers(workers).build().unwrap();
            for room in 0.. {
                let files = leave(room);
                let serve =
                    |_: TcpStream, _: SocketAddr| async { unreachable!("no client connects") };
                let Err(error) = Listeners::serve(&runtime.handle(), any(), spread, serve) else {
                    break;
                };
                assert_eq!(sys::open(), LIMIT as usize - room, "{spread} leaks");
                drop(files);
                let text = error.to_string();
                assert!(text.contains("listener") && text.contains("ulimit -n"), "{text}");
                assert!(room < 30, "{spread} never listens: {text}");
            }
        }
    });
}

/// Waits until a process is gone from the table, zombies included.
fn wait_until_gone(id: u32) {
    let path = format!("/proc/{id}");
    until("the process is gone", || !std::path::Path::new(&path).exists());
}

#[test]
fn a_child_that_cannot_be_watched_is_none() {
    few_descriptors(|| {
        let runtime = Runtime::new().unwrap();
        let command = || {
            let mut command = Command::new("cat");
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        };
        let children = || {
            let path = format!("/proc/self/task/{}/children", std::process::id());
            std::fs::read_to_string(path).unwrap()
        };
        let before = children();
        refused_until_there_is_room("child process", || {
            let outcome = process::spawn(&mut command());
            made(outcome.map(|child| {
                runtime.block_on(child.wait_with_output()).unwrap();
            }))
        });
        refused_until_there_is_room("child process", || {
            let mut command = Command::new("true");
            made(runtime.block_on(process::output(command.stdin(Stdio::null()))))
        });
        assert_eq!(children(), before, "children that could not be watched were killed and reaped");
    });
}

#[test]
fn children_that_are_left_without_descriptors_are_taken_later() {
    few_descriptors(|| {
        let start = || process::spawn(Command::new("cat").stdin(Stdio::piped())).unwrap();
        let (mut first, mut second) = (start(), start());
        let ids = [first.id(), second.id()];
        let stdins = [first.stdin.take(), second.stdin.take()];
        // There is no room for the poller of the thread that would wait for it.
        let files = leave(0);
        drop(first);
        drop(files);
        drop(second);
        drop(stdins);
        ids.into_iter().for_each(wait_until_gone);
    });
}

#[test]
fn open_descriptors_keep_working() {
    few_descriptors(|| {
        let before = sys::open();
        for backend in BackendKind::available() {
            // A thread that blocked for the previous runtime may keep its waker, and with it a
            // descriptor, for a moment after it has woken that runtime.
            let start = Instant::now();
            while sys::open() > before {
                assert!(start.elapsed() < LONG, "a descriptor of the runtime before is left open");
                std::thread::yield_now();
            }
            let workers = NonZeroUsize::new(2).unwrap();
            let runtime = Runtime::builder().backend(backend).workers(workers).build().unwrap();
            let (mut near, mut far) = UnixStream::pair().unwrap();
            let (reader, mut writer) = pipe().unwrap();
            // Ends that do not know of each other: the kernel has to be asked.
            let stranger = io::pipe().unwrap();
            let mut foreign = AsyncFd::new(stranger.0).unwrap();
            let mut arrivals = signal(SignalKind::user_defined2()).unwrap();
            let handle = runtime.handle();
            let files = leave(0);
            assert_eq!(sys::open(), LIMIT as usize);
            runtime
                .block_on(async {
                    // None of these was registered before.
                    let echo = spawn(async move {
                        let mut byte = [0];
                        far.read_exact(&mut byte).await?;
                        far.write_all(&byte).await
                    });
                    let away = handle.spawn(async move {
                        let (mut reader, mut byte) = (reader, [0]);
                        sleep(Duration::from_millis(1)).await;
                        reader.read_exact(&mut byte).await.map(|()| byte[0])
                    });
                    let waiting = spawn(async move {
                        let mut byte = [0];
                        foreign.read_exact(&mut byte).await.map(|()| byte[0])
                    });
                    let caught = spawn(async move { arrivals.recv().await });
                    near.write_all(b"x").await?;
                    near.read_exact(&mut [0]).await?;
                    echo.await.unwrap()?;
                    writer.write_all(b"y").await?;
                    assert_eq!(away.await.unwrap()?, b'y');
                    let mut other = stranger.1;
                    unblock(move || io::Write::write_all(&mut other, b"z")).await.unwrap()?;
                    assert_eq!(waiting.await.unwrap()?, b'z');
                    sys::raise(libc::SIGUSR2);
                    caught.await.unwrap()?;
                    io::Result::Ok(())
                })
                .unwrap();
            drop(files);
        }
    });
}

#[test]
fn descriptors_that_find_no_room_are_an_error() {
    few_descriptors(|| {
        let runtime = Runtime::new().unwrap();
        let (one, mut other) = UnixStream::pair().unwrap();
        let sent = [File::open("/dev/null").unwrap(), File::open("/dev/zero").unwrap()];
        runtime
            .block_on(async {
                one.send_with_fds(b"x", &[sent[0].as_fd(), sent[1].as_fd()]).await?;
                // There is room for one of the two, which must not stay open.
                let files = leave(1);
                let error = other.recv_with_fds(&mut [0], 2).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidData);
                assert!(error.to_string().contains("no room for them"), "{error}");
                assert_eq!(sys::open(), LIMIT as usize - 1);
                drop(files);
                // The stream is as it was.
                (&one).write_all(b"next").await?;
                let mut text = [0; 4];
                other.read_exact(&mut text).await?;
                assert_eq!(&text, b"next");
                io::Result::Ok(())
            })
            .unwrap();
    });
}
