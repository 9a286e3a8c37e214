async fn work() {}

#[superpoll_rt::main]
async fn main() {
    superpoll_rt::spawn(work).detach();
}
