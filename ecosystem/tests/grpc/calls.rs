//! The forms of calls, with tonic on both sides.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status};

use crate::gateway::Gateway;
use crate::service::{self, BLOB, Calls, Client, ENDLESS, LARGEST, Note, REFUSED};
use crate::{run, until};

/// A deadline that ends a call in a test.
const SOON: Duration = Duration::from_millis(200);

/// Starts a service behind a gateway.
async fn start() -> (Gateway, Arc<Calls>, Client) {
    let (address, calls) = service::start().await;
    let gateway = Gateway::start(address);
    let client = Client::new(gateway.connect().await);
    (gateway, calls, client)
}

/// Checks that a status is the service's error, with all its parts.
fn is_refusal(status: &Status) {
    assert_eq!(status.code(), Code::NotFound, "{status:?}");
    assert_eq!(status.message(), "no such note: \u{e9}\n");
    assert_eq!(status.details(), [1, 0, 2]);
    assert_eq!(status.metadata().get_bin(BLOB).unwrap().to_bytes().unwrap(), &[0, 255, 10, 13][..]);
}

#[test]
fn a_unary_call_has_its_answer_its_metadata_and_its_status() {
    run(async {
        let (_gateway, _, mut client) = start().await;
        let mut request = Request::new(Note { number: 1, data: "data".into() });
        let bytes: Vec<u8> = (0..=255).collect();
        request.metadata_mut().insert_bin(BLOB, MetadataValue::from_bytes(&bytes));
        let response = client.unary("Unary", request).await.unwrap();
        assert_eq!(response.metadata().get_bin(BLOB).unwrap().to_bytes().unwrap(), bytes);
        assert_eq!(response.metadata().get("grpc-status").unwrap(), "0");
        assert_eq!(response.into_inner(), Note { number: 2, data: "data".into() });
        // The fields of the head are the status: there is no body.
        is_refusal(&client.unary("Unary", Request::new(Note::new(REFUSED))).await.unwrap_err());
        let unknown = client.unary("Other", Request::new(Note::new(1))).await.unwrap_err();
        assert_eq!((unknown.code(), unknown.message()), (Code::Unimplemented, "Other"));
    });
}

#[test]
fn streams_of_either_side_arrive_whole_and_in_order() {
    run(async {
        let (_gateway, calls, mut client) = start().await;
        let notes =
            || (1..=1000).map(|number| Note { number, data: vec![number as u8; 50].into() });
        let sum = client.collect(stream::iter(notes())).await.unwrap();
        let data: Vec<u8> = notes().flat_map(|note| note.data).collect();
        assert_eq!((sum.number, &*sum.data), (500_500, &*data));
        let counted =
            client.count(Request::new(Note { number: 1000, data: "x".into() })).await.unwrap();
        let counted: Vec<_> = counted.map(Result::unwrap).map(|note| note.number).collect().await;
        assert_eq!(counted, (0..1000).collect::<Vec<_>>());
        let answers = client.chat(stream::iter(notes())).await.unwrap();
        let answers: Vec<_> = answers.map(Result::unwrap).collect().await;
        let expected = notes().map(|note| Note { number: note.number + 1, ..note });
        assert_eq!(answers, expected.collect::<Vec<_>>());
        until("calls that do not end", || calls.running() == 0).await;
    });
}

/// No message waits for the next one, in either direction.
#[test]
fn each_message_of_a_conversation_is_answered_before_the_next_is_sent() {
    run(async {
        let (_gateway, _, mut client) = start().await;
        let (send, notes) = mpsc::channel(1);
        let mut answers = client.chat(ReceiverStream::new(notes)).await.unwrap();
        for number in 0..500 {
            let data = Bytes::from(vec![b'x'; [0, 1, 20_000][number as usize % 3]]);
            send.send(Note { number: 1000 + number, data: data.clone() }).await.unwrap();
            let answer = answers.message().await.unwrap().unwrap();
            assert_eq!(answer, Note { number: 1001 + number, data });
        }
        drop(send);
        assert_eq!(answers.message().await.unwrap(), None);
        assert_eq!(answers.trailers().await.unwrap().unwrap().get("grpc-status").unwrap(), "0");
    });
}

#[test]
fn a_call_may_fail_in_the_middle_of_its_streams() {
    run(async {
        let (_gateway, calls, mut client) = start().await;
        // The client sends more, and would not end.
        let endless = || stream::iter([Note::new(1), Note::new(REFUSED)]).chain(stream::pending());
        is_refusal(&client.collect(endless()).await.unwrap_err());
        let mut answers = client.chat(endless()).await.unwrap();
        assert_eq!(answers.message().await.unwrap(), Some(Note::new(2)));
        is_refusal(&answers.message().await.unwrap_err());
        until("calls that do not end", || calls.running() == 0).await;
    });
}

