//! The checks of the messages that subscribers receive.
//!
//! Each subscriber checks its own messages: within an epoch the ids follow each other without gaps,
//! and another epoch or a gap comes only after the subscriber was told that it has missed messages.
//! The table of all subscribers of a process holds the text at each position, so two subscribers
//! that receive different messages at one position are noticed.

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The most complaints that a process keeps: they are examples.
const COMPLAINTS: usize = 8;

/// The position of a message in its channel.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub(super) struct Position {
    /// When the log began.
    pub epoch: u64,
    /// The number of the message in that log.
    pub id: u64,
}

impl Position {
    /// Creates a position from an id and an epoch as the server writes it.
    pub(super) fn of(id: u64, epoch: &str) -> Result<Position, String> {
        let number = u64::from_str_radix(epoch, 16);
        Ok(Position { epoch: number.map_err(|_| format!("an epoch is {epoch:?}"))?, id })
    }

    /// Parses `ID-EPOCH`.
    pub(super) fn parse(text: &str) -> Result<Position, String> {
        let parts = text.split_once('-').and_then(|(id, epoch)| Some((id.parse().ok()?, epoch)));
        let (id, epoch) = parts.ok_or_else(|| format!("a position is {text:?}"))?;
        Position::of(id, epoch)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:x}", self.id, self.epoch)
    }
}

/// A message that subscribers of a process have received.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Heard {
    /// Where it is in the channel, the first time that it came.
    pub position: Position,
    /// The message.
    pub text: String,
    /// When the last subscriber received it, on the monotonic clock, of those that are connected to
    /// another server than the first.
    pub last_elsewhere_ns: u64,
}

/// The messages that all subscribers of a process have received.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    messages: Vec<Heard>,
    texts: HashMap<String, usize>,
    positions: HashMap<Position, usize>,
    complaints: Vec<String>,
}

impl Ledger {
    /// Returns how many messages are known.
    pub(super) fn count(&self) -> usize {
        self.messages.len()
    }

    /// Returns the messages from this number on.
    pub(super) fn since(&self, number: usize) -> &[Heard] {
        self.messages.get(number..).unwrap_or_default()
    }

    /// Returns the number of a message.
    pub(super) fn number(&self, text: &str) -> Option<usize> {
        self.texts.get(text).copied()
    }

    /// Keeps an example of a finding, while there is room.
    pub(super) fn complain(&mut self, complaint: impl FnOnce() -> String) {
        if self.complaints.len() < COMPLAINTS {
            self.complaints.push(complaint());
        }
    }

    /// Takes the examples.
    pub(super) fn complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints)
    }

    /// Enters a message; returns its number, and whether another message has its position.
    fn enter(&mut self, position: Position, text: &str) -> (usize, bool) {
        let number = match self.texts.get(text) {
            Some(&number) => number,
            None => {
                let number = self.messages.len();
                let heard = Heard { position, text: text.to_owned(), last_elsewhere_ns: 0 };
                self.messages.push(heard);
                self.texts.insert(text.to_owned(), number);
                number
            }
        };
        let at = *self.positions.entry(position).or_insert(number);
        (number, at != number)
    }
}

/// The findings of a subscriber in a round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    /// Messages that were left out without a word.
    pub lost: u64,
    /// Messages that came twice.
    pub doubled: u64,
    /// Messages in another order than at another subscriber, or than their ids.
    pub reordered: u64,
    /// How often the subscriber was told that it has missed messages.
    pub missed: u64,
    /// The longest time without a message.
    pub silence_ns: u64,
}

/// The messages of one subscriber.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    last: Position,
    /// Whether the next message may be any.
    is_told: bool,
    /// A bit for each message of the ledger that it has received.
    seen: Vec<u64>,
    last_ns: u64,
    /// The findings since the round began.
    pub counts: Counts,
}

impl Reader {
    /// Creates a reader that continues behind this message.
    pub(super) fn new(last: Position) -> Reader {
        Reader { last, is_told: false, seen: Vec::new(), last_ns: 0, counts: Counts::default() }
    }

    /// Begins a round.
    pub(super) fn begin(&mut self, now_ns: u64) {
        self.last_ns = now_ns;
        self.counts = Counts::default();
    }

    /// Notes that the server has said that messages are missing.
    pub(super) fn missed(&mut self) {
        self.is_told = true;
        self.counts.missed += 1;
    }

    /// Returns whether it has received the message with this number.
    pub(super) fn has(&self, number: usize) -> bool {
        self.seen.get(number / 64).is_some_and(|bits| bits >> (number % 64) & 1 == 1)
    }

    fn note(&mut self, number: usize) {
        let place = number / 64;
        if self.seen.len() <= place {
            self.seen.resize(place + 1, 0);
        }
        self.seen[place] |= 1 << (number % 64);
    }

