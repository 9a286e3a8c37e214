//! Why a program cannot be watched.

use std::{error, fmt, io};

/// Why a program cannot be watched.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// There is no process with this number.
    NoProcess(u32),
    /// The process has ended, and its parent has not read its status yet.
    Ended(u32),
    /// The process is a thread of the kernel: it makes no system calls.
    KernelThread(u32),
    /// The process belongs to another user.
    Foreign {
        /// The process.
        process: u32,
        /// Its user.
        user: u32,
    },
    /// A 32-bit program, whose system calls have other numbers.
    ThirtyTwoBit(u32),
    /// BPF is not permitted.
    NotPermitted(io::Error),
    /// The kernel has no BPF, or one that is too old.
    NoBpf {
        /// The attempt that failed.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel permits to trace no process of this kind, or another process traces it.
    NotTraced {
        /// The process.
        process: u32,
        /// The process that traces it.
        tracer: Option<u32>,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Counting without BPF is not possible.
    NoTrace {
        /// The attempt that failed.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A program cannot be counted by a library that it loads, and why.
    NoPreload(String),
    /// This process is in a container, where processes have other numbers than in BPF.
    Namespace,
    /// This processor's registers are not known.
    Machine(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoProcess(process) => write!(
                f,
                "there is no process {process} here; a process in a container has another number \
                 outside of it (lsns -t pid, or ps -e on the host)"
            ),
            Error::Ended(process) => write!(f, "process {process} has ended"),
            Error::KernelThread(process) => {
                write!(
                    f,
                    "process {process} is a thread of the kernel, which makes no system calls"
                )
            }
            Error::Foreign { process, user } => write!(
                f,
                "process {process} belongs to user {user}, and its descriptors cannot be read; \
                 watching it needs root, or CAP_SYS_PTRACE with CAP_BPF and CAP_PERFMON"
            ),
            Error::ThirtyTwoBit(process) => write!(
                f,
                "process {process} is a 32-bit program, whose system calls have other numbers; \
                 only 64-bit programs can be watched"
            ),
            Error::NotPermitted(source) => write!(
                f,
                "the kernel permits no BPF program to this user ({source}); watching needs root, \
                 or CAP_BPF and CAP_PERFMON"
            ),
            Error::NoBpf { what, source } => write!(
                f,
                "{what}: {source}; watching needs Linux {} or later with BPF, BTF and the \
                 tracepoints of system calls (CONFIG_BPF_SYSCALL, CONFIG_DEBUG_INFO_BTF, \
                 CONFIG_FTRACE_SYSCALLS)",
                // Compilers of the kernel for atomic additions that return what was there before.
                if cfg!(target_arch = "aarch64") { "5.18" } else { "5.12" },
            ),
            Error::NotTraced { process, tracer: Some(tracer), .. } => write!(
                f,
                "process {process} is traced by process {tracer} already; end that first, or watch \
                 with root's rights"
            ),
            Error::NotTraced { process, tracer: None, source } => write!(
                f,
                "tracing process {process}: {source}; where /proc/sys/kernel/yama/ptrace_scope is \
                 above 0, start the program with superpoll watch -- PROGRAM, or watch as root"
            ),
            Error::NoTrace { what, source } => write!(f, "{what}: {source}"),
            Error::NoPreload(why) => f.write_str(why),
            Error::Namespace => write!(
                f,
                "this process is in a container (its /proc/self/ns/pid is not the machine's), where \
                 processes have other numbers than in BPF; run superpoll watch on the host"
            ),
            Error::Machine(name) => {
                write!(f, "watching knows the registers of x86_64 and aarch64, and this is {name}")
            }
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Error::NotPermitted(source)
            | Error::NoBpf { source, .. }
            | Error::NotTraced { source, .. }
            | Error::NoTrace { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl Error {
    /// Whether BPF is missing, so that one program can be traced instead.
    pub fn is_shortage_of_bpf(&self) -> bool {
        matches!(self, Error::NotPermitted(_) | Error::NoBpf { .. } | Error::Namespace)
    }

    /// Returns the error for a call of BPF that failed.
    pub(crate) fn bpf(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| match source.raw_os_error() {
            Some(libc::EPERM) => Error::NotPermitted(source),
            _ => Error::NoBpf { what, source },
        }
    }
}
