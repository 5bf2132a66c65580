//! These tests feed single events to the protocol and check the effects.

use super::*;

/// A mirror with its protocol state machine. Each step returns the changes as `key old>new`.
#[derive(Default)]
struct Bench {
    protocol: Protocol<u32>,
    content: Content<String, u32>,
}

impl Bench {
    fn step(&mut self, event: Event<u32>) -> Result<Vec<String>, Violation> {
        let text = |item: Option<Arc<u32>>| item.map_or_else(String::new, |item| item.to_string());
        let effects = self.protocol.step(&mut self.content, event)?;
        let changes = effects.changes.into_iter();
        Ok(changes
            .map(|change| format!("{} {}>{}", change.key, text(change.old), text(change.new)))
            .collect())
    }

    fn list(&mut self, items: &[(&str, u32)], token: &str) -> Vec<String> {
        self.step(Event::Reset(None)).expect("a listing may begin at any time");
        self.step(some(items)).expect("items follow");
        self.step(end(items, token)).expect("the end matches")
    }

    fn keys(&self) -> Vec<&str> {
        self.content.keys().map(String::as_str).collect()
    }
}

fn some(items: &[(&str, u32)]) -> Event<u32> {
    Event::Items(items.iter().map(|(key, item)| ((*key).to_owned(), *item)).collect())
}

fn end(items: &[(&str, u32)], token: &str) -> Event<u32> {
    let keys: Vec<String> = items.iter().map(|(key, _)| (*key).to_owned()).collect();
    Event::Synced(Synced {
        count: u64::try_from(keys.len()).expect("few"),
        checksum: checksum(&keys),
        observed_at: None,
        token: token.to_owned(),
    })
}

fn bookmark(seconds: i64, token: &str) -> Event<u32> {
    let observed_at = Some(prost_types::Timestamp { seconds, nanos: 0 });
    Event::Bookmark(Bookmark { observed_at, token: token.to_owned() })
}

fn scope(fingerprint: &str) -> Event<u32> {
    Event::Reset(Some(Scope { fingerprint: fingerprint.to_owned(), ..Scope::default() }))
}

#[test]
fn a_listing_applies_when_it_is_complete() {
    let mut bench = Bench::default();
    bench.step(Event::Reset(None)).expect("begins");
    assert!(bench.step(some(&[("a", 1)])).expect("items").is_empty());
    assert!(bench.step(some(&[("b", 2)])).expect("more items").is_empty());
    assert!(bench.keys().is_empty());
    assert_eq!(bench.step(end(&[("a", 1), ("b", 2)], "t1")), Ok(vec!["a >1".to_owned(), "b >2".to_owned()]));
    assert_eq!(bench.protocol.token(), "t1");
}

#[test]
fn an_incomplete_listing_is_ignored() {
    let mut bench = Bench::default();
    bench.list(&[("a", 1), ("b", 2)], "t1");
    bench.step(Event::Reset(None)).expect("begins");
    bench.step(some(&[("b", 2)])).expect("items");
    bench.protocol.disconnected(false);
    assert_eq!(bench.keys(), ["a", "b"]);
    // The token still belongs to the current content, so the other side may resume from the token.
    assert_eq!(bench.protocol.token(), "t1");
    assert_eq!(bench.step(Event::Upsert("c".to_owned(), 3)), Ok(vec!["c >3".to_owned()]));
    assert!(matches!(bench.step(end(&[("b", 2)], "t2")), Err(Violation::Misplaced { .. })));
}

#[test]
fn a_listing_that_does_not_match_its_end_is_dropped() {
    let cases = [
        ("an item is missing", vec![("a", 1)], end(&[("a", 1), ("b", 2)], "t2")),
        ("an item came twice", vec![("a", 1), ("a", 1)], end(&[("a", 1), ("b", 2)], "t2")),
        ("another item", vec![("a", 1), ("x", 2)], end(&[("a", 1), ("b", 2)], "t2")),
    ];
    for (name, items, end) in cases {
        let mut bench = Bench::default();
        bench.list(&[("old", 9)], "t1");
        bench.step(Event::Reset(None)).expect(name);
        bench.step(some(&items)).expect(name);
        let violation = bench.step(end).expect_err(name);
        assert!(matches!(violation, Violation::Count { .. } | Violation::Checksum), "{name}: {violation}");
        assert_eq!(bench.keys(), ["old"], "{name}");
        bench.protocol.disconnected(true);
        assert_eq!(bench.protocol.token(), "", "{name}: there is no token to resume from");
    }
}

