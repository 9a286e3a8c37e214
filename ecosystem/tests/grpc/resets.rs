//! A server that resets streams.

use std::net::SocketAddr;

use bytes::Bytes;
use h2::Reason;
use http::{Response, header};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request};

use crate::gateway::Gateway;
use crate::run;
use crate::service::{Client, Note};

/// An empty note as gRPC writes it.
const EMPTY: [u8; 5] = [0; 5];

/// Starts a server that resets each stream with the code that its request names, before the
/// response or after its first message.
async fn start(is_begun: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let code =
                        request.headers()["x-code"].to_str().unwrap().parse::<u32>().unwrap();
                    let code = Reason::from(code);
                    if !is_begun {
                        respond.send_reset(code);
                        continue;
                    }
                    let head = Response::builder().header(header::CONTENT_TYPE, "application/grpc");
                    let mut body = respond.send_response(head.body(()).unwrap(), false).unwrap();
                    body.send_data(Bytes::from_static(&EMPTY), false).unwrap();
                    // The client tells by the end of its upload that it has the message.
                    tokio::spawn(async move {
                        let mut upload = request.into_body();
                        while upload.data().await.is_some() {}
                        body.send_reset(code);
                    });
                }
            });
        }
    });
    address
}

fn request<T>(code: Reason, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("x-code", u32::from(code).into());
    request
}

/// The codes, and what they mean to gRPC.
const CODES: [(Reason, Code); 5] = [
    (Reason::INTERNAL_ERROR, Code::Internal),
    (Reason::CANCEL, Code::Cancelled),
    (Reason::REFUSED_STREAM, Code::Unavailable),
    (Reason::ENHANCE_YOUR_CALM, Code::ResourceExhausted),
    (Reason::INADEQUATE_SECURITY, Code::PermissionDenied),
];

#[test]
fn a_reset_after_the_head_keeps_its_code() {
    run(async {
        let gateway = Gateway::start(start(true).await);
        let mut client = Client::new(gateway.connect().await);
        for (reason, code) in CODES {
            let (send, notes) = mpsc::channel::<Note>(1);
            let notes = ReceiverStream::new(notes);
            let mut answers = client.chat(request(reason, notes)).await.unwrap();
            assert_eq!(answers.message().await.unwrap(), Some(Note::new(0)), "{reason:?}");
            drop(send);
            let status = answers.message().await.unwrap_err();
            assert_eq!(status.code(), code, "{reason:?}: {status:?}");
        }
    });
}

#[test]
fn a_reset_before_the_head_keeps_its_code() {
    run(async {
        let gateway = Gateway::start(start(false).await);
        let mut client = Client::new(gateway.connect().await);
        for (reason, code) in CODES {
            let status = client.unary("Unary", request(reason, Note::new(1))).await.unwrap_err();
            assert_eq!(status.code(), code, "{reason:?}: {status:?}");
        }
    });
}
