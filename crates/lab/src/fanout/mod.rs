//! `superpoll-lab fanout`: the cost of a message that thousands of subscribers receive.
//!
//! A server has one channel and subscribers of one kind: by WebSocket, by server-sent events, or by
//! long-poll. One publisher posts a message; the next follows when every subscriber has the message
//! and the server sleeps. Measured are the processor time of the server for each message and
//! subscriber, the time until the last subscriber has the message, the processor time of a connect,
//! and the memory of a subscriber (its share of `Pss`, over the second half of the subscribers, so
//! that one-time memory does not count).
//!
//! All servers of a point are alive at the same time and take turns: in groups of connects, and in
//! rounds of messages. Each has one worker on a processor of its own (a rival may have processes
//! for parts of the work, all of them there). The subscribers live in processes on the other
//! processor (`crowd.rs`), each with one epoll set, one read for a message and one comparison, so
//! that the load is cheaper than any server; its time is not counted. Every message is checked at
//! every subscriber: number, order and each byte (`wire/`). A subscriber that misses a message,
//! gets one twice or gets another one ends the server's part in the experiment.
//!
//! `subject.rs` lists the servers and `service.rs` starts them; `hyper.rs` and `server.js` are
//! servers that a programmer would write with hyper and with `ws`. `publisher.rs` posts, `load.rs`
//! connects publisher and subscribers to the harness, and `trial.rs` lets the servers take turns.

use serde::{Deserialize, Serialize};

use crate::options::Output;
use crate::server::turns::Figures;
use crate::statistics::Ratio;

mod crowd;
pub(crate) mod experiment;
#[cfg(feature = "http")]
mod hyper;
mod load;
pub(crate) mod plot;
mod publisher;
mod service;
pub(crate) mod subject;
pub(crate) mod table;
mod trial;
pub(crate) mod wire;

crate::by_name::named! {
    /// The protocol of a subscriber.
    pub(crate) enum Transport {
        /// A connection after the handshake of RFC 6455.
        WebSocket = "websocket",
        /// An answer that does not end, of type `text/event-stream`.
        Events = "sse",
        /// A request for each message.
        LongPoll = "long-poll",
    }
}

/// Options of `superpoll-lab fanout`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Subscribers of each server, with commas
    #[arg(long, value_name = "LIST", default_value = "2000")]
    pub subscribers: String,
    /// Protocols of the subscribers: websocket, sse, long-poll or all
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub transport: String,
    /// Bytes of a message
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub bytes: usize,
    /// Servers to measure, with commas, or all
    #[arg(long, value_name = "LIST")]
    pub subjects: Option<String>,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

/// A server with subscribers of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Row {
    /// The server.
    pub subject: String,
    /// The protocol of its subscribers: `websocket`, `sse`, `long-poll`.
    pub transport: String,
    /// Subscribers, each of which receives every message.
    pub subscribers: usize,
    /// Bytes of a message.
    pub bytes: usize,
    /// Processor time of the server for each message and subscriber, in the cheapest round.
    pub cpu_ns_per_delivery_min: f64,
    /// The same in the median round.
    pub cpu_ns_per_delivery_median: f64,
    /// The processor time relative to that of nginx with nchan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nchan_ratio: Option<Ratio>,
    /// From the publisher's request until the last subscriber has the message: the median message.
    pub all_ns_p50: f64,
    /// The same of the slowest message in a hundred.
    pub all_ns_p99: f64,
    /// Proportional memory (`Pss`) per subscriber, over the second half of the subscribers, in
    /// bytes.
    pub pss_bytes_per_subscriber: f64,
    /// The same over the first half, including one-time memory.
    pub first_half_pss_bytes_per_subscriber: f64,
    /// The server's memory without subscribers, in bytes.
    pub start_bytes: f64,
    /// Processor time of the server for a connect and the beginning of a subscription, in the
    /// lowest decile of the groups of connects.
    pub connect_cpu_ns_low: f64,
    /// The same in the median group.
    pub connect_cpu_ns_median: f64,
    /// The processor time of a connect relative to that of nginx with nchan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_nchan_ratio: Option<Ratio>,
    /// The times of its rounds; a request is a message to all subscribers.
    #[serde(flatten)]
    pub figures: Figures,
}

/// Returns the text of a message: its number, and letters that depend on the number.
fn message(number: u64, bytes: usize) -> String {
    let mut text = format!("{number:012} ");
    let letters = (0..bytes.saturating_sub(text.len()) as u64).map(|place| number + place);
    text.extend(letters.map(|sum| char::from(b'a' + (sum % 26) as u8)));
    text
}

/// The fewest and the most bytes of a message.
const BYTES: std::ops::RangeInclusive<usize> = 16..=16_384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_their_length_and_differ() {
        for bytes in [16, 17, 100] {
            assert_eq!(message(7, bytes).len(), bytes);
        }
        assert_eq!(message(7, 16), "000000000007 hij");
        assert_ne!(message(7, 100)[13..], message(8, 100)[13..]);
    }
}
