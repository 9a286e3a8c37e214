//! Libraries that ask for a tokio runtime, with `Builder::tokio`.

use std::io::Write;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use superpoll_rt::net::TcpStream;
use superpoll_rt::{BackendKind, Builder, Handle, Runtime, spawn};
use superpoll_test_support::{Waiter, alone};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Counts the threads of this process, without the one that tries io_uring out: it may be listed
/// for a moment after it was joined.
fn threads() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm"));
    // A thread without a name has ended since.
    let names = threads.filter_map(|thread| name(thread.ok()?).ok());
    names.filter(|name| name.trim_end() != "ring trial").count()
}

fn each(test: impl Fn(Builder)) {
    for backend in BackendKind::available() {
        for workers in [1, 3] {
            eprintln!("back-end {backend}, {workers} engines");
            let workers = NonZeroUsize::new(workers).unwrap();
            test(Runtime::builder().backend(backend).workers(workers).tokio(true));
        }
    }
}

#[test]
fn timers_sockets_and_tasks_of_tokio_work_on_each_engine() {
    each(|builder| {
        let runtime = builder.build().unwrap();
        let handle = runtime.handle();
        let all = runtime.block_on(async move {
            let tasks = (0..handle.engines()).map(|engine| {
                let task = async move {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                    let address = listener.local_addr().unwrap();
                    let server = tokio::spawn(async move {
                        let (mut stream, _) = listener.accept().await.unwrap();
                        let mut bytes = [0; 4];
                        stream.read_exact(&mut bytes).await.unwrap();
                        stream.write_all(&bytes).await.unwrap();
                        tokio::task::spawn_blocking(move || bytes).await.unwrap()
                    });
                    let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
                    client.write_all(b"ping").await.unwrap();
                    let mut echoed = [0; 4];
                    client.read_exact(&mut echoed).await.unwrap();
                    assert_eq!((server.await.unwrap(), &echoed), (*b"ping", b"ping"));
                    assert_eq!(Handle::current().unwrap().engine(), Some(engine));
                };
                handle.spawn_on(engine, task).unwrap()
            });
            let mut done = 0;
            for task in tasks.collect::<Vec<_>>() {
                task.await.unwrap();
                done += 1;
            }
            done
        });
        assert_eq!(all, runtime.handle().engines());
    });
}

#[test]
fn each_kind_of_work_starts_the_thread_by_itself() {
    each(|builder| {
        let runtime = builder.clone().build().unwrap();
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
        let runtime = builder.clone().build().unwrap();
        let spawned = runtime.block_on(async { tokio::spawn(async { 7 }).await.unwrap() });
        assert_eq!(spawned, 7);
        // A socket that is ready only later: nothing else wakes the driver.
        let runtime = builder.build().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = listener.accept().unwrap().0;
        accepted.set_nonblocking(true).unwrap();
        let waiter = Waiter::this_thread();
        let peer = thread::spawn(move || {
            waiter.until_it_sleeps();
            client.write_all(b"x").unwrap();
            client
        });
        let byte = runtime.block_on(async {
            tokio::net::TcpStream::from_std(accepted).unwrap().read_u8().await.unwrap()
        });
        assert_eq!(byte, b'x');
        peer.join().unwrap();
    });
}

#[test]
fn there_is_no_tokio_thread_before_it_is_needed_and_none_afterwards() {
    alone(|| {
        let before = threads();
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let descriptors = open();
        for backend in BackendKind::available() {
            let runtime = Runtime::builder().backend(backend).tokio(true).build().unwrap();
            for _ in 0..3 {
                let task = || async { spawn(superpoll_rt::yield_now()).await.unwrap() };
                runtime.block_on(task());
            }
            assert_eq!(threads(), before, "{backend}");
            runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
            assert_eq!(threads(), before + 1, "{backend}");
            drop(runtime);
            // The kernel lists a thread for a moment after it could be joined.
            let dropped = Instant::now();
            while threads() > before {
                assert!(dropped.elapsed() < Duration::from_secs(60), "{backend}: a thread runs on");
                thread::yield_now();
            }
            assert_eq!((threads(), open()), (before, descriptors), "{backend}");
        }
    });
}

