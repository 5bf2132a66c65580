//! Rows with two versions: writes use the latest version; reads show an older version until the consistency lag has passed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::Moment;
use super::error::ApiError;

/// All objects of one kind, by serial number. An ID consists of the prefix and the serial number, as in `lb-0001`. IDs are never reused.
#[derive(Debug)]
pub(super) struct Table<T> {
    prefix: &'static str,
    last: u64,
    rows: BTreeMap<u64, Row<T>>,
}

#[derive(Debug)]
struct Row<T> {
    truth: Option<Arc<T>>,
    /// The version that reads showed before the first entry of `coming`.
    seen: Option<Arc<T>>,
    /// The versions that reads will show later, in the order of the writes.
    coming: VecDeque<(Moment, Option<Arc<T>>)>,
}

/// The time of a write, and the time when reads show it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) now: Moment,
    pub(super) lag: Duration,
}

#[derive(Clone, Debug)]
pub(super) struct Page<T> {
    pub(super) items: Vec<Arc<T>>,
    /// Cursor of the next page; `None` at the end.
    pub(super) next: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PageRequest<'a> {
    pub(super) limit: usize,
    pub(super) cursor: Option<&'a str>,
}

impl<T> Row<T> {
    fn visible(&self, now: Moment) -> Option<&Arc<T>> {
        let arrived = self.coming.iter().rev().find(|(at, _)| *at <= now);
        arrived.map_or(self.seen.as_ref(), |(_, value)| value.as_ref())
    }

    fn put(&mut self, value: Option<Arc<T>>, write: Write) {
        self.seen = self.visible(write.now).map(Arc::clone);
        self.coming.retain(|(at, _)| *at > write.now);
        self.truth.clone_from(&value);
        if write.lag.is_zero() {
            self.coming.clear();
            self.seen = value;
        } else {
            self.coming.push_back((write.now.saturating_add(write.lag), value));
        }
    }

    fn is_over(&self, now: Moment) -> bool {
        self.truth.is_none()
            && self.visible(now).is_none()
            && self.coming.iter().all(|(_, value)| value.is_none())
    }
}

impl<T> Table<T> {
    pub(super) const fn new(prefix: &'static str) -> Self {
        Self { prefix, last: 0, rows: BTreeMap::new() }
    }

    /// Returns the serial number and the ID of the next object.
    pub(super) fn reserve(&mut self) -> (u64, String) {
        self.last = self.last.saturating_add(1);
        (self.last, id(self.prefix, self.last))
    }

    /// Returns the serial number of an ID. `None` if the text is not an ID of this kind.
    pub(super) fn serial(&self, wanted: &str) -> Option<u64> {
        let serial = wanted.strip_prefix(self.prefix)?.strip_prefix('-')?.parse().ok()?;
        (id(self.prefix, serial) == wanted).then_some(serial)
    }

    pub(super) fn put(&mut self, serial: u64, value: T, write: Write) {
        let row = self.rows.entry(serial).or_insert_with(|| Row {
            truth: None,
            seen: None,
            coming: VecDeque::new(),
        });
        row.put(Some(Arc::new(value)), write);
    }

    pub(super) fn remove(&mut self, serial: u64, write: Write) {
        if let Some(row) = self.rows.get_mut(&serial) {
            row.put(None, write);
        }
        if write.lag.is_zero() {
            self.rows.remove(&serial);
        } else {
            self.rows.retain(|_, row| !row.is_over(write.now));
        }
    }

    pub(super) fn truth(&self, serial: u64) -> Option<&Arc<T>> {
        self.rows.get(&serial)?.truth.as_ref()
    }

    pub(super) fn truths(&self) -> impl Iterator<Item = (u64, &Arc<T>)> {
        self.rows.iter().filter_map(|(serial, row)| Some((*serial, row.truth.as_ref()?)))
    }

    pub(super) fn visible(&self, serial: u64, now: Moment) -> Option<&Arc<T>> {
        self.rows.get(&serial)?.visible(now)
    }

    pub(super) fn all_visible(&self, now: Moment) -> impl Iterator<Item = &Arc<T>> {
        self.rows.values().filter_map(move |row| row.visible(now))
    }

    /// Returns one page of the visible rows. As with real vendors, a full page has a cursor even if nothing follows.
    pub(super) fn page(
        &self,
        request: PageRequest<'_>,
        now: Moment,
        filter: impl Fn(&T) -> bool,
    ) -> Result<Page<T>, ApiError> {
        let after = request.cursor.map_or(Ok(0), |cursor| self.parse_cursor(cursor))?;
        let mut page = Page { items: Vec::new(), next: None };
        for (serial, row) in self.rows.range(after.saturating_add(1)..) {
            let Some(value) = row.visible(now).filter(|value| filter(value)) else { continue };
            page.items.push(Arc::clone(value));
            if page.items.len() >= request.limit {
                page.next = Some(self.cursor(*serial));
                break;
            }
        }
        Ok(page)
    }

