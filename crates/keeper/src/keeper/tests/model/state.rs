//! What servers of the model know, and the mistakes that they may make.

/// A mistake that a server or the keeper may make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mistake {
    None,
    /// A server acts on a connection although the keeper could not be told to forget it.
    IgnoresUndelivered,
    /// A successor compares the bytes that were written, and not those that were read.
    ComparesNoReads,
    /// The end of a server's links is taken for the end of its process.
    NoFence,
    /// A server that gives a link up does not declare it void.
    NeverRevokes,
    /// A successor continues with an encrypted connection while the keeper still has it as it was
    /// left.
    TouchesWhatIsHeld,
    /// A server writes more than messages to an encrypted connection whose state is left.
    WritesOthersWhereLeft,
    /// A successor believes that a server came to rest because the one before that did.
    KeepsOrderly,
    /// A server that yields says that it came to rest, with connections that it only holds.
    YieldsWhatIsHeld,
    /// The keeper believes a server that yields before it has heard what the server took back.
    LetsYieldedOvertake,
}

/// What a server knows of an encrypted connection: the key, the number of the next record, and
/// whether that has to change the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Keys {
    pub(super) key: u64,
    pub(super) number: u64,
    pub(super) must_change: bool,
}

/// The state of a connection at the moment at which a server left it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SavedState {
    pub(super) connection: u64,
    pub(super) read: u64,
    pub(super) messages: u64,
    pub(super) written: u64,
    pub(super) keys: Keys,
}

impl SavedState {
    pub(super) fn encode(self) -> Vec<u8> {
        let SavedState { connection, read, messages, written, keys } = self;
        let Keys { key, number, must_change } = keys;
        let all = [connection, read, messages, written, key, number, u64::from(must_change)];
        all.map(u64::to_le_bytes).concat()
    }

    pub(super) fn decode(bytes: &[u8]) -> SavedState {
        let number = |at: usize| u64::from_le_bytes(bytes[8 * at..][..8].try_into().unwrap());
        SavedState {
            connection: number(0),
            read: number(1),
            messages: number(2),
            written: number(3),
            keys: Keys { key: number(4), number: number(5), must_change: number(6) == 1 },
        }
    }
}

/// Where a server's connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Location {
    Here,
    WithKeeper(u64),
    /// As it was handed over, and not touched.
    Held,
    /// The same, and left again.
    HeldWithKeeper(u64),
}

impl Location {
    /// Returns the location of a connection that the keeper has no more.
    pub(super) fn taken_back(self) -> Location {
        match self {
            Location::Here | Location::WithKeeper(_) => Location::Here,
            Location::Held | Location::HeldWithKeeper(_) => Location::Held,
        }
    }
}