#[test]
fn a_stream_of_ours_in_a_tokio_task_waits_and_goes_on() {
    each(|builder| {
        let runtime = builder.build().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = TcpStream::from_std(listener.accept().unwrap().0).unwrap();
        let mut client = TcpStream::from_std(client).unwrap();
        let run = async move {
            let echo = tokio::spawn(async move {
                let mut stream = superpoll_rt::tokio::Compat::new(stream);
                let mut bytes = [0; 5];
                for _ in 0..3 {
                    stream.read_exact(&mut bytes).await.unwrap();
                    stream.write_all(&bytes).await.unwrap();
                }
                stream.into_inner()
            });
            for text in [b"first", b"again", b"third"] {
                // The tokio task waits by now, or it will find the bytes: both have to work.
                superpoll_rt::time::sleep(Duration::from_millis(3)).await;
                client.write_all(text).await.unwrap();
                let mut echoed = [0; 5];
                client.read_exact(&mut echoed).await.unwrap();
                assert_eq!(&echoed, text);
            }
            // Back on the engine.
            let mut stream = echo.await.unwrap();
            let answer = spawn(async move {
                let mut byte = [0];
                futures_lite::AsyncReadExt::read_exact(&mut stream, &mut byte).await.unwrap();
                byte
            });
            superpoll_rt::time::sleep(Duration::from_millis(3)).await;
            client.write_all(b"!").await.unwrap();
            assert_eq!(answer.await.unwrap(), *b"!");
        };
        runtime.block_on(run);
    });
}

#[test]
fn tokio_tasks_end_with_the_runtime() {
    struct Dropped(Arc<AtomicUsize>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    each(|builder| {
        let dropped = Arc::<AtomicUsize>::default();
        let runtime = builder.build().unwrap();
        let guards = [Dropped(dropped.clone()), Dropped(dropped.clone())];
        runtime.block_on(async move {
            let [one, other] = guards;
            let begun = Arc::new(tokio::sync::Notify::new());
            let begins = begun.clone();
            tokio::spawn(async move {
                let _own = one;
                begins.notify_one();
                std::future::pending::<()>().await;
            });
            begun.notified().await;
            spawn(async move {
                // Dropped inside the context, where tokio's types may be used.
                let _own = other;
                let _timer = tokio::time::sleep(Duration::from_secs(1000)).await;
            })
            .detach();
            superpoll_rt::yield_now().await;
        });
        assert_eq!(dropped.load(Ordering::SeqCst), 0);
        drop(runtime);
        assert_eq!(dropped.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn a_runtime_in_a_task_of_another_leaves_that_its_own_context() {
    let built = || Runtime::builder().tokio(true).build().unwrap();
    let sleep = || tokio::time::sleep(Duration::from_millis(1));
    // The tokio thread of neither, of the inner and of the outer runtime has started before.
    for (outer_sleeps, inner_works) in [(false, false), (false, true), (true, false)] {
        let outer = built();
        let task = outer.block_on(async {
            if outer_sleeps {
                sleep().await;
            }
            let task = spawn(async move {
                let workers = NonZeroUsize::new(2).unwrap();
                let inner = Runtime::builder().tokio(true).workers(workers).build().unwrap();
                if inner_works {
                    let theirs = inner.handle().spawn_on(1, async {
                        tokio::spawn(tokio::time::sleep(Duration::from_millis(1))).await.unwrap();
                    });
                    theirs.unwrap().await.unwrap();
                }
                drop(inner);
                tokio::spawn(async { 3 }).await.unwrap()
            });
            sleep().await;
            task.await
        });
        assert_eq!(task.unwrap(), 3);
    }
}

#[test]
fn without_the_context_tokio_says_what_it_lacks() {
    let runtime = Runtime::new().unwrap();
    let sleep = async { tokio::time::sleep(Duration::from_millis(1)).await };
    let task = runtime.block_on(async { spawn(sleep).await });
    let error = task.unwrap_err();
    assert!(error.panic_message().unwrap().contains("reactor running"), "{error}");
}

#[test]
fn functions_are_called_on_the_thread_of_each_engine() {
    let calls = Arc::new(std::sync::Mutex::new(Vec::new()));
    for workers in [1, 4] {
        let (starts, stops) = (calls.clone(), calls.clone());
        let runtime = Runtime::builder()
            .workers(NonZeroUsize::new(workers).unwrap())
            .on_thread_start(move || starts.lock().unwrap().push((true, thread::current().id())))
            .on_thread_stop(move || stops.lock().unwrap().push((false, thread::current().id())))
            .build()
            .unwrap();
        runtime.block_on(async {});
        drop(runtime);
        let mut calls = std::mem::take(&mut *calls.lock().unwrap());
        assert_eq!(calls.iter().filter(|(start, _)| *start).count(), workers);
        let own: Vec<_> = calls.iter().filter(|(_, id)| *id == thread::current().id()).collect();
        assert_eq!(own.iter().map(|(start, _)| *start).collect::<Vec<_>>(), [true, false]);
        // Each thread has one of both.
        calls.sort_by_key(|(start, id)| (format!("{id:?}"), *start));
        assert_eq!(calls.len(), 2 * workers);
        assert!(calls.chunks(2).all(|pair| pair[0].1 == pair[1].1 && pair[0].0 != pair[1].0));
    }
}
