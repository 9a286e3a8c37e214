//! A service of tonic's and its client, without generated code.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use http::uri::PathAndQuery;
use http_body_util::BodyExt;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::client::Grpc;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::server::NamedService;
use tonic::transport::{Channel, Server};
use tonic::{Code, IntoStreamingRequest, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::service_fn;

/// The largest message.
pub(crate) const LARGEST: usize = 5 << 20;

/// A field with bytes that are no text.
pub(crate) const BLOB: &str = "x-blob-bin";

/// A number that the service answers with an error.
pub(crate) const REFUSED: u64 = u64::MAX;

/// A number after which a stream of the service has no end.
pub(crate) const ENDLESS: u64 = 1 << 32;

/// A message of either side.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Note {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(bytes = "bytes", tag = "2")]
    pub data: Bytes,
}

impl Note {
    pub(crate) fn new(number: u64) -> Note {
        Note { number, data: Bytes::new() }
    }
}

/// The calls that the service handles now, and all that it has begun to handle.
#[derive(Default)]
pub(crate) struct Calls {
    running: AtomicUsize,
    begun: AtomicUsize,
}

impl Calls {
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    pub(crate) fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    fn begin(self: &Arc<Calls>) -> Running {
        self.running.fetch_add(1, Ordering::SeqCst);
        self.begun.fetch_add(1, Ordering::SeqCst);
        Running(self.clone())
    }
}

/// A call that is handled until this is dropped.
struct Running(Arc<Calls>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Clone, Default)]
struct Service(Arc<Calls>);

type Notes = BoxStream<'static, Result<Note, Status>>;

/// Returns an error with everything that one may have.
fn refusal() -> Status {
    let mut metadata = MetadataMap::new();
    metadata.insert_bin(BLOB, MetadataValue::from_bytes(&[0, 255, 10, 13]));
    Status::with_details_and_metadata(
        Code::NotFound,
        "no such note: \u{e9}\n",
        Bytes::from_static(&[1, 0, 2]),
        metadata,
    )
}

/// Answers a note with the next number, the same data and the same bytes.
async fn unary(request: Request<Note>) -> Result<Response<Note>, Status> {
    if request.get_ref().number == REFUSED {
        return Err(refusal());
    }
    let blob = request.metadata().get_bin(BLOB).cloned();
    let Note { number, data } = request.into_inner();
    let mut response = Response::new(Note { number: number + 1, data });
    if let Some(blob) = blob {
        response.metadata_mut().insert_bin(BLOB, blob);
    }
    Ok(response)
}

/// Ends the call as one whose time is over, with the limit that the client has set.
async fn late(request: Request<Note>) -> Result<Response<Note>, Status> {
    let limit = request.metadata().get("grpc-timeout").unwrap();
    Err(Status::deadline_exceeded(limit.to_str().unwrap()))
}

/// Answers never.
async fn never(_: Request<Note>) -> Result<Response<Note>, Status> {
    std::future::pending().await
}

/// Answers with the sum of the numbers, and the data one after another.
async fn collect(request: Request<Streaming<Note>>) -> Result<Response<Note>, Status> {
    let mut notes = request.into_inner();
    let (mut sum, mut all) = (0, Vec::new());
    while let Some(note) = notes.message().await? {
        if note.number == REFUSED {
            return Err(refusal());
        }
        sum += note.number;
        all.extend_from_slice(&note.data);
    }
    Ok(Response::new(Note { number: sum, data: all.into() }))
}

/// Sends the numbers below that of the request.
async fn count(request: Request<Note>) -> Result<Response<Notes>, Status> {
    let Note { number, data } = request.into_inner();
    let note = move |number| Ok(Note { number, data: data.clone() });
    Ok(Response::new(match number {
        ENDLESS => stream::iter([note(ENDLESS + 1)]).chain(stream::pending()).boxed(),
        number => stream::iter((0..number).map(note)).boxed(),
    }))
}

/// Answers each note before it takes the next one.
async fn chat(request: Request<Streaming<Note>>) -> Result<Response<Notes>, Status> {
    let answers = request.into_inner().flat_map(|note| match note {
        Ok(Note { number: REFUSED, .. }) => stream::iter([Err(refusal())]).boxed(),
        Ok(Note { number, data }) => {
            let answer = stream::iter([Ok(Note { number: number + 1, data })]);
            if number == ENDLESS { answer.chain(stream::pending()).boxed() } else { answer.boxed() }
        }
        Err(error) => stream::iter([Err(error)]).boxed(),
    });
    Ok(Response::new(answers.boxed()))
}

impl tower::Service<http::Request<tonic::body::Body>> for Service {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let running = self.0.begin();
        let codec = ProstCodec::<Note, Note>::default();
        let mut grpc = tonic::server::Grpc::new(codec).max_decoding_message_size(LARGEST + 100);
        Box::pin(async move {
            let path = request.uri().path().to_owned();
            let response = match path.strip_prefix("/test.Notes/").unwrap() {
                "Unary" => grpc.unary(service_fn(unary), request).await,
                "Late" => grpc.unary(service_fn(late), request).await,
                "Never" => grpc.unary(service_fn(never), request).await,
                "Collect" => grpc.client_streaming(service_fn(collect), request).await,
                "Count" => grpc.server_streaming(service_fn(count), request).await,
                "Chat" => grpc.streaming(service_fn(chat), request).await,
                unknown => Status::unimplemented(unknown).into_http(),
            };
            // The body holds the call.
            Ok(response.map(|body| {
                tonic::body::Body::new(body.map_frame(move |frame| {
                    let _ = &running;
                    frame
                }))
            }))
        })
    }
}

impl NamedService for Service {
    const NAME: &'static str = "test.Notes";
}

/// Starts the service, without TLS.
pub(crate) async fn start() -> (SocketAddr, Arc<Calls>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = Service::default();
    let calls = service.0.clone();
    let server = Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    (address, calls)
}

/// A client of the service.
#[derive(Clone)]
pub(crate) struct Client(Grpc<Channel>);

fn method(name: &str) -> PathAndQuery {
    format!("/test.Notes/{name}").try_into().unwrap()
}

impl Client {
    pub(crate) fn new(channel: Channel) -> Client {
        Client(Grpc::new(channel).max_decoding_message_size(LARGEST + 100))
    }

    pub(crate) async fn unary(
        &mut self,
        name: &str,
        request: Request<Note>,
    ) -> Result<Response<Note>, Status> {
        self.0.ready().await.unwrap();
        self.0.unary(request, method(name), ProstCodec::default()).await
    }

    pub(crate) async fn collect(
        &mut self,
        notes: impl IntoStreamingRequest<Message = Note>,
    ) -> Result<Note, Status> {
        self.0.ready().await.unwrap();
        let request = notes.into_streaming_request();
        let answer = self.0.client_streaming(request, method("Collect"), ProstCodec::default());
        answer.await.map(Response::into_inner)
    }

    pub(crate) async fn count(
        &mut self,
        request: Request<Note>,
    ) -> Result<Streaming<Note>, Status> {
        self.0.ready().await.unwrap();
        let codec = ProstCodec::default();
        let answer = self.0.server_streaming(request, method("Count"), codec).await;
        answer.map(Response::into_inner)
    }

    pub(crate) async fn chat(
        &mut self,
        notes: impl IntoStreamingRequest<Message = Note>,
    ) -> Result<Streaming<Note>, Status> {
        self.0.ready().await.unwrap();
        let request = notes.into_streaming_request();
        let answer = self.0.streaming(request, method("Chat"), ProstCodec::default()).await;
        answer.map(Response::into_inner)
    }
}
