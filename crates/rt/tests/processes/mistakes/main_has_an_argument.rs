#[superpoll_rt::main]
async fn main(_name: String) {}
