#[superpoll_rt::main]
async fn main() -> std::io::Result<()> {
    superpoll_rt::net::TcpStream::connect("127.0.0.1:8080")?;
    Ok(())
}
