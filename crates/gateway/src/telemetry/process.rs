//! The process as the system sees it, by the names that all clients of Prometheus have for it.

use std::fmt;
use std::fs::{metadata, read_to_string};

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::sys;

/// A process at one moment, or several processes together.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub(super) struct ProcessState {
    cpu_seconds: f64,
    virtual_bytes: u64,
    resident_bytes: u64,
    /// `None` if the system does not say.
    open_descriptors: Option<u64>,
    most_descriptors: u64,
}

impl ProcessState {
    /// Returns the state of this process.
    pub(super) fn of_this() -> ProcessState {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        // Pages, see proc_pid_statm(5).
        let pages = read_to_string("/proc/self/statm").unwrap_or_default();
        let mut pages = pages.split(' ').map(|pages| pages.parse().unwrap_or(0));
        let mut bytes = || pages.next().unwrap_or(0) * sys::page_size() as u64;
        ProcessState {
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

    /// Adds the state of another process of the server.
    pub(super) fn add(&mut self, other: &ProcessState) {
        self.cpu_seconds += other.cpu_seconds;
        self.virtual_bytes += other.virtual_bytes;
        self.resident_bytes += other.resident_bytes;
        let both = self.open_descriptors.zip(other.open_descriptors);
        self.open_descriptors = both.map(|(own, other)| own + other);
        self.most_descriptors += other.most_descriptors;
    }

    /// Writes the families. `started` is when the first process began, in seconds since 1970.
    pub(super) fn write(&self, started: u64, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Processor time of the process, of the user and the system together";
        encoder
            .encode_descriptor("process_cpu", help, Some(&Unit::Seconds), MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, f64>(&self.cpu_seconds, None)?;
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        for (name, help, unit, value) in [
            ("process_open_fds", "Open descriptors", None, self.open_descriptors),
            ("process_max_fds", "Descriptors that may be open", None, Some(self.most_descriptors)),
            (
                "process_virtual_memory",
                "Address space in use",
                Some(Unit::Bytes),
                Some(self.virtual_bytes),
            ),
            (
                "process_resident_memory",
                "Memory in use",
                Some(Unit::Bytes),
                Some(self.resident_bytes),
            ),
            (
                "process_start_time",
                "When the process began, in seconds since 1970",
                Some(Unit::Seconds),
                Some(started),
            ),
        ] {
            let Some(value) = value else { continue };
            encoder
                .encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?
                .encode_gauge(&gauge(value))?;
        }
        Ok(())
    }
}
