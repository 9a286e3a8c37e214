#![deny(unused_must_use)]

#[superpoll_rt::main]
async fn main() {
    superpoll_rt::spawn(async {});
}