#[test]
fn large_messages_pass_both_ways() {
    run(async {
        let (_gateway, _, mut client) = start().await;
        let data: Bytes = (0..LARGEST).map(|at| (at * 7 + at / 251) as u8).collect();
        let note = Note { number: 1, data: data.clone() };
        let answer = client.unary("Unary", Request::new(note.clone())).await.unwrap();
        assert!(answer.into_inner().data == data);
        let notes = stream::iter([data.slice(..LARGEST / 2), data.slice(LARGEST / 2..)]);
        let sum = client.collect(notes.map(|data| Note { number: 1, data })).await.unwrap();
        assert!(sum.data == data);
        // Several streams share the windows of one connection.
        let chats = (0..3).map(|_| {
            let (mut client, note) = (client.clone(), note.clone());
            async move {
                let mut answers = client.chat(stream::iter(vec![note; 2])).await.unwrap();
                while let Some(answer) = answers.message().await.unwrap() {
                    assert!(answer.data.len() == LARGEST && answer.number == 2);
                }
            }
        });
        join_all(chats).await;
    });
}

#[test]
fn a_deadline_ends_a_call_on_either_side() {
    run(async {
        let (gateway, calls, mut client) = start().await;
        let mut request = Request::new(Note::new(1));
        request.set_timeout(Duration::from_secs(30));
        let late = client.unary("Late", request).await.unwrap_err();
        assert_eq!((late.code(), late.message()), (Code::DeadlineExceeded, "30000000u"));
        // Only this client knows of the limit: it resets the stream, and so does the gateway.
        let channel = gateway.endpoint().timeout(SOON).connect().await.unwrap();
        let mut client = Client::new(channel);
        let begun = calls.begun();
        let late = client.unary("Never", Request::new(Note::new(1))).await.unwrap_err();
        assert!(matches!(late.code(), Code::Cancelled | Code::DeadlineExceeded), "{late:?}");
        until("a call that does not end", || calls.running() == 0).await;
        assert_eq!(calls.begun(), begun + 1);
    });
}

#[test]
fn a_call_that_is_cancelled_ends_at_the_server() {
    run(async {
        let (_gateway, calls, client) = start().await;
        let endless = || stream::iter([Note::new(1)]).chain(stream::pending());
        for _ in 0..3 {
            // Before the head of the response.
            for name in ["Never", "Collect"] {
                let (mut client, begun) = (client.clone(), calls.begun());
                let call = tokio::spawn(async move {
                    match name {
                        "Never" => drop(client.unary(name, Request::new(Note::new(1))).await),
                        _ => drop(client.collect(endless()).await),
                    }
                });
                until("a call that does not begin", || calls.begun() > begun).await;
                assert_eq!(calls.running(), 1, "{name}");
                call.abort();
                until(name, || calls.running() == 0).await;
            }
            // After it.
            let mut client = client.clone();
            let mut answers = client.count(Request::new(Note::new(ENDLESS))).await.unwrap();
            assert_eq!(answers.message().await.unwrap(), Some(Note::new(ENDLESS + 1)));
            assert_eq!(calls.running(), 1);
            drop(answers);
            until("a stream of answers that does not end", || calls.running() == 0).await;
            // tonic resets no stream while it may send more.
            let (send, notes) = mpsc::channel(1);
            let mut answers = client.chat(ReceiverStream::new(notes)).await.unwrap();
            send.send(Note::new(ENDLESS)).await.unwrap();
            assert_eq!(answers.message().await.unwrap(), Some(Note::new(ENDLESS + 1)));
            assert_eq!(calls.running(), 1);
            drop((answers, send));
            until("a conversation that does not end", || calls.running() == 0).await;
        }
    });
}

#[test]
fn none_of_10_000_calls_is_lost() {
    const CONNECTIONS: u64 = 8;
    const CALLS: u64 = 10_000;
    run(async {
        let (gateway, calls, _) = start().await;
        let asks = (0..CONNECTIONS).map(|connection| {
            let gateway = &gateway;
            async move {
                let client = Client::new(gateway.connect().await);
                let numbers = (0..CALLS).filter(|number| number % CONNECTIONS == connection);
                let calls = stream::iter(numbers).map(|number| {
                    let mut client = client.clone();
                    async move {
                        let number = 1000 + number;
                        let data = Bytes::from(number.to_string());
                        let note = Note { number, data: data.clone() };
                        let answer = client.unary("Unary", Request::new(note)).await.unwrap();
                        assert_eq!(answer.into_inner(), Note { number: number + 1, data });
                    }
                });
                calls.buffer_unordered(40).count().await
            }
        });
        let answered: usize = join_all(asks).await.into_iter().sum();
        assert_eq!((answered, calls.begun()), (CALLS as usize, CALLS as usize));
    });
}
