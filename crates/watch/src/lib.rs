//! Counts the waits of any running program, and names the savings of another way to wait.
//!
//! [`Watch`] attaches programs to the kernel that count the results of waits, for each epoll set,
//! `poll` or `select` array and io_uring of the watched processes. [`Monitor`] makes a [`Report`]
//! of that, with the registered descriptors that `/proc` tells. [`findings`] compares it with the
//! costs of watching on this machine.
//!
//! | module | content |
//! |---|---|
//! | `sys` | `bpf(2)`, and memory that is shared with the kernel |
//! | `assembler` | instructions of BPF with labels |
//! | `machine` | numbers and registers of x86-64 and arm64 |
//! | `program` | the programs: entry and exit of system calls, and new processes |
//! | `counters` | the layout of what they count, and its reading |
//! | `btf` | where a field is in a structure of the running kernel |
//! | `process` | what `/proc` tells: registered descriptors, processor time |
//! | `outcome` | the rules of counting, without BPF |
//! | `trace` | counting without BPF, by `ptrace(2)` |
//! | `preload` | the same in the program itself, by the library of `superpoll-watch-preload` |
//! | `watch` | attaching and reading |
//! | `recorder` | from the records of the programs to a file |
//! | `recording` | the file: its writer, and its reader |
//! | `report` | figures over a time |
//! | `verdict` | what another way to wait would save |

mod assembler;
mod btf;
mod counters;
mod error;
mod machine;
mod outcome;
#[doc(hidden)]
pub mod preload;
mod process;
mod program;
mod recorder;
mod recording;
mod report;
mod sys;
mod trace;
mod verdict;
mod watch;

pub use counters::{Counts, Key, Kind, bucket_bounds};
pub use error::Error;
pub use process::Registered;
pub use recorder::Recorder;
pub use recording::{End, Entry, RecordingError, RecordingReader, RecordingWriter, Wait};
pub use report::{Monitor, ProcessReport, Report, Sample, SetReport};
pub use verdict::{Finding, Waste, findings, percent};
pub use watch::{Method, Records, Subject, Watch};
