//! The settings of operators for the servers of a group, and the reports for operators.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::group::{Group, ServerList};
use super::server::GroupServer;
use crate::admin::{ServerReport, ServerState, Settings, UpstreamReport};
use crate::log::{Event, Level};

impl Group {
    /// Applies the settings of operators, and reports the servers for which that is another
    /// setting.
    pub fn set(&self, settings: &Settings) {
        // The list cannot change between the two: `install` has its lock.
        let list = self.listed();
        *lock(&self.settings) = settings.clone();
        self.apply_settings(&list.list);
    }

    /// Applies the settings to the servers of a list.
    pub(super) fn apply_settings(&self, list: &ServerList) {
        let settings = lock(&self.settings);
        for member in list.iter() {
            let setting = settings.server(self.name(), &self.configured_address(member));
            if member.operator.set(setting) {
                let (name, state) = (self.name(), setting.state.name());
                let (server, weight) = (member.address.to_string(), member.weight());
                let what = format!("the server {server} of {name} to {state}, weight {weight}");
                let message = format!("an operator has set {what}");
                let event = Event::new(Level::Notice, "upstream-set", message);
                let event = event.with("upstream", name).with("server", server);
                (self.report)(&event.with("state", state).with("weight", weight));
            }
        }
    }

    /// Returns the address that the configuration has for a server.
    fn configured_address(&self, server: &GroupServer) -> String {
        let configured = self.config().servers.get(server.slot());
        configured.map_or_else(String::new, |configured| configured.address.to_string())
    }

    /// Whether a server continues with clients that are bound to it: it is healthy, and is up or
    /// drains.
    pub(super) fn takes_bound(&self, server: &GroupServer) -> bool {
        server.operator.state() != ServerState::Down && server.is_healthy(self.clock.now())
    }

