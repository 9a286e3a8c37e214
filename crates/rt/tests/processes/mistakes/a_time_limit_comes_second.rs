use std::time::Duration;

#[superpoll_rt::main]
async fn main() {
    let _ = superpoll_rt::time::timeout(std::future::pending::<()>(), Duration::from_secs(1)).await;
}
