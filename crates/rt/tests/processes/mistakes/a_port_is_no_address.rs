#[superpoll_rt::main]
async fn main() {
    let _ = superpoll_rt::net::TcpListener::bind(8080).await;
}
