//! The library that `superpoll watch` loads into a program to count its waits without rights.
//!
//! Each function here replaces the C library's function of the same name: it calls that function,
//! and gives the result to [`superpoll_watch::preload`], which has the rules and the counters. The
//! program must not notice: `errno` is that of the call, no descriptor stays open, and no function
//! takes a lock or memory, as a signal handler may call most of them. A thread may be cancelled in
//! a wait, and a handler may jump out of one, so no frame here has anything to clean up.
//!
//! Calls by which the C library itself reads or waits do not come here, nor do those of programs
//! that call the kernel without it.

mod sys;
