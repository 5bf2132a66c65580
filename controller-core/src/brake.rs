//! The deletion brake limits how many objects may be deleted within a window. The code is pure: every time is an argument.
//!
//! Each deletion has its own proof. The brake protects against a common failure of all proofs: credentials of another project, a vendor
//! that lost a region, or an empty list. So the brake trips for all pending deletions together, and releases none of them until fewer are
//! pending or the operator confirms them.
//!
//! Past deletions are kept in memory only. So a new brake starts with an allowance of one and regains the rest gradually. A process that
//! restarts in a loop deletes one object per start, and otherwise no more than a process that keeps running. The first deletion is free, so
//! that a small cluster need not wait for a whole window after each upgrade.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// The maximum number of deletions in any window: the share of the existing objects (rounded up), or the number if it is smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Percentage of the existing objects, 1 to 100.
    pub share: usize,
    /// Maximum number of objects.
    pub number: usize,
    /// Length of the window.
    pub window: Duration,
}

impl Limits {
    /// Returns the limits for a process that holds `held` of the `shards` shards. All processes together stay within the limits of a single
    /// process, except for one deletion each.
    #[must_use]
    pub fn of_share(self, held: usize, shards: usize) -> Self {
        let number = self.number.saturating_mul(held).div_ceil(shards.max(1)).max(1);
        Self { number, ..self }
    }

    /// Returns how many of `total` objects may be deleted within a window.
    #[must_use]
    pub fn allowance(&self, total: usize) -> usize {
        total.saturating_mul(self.share).div_ceil(100).min(self.number).max(1)
    }
}

/// The brake's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All objects may be deleted now. Report each deletion to [`Brake::went`].
    Go,
    /// All objects may be deleted, but not yet, since the brake is new.
    Later {
        /// Time until the deletion, if nothing changes.
        after: Duration,
    },
    /// No object may be deleted, since too many are due.
    Tripped {
        /// Maximum number of deletions within a window.
        allowance: usize,
    },
}

/// Remembers recent deletions.
#[derive(Clone, Debug)]
pub struct Brake {
    limits: Limits,
    begin: Instant,
    /// Times of deletions, oldest first. Times older than a window are dropped.
    went: VecDeque<Instant>,
}

impl Brake {
    /// Creates a brake that allows one deletion at once, and further deletions gradually.
    #[must_use]
    pub fn new(limits: Limits, now: Instant) -> Self {
        Self { limits, begin: now, went: VecDeque::new() }
    }

