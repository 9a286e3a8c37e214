//! The contract: each check, random sequences of operations, and bugs that are planted to see that
//! these find them.

mod allocation;
mod checks;
mod decoding;
mod failing_backend;
mod mutants;
mod numbers;
mod sequences;
