//! The `superpoll-lab` command.

/// Counts allocations, so that experiments can report that a round made none.
#[global_allocator]
static ALLOCATOR: superpoll_lab::Counting = superpoll_lab::Counting;

fn main() -> std::process::ExitCode {
    superpoll_lab::main()
}