    /// Returns the state of the servers.
    pub fn describe(&self) -> UpstreamReport {
        let members = self.members();
        let servers = members.iter().map(|member| {
            let healthy = member.is_healthy(self.clock.now());
            let (address, configured) =
                (member.address.to_string(), self.configured_address(member));
            ServerReport {
                name: (configured != address).then_some(configured),
                address,
                state: member.operator.state(),
                healthy,
                healthy_in: u32::from(healthy),
                processes: 1,
                weight: member.weight(),
                configured_weight: member.configured_weight(),
                active: member.active.load(Ordering::Relaxed),
                requests: member.requests.load(Ordering::Relaxed),
                failures: member.failures.load(Ordering::Relaxed),
                idle_connections: member.idle.load(Ordering::Relaxed),
            }
        });
        UpstreamReport { name: self.name().to_owned(), servers: servers.collect() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use superpoll_config::Config;

    use super::super::group::Group;
    use super::super::server::Found;
    use crate::admin::{ServerChange, ServerState, Settings, Upstreams, WeightChange};

    #[derive(Clone, Copy, Debug)]
    enum Step {
        State(usize, ServerState),
        Weight(usize, u32),
        Failed(usize),
        Checked(usize, bool),
        Choose,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let state =
            prop::sample::select(vec![ServerState::Up, ServerState::Down, ServerState::Drain]);
        let step = prop_oneof![
            (0..3_usize, state).prop_map(|(index, state)| Step::State(index, state)),
            (0..3_usize, 0..4_u32).prop_map(|(index, weight)| Step::Weight(index, weight)),
            (0..3_usize).prop_map(Step::Failed),
            (0..3_usize, any::<bool>()).prop_map(|(index, well)| Step::Checked(index, well)),
            Just(Step::Choose),
        ];
        prop::collection::vec(step, 1..80)
    }

    /// A group of the servers that a name has, and a function that sets their state.
    fn named() -> (Arc<Group>, impl FnMut(ServerState)) {
        let text = "[[listeners]]\naddress = \":1\"\nrelay = { to = \":2\" }\n[upstreams.a]\n\
                    servers = [{ address = \"app.test:80\" }]\n";
        let config = Config::parse("test", text).unwrap();
        let group = Group::new("a", &config.upstreams["a"], None, Arc::new(|_| {})).unwrap();
        let (of, mut settings) = (group.clone(), Settings::default());
        let set = move |state| {
            let (upstream, server) = ("a".to_owned(), "app.test:80".to_owned());
            let change = ServerChange { upstream, server, state: Some(state), weight: None };
            settings.change(&change, &Upstreams::from_config(&config)).unwrap();
            of.set(&settings);
        };
        (group, set)
    }

    fn find(group: &Group, ips: &[u8]) {
        let found = |ip: &u8| Found {
            address: format!("10.0.0.{ip}:80").parse().unwrap(),
            origin: Some("app.test:80".parse().unwrap()),
            weight: 1,
            level: 0,
        };
        group.install(0, ips.iter().map(found).collect());
    }

    #[test]
    fn a_setting_is_for_all_servers_of_a_name_also_for_those_that_are_found_later() {
        let (group, mut set) = named();
        let states = |group: &Group| {
            let servers = group.describe().servers.into_iter();
            servers.map(|one| (one.address, one.name.unwrap(), one.state)).collect::<Vec<_>>()
        };
        let server = |ip: u8, state| (format!("10.0.0.{ip}:80"), "app.test:80".to_owned(), state);
        set(ServerState::Down);
        find(&group, &[1, 2]);
        let down = ServerState::Down;
        assert_eq!(states(&group), [server(1, down), server(2, down)]);
        assert!(group.members().iter().all(|server| !group.is_up(server)));
        assert_eq!(group.choose(&group.members(), &mut [0, 0], None, &[]), None);
        set(ServerState::Up);
        assert!(group.members().iter().all(|server| group.is_up(server)));
        set(ServerState::Drain);
        find(&group, &[2, 3]);
        assert_eq!(states(&group), [server(2, ServerState::Drain), server(3, ServerState::Drain)]);
    }

    #[test]
    fn clients_stay_with_a_server_that_drains_and_leave_one_that_is_down() {
        let (group, mut set) = named();
        find(&group, &[1]);
        let members = group.members();
        let takes = || (group.is_up(&members[0]), group.takes_bound(&members[0]));
        for (state, expected) in [
            (ServerState::Up, (true, true)),
            (ServerState::Drain, (false, true)),
            (ServerState::Down, (false, false)),
        ] {
            set(state);
            assert_eq!(takes(), expected, "{state:?}");
        }
        set(ServerState::Drain);
        (0..3).for_each(|_| group.failed(&members[0]));
        assert_eq!(takes(), (false, false));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

        /// Health and the settings of operators are independent of each other, and both decide.
        /// `rise` and `fall` are 1, so that the model of a server's health is its last check or
        /// failure.
        #[test]
        fn a_server_gets_requests_if_it_is_healthy_and_not_taken_out(
            steps in steps(),
            balance in prop::sample::select(vec!["round-robin", "least-connections"]),
        ) {
            let text = format!(
                "[[listeners]]\naddress = \":1\"\nrelay = {{ to = \":2\" }}\n[upstreams.a]\n\
                 servers = [{{ address = \"10.0.0.0:1\" }}, {{ address = \"10.0.0.1:1\", weight = 2 }}, {{ address = \"10.0.0.2:1\" }}]\n\
                 balance = \"{balance}\"\nhealth = {{ rise = 1, fall = 1 }}\n"
            );
            let config = Config::parse("test", &text).unwrap();
            let upstreams = Upstreams::from_config(&config);
            let group = Group::new("a", &config.upstreams["a"], None, Arc::new(|_| {})).unwrap();
            let members = group.members();
            let mut settings = Settings::default();
            let (mut states, mut healthy) = ([ServerState::Up; 3], [true; 3]);
            let mut weights = [1, 2, 1];
            let mut credit = [0; 3];
            for step in steps {
                let mut change = |index: usize, state, weight| {
                    let (upstream, server) = ("a".to_owned(), format!("10.0.0.{index}:1"));
                    let change = ServerChange { upstream, server, state, weight };
                    settings.change(&change, &upstreams).unwrap();
                    group.set(&settings);
                };
                match step {
                    Step::State(index, state) => {
                        states[index] = state;
                        change(index, Some(state), None);
                    }
                    Step::Weight(index, 0) => {
                        weights[index] = [1, 2, 1][index];
                        change(index, None, Some(WeightChange::Configured));
                    }
                    Step::Weight(index, weight) => {
                        weights[index] = weight;
                        change(index, None, Some(WeightChange::Number(weight)));
                    }
                    Step::Failed(index) => {
                        healthy[index] = false;
                        group.failed(&members[index]);
                    }
                    Step::Checked(index, well) => {
                        healthy[index] = well;
                        group.checked(&members[index], if well { Ok(()) } else { Err("no".to_owned()) });
                    }
                    Step::Choose => {}
                }
                let report = group.describe();
                for (index, server) in report.servers.iter().enumerate() {
                    prop_assert_eq!(server.state, states[index]);
                    prop_assert_eq!(server.healthy, healthy[index]);
                    prop_assert_eq!(server.weight, weights[index]);
                    let is_up = states[index] == ServerState::Up && healthy[index];
                    prop_assert_eq!(group.is_up(&members[index]), is_up);
                    prop_assert_eq!(server.takes_requests(), is_up);
                }
                let candidates: Vec<usize> = (0..3).filter(|index| group.is_up(&members[*index])).collect();
                let mut tried = Vec::new();
                for _ in 0..candidates.len() {
                    let chosen = group.choose(&members, &mut credit, None, &tried);
                    prop_assert!(chosen.is_some_and(|chosen| candidates.contains(&chosen)), "{chosen:?}");
                    tried.extend(chosen.map(|chosen| members[chosen].id));
                }
                prop_assert_eq!(group.choose(&members, &mut credit, None, &tried), None);
            }
        }
    }
}
