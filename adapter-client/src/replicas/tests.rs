use tonic::transport::Channel;

use super::*;
use crate::target::HostPort;

fn address(host: &str) -> Address {
    Address::Tcp(HostPort { host: host.to_owned(), port: 1 })
}

fn state(replicas: &[(&str, Health)]) -> State {
    let mut state = State::default();
    let line = Line::over(Channel::from_static("http://nowhere").connect_lazy());
    for (host, health) in replicas {
        let replica = Replica { line: line.clone(), health: Health::Unknown };
        state.replicas.insert(address(host), replica);
        state.report(&address(host), health.clone());
    }
    state
}

fn picked(state: &State, tried: &Tried) -> Option<String> {
    state.pick(tried).map(|pick| pick.address.to_string())
}

#[tokio::test]
async fn the_last_replica_to_serve_is_the_leader() {
    let serves = Health::Serving(0);
    let down = Health::Down("connection refused".to_owned());
    for (replicas, best) in [
        (vec![], None),
        (vec![("a", Health::Unknown), ("b", Health::Standby), ("c", down)], None),
        (vec![("a", Health::Standby), ("b", Health::Silent), ("c", Health::Silent)], Some("b:1")),
        (vec![("a", Health::Silent), ("b", serves.clone())], Some("b:1")),
        // The connection of the old leader hangs, so the old leader cannot report that it no longer leads.
        (vec![("b", serves.clone()), ("a", serves)], Some("a:1")),
    ] {
        assert_eq!(picked(&state(&replicas), &Tried::new()).as_deref(), best, "{replicas:?}");
    }
}

#[tokio::test]
async fn a_failed_replica_is_tried_again_when_it_serves_again() {
    let mut state = state(&[("a", Health::Serving(0)), ("b", Health::Silent)]);
    let first = state.pick(&Tried::new()).expect("a serves");
    let tried = Tried::from([(first.address, first.rank)]);
    assert_eq!(picked(&state, &tried).as_deref(), Some("b:1"));
    // A second report that the replica serves changes nothing.
    state.report(&address("a"), Health::Serving(0));
    assert_eq!(picked(&state, &tried).as_deref(), Some("b:1"));
    state.report(&address("a"), Health::Standby);
    state.report(&address("a"), Health::Serving(0));
    assert_eq!(picked(&state, &tried).as_deref(), Some("a:1"));
}

#[tokio::test]
async fn a_silent_replica_is_replaced_when_another_serves() {
    let serves = Health::Serving(0);
    let down = || Health::Down("keep-alive timed out".to_owned());
    let b_serves = ("b", serves.clone());
    for (name, then, replaced) in [
        ("nothing changed", vec![], false),
        ("another replica serves", vec![b_serves.clone()], true),
        ("another replica may serve", vec![("b", Health::Silent)], false),
        ("the replica reports that it does not serve", vec![("a", Health::Standby), b_serves.clone()], false),
        ("the watch of the replica broke", vec![("a", down()), b_serves.clone()], true),
        ("the replica serves again", vec![b_serves.clone(), ("a", down()), ("a", serves.clone())], false),
    ] {
        let mut state = state(&[("a", serves.clone()), ("b", Health::Standby)]);
        let pick = state.pick(&Tried::new()).expect("a serves");
        for (host, health) in then {
            state.report(&address(host), health);
        }
        assert_eq!(state.has_replaced(&pick, &Tried::new()), replaced, "{name}");
    }
}

/// A replica that has already failed in this call does not count as a better replica.
#[tokio::test]
async fn a_failed_replica_replaces_no_other() {
    let state = state(&[("a", Health::Serving(0)), ("b", Health::Serving(0))]);
    let b = state.pick(&Tried::new()).expect("b began to serve last");
    let tried = Tried::from([(b.address, b.rank)]);
    let a = state.pick(&tried).expect("a serves");
    assert!(!state.has_replaced(&a, &tried));
    assert!(state.has_replaced(&a, &Tried::new()));
}