#[test]
fn a_new_listing_removes_missing_items() {
    let mut bench = Bench::default();
    bench.list(&[("a", 1), ("b", 2), ("c", 3)], "t1");
    assert_eq!(bench.list(&[("a", 1), ("b", 7)], "t2"), ["b 2>7", "c 3>"]);
}

#[test]
fn changes_are_reported_once() {
    let mut bench = Bench::default();
    bench.list(&[("a", 1)], "t1");
    assert_eq!(bench.step(Event::Upsert("a".to_owned(), 2)), Ok(vec!["a 1>2".to_owned()]));
    assert_eq!(bench.step(Event::Upsert("a".to_owned(), 2)), Ok(vec![]));
    assert_eq!(bench.step(Event::Gone("a".to_owned())), Ok(vec!["a 2>".to_owned()]));
    assert_eq!(bench.step(Event::Gone("a".to_owned())), Ok(vec![]));
}

#[test]
fn nothing_but_a_listing_may_come_first() {
    for event in [
        Event::Upsert("a".to_owned(), 1),
        Event::Gone("a".to_owned()),
        bookmark(1, "t"),
        some(&[("a", 1)]),
        end(&[], "t"),
    ] {
        let violation = Bench::default().step(event.clone()).expect_err("misplaced");
        assert!(matches!(violation, Violation::Misplaced { .. }), "{event:?}: {violation}");
    }
}

#[test]
fn a_change_inside_a_listing_is_misplaced() {
    let mut bench = Bench::default();
    bench.list(&[("a", 1)], "t1");
    bench.step(Event::Reset(None)).expect("begins");
    let violation = bench.step(Event::Gone("a".to_owned())).expect_err("misplaced");
    assert_eq!(violation.to_string(), "a removal inside a listing");
    assert_eq!(bench.keys(), ["a"]);
}

#[test]
fn an_empty_listing_is_valid() {
    let mut bench = Bench::default();
    bench.list(&[("a", 1)], "t1");
    assert_eq!(bench.list(&[], "t2"), ["a 1>"]);
}

#[test]
fn a_bookmark_moves_the_token_and_the_age_only() {
    let mut bench = Bench::default();
    bench.list(&[("a", 1)], "t1");
    let effects = bench.protocol.step(&mut bench.content, bookmark(7, "t2")).expect("live");
    assert!(effects.alive && !effects.synced && effects.changes.is_empty());
    assert_eq!(effects.observed.map(Timestamp::as_second), Some(7));
    assert_eq!(bench.protocol.token(), "t2");
}

#[test]
fn a_listing_is_as_old_as_its_first_page() {
    let mut bench = Bench::default();
    bench.step(Event::Reset(None)).expect("begins");
    let observed_at = Some(prost_types::Timestamp { seconds: 5, nanos: 0 });
    let synced = Event::Synced(Synced { observed_at, token: "t".to_owned(), ..Synced::default() });
    let effects = bench.protocol.step(&mut bench.content, synced).expect("ends");
    assert_eq!(effects.observed.map(Timestamp::as_second), Some(5));
    let upsert = Event::Upsert("a".to_owned(), 1);
    let effects = bench.protocol.step(&mut bench.content, upsert).expect("live");
    assert!(effects.alive && effects.observed.is_none());
}

#[test]
fn another_scope_is_reported_when_its_listing_is_complete() {
    let mut bench = Bench::default();
    let mut list = |fingerprint| {
        bench.step(scope(fingerprint)).expect("begins");
        bench.protocol.step(&mut bench.content, end(&[], "t")).expect("ends").moved
    };
    assert_eq!(list("p1"), None);
    assert_eq!(list("p1"), None);
    assert_eq!(list("p2"), Some(("p1".to_owned(), "p2".to_owned())));
}

#[test]
fn the_checksum_is_the_one_of_the_contract() {
    // The first eight bytes of SHA-256("abc") are a published test vector.
    let abc = 0xba78_16bf_8f01_cfea_u64;
    assert_eq!(checksum(&["abc".to_owned()]), abc);
    assert_eq!(checksum(&["abc".to_owned(), "abc".to_owned()]), abc.wrapping_mul(2));
    assert_eq!(checksum(&[]), 0);
}
