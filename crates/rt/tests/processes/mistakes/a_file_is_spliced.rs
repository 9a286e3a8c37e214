use superpoll_rt::net::unix::UnixStream;

#[superpoll_rt::main]
async fn main() -> std::io::Result<()> {
    let (one, _other) = UnixStream::pair()?;
    superpoll_rt::transfer::copy(&std::fs::File::open("/etc/hosts")?, &one).await?;
    Ok(())
}
