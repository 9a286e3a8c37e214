//! Each back-end delivers one event and then none.

use std::io::{Read, Write};
use std::time::Duration;

use superpoll::{BackendKind, Events, Interest, Poller};

#[test]
fn each_backend_reports_a_readable_pipe_until_it_is_read() {
    for kind in BackendKind::ALL {
        let mut poller = Poller::builder().backend(kind).build().unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut reader = poller.own(reader, Interest::READABLE).unwrap();
        let mut events = Events::with_limit(8);
        assert_eq!(poller.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0, "{kind}");
        writer.write_all(b"x").unwrap();
        for _ in 0..40 {
            assert_eq!(poller.wait(&mut events, None).unwrap(), 1, "{kind}");
            assert_eq!(events.iter().next().unwrap().key(), reader.key());
        }
        reader.read_exact(&mut [0]).unwrap();
        assert_eq!(poller.wait(&mut events, Some(Duration::from_micros(100))).unwrap(), 0);
        drop(reader);
        assert_eq!(poller.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);
        assert_eq!(poller.len(), 0);
    }
}
