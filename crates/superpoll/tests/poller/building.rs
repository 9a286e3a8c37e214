//! Building a poller, and its description of itself.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use superpoll::backend::policy::{Fixed, Set};
use superpoll::backend::{Backend, Context, Poll, Synced};
use superpoll::diagnostics::Costs;
use superpoll::{BackendKind, Error, Events, Hint, Interest, Mode, Poller, Watch};

use crate::around::{Around, Surrounded};

const NOW: Option<Duration> = Some(Duration::ZERO);

#[test]
fn the_builder_chooses_the_back_end() {
    for kind in BackendKind::available() {
        let poller = Poller::builder().backend(kind).build().unwrap();
        assert_eq!(poller.backend(), kind.name());
        assert_eq!(poller.costs().is_some(), kind == BackendKind::Adaptive);
        assert_eq!(kind.name().parse::<BackendKind>().unwrap(), kind);
        assert_eq!(kind.to_string(), kind.name());
        assert!(format!("{poller:?}").contains(kind.name()));
    }
    assert!(
        matches!("kqueue".parse::<BackendKind>(), Err(Error::UnknownBackend { name, .. }) if name == "kqueue")
    );
    assert!(format!("{:?}", Poller::builder().backend(BackendKind::Poll)).contains("Poll"));
}

#[test]
fn auto_stands_for_one_of_two_and_keeps_to_it() {
    let auto: BackendKind = "auto".parse().unwrap();
    assert_eq!((auto, auto.name()), (BackendKind::Auto, "auto"));
    assert!(BackendKind::names().ends_with("uring, auto"));
    assert!(!BackendKind::ALL.contains(&auto) && auto.is_available());
    let chosen = auto.resolve();
    assert!(matches!(chosen, BackendKind::Adaptive | BackendKind::Uring) && chosen.is_available());
    for kind in BackendKind::ALL {
        assert_eq!(kind.resolve(), kind);
    }
    for _ in 0..3 {
        let poller = Poller::builder().backend(auto).build().unwrap();
        assert_eq!(poller.backend(), chosen.name());
    }
    let mut costs = Costs::ASSUMED;
    costs.pass = 12_345.0;
    let poller = Poller::builder().backend(auto).costs(costs).build().unwrap();
    assert_eq!(poller.costs(), (chosen == BackendKind::Adaptive).then_some(&costs));
}

#[test]
fn the_last_choice_counts() {
    let builder = Poller::builder().policy(Fixed::new(Set::Hot)).backend(BackendKind::Epoll);
    assert_eq!(builder.build().unwrap().backend(), "epoll");
    let builder = Poller::builder().backend(BackendKind::Epoll).policy(Fixed::new(Set::Hot));
    assert_eq!(builder.build().unwrap().backend(), "adaptive");
}

#[test]
fn costs_can_be_given() {
    let mut costs = Costs::ASSUMED;
    costs.pass = 12_345.0;
    let poller = Poller::builder().backend(BackendKind::Adaptive).costs(costs).build().unwrap();
    assert_eq!(poller.costs(), Some(&costs));
}

/// A back-end from outside the crate, which is the poll back-end under another name. It can refuse
/// each watch.
struct Foreign(Arc<AtomicBool>);

impl Around for Foreign {
    const NAME: &'static str = "foreign";

    fn sync(
        &mut self,
        poll: &mut Poll,
        cx: &mut Context<'_>,
        index: u32,
    ) -> superpoll::Result<Synced> {
        let synced = poll.sync(cx, index)?;
        if self.0.load(Ordering::Relaxed) {
            let (what, instead) = ("anything", "ask another one");
            return Err(Error::Unsupported { backend: "foreign", what, instead });
        }
        Ok(synced)
    }
}

#[test]
fn a_back_end_of_the_callers_own_is_used() {
    let mut poller =
        Poller::builder().custom(Surrounded::new(Foreign(Arc::default()))).build().unwrap();
    assert_eq!(poller.backend(), "foreign");
    let (reader, mut writer) = std::io::pipe().unwrap();
    let reader = poller.own(reader, Interest::READABLE).unwrap();
    writer.write_all(b"x").unwrap();
    let mut events = Events::with_limit(1);
    assert_eq!(poller.wait(&mut events, NOW).unwrap(), 1);
    assert_eq!(events.iter().next().unwrap().key(), reader.key());
    assert_eq!((poller.stats().hot.len, poller.stats().cold.len), (1, 0));
    assert!(poller.costs().is_none());
}

