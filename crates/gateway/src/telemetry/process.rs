//! The process as the system sees it, by the names that all clients of Prometheus have for it.

use std::fmt;
use std::fs::{metadata, read_to_string};

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::sys;

/// A process at one moment.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ProcessState {
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
    pub(super) fn of_this(process: Option<u32>, started_seconds: u64) -> ProcessState {
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

/// Returns the label of figures of one process among several. Sums would go back when a worker is
/// replaced, and would hide that one of them has no descriptors left.
pub(super) fn process_label(process: Option<u32>) -> Option<(&'static str, String)> {
    process.map(|process| ("process", process.to_string()))
}

/// A gauge of a process; `None` if the system does not say.
type Gauge = (&'static str, &'static str, Option<Unit>, fn(&ProcessState) -> Option<u64>);

const GAUGES: [Gauge; 5] = [
    ("process_open_fds", "Open descriptors", None, |process| process.open_descriptors),
    ("process_max_fds", "Descriptors that may be open", None, |process| {
        Some(process.most_descriptors)
    }),
    ("process_virtual_memory", "Address space in use", Some(Unit::Bytes), |process| {
        Some(process.virtual_bytes)
    }),
    ("process_resident_memory", "Memory in use", Some(Unit::Bytes), |process| {
        Some(process.resident_bytes)
    }),
    (
        "process_start_time",
        "When the process began to serve, in seconds since 1970",
        Some(Unit::Seconds),
        |process| Some(process.started_seconds),
    ),
];

/// Writes the families.
pub(super) fn write(all: &[ProcessState], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Processor time of the process, of the user and the system together";
    let unit = Some(&Unit::Seconds);
    let mut family = encoder.encode_descriptor("process_cpu", help, unit, MetricType::Counter)?;
    for process in all {
        let value = &process.cpu_seconds;
        match process_label(process.process) {
            Some(label) => {
                family.encode_family(&[label])?.encode_counter::<NoLabelSet, _, f64>(value, None)?
            }
            None => family.encode_counter::<NoLabelSet, _, f64>(value, None)?,
        }
    }
    for (name, help, unit, of) in &GAUGES {
        let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        for process in all {
            let Some(value) = of(process) else { continue };
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            match process_label(process.process) {
                Some(label) => family.encode_family(&[label])?.encode_gauge(&value)?,
                None => family.encode_gauge(&value)?,
            }
        }
    }
    Ok(())
}
