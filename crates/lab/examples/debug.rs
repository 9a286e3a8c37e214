//! debug
use superpoll::costs::Kind;
use superpoll::policy::Governed;
use superpoll_lab::simulator::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let kind = match a[1].as_str() {
        "pipe" => Kind::Pipe,
        "unix" => Kind::Unix,
        _ => Kind::Tcp,
    };
    let p: f64 = a[2].parse().unwrap();
    let load = Load::new(1000, Pattern::Chance(p));
    let s = Setting::new(kind);
    let mut m = Machine::new(Governed::new(), &s, 1000, superpoll::Hint::None);
    let mut r = load.rounds();
    let mut v = vec![];
    for i in 0..3000 {
        r.next_round(&mut v);
        m.round(&v);
        if i % 256 == 255 {
            println!("{i} hot {} moves {} spent {:?}", m.hot(), m.moves(), m.spent());
            let d = format!("{:?}", m.policy());
            for part in d.split("Governor").filter(|p| p.contains("settle_at")) {
                println!("   {}", &part[part.find("rise:").unwrap()..]);
            }
        }
    }
}
