//! The differences between processors: the numbers of system calls, the place of their arguments in
//! the saved registers, and the layout of an event.
//!
//! Programs in BPF see the registers that a system call was entered with as the kernel's `pt_regs`.
//! Arguments are read there at the exit, too: only the register of the result has changed by then,
//! and where it is that of the first argument (arm64), the kernel keeps a copy.

/// A kind of system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Waits with a timeout in milliseconds: `epoll_wait`, `epoll_pwait`.
    EpollWait,
    /// `epoll_pwait2`.
    EpollWait2,
    /// `poll`, its timeout in milliseconds.
    Poll,
    /// `ppoll`.
    Ppoll,
    /// `select`, its timeout in microseconds.
    Select,
    /// `pselect6`.
    Pselect,
    /// `io_uring_enter`.
    Ring,
    /// `epoll_ctl`.
    Control,
    /// Reads. Only their results count.
    Read,
    /// `accept` and `accept4`.
    Accept,
}

impl Call {
    /// Whether the call can sleep, so that its entry is noted.
    pub(crate) fn waits(self) -> bool {
        !matches!(self, Call::Control | Call::Read | Call::Accept)
    }
}

/// The conventions of a processor.
#[derive(Debug)]
pub(crate) struct Machine {
    /// System calls that are counted, by number.
    pub calls: &'static [(u32, Call)],
    /// Where the number is in `pt_regs`, and whether it has 8 bytes instead of 4.
    pub number: (i32, bool),
    /// The part of `pt_regs` that has all of the following: its start and length in bytes.
    pub window: (i32, i32),
    /// Whether the verifier is known to accept direct reads of `pt_regs` at these places, which
    /// cost less than a call. It checks them against the type on the machine that it runs on.
    pub is_read_directly: bool,
    /// Where the first five arguments are in `pt_regs`.
    pub arguments: [i32; 5],
    /// Where a word in `pt_regs` tells 32-bit programs apart, its bits, and their value there.
    pub compat: (i32, i32, i32),
    /// The same calls by the numbers that 32-bit programs have for them.
    pub compat_calls: &'static [u32],
    /// The calls that make an epoll set, which are only recorded.
    pub creations: &'static [u32],
    /// The call by which the kernel continues a wait that a signal has interrupted.
    pub restart: u32,
    /// Bytes of an event of epoll, and where its data is.
    pub event: (i32, i32),
}

/// x86-64, which packs events as i386 does.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(crate) const X86_64: Machine = Machine {
    calls: &[
        (0, Call::Read),
        (7, Call::Poll),
        (19, Call::Read),
        (23, Call::Select),
        (43, Call::Accept),
        (45, Call::Read),
        (47, Call::Read),
        (232, Call::EpollWait),
        (233, Call::Control),
        (270, Call::Pselect),
        (271, Call::Ppoll),
        (281, Call::EpollWait),
        (288, Call::Accept),
        (426, Call::Ring),
        (441, Call::EpollWait2),
    ],
    number: (120, true),
    window: (56, 88),
    is_read_directly: true,
    arguments: [112, 104, 96, 56, 72],
    // The segment of code: 0x23 is that of 32-bit programs.
    compat: (136, 0xffff, 0x23),
    // read, select, readv, poll, `_newselect`, epoll_ctl, epoll_wait, pselect6, ppoll,
    // epoll_pwait, accept4, recvfrom, recvmsg, `pselect6_time64`, `ppoll_time64`, io_uring_enter,
    // epoll_pwait2. Not `socketcall`, which only old C libraries use.
    compat_calls: &[
        3, 82, 142, 145, 168, 255, 256, 308, 309, 319, 364, 371, 372, 413, 414, 426, 441,
    ],
    creations: &[213, 291],
    restart: 219,
    event: (12, 4),
};

/// arm64, which has only the calls with a signal mask.
#[cfg_attr(not(any(test, target_arch = "aarch64")), allow(dead_code))]
pub(crate) const AARCH64: Machine = Machine {
    calls: &[
        (21, Call::Control),
        (22, Call::EpollWait),
        (63, Call::Read),
        (65, Call::Read),
        (72, Call::Pselect),
        (73, Call::Ppoll),
        (202, Call::Accept),
        (207, Call::Read),
        (212, Call::Read),
        (242, Call::Accept),
        (426, Call::Ring),
        (441, Call::EpollWait2),
    ],
    number: (280, false),
    window: (0, 288),
    is_read_directly: false,
    // The first is the copy that the kernel keeps.
    arguments: [272, 8, 16, 24, 32],
    // The state of the processor: bit 4 is set in 32-bit programs.
    compat: (264, 0x10, 0x10),
    // read, `_newselect`, readv, poll, epoll_ctl, epoll_wait, accept, recvfrom, recvmsg, pselect6,
    // ppoll, epoll_pwait, accept4, `pselect6_time64`, `ppoll_time64`, io_uring_enter, epoll_pwait2.
    compat_calls: &[
        3, 142, 145, 168, 251, 252, 285, 292, 297, 335, 336, 346, 366, 413, 414, 426, 441,
    ],
    creations: &[20],
    restart: 128,
    event: (16, 8),
};

/// The machine that this is built for; `None`: `watch` does not know its registers.
pub(crate) const HERE: Option<&Machine> = if cfg!(target_arch = "x86_64") {
    Some(&X86_64)
} else if cfg!(target_arch = "aarch64") {
    Some(&AARCH64)
} else {
    None
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_in_the_window() {
        for machine in [X86_64, AARCH64] {
            let (from, length) = machine.window;
            for place in machine.arguments.into_iter().chain([machine.compat.0]) {
                assert!(place >= from && place + 8 <= from + length, "{place}");
            }
            assert!(machine.calls.is_sorted_by_key(|(number, _)| *number));
            assert!(machine.compat_calls.is_sorted());
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn numbers_are_those_of_the_c_library() {
        let named = [
            (libc::SYS_epoll_wait, Call::EpollWait),
            (libc::SYS_epoll_pwait, Call::EpollWait),
            (libc::SYS_epoll_pwait2, Call::EpollWait2),
            (libc::SYS_poll, Call::Poll),
            (libc::SYS_ppoll, Call::Ppoll),
            (libc::SYS_select, Call::Select),
            (libc::SYS_pselect6, Call::Pselect),
            (libc::SYS_io_uring_enter, Call::Ring),
            (libc::SYS_epoll_ctl, Call::Control),
            (libc::SYS_read, Call::Read),
            (libc::SYS_readv, Call::Read),
            (libc::SYS_recvfrom, Call::Read),
            (libc::SYS_recvmsg, Call::Read),
            (libc::SYS_accept, Call::Accept),
            (libc::SYS_accept4, Call::Accept),
        ];
        assert_eq!(named.len(), X86_64.calls.len());
        for (number, call) in named {
            assert!(X86_64.calls.contains(&(number as u32, call)), "{call:?} {number}");
        }
        let creations = [libc::SYS_epoll_create, libc::SYS_epoll_create1];
        assert_eq!(creations.map(|number| number as u32), X86_64.creations);
        assert_eq!(size_of::<libc::epoll_event>(), 12);
    }
}
