//! A gRPC server and its client: the health service of tonic, which has a call and a stream.

use std::error::Error;
use std::time::Duration;

use hyper_util::service::TowerToHyperService;
use superpoll_rt::net::TcpListener;
use superpoll_rt::{Runtime, serve, spawn, time};
use tonic::service::Routes;
use tonic::transport::Endpoint;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::builder().tokio(true).build()?;
    runtime.block_on(async {
        // The server: tonic's services on a listener of this runtime.
        let (reporter, service) = tonic_health::server::health_reporter();
        reporter.set_service_status("shop", ServingStatus::Serving).await;
        let routes = Routes::new(service).into_axum_router();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        spawn(serve(listener, TowerToHyperService::new(routes))).detach();

        // The client: its sockets are tokio's.
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
        let mut client = HealthClient::new(endpoint.connect().await?);
        let request = || HealthCheckRequest { service: "shop".to_owned() };
        let answer = client.check(request()).await?.into_inner();
        println!("check: {:?}", answer.status());
        assert_eq!(answer.status().as_str_name(), "SERVING");

        let mut changes = client.watch(request()).await?.into_inner();
        let closing = async move {
            time::sleep(Duration::from_millis(50)).await;
            reporter.set_service_status("shop", ServingStatus::NotServing).await;
        };
        spawn(closing).detach();
        for expected in ["SERVING", "NOT_SERVING"] {
            let change = changes.message().await?.ok_or("the stream goes on")?;
            println!("watch: {:?}", change.status());
            assert_eq!(change.status().as_str_name(), expected);
        }
        Ok(())
    })
}