    /// Returns a cursor. The serial number in it is scrambled, so that clients cannot construct cursors.
    fn cursor(&self, serial: u64) -> String {
        format!("{}{:016x}", self.prefix, serial.wrapping_mul(SCRAMBLE))
    }

    fn parse_cursor(&self, cursor: &str) -> Result<u64, ApiError> {
        cursor
            .strip_prefix(self.prefix)
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .map(|scrambled| scrambled.wrapping_mul(UNSCRAMBLE))
            .filter(|serial| *serial <= self.last)
            .ok_or_else(|| ApiError::invalid("cursor", "use `next` of the previous page unchanged"))
    }
}

/// An odd number and its multiplicative inverse (modulo 2^64).
const SCRAMBLE: u64 = 0x9e37_79b9_7f4a_7c15;
const UNSCRAMBLE: u64 = inverse(SCRAMBLE);

/// Any odd number is its own inverse modulo 8, so the first guess has 3 correct bits. Each iteration of Newton's method doubles their
/// number.
const fn inverse(odd: u64) -> u64 {
    let mut guess = odd;
    let mut round = 0;
    while round < 5 {
        guess = guess.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(guess)));
        round += 1;
    }
    guess
}

pub(super) fn id(prefix: &str, serial: u64) -> String {
    format!("{prefix}-{serial:04}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(now: u64, lag: u64) -> Write {
        Write { now: Duration::from_millis(now), lag: Duration::from_millis(lag) }
    }

    fn seen(table: &Table<&'static str>, now: u64) -> Vec<&'static str> {
        table.all_visible(Duration::from_millis(now)).map(|value| **value).collect()
    }

    #[test]
    fn lag_applies_to_reads_only() {
        let mut table = Table::new("x");
        let (serial, _) = table.reserve();
        table.put(serial, "new", at(0, 100));
        assert_eq!(table.truth(serial).map(|value| **value), Some("new"));
        assert_eq!(seen(&table, 99), [""; 0]);
        assert_eq!(seen(&table, 100), ["new"]);

        table.put(serial, "changed", at(150, 100));
        table.remove(serial, at(200, 100));
        assert_eq!(table.truth(serial), None);
        assert_eq!(seen(&table, 249), ["new"]);
        assert_eq!(seen(&table, 250), ["changed"]);
        assert_eq!(seen(&table, 300), [""; 0]);
    }

    #[test]
    fn rows_invisible_to_all_readers_are_dropped() {
        let mut table = Table::new("x");
        for round in 0..10 {
            let (serial, _) = table.reserve();
            table.put(serial, "short-lived", at(round * 1000, 100));
            table.remove(serial, at(round * 1000 + 500, 100));
        }
        assert!(table.rows.len() <= 1, "{} rows are left", table.rows.len());
    }

    #[test]
    fn pages_cover_all_items_once_despite_removals() {
        let mut table = Table::new("x");
        for _ in 0..10 {
            let (serial, _) = table.reserve();
            table.put(serial, serial, at(0, 0));
        }
        let now = Duration::ZERO;
        let first = table.page(PageRequest { limit: 4, cursor: None }, now, |_| true).unwrap();
        table.remove(4, at(1, 0));
        let cursor = first.next.as_deref();
        let second = table.page(PageRequest { limit: 100, cursor }, now, |_| true).unwrap();
        let all: Vec<u64> = first.items.iter().chain(&second.items).map(|value| **value).collect();
        assert_eq!(all, (1..=10).collect::<Vec<_>>());
        assert_eq!(second.next, None);
    }

    #[test]
    fn forged_cursor_is_refused() {
        let table = Table::<u64>::new("x");
        for cursor in ["", "x", "5", "x0000000000000005", "y0000000000000000"] {
            let request = PageRequest { limit: 4, cursor: Some(cursor) };
            assert!(table.page(request, Duration::ZERO, |_| true).is_err(), "{cursor:?} is accepted");
        }
    }

    #[test]
    fn only_canonical_ids_are_parsed() {
        let table = Table::<u64>::new("lb");
        for (text, serial) in [
            ("lb-0001", Some(1)),
            ("lb-12345", Some(12345)),
            ("lb-1", None),
            ("i-0001", None),
            ("lb-00001", None),
        ] {
            assert_eq!(table.serial(text), serial, "{text}");
        }
    }
}
