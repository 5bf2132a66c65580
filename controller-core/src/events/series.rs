//! Which notices are repeats: pure, every time is an argument.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::{Notice, Told};

/// What was told this long ago is told anew.
const WINDOW: Duration = Duration::from_mins(6);
/// Repeats within this time are counted and written with a later one.
const QUIET: Duration = Duration::from_secs(10);
/// Series that are remembered; beyond, the one that was silent longest is forgotten.
const MAX: usize = 4096;

/// What becomes of a notice.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// It is new.
    Create { name: String },
    /// It was told before: the Event of that name counts so many by now.
    CountUp { name: String, count: i32 },
    /// It was told a moment ago.
    Nothing,
}

#[derive(Debug)]
struct Entry {
    name: String,
    count: i32,
    written: Instant,
    seen: Instant,
}

/// What makes two notices the same: who speaks, the object by UID and name, and the notice by kind, reason, action and words.
type Id = (&'static str, [Option<String>; 3], Notice);

#[derive(Debug, Default)]
pub(super) struct Series(BTreeMap<Id, Entry>);

impl Series {
    pub(super) fn next(&mut self, told: &Told, now: Instant, name: impl FnOnce() -> String) -> Write {
        self.0.retain(|_, entry| now.duration_since(entry.seen) < WINDOW);
        let id = id(told);
        if let Some(entry) = self.0.get_mut(&id) {
            entry.count = entry.count.saturating_add(1);
            entry.seen = now;
            if now.duration_since(entry.written) < QUIET {
                return Write::Nothing;
            }
            entry.written = now;
            return Write::CountUp { name: entry.name.clone(), count: entry.count };
        }
        if self.0.len() >= MAX
            && let Some(oldest) = self.0.iter().min_by_key(|(_, entry)| entry.seen).map(|(id, _)| id.clone())
        {
            self.0.remove(&oldest);
        }
        let name = name();
        self.0.insert(id, Entry { name: name.clone(), count: 1, written: now, seen: now });
        Write::Create { name }
    }

    pub(super) fn forget(&mut self, told: &Told) {
        self.0.remove(&id(told));
    }
}

fn id(told: &Told) -> Id {
    let about = told.about.clone();
    (told.component, [about.uid, about.namespace, about.name], told.notice.clone())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;
    use crate::events::Kind;

    fn tell(series: &mut Series, note: &str, at: Instant) -> Write {
        let about = ObjectReference { name: Some("a".to_owned()), ..ObjectReference::default() };
        let notice = Notice { kind: Kind::Warning, reason: "R", action: "A", note: note.to_owned() };
        series.next(&Told { component: "c", about, notice }, at, || note.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn repeats_count_up_and_other_words_are_another_event() {
        let (mut series, start) = (Series::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(tell(&mut series, "x", at(0)), Write::Create { name: "x".to_owned() });
        assert_eq!(tell(&mut series, "x", at(1)), Write::Nothing);
        assert_eq!(tell(&mut series, "y", at(1)), Write::Create { name: "y".to_owned() });
        assert_eq!(tell(&mut series, "x", at(11)), Write::CountUp { name: "x".to_owned(), count: 3 });
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_long_silence_the_same_is_news_again() {
        let (mut series, start) = (Series::default(), Instant::now());
        tell(&mut series, "x", start);
        assert_eq!(tell(&mut series, "x", start + WINDOW), Write::Create { name: "x".to_owned() });
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded() {
        let (mut series, start) = (Series::default(), Instant::now());
        for n in 0..MAX + 10 {
            tell(
                &mut series,
                &n.to_string(),
                start + Duration::from_millis(1) * u32::try_from(n).expect("small"),
            );
        }
        assert_eq!(series.0.len(), MAX);
    }
}
