//! Parked connections that a second thread watches.

use superpoll_test_support::until;

use crate::stage::{BACKENDS, Stage};

#[test]
fn idle_connections_move_to_the_keeper_thread_and_come_back() {
    for backend in BACKENDS {
        let text = "[keeper]\nkind = \"thread\"\n\
                    [timeouts]\npark = \"40ms\"\n\
                    [[listeners]]\naddress = \"127.0.0.1:0\"\n\
                    [[hosts]]\n[[hosts.routes]]\npath = \"/c\"\nchannel = {}\n";
        let stage = Stage::new(backend, 2, text);
        let away = || stage.engines.iter().map(|engine| engine.away.get()).sum::<u64>();
        let mut clients: Vec<_> = (0..40).map(|_| stage.connect()).collect();
        for client in &mut clients {
            assert_eq!(client.get("/c?wait=0").status, 204);
        }
        until(&format!("all have left, {backend:?}"), || away() == 40);
        for client in &mut clients {
            assert_eq!(client.get("/c?wait=0").status, 204);
        }
        let back = || stage.count(|engine| &engine.returns) >= 40;
        until(&format!("they come back, {backend:?}"), back);
    }
}