    /// Checks a message. `is_elsewhere` says whether it came from another server than the first.
    pub(super) fn hear(
        &mut self,
        ledger: &mut Ledger,
        position: Position,
        text: &str,
        now_ns: u64,
        is_elsewhere: bool,
    ) {
        self.counts.silence_ns = self.counts.silence_ns.max(now_ns.saturating_sub(self.last_ns));
        self.last_ns = now_ns;
        let (number, is_other) = ledger.enter(position, text);
        let (last, is_told) = (self.last, std::mem::take(&mut self.is_told));
        let is_behind = position.epoch == last.epoch && position.id <= last.id;
        if self.has(number) {
            self.counts.doubled += 1;
            ledger.complain(|| {
                format!("{text} came twice, the second time at {position} after {last}")
            });
        } else if is_other || is_behind {
            self.counts.reordered += 1;
            ledger.complain(|| format!("{text} came at {position} after {last}, another is there"));
        }
        if !is_told && position.epoch != last.epoch {
            // How many messages the other log had is not known.
            self.counts.lost += 1;
            ledger.complain(|| format!("after {last} came {position} without a word"));
        } else if !is_told && !is_behind && position.id != last.id + 1 {
            self.counts.lost += position.id - last.id - 1;
            ledger.complain(|| format!("after {last} came {position} without a word"));
        }
        if is_elsewhere {
            let heard = &mut ledger.messages[number].last_elsewhere_ns;
            *heard = (*heard).max(now_ns);
        }
        self.note(number);
        if !is_behind || is_told {
            self.last = position;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u64, id: u64) -> Position {
        Position { epoch, id }
    }

    /// Plays messages and notices to a subscriber behind 1-5; returns lost, doubled, reordered.
    fn counted(ledger: &mut Ledger, played: &[Option<(u64, u64, &str)>]) -> (u64, u64, u64) {
        let mut reader = Reader::new(at(5, 1));
        for one in played {
            match *one {
                Some((epoch, id, text)) => reader.hear(ledger, at(epoch, id), text, 1, true),
                None => reader.missed(),
            }
        }
        (reader.counts.lost, reader.counts.doubled, reader.counts.reordered)
    }

    #[test]
    fn positions_are_read_as_they_are_written() {
        let position = Position::parse("18-62a9").unwrap();
        assert_eq!((position, position.to_string()), (at(0x62a9, 18), "18-62a9".to_owned()));
        for wrong in ["18", "x-1", "1-x", ""] {
            assert!(Position::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_kind_of_mistake_is_counted_as_such() {
        let (a, b, c) = (Some((5, 2, "a")), Some((5, 3, "b")), Some((5, 4, "c")));
        let new = Some((6, 1, "d"));
        for (played, expected) in [
            (&[a, b, c][..], (0, 0, 0)),
            (&[a, c], (1, 0, 0)),
            (&[a, None, c], (0, 0, 0)),
            (&[a, b, b, c], (0, 1, 0)),
            (&[a, new], (1, 0, 0)),
            (&[a, None, new], (0, 0, 0)),
            (&[a, None, Some((6, 1, "a"))], (0, 1, 0)),
            (&[b, a], (1, 0, 1)),
        ] {
            assert_eq!(counted(&mut Ledger::default(), played), expected, "{played:?}");
        }
    }

    #[test]
    fn two_messages_at_one_position_are_noticed_whoever_receives_them() {
        let mut ledger = Ledger::default();
        assert_eq!(counted(&mut ledger, &[Some((5, 2, "a"))]), (0, 0, 0));
        assert_eq!(counted(&mut ledger, &[Some((5, 2, "b"))]), (0, 0, 1));
        assert_eq!(counted(&mut ledger, &[Some((5, 2, "a"))]), (0, 0, 0));
        assert_eq!((ledger.count(), ledger.since(1)[0].text.as_str()), (2, "b"));
        assert_eq!(ledger.complaints().len(), 1);
    }

    #[test]
    fn silence_counts_from_the_beginning_of_the_round() {
        let (mut ledger, mut reader) = (Ledger::default(), Reader::new(at(5, 1)));
        reader.begin(100);
        for (id, now) in [(2, 150), (3, 400), (4, 410)] {
            reader.hear(&mut ledger, at(5, id), &id.to_string(), now, id != 4);
        }
        assert_eq!(reader.counts.silence_ns, 250);
        let last: Vec<u64> = ledger.since(0).iter().map(|one| one.last_elsewhere_ns).collect();
        assert_eq!(last, [150, 400, 0]);
        assert!(reader.has(ledger.number("3").unwrap()) && !reader.has(64));
    }
}
