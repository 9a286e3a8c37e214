#[superpoll_rt::main]
fn main() {}
