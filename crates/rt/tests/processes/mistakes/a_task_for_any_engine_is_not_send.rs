use std::rc::Rc;

#[superpoll_rt::main]
async fn main() -> superpoll_rt::Result<()> {
    let shared = Rc::new(1);
    superpoll_rt::Handle::current()?
        .spawn(async move {
            superpoll_rt::yield_now().await;
            drop(shared);
        })
        .detach();
    Ok(())
}
