//! What follows from answers that a healthy cloud does not give, and what the cache does not show yet.

use cloud_api_proto::v1alpha1::{LoadBalancerSpec, Recreate};

use super::*;
use crate::plan::spec::Takeover;

fn ask(why: Why) -> Ask {
    Ask {
        spec: LoadBalancerSpec::default(),
        shape: "shape".to_owned(),
        why,
        recreate: Recreate::Never,
        takeover: Takeover::None,
        no_targets: false,
        at: Duration::ZERO,
    }
}

fn answer(state: State, why: &str) -> Answer {
    Answer {
        state,
        steps: 0,
        applied_hash: "hash".to_owned(),
        ingress: Vec::new(),
        why: why.to_owned(),
        retry_after: None,
    }
}

fn service() -> Service {
    Service { version: "7".to_owned(), ..Service::default() }
}

#[test]
fn a_load_balancer_in_error_is_told_once_and_tried_again() {
    let mut memory = Memory::default();
    let first = memory.answered(&ask(Why::FirstLook), answer(State::Error, "no capacity"), None);
    let told = News::Trouble("the load balancer is in error: no capacity".to_owned());
    assert_eq!((first.news, first.next), (vec![told], Next::Backoff));
    let second = memory.answered(&ask(Why::Missing), answer(State::Error, "no capacity"), None);
    assert_eq!((second.news, second.next), (Vec::new(), Next::Backoff));
    assert_eq!(memory.settled, None);
}

#[test]
fn a_trouble_that_is_over_is_news_when_it_comes_back() {
    let mut memory = Memory::default();
    memory.answered(&ask(Why::FirstLook), answer(State::Error, "no capacity"), None);
    memory.answered(&ask(Why::Missing), answer(State::Active, ""), None);
    let again = memory.answered(&ask(Why::Changed), answer(State::Error, "no capacity"), None);
    assert_eq!(again.news.len(), 1);
}

#[test]
fn a_degraded_load_balancer_serves_and_is_told_once() {
    let mut memory = Memory::default();
    let told = memory.answered(&ask(Why::FirstLook), answer(State::Degraded, "1 of 2 pools"), None).news;
    let want = "the load balancer serves, but is degraded: 1 of 2 pools";
    assert_eq!(told, [News::Trouble(want.to_owned())]);
    assert!(memory.settled.is_some());
    memory.calm();
    assert!(
        memory.answered(&ask(Why::FirstLook), answer(State::Degraded, "1 of 2 pools"), None).news.is_empty()
    );
}

#[test]
fn unknown_words_are_neither_success_nor_absence() {
    let mut memory = Memory::default();
    let outcome = memory.answered(&ask(Why::FirstLook), answer(State::Unknown, ""), None);
    assert_eq!((outcome.next, &memory.settled), (Next::Backoff, &None));
    let unknown = Removal { state: State::Unknown, why: String::new(), retry_after: None };
    assert_eq!(memory.removal(&unknown).next, Next::Backoff);
    assert!(!memory.removed);
}

#[test]
fn the_adapter_says_when_to_ask_again() {
    let mut memory = Memory::default();
    let pending = Answer { retry_after: Some(Duration::from_secs(7)), ..answer(State::Pending, "") };
    let outcome = memory.answered(&ask(Why::FirstLook), pending, None);
    assert_eq!((outcome.news, outcome.next), (vec![News::Ensuring], Next::After(Duration::from_secs(7))));
    let deleting = Removal { state: State::Deleting, why: String::new(), retry_after: None };
    assert_eq!(memory.removal(&deleting).next, Next::After(ASK_AGAIN));
}

#[test]
fn the_time_of_a_change_of_nodes_counts_from_the_first_question() {
    let mut memory = Memory::default();
    let at = |seconds| Ask { at: Duration::from_secs(seconds), ..ask(Why::Hosts) };
    memory.asking(&at(10));
    assert_eq!(memory.answered(&at(10), answer(State::Pending, ""), None).hosts_updated, None);
    memory.asking(&at(14));
    let outcome = memory.answered(&at(14), answer(State::Active, ""), None);
    assert_eq!((outcome.news, outcome.hosts_updated), (vec![News::Updated], Some(Duration::from_secs(4))));
}

#[test]
fn our_own_write_is_not_repeated_before_the_cache_shows_it() {
    let mut memory = Memory::default();
    let written = Service { finalizer: true, ..service() };
    memory.wrote(&written);
    assert!(memory.overlay(service()).finalizer, "the cache is behind");
    let newer = Service { version: "8".to_owned(), ..service() };
    assert!(!memory.overlay(newer).finalizer, "the cache has moved on");
    assert!(!memory.overlay(service()).finalizer, "and what it showed is forgotten");
}

#[test]
fn a_removal_voids_what_was_confirmed() {
    let mut memory = Memory::default();
    memory.answered(&ask(Why::FirstLook), answer(State::Active, ""), None);
    assert_eq!(memory.removing(), [News::Deleting]);
    assert_eq!(memory.removing(), []);
    assert_eq!(memory.settled, None);
    let absent = Removal { state: State::Absent, why: String::new(), retry_after: None };
    assert_eq!((memory.removal(&absent).next, memory.removed), (Next::Now, true));
    memory.asking(&ask(Why::Missing));
    assert!(!memory.removed, "it may exist again");
}

#[test]
fn what_was_just_removed_is_no_orphan_yet() {
    let (mut memory, begin) = (Memory::default(), Duration::from_secs(100));
    assert_eq!(memory.orphan_doubt(begin), Some(ORPHAN_AFTER));
    assert_eq!(memory.orphan_doubt(begin + ORPHAN_AFTER / 2), Some(ORPHAN_AFTER / 2));
    assert_eq!(memory.orphan_doubt(begin + ORPHAN_AFTER), None);
    memory.calm();
    assert!(!memory.is_of_an_orphan());
}
