//! Tests which answers prove an absence.

use proptest::prelude::{Just, Strategy, prop, prop_oneof, proptest};

use super::*;

const APART: Duration = Duration::from_secs(30);

fn subject() -> Subject {
    Subject { uid: "uid-a".to_owned(), provider_id: "sim://north/i-1".to_owned() }
}

fn other() -> Verdict {
    Verdict::Failed { error: "no".to_owned(), retry_after: None }
}

struct World {
    ledger: Ledger,
    begin: Instant,
}

impl World {
    fn new() -> Self {
        let begin = Instant::now();
        let mut ledger = Ledger::new(APART);
        ledger.keep([(&subject(), Shown::No)].into_iter(), begin);
        Self { ledger, begin }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.begin + Duration::from_secs(seconds)
    }

    /// Records an answer that arrives half a second after the request. The cloud observed an absence at the time of the answer.
    fn hear(&mut self, at: u64, answer: &Verdict) {
        let (asked, now) = (self.at(at), self.at(at) + Duration::from_millis(500));
        self.ledger.record(&subject(), answer, asked, now);
    }

    fn gone(&mut self, at: u64) {
        let observed = Timestamp::from_second(i64::try_from(at).expect("small")).expect("a time");
        self.hear(at, &Verdict::Gone { observed });
    }

    fn keep(&mut self, shown: Shown, at: u64) {
        self.ledger.keep([(&subject(), shown)].into_iter(), self.at(at));
    }

    /// Removes the node from the candidates for deletion for a moment.
    fn forget(&mut self, at: u64) {
        self.ledger.keep([].into_iter(), self.at(at));
    }

    fn is_proven(&self, at: u64) -> bool {
        self.ledger.is_proven(&subject(), self.at(at))
    }

    /// Returns the seconds from `at` to the next request.
    fn due_after(&self, at: u64) -> u64 {
        let due = self.ledger.cases[&subject()].due;
        due.duration_since(self.at(at)).as_secs()
    }
}

#[tokio::test(start_paused = true)]
async fn two_answers_some_time_apart_are_a_proof() {
    let mut world = World::new();
    assert_eq!(world.ledger.due(world.begin), [subject()], "asked at once");
    world.gone(10);
    assert!(!world.is_proven(11), "one answer proves nothing");
    assert_eq!(world.due_after(10), 30);
    world.gone(41);
    assert!(world.is_proven(42));
    assert_eq!(world.due_after(41), 300, "renewed");
}

#[tokio::test(start_paused = true)]
async fn second_answer_must_not_come_too_soon() {
    let mut world = World::new();
    world.gone(10);
    world.gone(11);
    world.gone(40);
    assert!(!world.is_proven(41), "asked 29.5 s after the first answer");
    world.gone(41);
    assert!(world.is_proven(42), "counted from the first answer, not from each answer");
}

#[tokio::test(start_paused = true)]
async fn answer_that_was_not_observed_later_confirms_nothing() {
    let mut world = World::new();
    let observed = Timestamp::from_second(10).expect("a time");
    for at in [10, 50, 90, 130] {
        world.hear(at, &Verdict::Gone { observed });
        assert!(!world.is_proven(at + 1), "at {at}");
    }
    let before = Timestamp::from_second(9).expect("a time");
    world.hear(170, &Verdict::Gone { observed: before });
    assert!(!world.is_proven(171), "a clock that went back");
}

#[tokio::test(start_paused = true)]
async fn any_other_answer_restarts_the_proof() {
    for word in [Verdict::Exists { stopped: false }, Verdict::NotVisible, Verdict::Foreign, other()] {
        let mut world = World::new();
        world.gone(10);
        world.hear(41, &word);
        assert!(!world.is_proven(42), "{word:?}");
        world.gone(72);
        assert!(!world.is_proven(73), "{word:?}");
        world.gone(103);
        assert!(world.is_proven(104), "{word:?}");
        world.hear(110, &word);
        assert!(!world.is_proven(111), "{word:?} revokes a proof");
    }
}

#[tokio::test(start_paused = true)]
async fn proof_expires() {
    let mut world = World::new();
    world.gone(10);
    world.gone(50);
    assert!(world.is_proven(50 + 599));
    assert!(!world.is_proven(50 + 602));
    world.gone(50 + 602);
    assert!(!world.is_proven(50 + 603), "after a long silence the next answer counts as a first answer");
}

