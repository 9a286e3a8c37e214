//! The built command, from the outside: its output, its refusals, and their messages.

mod all;
mod atr;
mod cluster;
mod compare;
mod echo;
mod fanout;
mod files;
mod gate;
mod herd;
mod http;
mod idle;
mod interrupt;
mod keep;
mod latency;
mod million;
mod mix;
mod models;
#[path = "../program/mod.rs"]
mod program;
mod record;
mod refusals;
mod registrations;
mod relay;
mod ring;
mod rivals;
mod start;
mod statistics;
mod threads;
mod timers;
mod verify;
mod wake;
mod without_io_uring;
mod zombies;
