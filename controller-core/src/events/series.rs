//! Decides which notices are repeats. The code is pure: every time is an argument.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::ObjectReference;
use tokio::time::Instant;

use super::{Message, Notice, REMIND, Writers};

/// Time without repeats after which a notice gets a new Event. The time is longer than the interval of reminders, so that reminders are
/// counted in one Event. It is shorter than the lifetime of Events.
const WINDOW: Duration = REMIND.saturating_add(Duration::from_mins(15));
/// The quiet time: the minimum interval between two writes of an Event. Repeats within the interval are counted and written together at its
/// end.
pub(super) const WRITE_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of remembered series. Above the limit, the series without repeats for the longest time is dropped.
const MAX: usize = 4096;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Write {
    Create {
        name: String,
    },
    CountUp {
        name: String,
        count: i32,
    },
    /// Do not write now, since the Event was just written. [`Series::overdue`] returns the repeat after the quiet time.
    Nothing,
}

/// Repeats that are not written yet, and may be written now.
#[derive(Debug)]
pub(super) struct Overdue {
    /// The notice, with only those fields of the object that identify its Event.
    pub(super) message: Message,
    pub(super) name: String,
    pub(super) count: i32,
    /// Time since the last repeat.
    pub(super) ago: Duration,
}

#[derive(Debug)]
struct Entry {
    name: String,
    count: i32,
    /// The count in the written Event.
    n_written: i32,
    written: Instant,
    seen: Instant,
}

impl Entry {
    fn due(&self) -> Option<Instant> {
        (self.n_written < self.count).then(|| self.written + WRITE_INTERVAL)
    }

    fn count_up(&mut self, now: Instant) -> (String, i32) {
        (self.written, self.n_written) = (now, self.count);
        (self.name.clone(), self.count)
    }
}

/// The fields that make two notices equal: the component, the object by UID and name, the notice by kind, reason, action and text, and the
/// writers of its Event.
type Id = (&'static str, [Option<String>; 3], Notice, Writers);

#[derive(Debug, Default)]
pub(super) struct Series(BTreeMap<Id, Entry>);

impl Series {
    pub(super) fn next(&mut self, message: &Message, now: Instant, name: impl FnOnce() -> String) -> Write {
        self.0.retain(|_, entry| now.duration_since(entry.seen) < WINDOW);
        let id = id(message);
        if let Some(entry) = self.0.get_mut(&id) {
            entry.count = entry.count.saturating_add(1);
            entry.seen = now;
            if now.duration_since(entry.written) < WRITE_INTERVAL {
                return Write::Nothing;
            }
            let (name, count) = entry.count_up(now);
            return Write::CountUp { name, count };
        }
        if self.0.len() >= MAX
            && let Some(oldest) = self.0.iter().min_by_key(|(_, entry)| entry.seen).map(|(id, _)| id.clone())
        {
            self.0.remove(&oldest);
        }
        let name = name();
        self.0.insert(id, Entry { name: name.clone(), count: 1, n_written: 1, written: now, seen: now });
        Write::Create { name }
    }

    /// Returns when the earliest unwritten repeats may be written.
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.values().filter_map(Entry::due).min()
    }

    /// Returns the repeats that have waited longest, if their quiet time is over at `by`. The returned repeats count as written at `now`.
    pub(super) fn overdue(&mut self, by: Instant, now: Instant) -> Option<Overdue> {
        let waiting = self.0.iter_mut().filter_map(|(id, entry)| Some((entry.due()?, id, entry)));
        let (due, id, entry) = waiting.min_by_key(|(due, _, _)| *due)?;
        if due > by {
            return None;
        }
        let (name, count) = entry.count_up(now);
        Some(Overdue { message: message(id), name, count, ago: now.saturating_duration_since(entry.seen) })
    }

    pub(super) fn forget(&mut self, message: &Message) {
        self.0.remove(&id(message));
    }
}

fn id(message: &Message) -> Id {
    let about = message.about.clone();
    (message.component, [about.uid, about.namespace, about.name], message.notice.clone(), message.writers)
}

fn message((component, about, notice, writers): &Id) -> Message {
    let [uid, namespace, name] = about.clone();
    let about = ObjectReference { uid, namespace, name, ..ObjectReference::default() };
    Message { component, about, notice: notice.clone(), writers: *writers }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Kind;

    fn emit(series: &mut Series, note: &str, at: Instant) -> Write {
        let about = ObjectReference { name: Some("a".to_owned()), ..ObjectReference::default() };
        let notice = Notice { kind: Kind::Warning, reason: "R", action: "A", note: note.to_owned() };
        series
            .next(&Message { component: "c", about, notice, writers: Writers::This }, at, || note.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn repeats_count_up_and_other_texts_are_new_events() {
        let (mut series, start) = (Series::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(emit(&mut series, "x", at(0)), Write::Create { name: "x".to_owned() });
        assert_eq!(emit(&mut series, "x", at(1)), Write::Nothing);
        assert_eq!(emit(&mut series, "y", at(1)), Write::Create { name: "y".to_owned() });
        assert_eq!(emit(&mut series, "x", at(11)), Write::CountUp { name: "x".to_owned(), count: 3 });
    }

    #[tokio::test(start_paused = true)]
    async fn last_repeats_are_due_once_after_the_quiet_time() {
        let (mut series, start) = (Series::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        emit(&mut series, "x", at(0));
        emit(&mut series, "y", at(1));
        assert_eq!(series.due(), None, "each was written");
        emit(&mut series, "y", at(2));
        emit(&mut series, "x", at(3));
        emit(&mut series, "x", at(4));
        assert_eq!(series.due(), Some(at(10)));
        assert!(series.overdue(at(9), at(9)).is_none());
        let first = series.overdue(at(12), at(12)).expect("it is due");
        assert_eq!((&*first.name, first.count, first.ago.as_secs()), ("x", 3, 8));
        assert_eq!(first.message.notice.note, "x");
        let second = series.overdue(at(12), at(12)).expect("it is due");
        assert_eq!((&*second.name, second.count), ("y", 2));
        assert_eq!((series.due(), series.overdue(at(99), at(99)).is_none()), (None, true));
        emit(&mut series, "x", at(13));
        assert_eq!(series.due(), Some(at(22)), "quiet again after the count was written");
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_long_silence_a_repeat_is_a_new_event() {
        let (mut series, start) = (Series::default(), Instant::now());
        emit(&mut series, "x", start);
        assert_eq!(emit(&mut series, "x", start + WINDOW), Write::Create { name: "x".to_owned() });
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded() {
        let (mut series, start) = (Series::default(), Instant::now());
        for n in 0..MAX + 10 {
            emit(
                &mut series,
                &n.to_string(),
                start + Duration::from_millis(1) * u32::try_from(n).expect("small"),
            );
        }
        assert_eq!(series.0.len(), MAX);
    }
}
