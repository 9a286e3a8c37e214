//! The gateway on a thread of its own, with TLS before a server of HTTP/2.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use superpoll_gateway::Config;
use superpoll_gateway::serve::Server;
use superpoll_rt::{Runtime, time};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::LIMIT;

pub(crate) struct Gateway {
    pub address: SocketAddr,
    folder: tempfile::TempDir,
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Gateway {
    /// Starts a gateway before a server.
    pub(crate) fn start(server: SocketAddr) -> Gateway {
        let folder = tempfile::tempdir().unwrap();
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(folder.path().join("cert.pem"), cert.pem()).unwrap();
        std::fs::write(folder.path().join("key.pem"), signing_key.serialize_pem()).unwrap();
        let at = folder.path().display();
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
             tls = {{ certificate = \"{at}/cert.pem\", key = \"{at}/key.pem\" }}\n\
             [[hosts]]\n[[hosts.routes]]\nproxy = {{ upstream = \"app\" }}\n\
             [upstreams.app]\nservers = [{{ address = \"{server}\" }}]\nh2 = true\n"
        );
        let config = Config::parse("grpc", &text).unwrap_or_else(|error| panic!("{error}"));
        let (end, ended) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let thread = thread::spawn(move || {
            let runtime = Runtime::new().unwrap();
            let mut server = Server::start(&runtime, &config, |event| println!("{event}")).unwrap();
            tell.send(server.listening().next().unwrap().to_string()).unwrap();
            runtime.block_on(async {
                while ended.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    time::sleep(Duration::from_millis(1)).await;
                }
            });
            server.stop();
            let left = runtime.block_on(server.drained(LIMIT));
            assert_eq!(left, 0, "connections that do not end");
        });
        let address = told.recv().unwrap().parse().unwrap();
        Gateway { address, folder, end: Some(end), thread: Some(thread) }
    }

    /// Returns the file with its certificate.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    /// Returns the way to it, by a connection of its own.
    pub(crate) fn endpoint(&self) -> Endpoint {
        let certificate = Certificate::from_pem(std::fs::read(self.certificate()).unwrap());
        let tls = ClientTlsConfig::new().ca_certificate(certificate).domain_name("localhost");
        let endpoint = Endpoint::from_shared(format!("https://{}", self.address)).unwrap();
        endpoint.tls_config(tls).unwrap()
    }

    /// Connects to it.
    pub(crate) async fn connect(&self) -> Channel {
        self.endpoint().connect().await.unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.end = None;
        let ended = self.thread.take().unwrap().join();
        if !thread::panicking() {
            ended.unwrap();
        }
    }
}
