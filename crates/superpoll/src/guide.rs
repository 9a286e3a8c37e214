//! The guide: the facts that the types do not show by themselves.

pub mod start {
    #![doc = include_str!("guide/start.md")]
    #![doc = concat!("```no_run\n", include_str!("../examples/tcp_echo.rs"), "```")]
}

pub mod contract {
    #![doc = include_str!("guide/contract.md")]
}

pub mod choosing {
    #![doc = include_str!("guide/choosing.md")]
}

pub mod batch {
    #![doc = include_str!("guide/batch.md")]
}

pub mod fork {
    #![doc = include_str!("guide/fork.md")]
}

pub mod migrating {
    #![doc = include_str!("guide/migrating.md")]
}
