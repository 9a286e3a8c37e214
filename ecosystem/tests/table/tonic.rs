//! tonic: a server on our listener, and its client.

use futures_util::future::join_all;
use superpoll_ecosystem::Row;
use tonic::Code;
use tonic::service::Routes;
use tonic::transport::Endpoint;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus as Status;
use tonic_health::pb::health_client::HealthClient;

use crate::axum::{PAUSE, site};

pub(crate) fn rows() -> impl Iterator<Item = Row> {
    [Row::new("tonic", "server and client, calls and streams", health)].into_iter()
}

async fn health() {
    let (reporter, service) = tonic_health::server::health_reporter();
    reporter.set_service_status("shop", ServingStatus::Serving).await;
    let address = site(Routes::new(service).into_axum_router()).await;
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    let request = |service: &str| HealthCheckRequest { service: service.to_owned() };
    let calls = (0..50).map(|_| {
        let mut client = client.clone();
        async move { client.check(request("shop")).await.unwrap().into_inner().status() }
    });
    assert!(join_all(calls).await.iter().all(|&status| status == Status::Serving));
    assert_eq!(client.check(request("bakery")).await.unwrap_err().code(), Code::NotFound);
    let mut changes = client.watch(request("shop")).await.unwrap().into_inner();
    assert_eq!(changes.message().await.unwrap().unwrap().status(), Status::Serving);
    // The client waits for the message by then.
    tokio::time::sleep(PAUSE).await;
    reporter.set_service_status("shop", ServingStatus::NotServing).await;
    assert_eq!(changes.message().await.unwrap().unwrap().status(), Status::NotServing);
}
