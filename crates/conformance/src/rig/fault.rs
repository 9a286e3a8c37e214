//! The faults that a rig can plant in a poller.

/// One way in which a poller may be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Fault {
    /// None: the poller as it is.
    #[default]
    None,
    /// Edge-triggered registrations are reported for as long as they are ready.
    EdgeAsLevel,
    /// Level-triggered registrations are reported once for each arrival.
    LevelAsEdge,
    /// Registrations that leave the trigger to the poller are reported for as long as they are
    /// ready.
    AutoAsLevel,
    /// Registrations are no longer reported after three reports with an error or a hang-up.
    DeafInTrouble,
    /// Only the first arrival of an edge-triggered registration is reported while it is readable.
    EdgeOnlyOnChange,
    /// One-shot registrations stay armed.
    OneShotNotDisarmed,
    /// One-shot registrations cannot be armed again.
    OneShotNotRearmed,
    /// The read-closed condition is never reported.
    ReadClosedMasked,
    /// The read-closed condition is reported to registrations that did not ask for it.
    ReadClosedUnasked,
    /// The priority condition is not reported to registrations that ask for it and not for data.
    PriorityAloneMasked,
    /// The priority condition is reported with every arrival.
    PriorityInvented,
    /// Hang-ups are dropped.
    HangUpDropped,
    /// Errors are dropped.
    ErrorDropped,
    /// Changes of interest have no effect.
    ModifyIgnored,
    /// A change of interest replaces nothing: old and new directions are watched.
    ModifyAdds,
    /// Disarmed registrations still report hang-ups and errors.
    DisarmLeavesHangUp,
    /// The last event of a registration comes once more after its end.
    StaleEvent,
    /// Events of an ended registration come under the key of its successor.
    GenerationIgnored,
    /// A removal reaches the kernel one wait late.
    DeleteOvertaken,
    /// Closing an owned descriptor does not detach it.
    CloseNotDetaching,
    /// A wake is lost.
    LostWake,
    /// Only a wake during a wait counts; one before it is forgotten.
    EarlyWakeForgotten,
    /// A wake counts twice.
    WakeRepeated,
    /// A wait ends before its timeout.
    EarlyReturn,
    /// A wait returns with nothing although its timeout is far off.
    SpuriousReturn,
    /// The limit of a wait is exceeded.
    LimitIgnored,
    /// Events that a limit cut off are lost.
    CutOffLost,
    /// Waits that are cut off always report the same registrations.
    UnfairOrder,
    /// An event is reported twice in one wait.
    EventTwice,
    /// The first event after a move between the sets is lost.
    MoveLosesEdge,
    /// Events of a descriptor are lost while a keeper watches it.
    AwayLost,
    /// A zero limit is taken for one.
    ZeroLimitAccepted,
    /// A second registration of a descriptor replaces the first.
    DuplicateReplaces,
    /// An operation with a stale key succeeds.
    StaleKeyAccepted,
    /// Deregistering an absent key ends the oldest registration.
    AbsentRemovesFirst,
    /// Readiness told by the caller is forgotten.
    ToldReadyForgotten,
    /// Files that are always ready are reported once.
    FilesReportedOnce,
    /// Writability is not reported together with readability.
    WritableHidden,
}

/// The faults that [`Rig`](super::Rig) knows how to plant.
pub const FAULTS: &[Fault] = &[
    Fault::EdgeAsLevel,
    Fault::LevelAsEdge,
    Fault::AutoAsLevel,
    Fault::DeafInTrouble,
    Fault::EdgeOnlyOnChange,
    Fault::OneShotNotDisarmed,
    Fault::OneShotNotRearmed,
    Fault::ReadClosedMasked,
    Fault::ReadClosedUnasked,
    Fault::PriorityAloneMasked,
    Fault::PriorityInvented,
    Fault::HangUpDropped,
    Fault::ErrorDropped,
    Fault::ModifyIgnored,
    Fault::ModifyAdds,
    Fault::DisarmLeavesHangUp,
    Fault::StaleEvent,
    Fault::GenerationIgnored,
    Fault::DeleteOvertaken,
    Fault::CloseNotDetaching,
    Fault::LostWake,
    Fault::EarlyWakeForgotten,
    Fault::WakeRepeated,
    Fault::EarlyReturn,
    Fault::SpuriousReturn,
    Fault::LimitIgnored,
    Fault::CutOffLost,
    Fault::UnfairOrder,
    Fault::EventTwice,
    Fault::MoveLosesEdge,
    Fault::AwayLost,
    Fault::ZeroLimitAccepted,
    Fault::DuplicateReplaces,
    Fault::StaleKeyAccepted,
    Fault::AbsentRemovesFirst,
    Fault::ToldReadyForgotten,
    Fault::FilesReportedOnce,
    Fault::WritableHidden,
];
