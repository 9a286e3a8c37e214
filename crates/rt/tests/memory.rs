//! What an idle connection costs, and that the steady state allocates nothing.

use std::net::TcpStream as Client;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_rt::net::TcpListener;
use superpoll_rt::{BackendKind, Runtime, spawn, yield_now};

mod refused;

/// An allocator that counts, for each thread.
mod sys {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    thread_local! {
        static COUNT: Cell<usize> = const { Cell::new(0) };
        static BYTES: Cell<isize> = const { Cell::new(0) };
    }

    pub struct Counting;

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

    /// Allocations of the calling thread so far.
    pub fn allocations() -> usize {
        COUNT.with(Cell::get)
    }

    /// Bytes that the calling thread has allocated and not freed.
    pub fn bytes() -> isize {
        BYTES.with(Cell::get)
    }
}

#[global_allocator]
static ALLOCATOR: sys::Counting = sys::Counting;

/// What all idle connections of a test may cost each, in bytes.
const BOUND: isize = 500;

#[test]
fn an_idle_task_with_a_connection_costs_at_most_500_bytes() {
    const CONNECTIONS: usize = 400;
    for kind in BackendKind::available() {
        let runtime = Runtime::builder().backend(kind).build().unwrap();
        let cost = runtime
            .block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = listener.local_addr().unwrap();
                let mut clients = Vec::with_capacity(CONNECTIONS);
                let before = sys::bytes();
                for _ in 0..CONNECTIONS {
                    clients.push(Client::connect(address).unwrap());
                    let (mut stream, _) = listener.accept().await.unwrap();
                    drop(spawn(async move {
                        let mut first = [0; 1];
                        // Waits, and does what a server does when a request begins.
                        if let Ok(1) = stream.read(&mut first).await {
                            let mut buffer = vec![0; 8192];
                            let count = stream.read(&mut buffer).await.unwrap_or(0);
                            let _ = stream.write_all(&buffer[..count]).await;
                        }
                    }));
                }
                for _ in 0..4 {
                    yield_now().await;
                }
                (sys::bytes() - before) / CONNECTIONS as isize
            })
            .unwrap();
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
        runtime
            .block_on(async {
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
            })
            .unwrap();
    }
}

#[test]
fn all_of_this_holds_where_io_uring_is_refused() {
    refused::all_again();
}
