//! An HTTPS server that sends back the body of a request: rustls and hyper on this runtime.
//!
//! The certificate for `localhost` is made at the start, and is printed. The client chooses HTTP/1
//! or HTTP/2 in the handshake (ALPN).
//!
//! Try it with `cargo run --example tls_echo -- --listen 127.0.0.1:8443` and
//! `curl --insecure -d hello https://localhost:8443/`.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use futures_rustls::TlsAcceptor;
use futures_rustls::rustls::ServerConfig;
use futures_rustls::rustls::crypto::ring;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::server::conn::auto;
use superpoll_rt::hyper::{EngineExecutor, FuturesIo};
use superpoll_rt::net::TcpStream;
use superpoll_rt::spawn;

mod options;

fn main() -> std::process::ExitCode {
    options::run("Sends back the body of each HTTPS request.", async |listener| {
        let (config, certificate) = certified().map_err(io::Error::other)?;
        print!("{certificate}");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            spawn(serve(acceptor.clone(), stream)).detach();
        }
    })
}

/// Returns a configuration with a self-signed certificate, and the certificate in PEM.
fn certified() -> Result<(ServerConfig, String), Box<dyn std::error::Error + Send + Sync>> {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = own.signing_key.serialize_der().try_into()?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((config, own.cert.pem()))
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream) {
    // A client that does not trust the certificate goes away here.
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let answer = service_fn(async |request: Request<Incoming>| {
        Ok::<_, Infallible>(Response::new(request.into_body()))
    });
    let server = auto::Builder::new(EngineExecutor);
    // hyper has reported the error to the client, if it still listens.
    let _ = server.serve_connection(FuturesIo::new(stream), answer).await;
}