#[test]
fn a_refusal_ends_a_registration_and_one_of_a_removal_is_none() {
    let refuses = Arc::new(AtomicBool::new(false));
    let backend = Surrounded::new(Foreign(refuses.clone()));
    let mut poller = Poller::builder().custom(backend).build().unwrap();
    let mut events = Events::with_limit(1);
    let (reader, _writer) = std::io::pipe().unwrap();
    let key = poller.register(&reader, Interest::READABLE).unwrap();
    assert_eq!(poller.wait(&mut events, NOW).unwrap(), 0);
    refuses.store(true, Ordering::Relaxed);
    poller.deregister(key).unwrap();
    assert_eq!(poller.wait(&mut events, NOW).unwrap(), 0);
    assert!(events.refusals().is_empty());
    assert_eq!((poller.stats().refused, poller.stats().hot.len), (0, 0));

    let key = poller.register(&reader, Interest::READABLE).unwrap();
    assert_eq!(poller.wait(&mut events, None).unwrap(), 0, "it returns for the refusal");
    let (refused, error) = &events.refusals()[0];
    assert!(*refused == key && matches!(error, Error::Unsupported { .. }), "{error}");
    assert_eq!((poller.len(), poller.stats().refused, poller.stats().hot.len), (0, 1, 0));
    // The slot is free again, and so is the number.
    refuses.store(false, Ordering::Relaxed);
    let again = poller.register(&reader, Interest::READABLE).unwrap();
    assert_eq!(again.index(), key.index());
    assert_eq!(poller.wait(&mut events, NOW).unwrap(), 0);
    assert_eq!((poller.len(), poller.stats().hot.len), (1, 1));
}

#[test]
fn a_refused_descriptor_is_returned_with_the_reason() {
    let mut poller = Poller::builder().backend(BackendKind::Poll).build().unwrap();
    assert!(poller.is_empty());
    let (reader, _writer) = std::io::pipe().unwrap();
    let rejected = poller.own(reader, Interest::READABLE.with_edge()).unwrap_err();
    assert!(rejected.to_string().contains("edge"), "{rejected}");
    assert!(std::error::Error::source(&rejected).is_some());
    assert!(matches!(rejected.error, Error::Unsupported { backend: "poll", .. }));
    let owned = poller.own(rejected.io, Interest::READABLE).unwrap();
    assert!(format!("{owned:?}").contains("key: Key(0#"), "{owned:?}");
    assert_eq!((poller.len(), poller.is_empty()), (1, false));

    // Through another poller it ends with the owner's own.
    let mut other = Poller::builder().backend(BackendKind::Poll).build().unwrap();
    let (second, mut writer) = std::io::pipe().unwrap();
    other.register(&second, Interest::READABLE).unwrap();
    let reader = other.disown(owned);
    assert_eq!(other.len(), 1);
    let mut events = Events::with_limit(1);
    poller.wait(&mut events, NOW).unwrap();
    assert_eq!(poller.len(), 0);
    let owned = poller.own(reader, Interest::READABLE).unwrap();
    let reader = poller.disown(owned);
    assert_eq!(poller.len(), 0);
    assert!(poller.register(&reader, Interest::READABLE).is_ok());
    writer.write_all(b"x").unwrap();
    assert_eq!(other.wait(&mut events, NOW).unwrap(), 1);
}

/// Names the mode that `poll` refuses.
trait WithEdge {
    fn with_edge(self) -> Watch;
}

impl WithEdge for Interest {
    fn with_edge(self) -> Watch {
        Watch::new(self).mode(Mode::Edge).hint(Hint::None)
    }
}

