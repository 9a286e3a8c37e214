//! Whether it pays to refill the processor's stack of return addresses after a system call.
//!
//! Processors predict where a function returns to from a small stack of their own. The measures of
//! kernels and processors against speculation leave entries of the kernel on it. The first return
//! to a function from before the system call then goes wrong, in a way that can cost as much as
//! half of a cheap system call. On an AMD EPYC with the mitigation "Safe RET" it was 100 ns of 330
//! for a read from a pipe, and each return after that one cost 7 ns. With harmless entries on top,
//! which takes 10 ns, no return costs more than those 7.
//!
//! Where returns survive a system call, refilling would only cost, so it is measured, once in a
//! process: the same calls from the same depth, with and without. The shortest times count.
//!
//! Under a shadow stack (`CET`), which must agree with the real one, nothing is refilled.

use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::stats::Calls;
use crate::sys::call;
use crate::sys::eventfd::EventFd;

/// Pairs of entries that are put on the return stack after each call; zero while nothing is known.
static PAIRS: AtomicU32 = AtomicU32::new(0);

/// Enough for as many functions as usually return between two system calls. Each pair costs a
/// nanosecond.
const ALL: u32 = 8;

/// Pairs of calls in a measurement, and measurements of each kind: at least, and at most. Each
/// takes 8 us.
const CALLS: u32 = 16;
const ROUNDS: u32 = 8;
const MOST_ROUNDS: u32 = 40;

/// How many pairs to put back after a call.
#[inline(always)]
pub(super) fn pairs() -> u32 {
    PAIRS.load(Ordering::Relaxed)
}

/// Finds out, unless that has been done.
pub(crate) fn calibrate() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        let pairs = if has_shadow_stack() { 0 } else { cheaper().unwrap_or(0) };
        PAIRS.store(pairs, Ordering::Relaxed);
    });
}

/// Whether the stack of return addresses is refilled after system calls in this process, because
/// that was measured to be cheaper. Known once a [`Poller`](crate::Poller) has been made.
pub fn uses_return_stack_refill() -> bool {
    pairs() > 0
}

fn cheaper() -> io::Result<u32> {
    let counter = EventFd::new(&mut Calls::default())?;
    let (mut without, mut with) = (Duration::MAX, Duration::MAX);
    for round in 0..MOST_ROUNDS {
        without = without.min(time(0, &counter)?);
        with = with.min(time(ALL, &counter)?);
        // A tenth less is more than chance. A disturbance hides it; it is not made up by one.
        if round >= ROUNDS && with < without - without / 10 {
            return Ok(ALL);
        }
    }
    Ok(0)
}

fn time(pairs: u32, counter: &EventFd) -> io::Result<Duration> {
    let before = Instant::now();
    for _ in 0..CALLS {
        std::hint::black_box(deep(pairs, counter)?);
    }
    Ok(before.elapsed())
}

// Functions to return from, as there are in any program.

#[inline(never)]
fn deep(pairs: u32, counter: &EventFd) -> io::Result<usize> {
    std::hint::black_box(write(pairs, counter))?;
    std::hint::black_box(read(pairs, counter))
}

#[inline(never)]
fn write(pairs: u32, counter: &EventFd) -> io::Result<usize> {
    std::hint::black_box(call::write_with(pairs, counter, &1u64.to_ne_bytes()))
}

#[inline(never)]
fn read(pairs: u32, counter: &EventFd) -> io::Result<usize> {
    std::hint::black_box(call::read_with(pairs, counter, &mut [0; 8]))
}

#[cfg(target_arch = "x86_64")]
fn has_shadow_stack() -> bool {
    const ARCH_SHSTK_STATUS: libc::c_int = 0x5005;
    let mut features: libc::c_ulong = 0;
    // SAFETY: the kernel writes one integer, which outlives the call; those before Linux 6.6
    // refuse.
    let status =
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SHSTK_STATUS, &raw mut features) };
    status == 0 && features != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn has_shadow_stack() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_way_calls_do_the_same() {
        let counter = EventFd::new(&mut Calls::default()).unwrap();
        for pairs in [0, 1, ALL, 100] {
            assert_eq!(deep(pairs, &counter).unwrap(), 8);
            let empty = read(pairs, &counter).unwrap_err();
            assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
        }
        calibrate();
        assert!(pairs() == 0 || pairs() == ALL);
        assert_eq!(uses_return_stack_refill(), pairs() > 0);
    }

    /// A read with refilled returns, for the debugger to stop in.
    #[inline(never)]
    #[unsafe(export_name = "superpoll_refilled_read")]
    extern "C" fn refilled_read() -> bool {
        let counter = EventFd::new(&mut Calls::default()).unwrap();
        let mut bytes = [0; 8];
        std::hint::black_box(call::read_with(2, &counter, &mut bytes)).is_err()
    }

    const STEPPED: &str = "SUPERPOLL_TEST_STEPPED";

    /// Stops at the three instructions before which the stack pointer is moved, in each round.
    const SCRIPT: &str = "
import gdb
gdb.execute('set pagination off')
gdb.execute('break superpoll_refilled_read')
gdb.execute('run')
frame = gdb.newest_frame()
start = frame.pc()
code = frame.architecture().disassemble(start, count=600)
traps = [i for i, line in enumerate(code) if line['asm'].strip() == 'int3'][:2]
stops = [code[traps[0] + 1], code[traps[1] + 1], code[traps[1] + 2]]
for stop in stops:
    gdb.Breakpoint('*%d' % stop['addr'])
lost = found = 0
for _ in range(6):
    gdb.execute('continue')
    frame, names = gdb.newest_frame(), []
    while frame is not None and len(names) < 20:
        names.append(frame.name() or '?')
        frame = frame.older()
    # The names of inlined functions are there without unwinding; the test runner's are not.
    if any('begin_short_backtrace' in name for name in names):
        found += 1
    else:
        print('LOST', stops, names)
print('FOUND', found)
";

    // Without unwinding there are no directives.
    #[cfg(all(target_arch = "x86_64", target_pointer_width = "64", panic = "unwind"))]
    #[test]
    fn unwinding_finds_the_caller_of_a_refill() {
        use std::process::Command;
        if std::env::var_os(STEPPED).is_some() {
            assert!(refilled_read());
            return;
        }
        let script = format!("/tmp/superpoll-test-{}-refill.py", std::process::id());
        std::fs::write(&script, SCRIPT).unwrap();
        let mut gdb = Command::new("gdb");
        gdb.args(["-q", "-nx", "-batch", "-x", &script, "--args"]);
        gdb.arg(std::env::current_exe().unwrap());
        gdb.args(["--exact", "sys::returns::tests::unwinding_finds_the_caller_of_a_refill"]);
        let outcome = gdb.env(STEPPED, "1").env_remove("DEBUGINFOD_URLS").output();
        std::fs::remove_file(&script).unwrap();
        let said = match outcome {
            Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
            Err(error) => return eprintln!("skipped: gdb cannot be started: {error}"),
        };
        assert!(!said.contains("LOST"), "{said}");
        if !said.contains("FOUND 6") {
            // It has no Python, or may not trace.
            eprintln!("skipped: gdb does not step here: {said}");
        }
    }
}
