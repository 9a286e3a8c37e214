//! The library that `superpoll watch` loads into a program to count its waits without rights.
//!
//! Each function here has the name of one of the C library, calls that, and tells the result to
//! [`superpoll_watch::preload`], which has the rules and the counters. The program must not notice:
//! `errno` is that of the call, no descriptor stays open, and nothing takes a lock or memory, as
//! most of these functions may be called in the handler of a signal. A thread may be cancelled in a
//! wait, and a handler may jump out of one, so no frame here has anything to clean up.
//!
//! Calls by which the C library itself reads or waits do not come here, nor do those of programs
//! that call the kernel without it.

mod sys;
