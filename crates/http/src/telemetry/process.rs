//! The process as the system sees it, by the names that all clients of Prometheus have for it.

use std::fmt;
use std::fs::{metadata, read_to_string};

use prometheus_client::encoding::DescriptorEncoder;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::families;
use crate::families;
use crate::sys;

/// A process at one moment.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProcessState {
    /// Its place among the workers, if there are several.
    process: Option<u32>,
    started_seconds: u64,
    cpu_seconds: f64,
    virtual_bytes: u64,
    resident_bytes: u64,
    /// `None` if the system does not say.
    open_descriptors: Option<u64>,
    most_descriptors: u64,
}

impl ProcessState {
    /// Returns the state of this process, which has served since then, in seconds since 1970.
    pub fn of_this(process: Option<u32>, started_seconds: u64) -> ProcessState {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        // Pages, see proc_pid_statm(5).
        let pages = read_to_string("/proc/self/statm").unwrap_or_default();
        let mut pages = pages.split(' ').map(|pages| pages.parse().unwrap_or(0));
        let mut bytes = || pages.next().unwrap_or(0) * sys::page_size() as u64;
        ProcessState {
            process,
            started_seconds,
            cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            virtual_bytes: bytes(),
            resident_bytes: bytes(),
            // The size is their number since Linux 6.2, and zero before. To list them would cost as
            // much as there are, and memory of the kernel.
            open_descriptors: metadata("/proc/self/fd")
                .ok()
                .map(|fds| fds.len())
                .filter(|n| *n > 0),
            most_descriptors: superpoll::limits::nofile().0,
        }
    }
}

families! {
    const FAMILIES: ProcessState = [
        SecondsCounter process_cpu
            "Processor time of the process, of the user and the system together",
            |process| process.cpu_seconds;
        Gauge process_max_fds "Descriptors that may be open", |process| process.most_descriptors;
        Bytes process_virtual_memory "Address space in use", |process| process.virtual_bytes;
        Bytes process_resident_memory "Memory in use", |process| process.resident_bytes;
        Moment process_start_time "When the process began to serve, in seconds since 1970",
            |process| process.started_seconds;
    ];

    const OPEN_FDS: u64 = [
        Gauge process_open_fds "Open descriptors", |open| *open;
    ];
}

/// Writes the families of all processes.
pub fn write(all: &[ProcessState], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let label = |process: &ProcessState| families::labels([], process.process);
    let processes: Vec<_> = all.iter().map(|process| (label(process), process)).collect();
    families::write(FAMILIES, &processes, encoder)?;
    let open = |process| Some((label(process), process.open_descriptors.as_ref()?));
    families::write(OPEN_FDS, &all.iter().filter_map(open).collect::<Vec<_>>(), encoder)
}
