//! The bytes of items on held connections, where these are the same for all.

use bytes::Bytes;
use superpoll_http::held::FrameKind;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use super::item::{Item, SocketFormat, StreamFormat};
use crate::channel::message::Message;

/// Returns the content of an item for a stream.
pub(in crate::channel) fn of_stream(message: &Message) -> Option<Bytes> {
    match Item::of(message)?.stream? {
        StreamFormat::Content(content) => Some(content),
        StreamFormat::Close | StreamFormat::Hint => None,
    }
}

/// Appends the frame of an item for a WebSocket.
pub(in crate::channel) fn write_frame(message: &Message, to: &mut Vec<u8>) {
    let socket = Item::of(message).and_then(|item| item.socket);
    if let Some(SocketFormat::Message { kind, content }) = socket {
        frame(kind, &content, to);
    }
}

/// Appends a frame.
pub(super) fn frame(kind: FrameKind, content: &[u8], to: &mut Vec<u8>) {
    let opcode = match kind {
        FrameKind::Text => OpCode::Data(Data::Text),
        FrameKind::Binary => OpCode::Data(Data::Binary),
        FrameKind::Ping => OpCode::Control(Control::Ping),
        FrameKind::Pong => OpCode::Control(Control::Pong),
    };
    let header = FrameHeader { opcode, ..FrameHeader::default() };
    // Writing to memory cannot fail.
    let _ = header.format(content.len() as u64, to);
    to.extend_from_slice(content);
}
