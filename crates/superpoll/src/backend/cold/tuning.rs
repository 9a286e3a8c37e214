//! Where idle descriptors are watched, and when they go there.

use std::fmt;
use std::time::Duration;

#[cfg(feature = "keeper")]
use superpoll_keeper::KeeperLink;

/// The place where descriptors are watched on which nothing happens.
#[derive(Debug, Default)]
#[non_exhaustive]
pub enum Topology {
    /// The poller's own epoll set, which is nested in the poll array.
    #[default]
    Nested,
    /// A second thread, which the poller starts, and ends when it is dropped.
    #[cfg(feature = "keeper")]
    Thread(Tuning),
    /// Another process, at the other end of the link
    /// ([`Control::link`](superpoll_keeper::Control::link)). It holds the open files, which live on
    /// there if this process ends without a word.
    #[cfg(feature = "keeper")]
    Process(KeeperLink, Tuning),
}

impl Topology {
    /// Whether there is no keeper.
    pub(crate) fn is_nested(&self) -> bool {
        matches!(self, Topology::Nested)
    }
}

/// When descriptors leave for the keeper.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tuning {
    /// A descriptor leaves after this long without an event. Zero: after the first wait that does
    /// not report it.
    pub idle: Duration,
    /// A group smaller than this waits for more descriptors to leave with it, for at most a quarter
    /// of `idle`. A message takes 253.
    pub batch: usize,
    /// The rule that learns from descriptors that come back.
    pub rule: Rule,
    /// Only registrations leave that were given a state
    /// ([`Poller::leave_state`](crate::Poller::leave_state)): for a process, where a successor can
    /// do nothing with the rest.
    pub only_with_state: bool,
}

/// How hard it is to get out of the poller's own epoll set.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Rule {
    /// Each time that a descriptor comes back too soon, it needs to be idle for twice as long the
    /// next time, up to `doublings` times. Too soon means: before it has been away for `within`
    /// times as long as it was required to be idle. Each time that it stays away longer, the
    /// required idle time is halved again.
    Regret {
        /// How long a stay must be, in idle times, to have been right.
        within: u32,
        /// The most doublings; 16 are more than enough.
        doublings: u8,
    },
    /// Descriptors leave only while the active/total ratio of the poller's own epoll set, over the
    /// last quarter of an idle time, is at or below this.
    Threshold {
        /// The ratio, from 0 to 1.
        idle_atr: f32,
    },
}

crate::named! {
    /// A load with a tuning of its own.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[non_exhaustive]
    pub enum Profile {
        /// Most connections are silent most of the time: they leave soon, and those that come back
        /// too soon wait longer.
        Chat = "chat",
        /// Most connections are at work: only those that have been silent for long leave, and only
        /// while the set is quiet.
        Media = "media",
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Profile {
    type Err = crate::Error;
    fn from_str(name: &str) -> crate::Result<Profile> {
        let named = Profile::ALL.into_iter().find(|profile| profile.name() == name);
        named.ok_or_else(|| crate::Error::UnknownProfile {
            name: name.to_owned(),
            known: Profile::ALL.map(Profile::name).join(", "),
        })
    }
}

impl From<Profile> for Tuning {
    fn from(profile: Profile) -> Tuning {
        match profile {
            Profile::Chat => Tuning {
                idle: Duration::from_secs(1),
                batch: 16,
                rule: Rule::Regret { within: 4, doublings: 6 },
                only_with_state: false,
            },
            Profile::Media => Tuning {
                idle: Duration::from_secs(30),
                batch: 64,
                rule: Rule::Threshold { idle_atr: 0.01 },
                only_with_state: false,
            },
        }
    }
}

impl Default for Tuning {
    /// The tuning of [`Profile::Chat`].
    fn default() -> Tuning {
        Profile::Chat.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_have_names_and_opposite_tunings() {
        for profile in Profile::ALL {
            assert_eq!(profile.to_string().parse::<Profile>().unwrap(), profile);
        }
        let error = "opera".parse::<Profile>().unwrap_err().to_string();
        assert!(error.contains("opera") && error.contains("chat, media"), "{error}");
        let (chat, media) = (Tuning::default(), Tuning::from(Profile::Media));
        assert!(chat.idle < media.idle && chat.batch < media.batch);
        assert!(matches!(chat.rule, Rule::Regret { .. }));
        assert!(matches!(media.rule, Rule::Threshold { .. }));
    }
}