#[tokio::test(start_paused = true)]
async fn renewed_proof_does_not_expire() {
    let mut world = World::new();
    world.gone(10);
    for at in [50, 350, 650, 950] {
        world.gone(at);
        assert!(world.is_proven(at + 299), "at {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn node_that_is_no_candidate_for_a_moment_starts_again() {
    let mut world = World::new();
    world.gone(10);
    world.forget(20);
    world.keep(Shown::No, 25);
    world.gone(50);
    assert!(!world.is_proven(51));
    let recreated = Subject { uid: "uid-a2".to_owned(), ..subject() };
    world.ledger.keep([(&recreated, Shown::No)].into_iter(), world.at(60));
    assert_eq!(
        world.ledger.conclusion(&recreated),
        Some(&Conclusion::Nothing),
        "recreated under the same name"
    );
}

#[tokio::test(start_paused = true)]
async fn cloud_is_asked_with_backoff() {
    let mut world = World::new();
    let mut pauses = Vec::new();
    for _ in 0..8 {
        world.hear(0, &Verdict::NotVisible);
        pauses.push(world.due_after(0));
    }
    assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300]);
    world.gone(0);
    world.hear(0, &Verdict::NotVisible);
    assert_eq!(world.due_after(0), 5, "the next absence is a first answer");
    world.hear(0, &Verdict::Foreign);
    assert_eq!(world.due_after(0), 3600);
    let retry_after = Some(Duration::from_secs(77));
    let mut world = World::new();
    world.hear(0, &Verdict::Failed { error: "slow down".to_owned(), retry_after });
    assert_eq!(world.due_after(0), 77);
}

#[tokio::test(start_paused = true)]
async fn deleted_node_is_skipped_until_its_object_is_gone() {
    let mut world = World::new();
    world.gone(10);
    world.gone(50);
    world.ledger.deleted(&subject(), world.at(51));
    assert!(!world.is_proven(51));
    assert!(world.ledger.due(world.at(100)).is_empty());
    assert_eq!(world.ledger.due(world.at(112)), [subject()], "a finalizer holds it");
}

#[tokio::test(start_paused = true)]
async fn instance_that_the_listing_loses_is_asked_about_at_once() {
    let mut world = World::new();
    world.keep(Shown::Yes, 0);
    for _ in 0..6 {
        world.hear(0, &Verdict::Exists { stopped: false });
    }
    world.keep(Shown::Yes, 10);
    assert_eq!(world.due_after(10), 150, "the cloud is rarely asked while the instance is listed");
    world.keep(Shown::No, 20);
    assert_eq!(world.due_after(20), 0);
    world.hear(20, &Verdict::NotVisible);
    assert_eq!(world.due_after(20), 5, "the cloud is soon asked again");
    world.keep(Shown::No, 21);
    assert_eq!(world.due_after(20), 5, "once");
}

#[tokio::test(start_paused = true)]
async fn retry_delay_of_the_cloud_is_kept_whatever_its_listing_shows() {
    let mut world = World::new();
    world.keep(Shown::Yes, 0);
    let retry_after = Some(Duration::from_secs(77));
    world.hear(0, &Verdict::Failed { error: "slow down".to_owned(), retry_after });
    world.keep(Shown::No, 10);
    assert_eq!(world.due_after(0), 77);
}

#[tokio::test(start_paused = true)]
async fn listing_changes_no_answer() {
    let mut world = World::new();
    world.keep(Shown::Yes, 0);
    world.gone(10);
    world.keep(Shown::No, 15);
    assert_eq!(world.due_after(10), 30, "the time of the second answer is kept");
    world.gone(41);
    assert!(world.is_proven(42));
}

