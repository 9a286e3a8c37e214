//! Families of metrics: a declaration for each, and one way to write them.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use Figure::{Bytes, Counter, Fraction, Gauge, Moment, SecondsCounter};

/// The labels of a subject; empty for a subject without equals.
pub type Labels = Vec<(&'static str, String)>;

/// A family of metrics: its name, its help and its figure.
pub type Family<T> = (&'static str, &'static str, Figure<T>);

/// A figure of a subject.
pub enum Figure<T> {
    /// A count, which only grows.
    Counter(fn(&T) -> u64),
    /// Seconds in all, which only grow.
    SecondsCounter(fn(&T) -> f64),
    /// A level, which goes up and down.
    Gauge(fn(&T) -> u64),
    /// A level that is written as a fraction.
    Fraction(fn(&T) -> f64),
    /// A moment, in seconds since 1970.
    Moment(fn(&T) -> u64),
    /// Memory, in bytes.
    Bytes(fn(&T) -> u64),
}

impl<T> Figure<T> {
    fn kind(&self) -> MetricType {
        match self {
            Counter(_) | SecondsCounter(_) => MetricType::Counter,
            Gauge(_) | Fraction(_) | Moment(_) | Bytes(_) => MetricType::Gauge,
        }
    }

    fn unit(&self) -> Option<Unit> {
        match self {
            SecondsCounter(_) | Moment(_) => Some(Unit::Seconds),
            Bytes(_) => Some(Unit::Bytes),
            Counter(_) | Gauge(_) | Fraction(_) => None,
        }
    }

    fn write(&self, subject: &T, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        match self {
            Counter(read) => encoder.encode_counter::<NoLabelSet, _, u64>(&read(subject), None),
            SecondsCounter(read) => {
                encoder.encode_counter::<NoLabelSet, _, f64>(&read(subject), None)
            }
            Fraction(read) => encoder.encode_gauge(&read(subject)),
            Gauge(read) | Moment(read) | Bytes(read) => {
                encoder.encode_gauge(&i64::try_from(read(subject)).unwrap_or(i64::MAX))
            }
        }
    }
}

/// Declares lists of families, each with its figure, its name, its help, and a function that reads
/// the figure of a subject. For the crates of this workspace.
#[doc(hidden)]
#[macro_export]
macro_rules! families {
    ($(
        $(#[$meta:meta])*
        const $list:ident: $subject:ty =
            [$($figure:ident $name:ident $help:literal, $read:expr;)+];
    )+) => {
        $(
            $(#[$meta])*
            const $list: &[$crate::telemetry::families::Family<$subject>] = &[$((
                stringify!($name),
                $help,
                $crate::telemetry::families::Figure::$figure($read),
            )),+];
        )+
    };
}

/// Adds the label of the process to the labels of a subject, where a server has several.
pub fn labels<const N: usize>(own: [(&'static str, &str); N], process: Option<u32>) -> Labels {
    let own = own.into_iter().map(|(label, value)| (label, value.to_owned()));
    let process = process.map(|process| ("process", process.to_string()));
    own.chain(process).collect()
}

/// Writes the families, each with the figures of all subjects.
pub fn write<T>(
    families: &[Family<T>],
    subjects: &[(Labels, &T)],
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    for (name, help, figure) in families {
        let unit = figure.unit();
        let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), figure.kind())?;
        for (labels, subject) in subjects {
            // An empty set of labels would be written as braces.
            match labels.is_empty() {
                true => figure.write(subject, &mut family)?,
                false => figure.write(subject, &mut family.encode_family(labels)?)?,
            }
        }
    }
    Ok(())
}