#[test]
fn raw_descriptors_are_checked() {
    for kind in BackendKind::available() {
        let mut poller = Poller::builder().backend(kind).build().unwrap();
        for fd in [-1, i32::MIN, 900] {
            let error = poller.register_raw(fd, Interest::READABLE).unwrap_err();
            assert!(matches!(error, Error::BadDescriptor { fd: f } if f == fd), "{error}");
        }
        let (reader, _writer) = std::io::pipe().unwrap();
        let key = poller.register_raw(reader.as_raw_fd(), Interest::READABLE).unwrap();
        let error = poller.register_raw(reader.as_raw_fd(), Interest::READABLE).unwrap_err();
        assert!(matches!(error, Error::AlreadyRegistered { key: k, .. } if k == key));
        poller.deregister(key).unwrap();
        assert!(matches!(poller.deregister(key), Err(Error::StaleKey { .. })));
        assert!(matches!(poller.modify(key, Interest::READABLE), Err(Error::StaleKey { .. })));
    }
}

#[test]
fn memory_is_small_and_separate_from_mirrors() {
    // The map from numbers depends on the highest, and other tests have some. So all have the same,
    // and those of their own are lower.
    let built = |kind| (kind, Poller::builder().backend(kind).build().unwrap());
    let pollers: Vec<_> = BackendKind::available().into_iter().map(built).collect();
    let open = || std::io::pipe().map(|(reader, writer)| (Arc::new(reader), writer)).unwrap();
    let ends: Vec<_> = (0..200).map(|_| open()).collect();
    let measure = |(kind, mut poller): (BackendKind, Poller)| {
        let mut own = |reader| poller.own(reader, Interest::READABLE).unwrap();
        let pipes: Vec<_> = ends.iter().map(|(reader, _)| own(Arc::clone(reader))).collect();
        poller.wait(&mut Events::with_limit(1), NOW).unwrap();
        let memory = poller.memory();
        assert!(memory.own >= 48 * pipes.len(), "{kind}: {memory:?}");
        if kind == BackendKind::Poll {
            assert!(memory.mirrors >= 8 * pipes.len(), "{memory:?}");
        }
        (kind, memory.own)
    };
    let own: Vec<_> = pollers.into_iter().map(measure).collect();
    // On top of the registrations, which cost the same everywhere, an array has an index to each
    // slot.
    let of = |kind| own.iter().find(|own| own.0 == kind).unwrap().1;
    assert!(of(BackendKind::Poll) >= of(BackendKind::Epoll) + 4 * 200, "{own:?}");
}

#[test]
fn a_change_undone_is_counted_as_saved() {
    let mut poller = Poller::builder().backend(BackendKind::Epoll).build().unwrap();
    let (reader, _writer) = std::io::pipe().unwrap();
    for saved in 1..=3 {
        let key = poller.register(&reader, Interest::READABLE).unwrap();
        poller.deregister(key).unwrap();
        assert_eq!(poller.stats().changes_saved, saved);
    }
    poller.wait(&mut Events::with_limit(1), NOW).unwrap();
    assert_eq!(poller.stats().calls.epoll_ctl(), 0);
}

#[test]
fn timer_slack_is_set_for_this_thread() {
    std::thread::spawn(|| {
        for nanoseconds in [12_345, 1] {
            superpoll::diagnostics::set_timer_slack(Duration::from_nanos(nanoseconds)).unwrap();
            // SAFETY: this option takes no further argument and touches no memory.
            let slack = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
            assert_eq!(slack, nanoseconds as i32);
        }
    })
    .join()
    .unwrap();
}

#[test]
fn bytes_and_an_end_that_come_at_once_are_one_event() {
    for kind in BackendKind::available() {
        let mut poller = Poller::builder().backend(kind).build().unwrap();
        let mut events = Events::with_limit(4);
        for round in 0..40 {
            let (receiver, mut sender) = UnixStream::pair().unwrap();
            let interest = Interest::READABLE | Interest::READ_CLOSED;
            let modes = [Mode::Auto, if kind.abilities().edge { Mode::Edge } else { Mode::Level }];
            let watch = Watch::new(interest).mode(modes[round / 2 % 2]);
            let key = poller.register(&receiver, watch).unwrap();
            if round % 2 == 0 {
                poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
                assert!(events.is_empty());
            }
            sender.write_all(b"last").unwrap();
            drop(sender);
            poller.wait(&mut events, Some(Duration::from_secs(30))).unwrap();
            let event = events.find(key).unwrap();
            let ends = event.is_read_closed() || kind == BackendKind::Select;
            assert!(event.is_readable() && ends, "{kind}, {round}: {event:?}");
            poller.deregister(key).unwrap();
        }
    }
}