#[tokio::test(start_paused = true)]
async fn held_node_is_released_only_by_a_sign_of_life() {
    type Happens = fn(&mut World);
    let happenings: [(&str, Happens, bool); 8] = [
        ("gone", |world| world.gone(10), true),
        ("not visible", |world| world.hear(10, &Verdict::NotVisible), true),
        ("foreign", |world| world.hear(10, &Verdict::Foreign), true),
        ("an error", |world| world.hear(10, &other()), true),
        ("the adapter is unavailable", |world| world.forget(10), true),
        ("its object is gone", |world| world.ledger.release(|it| it.uid == "uid-a"), false),
        ("it exists", |world| world.hear(10, &Verdict::Exists { stopped: true }), false),
        ("it is ready", |world| world.ledger.forget(|it| it.uid == "uid-a"), false),
    ];
    for (name, happens, stays) in happenings {
        let mut world = World::new();
        world.ledger.hold([subject()]);
        happens(&mut world);
        assert_eq!(world.ledger.held().contains(&subject()), stays, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn repeated_error_of_the_cloud_is_quoted_and_a_single_one_is_not() {
    let mut world = World::new();
    let failed = |repeated| Conclusion::Failed { error: "no".to_owned(), repeated };
    for repeated in [false, true, true] {
        world.hear(10, &other());
        assert_eq!(world.ledger.conclusion(&subject()), Some(&failed(repeated)));
    }
    world.gone(20);
    world.hear(60, &other());
    assert_eq!(world.ledger.conclusion(&subject()), Some(&failed(false)), "it answered in between");
}

/// An event in the life of a node that is not ready.
#[derive(Clone, Debug)]
enum Moment {
    Said(Verdict),
    /// Between two answers, the node becomes ready, or the cloud lists its instance as not being deleted.
    Forgotten,
    /// The cached listing shows the instance as being deleted, or does not show the instance.
    Listed(Shown),
    /// The node is deleted, and a finalizer holds it.
    Deleted,
}

fn moment() -> impl Strategy<Value = Moment> {
    prop_oneof![
        8 => Just(Moment::Said(Verdict::Gone { observed: Timestamp::UNIX_EPOCH })),
        1 => Just(Moment::Said(Verdict::NotVisible)),
        1 => Just(Moment::Said(Verdict::Exists { stopped: true })),
        1 => Just(Moment::Said(Verdict::Foreign)),
        1 => Just(Moment::Said(other())),
        1 => Just(Moment::Forgotten),
        1 => prop_oneof![Just(Moment::Listed(Shown::Yes)), Just(Moment::Listed(Shown::No))],
        1 => Just(Moment::Deleted),
    ]
}

/// Generates pauses that are mostly short, because answers expire in a long pause.
fn pause() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 1_u64..60, 1 => 60_u64..700]
}

/// The reference model of the ledger. It contains the times, in seconds, of the requests whose answers reported the absence. Any other
/// answer or sign of life clears the list.
#[derive(Debug, Default)]
struct Row(Vec<u64>);

impl Row {
    fn word(&mut self, at: u64) {
        if self.0.last().is_some_and(|last| at - last >= KEEP.as_secs()) {
            self.0.clear();
        }
        self.0.push(at);
    }

    /// Whether the answers prove the absence at `at`. The last request must have been sent more than 30 s after the first request, and at
    /// most ten minutes before `at`.
    fn proves(&self, at: u64) -> bool {
        let (Some(first), Some(last)) = (self.0.first(), self.0.last()) else { return false };
        last - first > APART.as_secs() && at - last <= KEEP.as_secs()
    }
}

proptest! {
    /// For any answers at any times, a proof consists of two recent answers that are far enough apart. No other answer and no sign of life
    /// came in between. This is checked at and between all moments of the history.
    // Behaviour: ND7, W3
    #[test]
    fn no_proof_without_two_answers(history in prop::collection::vec((pause(), moment()), 1..60)) {
        let (mut world, mut row, mut now) = (World::new(), Row::default(), 0);
        for (pause, moment) in history {
            for at in [now + 1, now + pause / 2 + 1, now + pause] {
                assert!(!world.is_proven(at) || row.proves(at), "proven at {at} by {row:?}");
            }
            now += pause + 1;
            match moment {
                Moment::Said(Verdict::Gone { .. }) => {
                    world.gone(now);
                    row.word(now);
                }
                Moment::Said(answer) => {
                    world.hear(now, &answer);
                    row.0.clear();
                }
                Moment::Forgotten => {
                    world.forget(now);
                    world.keep(Shown::No, now);
                    row.0.clear();
                }
                Moment::Listed(shown) => world.keep(shown, now),
                Moment::Deleted => {
                    world.ledger.deleted(&subject(), world.at(now));
                    row.0.clear();
                }
            }
            assert!(!world.is_proven(now + 1) || row.proves(now + 1), "proven at {now} by {row:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn failed_proof_needs_witnesses_from_then_on() {
    let mut world = World::new();
    world.gone(10);
    world.hear(50, &other());
    assert!(!world.ledger.lacks_proof(&[subject()]));
    world.hear(60, &Verdict::NotVisible);
    world.gone(70);
    assert!(world.ledger.lacks_proof(&[subject()]), "also for the second answer");
    world.forget(80);
    world.keep(Shown::No, 85);
    assert!(!world.ledger.lacks_proof(&[subject()]));
}
