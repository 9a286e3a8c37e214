//! The memory of an idle connection, and that the steady state allocates nothing.

use std::net::TcpStream as Client;
use std::time::{Duration, Instant};

use futures_lite::future::poll_once;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_rt::net::TcpListener;
use superpoll_rt::time::sleep;
use superpoll_rt::{BackendKind, Runtime, spawn, yield_now};

/// An allocator that counts, for each thread.
mod sys {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    thread_local! {
        static COUNT: Cell<usize> = const { Cell::new(0) };
        static BYTES: Cell<isize> = const { Cell::new(0) };
    }

    pub(crate) struct Counting;

    fn note(count: usize, bytes: isize) {
        COUNT.with(|all| all.set(all.get() + count));
        BYTES.with(|all| all.set(all.get() + bytes));
    }

    // SAFETY: every call is handed to the system's allocator as it is; the counters are
    // thread-locals without a destructor, which need no allocation themselves.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            note(1, layout.size() as isize);
            // SAFETY: the caller keeps GlobalAlloc's contract.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
            note(0, -(layout.size() as isize));
            // SAFETY: the caller keeps GlobalAlloc's contract.
            unsafe { System.dealloc(pointer, layout) }
        }

        unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            note(1, size as isize - layout.size() as isize);
            // SAFETY: the caller keeps GlobalAlloc's contract.
            unsafe { System.realloc(pointer, layout, size) }
        }
    }

    /// Returns the number of allocations of the calling thread so far.
    pub(crate) fn allocations() -> usize {
        COUNT.with(Cell::get)
    }

    /// Returns the number of bytes that the calling thread has allocated and not freed.
    pub(crate) fn bytes() -> isize {
        BYTES.with(Cell::get)
    }
}

#[global_allocator]
static ALLOCATOR: sys::Counting = sys::Counting;

/// The most bytes that each idle connection of a test may take.
const BOUND: isize = 500;

#[test]
fn an_idle_task_with_a_connection_costs_at_most_500_bytes() {
    const CONNECTIONS: usize = 400;
    for kind in BackendKind::available() {
        let runtime = Runtime::builder().backend(kind).build().unwrap();
        let cost = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let mut clients = Vec::with_capacity(CONNECTIONS);
            let before = sys::bytes();
            for _ in 0..CONNECTIONS {
                clients.push(Client::connect(address).unwrap());
                let (mut stream, _) = listener.accept().await.unwrap();
                spawn(async move {
                    let mut first = [0; 1];
                    // Waits, and does the same as a server when a request begins.
                    if let Ok(1) = stream.read(&mut first).await {
                        let mut buffer = vec![0; 8192];
                        let count = stream.read(&mut buffer).await.unwrap_or(0);
                        let _ = stream.write_all(&buffer[..count]).await;
                    }
                })
                .detach();
            }
            for _ in 0..4 {
                yield_now().await;
            }
            (sys::bytes() - before) / CONNECTIONS as isize
        });
        let stats = &runtime.stats()[0];
        assert!(stats.tasks == CONNECTIONS && stats.sources >= CONNECTIONS, "{stats:?}");
        eprintln!("{kind}: {cost} bytes for an idle connection");
        assert!(cost <= BOUND, "{kind}: {cost} bytes for an idle connection");
    }
}

#[test]
fn the_steady_state_allocates_nothing() {
    for kind in BackendKind::available() {
        let runtime = Runtime::builder().backend(kind).build().unwrap();
        runtime.block_on(async {
            let (reader, writer) = std::io::pipe().unwrap();
            let mut there = superpoll_rt::pipe::reader_from(reader).unwrap();
            let mut out = superpoll_rt::pipe::writer_from(writer).unwrap();
            let (mut back, mut answer) = superpoll_rt::pipe::pipe().unwrap();
            let echo = spawn(async move {
                let mut buffer = [0; 16];
                loop {
                    let count = there.read(&mut buffer).await.unwrap();
                    if count == 0 {
                        return;
                    }
                    answer.write_all(&buffer[..count]).await.unwrap();
                }
            });
            let mut buffer = [0; 16];
            let mut before = 0;
            for round in 0..3000 {
                if round == 1000 {
                    before = sys::allocations();
                }
                out.write_all(b"x").await.unwrap();
                assert_eq!(back.read(&mut buffer).await.unwrap(), 1);
            }
            let allocated = sys::allocations() - before;
            assert_eq!(allocated, 0, "{kind}: allocations in 2,000 rounds");
            drop(out);
            echo.await.unwrap();
        });
    }
}

/// The most bytes in use after a spike, compared with before.
const LEFT: isize = 64 << 10;

#[test]
fn memory_of_a_spike_is_freed_within_seconds() {
    if std::env::var_os(crate::without_io_uring::CHILD).is_some() {
        eprintln!("skipped where io_uring is refused: the lists of an engine are the same there");
        return;
    }
    // Each on a thread of its own, whose allocations are counted by themselves, and all at the same
    // time.
    let spikes: Vec<_> = BackendKind::available()
        .into_iter()
        .map(|kind| {
            std::thread::spawn(move || {
                let runtime = Runtime::builder().backend(kind).build().unwrap();
                runtime.block_on(spike(kind));
            })
        })
        .collect();
    for spike in spikes {
        spike.join().unwrap();
    }
}

async fn spike(kind: BackendKind) {
    const TIMERS: usize = 100_000;
    const TASKS: usize = 20_000;
    const LIMIT: Duration = Duration::from_secs(30);
    let before = sys::bytes();
    {
        let mut sleeps: Vec<_> = (0..TIMERS).map(|_| Box::pin(sleep(LIMIT))).collect();
        for sleep in &mut sleeps {
            assert!(poll_once(sleep).await.is_none());
        }
        let tasks: Vec<_> = (0..TASKS).map(|_| spawn(yield_now())).collect();
        for task in tasks {
            task.await.unwrap();
        }
    }
    let held = sys::bytes() - before;
    assert!(held > 40 * TIMERS as isize, "{kind}: the wheel alone has more than {held} bytes");
    let start = Instant::now();
    // Few turns: an engine that sleeps wakes up for it.
    while sys::bytes() - before > LEFT {
        let left = sys::bytes() - before;
        assert!(start.elapsed() < LIMIT, "{kind}: {left} of {held} bytes are left");
        sleep(Duration::from_millis(1500)).await;
    }
    // And then it sleeps on.
    let turns = superpoll_rt::Stats::current().unwrap().turns;
    sleep(Duration::from_millis(2500)).await;
    let turns = superpoll_rt::Stats::current().unwrap().turns - turns;
    assert!(turns <= 3, "{kind}: {turns} turns of an idle engine");
}
