//! Names of tasks, as `tracing` shows them.

use std::sync::{Arc, Mutex};

use superpoll_rt::{JoinError, Runtime, named, spawn, yield_now};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the names of the spans that are entered, and each event with the innermost of them.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    names: Vec<String>,
    entered: Vec<usize>,
    events: Vec<(Option<String>, String)>,
}

impl State {
    fn last(&self) -> Option<String> {
        self.entered.last().map(|place| self.names[*place].clone())
    }
}

/// The value of one field, as text.
struct Value(&'static str, String);

impl Visit for Value {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == self.0 {
            self.1 = format!("{value:?}");
        }
    }
}

fn place(id: &Id) -> usize {
    usize::try_from(id.into_u64()).unwrap() - 1
}

impl Subscriber for Names {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut state = self.0.lock().unwrap();
        let mut name = Value("name", String::new());
        span.record(&mut name);
        state.names.push(format!("{} {}", span.metadata().name(), name.1));
        Id::from_u64(state.names.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Value("message", String::new());
        event.record(&mut text);
        let mut state = self.0.lock().unwrap();
        let span = state.last();
        state.events.push((span, text.1));
    }

    fn enter(&self, span: &Id) {
        self.0.lock().unwrap().entered.push(place(span));
    }

    fn exit(&self, span: &Id) {
        let mut state = self.0.lock().unwrap();
        let at = state.entered.iter().rposition(|one| *one == place(span)).unwrap();
        state.entered.remove(at);
    }
}

#[test]
fn events_of_a_named_task_are_in_its_span_and_so_is_its_panic() {
    let names = Names::default();
    tracing::subscriber::with_default(names.clone(), || {
        Runtime::new().unwrap().block_on(async {
            let one = spawn(named("one", async {
                tracing::info!("first");
                yield_now().await;
                tracing::info!("second");
            }));
            let two = spawn(named("two", async {
                yield_now().await;
                tracing::info!("third");
                panic!("as planned");
            }));
            let other = spawn(async { tracing::info!("fourth") });
            one.await.unwrap();
            assert!(matches!(two.await, Err(JoinError::Panicked(_))));
            other.await.unwrap();
            // The name is that of the task that panicked, not of the next one.
            let nameless = spawn(async { panic!("as planned, without a name") });
            assert!(matches!(nameless.await, Err(JoinError::Panicked(_))));
        });
    });
    let state = names.0.lock().unwrap();
    assert!(state.entered.is_empty());
    let span_of = |text: &str| -> Vec<Option<&str>> {
        let events = state.events.iter().filter(|(_, event)| event.starts_with(text));
        events.map(|(span, _)| span.as_deref()).collect()
    };
    assert_eq!(span_of("first"), [Some("task \"one\"")]);
    assert_eq!(span_of("second"), [Some("task \"one\"")]);
    assert_eq!(span_of("third"), [Some("task \"two\"")]);
    assert_eq!(span_of("fourth"), [None]);
    assert_eq!(span_of("a task panicked"), [Some("task \"two\""), None]);
}