    /// Changes the limits and keeps the recorded deletions.
    pub fn limit(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Returns the current limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Decides whether `wanted` of the `total` existing objects may be deleted. The verdict applies to all of them together.
    pub fn ask(&mut self, now: Instant, total: usize, wanted: usize) -> Verdict {
        self.forget(now);
        // The percentage applies to the objects that existed when the window began, so that past deletions do not lower the allowance.
        let allowance = self.limits.allowance(total.saturating_add(self.went.len()));
        let needed = self.went.len().saturating_add(wanted);
        if wanted == 0 {
            return Verdict::Go;
        }
        if needed > allowance {
            return Verdict::Tripped { allowance };
        }
        let ready = self.begin + share_of(self.limits.window, needed - 1, allowance);
        match ready.checked_duration_since(now) {
            None | Some(Duration::ZERO) => Verdict::Go,
            Some(after) => Verdict::Later { after },
        }
    }

    /// Records that an object was deleted, or may have been.
    pub fn went(&mut self, now: Instant) {
        self.forget(now);
        self.went.push_back(now);
    }

    /// Records a repeated deletion: the deletion that was recorded at `before` now counts from `now`, and only once.
    pub fn went_again(&mut self, before: Instant, now: Instant) {
        if let Some(place) = self.went.iter().position(|at| *at == before) {
            self.went.remove(place);
        }
        self.went(now);
    }

    fn forget(&mut self, now: Instant) {
        while self.went.front().is_some_and(|at| now.duration_since(*at) >= self.limits.window) {
            self.went.pop_front();
        }
    }
}

/// Returns `window * part / whole`, rounded up.
fn share_of(window: Duration, part: usize, whole: usize) -> Duration {
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let (part, whole) = (small(part), small(whole).max(1));
    // The division comes first, because seconds multiplied by nodes may overflow a Duration. The division loses less than a nanosecond per
    // part.
    window / whole * part + Duration::from_nanos(u64::from(part))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WINDOW: Duration = Duration::from_mins(10);

    fn limits(share: usize, number: usize) -> Limits {
        Limits { share, number, window: WINDOW }
    }

    /// Returns a brake that has run for a whole window, and the current time.
    fn warm(share: usize, number: usize) -> (Brake, Instant) {
        let begin = Instant::now();
        (Brake::new(limits(share, number), begin), begin + WINDOW + Duration::from_secs(1))
    }

    #[test]
    fn the_smaller_limit_counts_and_one_deletion_is_allowed() {
        let cases = [
            // Columns: share, number, total, allowance.
            (30, 50, 100, 30),
            (30, 50, 1000, 50),
            (30, 50, 10, 3),
            (30, 50, 6, 2),
            (30, 50, 3, 1),
            (1, 50, 1, 1),
            (30, 50, 0, 1),
            (100, 50, 40, 40),
            (100, 1, 40, 1),
            (100, usize::MAX, usize::MAX, usize::MAX / 100 + 1),
        ];
        for (share, number, total, allowance) in cases {
            assert_eq!(limits(share, number).allowance(total), allowance, "{share} % or {number} of {total}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_deletions_are_all_held() {
        let (mut brake, now) = warm(30, 50);
        assert_eq!(brake.ask(now, 100, 31), Verdict::Tripped { allowance: 30 });
        assert_eq!(brake.ask(now, 100, 100), Verdict::Tripped { allowance: 30 });
        assert_eq!(
            brake.ask(now + 10 * WINDOW, 100, 31),
            Verdict::Tripped { allowance: 30 },
            "the passage of time proves nothing"
        );
        assert_eq!(brake.ask(now, 100, 30), Verdict::Go);
        assert_eq!(brake.ask(now, 100, 0), Verdict::Go);
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_cluster_loses_one_per_window() {
        let (mut brake, now) = warm(30, 50);
        assert_eq!(brake.ask(now, 3, 2), Verdict::Tripped { allowance: 1 });
        assert_eq!(brake.ask(now, 3, 1), Verdict::Go);
        brake.went(now);
        let before = now + WINDOW - Duration::from_secs(1);
        assert_eq!(brake.ask(before, 2, 1), Verdict::Tripped { allowance: 1 });
        assert_eq!(brake.ask(now + WINDOW, 2, 1), Verdict::Go);
    }

    #[tokio::test(start_paused = true)]
    async fn past_deletions_count_with_pending_ones() {
        let (mut brake, now) = warm(30, 50);
        for n in 0..30 {
            assert_eq!(brake.ask(now, 100 - n, 1), Verdict::Go, "{n} went");
            brake.went(now);
        }
        assert_eq!(brake.ask(now, 70, 1), Verdict::Tripped { allowance: 30 });
    }

    #[tokio::test(start_paused = true)]
    async fn a_repeated_deletion_counts_once_from_its_repetition() {
        let (mut brake, now) = warm(30, 50);
        let second = Duration::from_secs(1);
        brake.went(now);
        brake.went(now + second);
        brake.went_again(now, now + WINDOW - second);
        assert_eq!(
            brake.ask(now + WINDOW - second, 8, 2),
            Verdict::Tripped { allowance: 3 },
            "two \
             deletions are recorded"
        );
        assert_eq!(brake.ask(now + WINDOW - second, 8, 1), Verdict::Go, "not three");
        brake.went_again(now + WINDOW - second, now + 2 * WINDOW);
        assert_eq!(
            brake.ask(now + 2 * WINDOW, 9, 3),
            Verdict::Tripped { allowance: 3 },
            "also a window later"
        );
        assert_eq!(brake.ask(now + 2 * WINDOW, 9, 2), Verdict::Go);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_brake_allows_deletions_gradually() {
        let begin = Instant::now();
        let mut brake = Brake::new(limits(30, 50), begin);
        let Verdict::Later { after } = brake.ask(begin, 100, 3) else { panic!("the brake is new") };
        assert_eq!(after.as_secs(), 40, "the third of 30 is allowed after two parts of the window");
        assert_eq!(brake.ask(begin + after, 100, 3), Verdict::Go);
        for _ in 0..3 {
            brake.went(begin + after);
        }
        assert!(matches!(brake.ask(begin + after, 97, 1), Verdict::Later { .. }));
        assert_eq!(
            Brake::new(limits(30, 50), begin).ask(begin, 3, 1),
            Verdict::Go,
            "a single deletion does not wait"
        );
        assert_eq!(brake.ask(begin, 97, 28), Verdict::Tripped { allowance: 30 }, "too many at any time");
    }

    proptest! {
        /// For any sequence of requests and restarts, the number of deletions within a window is bounded, although a restart loses the past
        /// deletions.
        #[test]
        fn no_window_has_more_deletions_than_allowed(
            share in 1_usize..=100,
            number in 1_usize..20,
            steps in prop::collection::vec((0_u64..200, 0_usize..8, prop::bool::weighted(0.1)), 1..80),
        ) {
            let limits = limits(share, number);
            let mut now = Instant::now();
            let (mut brake, mut total, mut went) = (Brake::new(limits, now), 60_usize, Vec::<Instant>::new());
            let mut starts = Vec::<Instant>::new();
            for (pause, wanted, restart) in steps {
                now += Duration::from_secs(pause);
                if restart {
                    brake = Brake::new(limits, now);
                    starts.push(now);
                }
                let wanted = wanted.min(total);
                if brake.ask(now, total, wanted) == Verdict::Go {
                    for _ in 0..wanted {
                        brake.went(now);
                        went.push(now);
                        total -= 1;
                    }
                }
                let recent = |times: &[Instant]| times.iter().filter(|at| now.duration_since(**at) < WINDOW).count();
                // A restart loses the past deletions, so the limit is twice the allowance, and one more for each start.
                prop_assert!(
                    recent(&went) <= 2 * limits.allowance(60) + recent(&starts),
                    "{} deleted, {} starts",
                    recent(&went),
                    recent(&starts)
                );
            }
        }

        /// A process that never runs for a whole window deletes one object per start, and what the elapsed time allows.
        #[test]
        fn a_crash_loop_deletes_no_more_than_time_allows(pauses in prop::collection::vec(1_u64..120, 1..40)) {
            let limits = limits(100, 10);
            let (begin, mut now, mut went) = (Instant::now(), Instant::now(), 0_u32);
            let starts = f64::from(u32::try_from(pauses.len()).unwrap());
            for pause in pauses {
                let mut brake = Brake::new(limits, now);
                now += Duration::from_secs(pause);
                while brake.ask(now, 1000, 1) == Verdict::Go {
                    brake.went(now);
                    went += 1;
                }
            }
            let fair = now.duration_since(begin).as_secs_f64() / WINDOW.as_secs_f64() * 10.0;
            prop_assert!(f64::from(went) <= fair + starts, "{went} deleted, {fair} allowed by time, {starts} starts");
        }
    }
}
