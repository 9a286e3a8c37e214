//! A broker in memory, for the tests of the shared channels and of the supervisor's log.

pub(crate) mod toy;
