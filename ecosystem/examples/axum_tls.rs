//! axum over TLS: rustls with a certificate for `localhost` that is made at the start, and a client
//! that trusts this certificate only.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use superpoll_rt::hyper::EngineExecutor;
use superpoll_rt::net::{TcpListener, TcpStream};
use superpoll_rt::tokio::Compat;
use superpoll_rt::{Runtime, spawn};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivateKeyDer::try_from(signing_key.serialize_der())?;
    let certificate = cert.der().clone();
    let mut tls = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];

    let router = Router::new()
        .route("/hello/{name}", get(async |Path(name): Path<String>| format!("hello, {name}")));
    let runtime = Runtime::builder().tokio(true).build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        spawn(serve(listener, TlsAcceptor::from(Arc::new(tls)), router)).detach();
        for protocol in ["http/1.1", "h2"] {
            let body = ask(address, certificate.clone(), protocol).await?;
            println!("{protocol}: {}", String::from_utf8_lossy(&body));
            assert_eq!(body, "hello, world");
        }
        Ok(())
    })
}

/// Accepts connections, each in a task of its own.
async fn serve(listener: TcpListener, tls: TlsAcceptor, router: Router) -> std::io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (tls, service) = (tls.clone(), TowerToHyperService::new(router.clone()));
        spawn(async move {
            let stream = tls.accept(Compat::new(stream)).await?;
            let server = auto::Builder::new(EngineExecutor);
            server.serve_connection_with_upgrades(TokioIo::new(stream), service).await
        })
        .detach();
    }
}

async fn ask(
    address: SocketAddr,
    trusted: CertificateDer<'static>,
    protocol: &str,
) -> Result<Bytes, Failure> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted)?;
    let mut tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    tls.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let stream = Compat::new(TcpStream::connect(address).await?);
    let stream = TlsConnector::from(Arc::new(tls)).connect("localhost".try_into()?, stream).await?;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol.as_bytes()));
    let stream = TokioIo::new(stream);
    let request = Request::get("https://localhost/hello/world").header("host", "localhost");
    let request = request.body(Empty::<Bytes>::new())?;
    let answer = if protocol == "h2" {
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(EngineExecutor, stream).await?;
        spawn(connection).detach();
        sender.send_request(request).await?
    } else {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
        spawn(connection).detach();
        sender.send_request(request).await?
    };
    Ok(answer.into_body().collect().await?.to_bytes())
}
