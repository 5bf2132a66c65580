//! The brake on removals: how many may go within a while. Pure, every time is an argument.
//!
//! Single removals are proven one by one; this is for the day on which all proofs are wrong together: credentials of another project,
//! a vendor that lost a region, a list that came back empty. So it does not let the first few of a crowd go: it trips for the crowd
//! as a whole, and stays so until fewer are to go, or a person says that it is right.
//!
//! What has gone is known in memory only. Therefore a brake begins as if it had just let go all that it may but one, and lets the next
//! ones go little by little: a process that is started over and over removes one a start, and else no more than one that runs. That
//! one is not held: on a small cluster it would be the only one of a whole window, and people would wait for it after each upgrade.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// How many may go within any window: the smaller one of share, rounded up, and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Per cent of all that are there, 1 to 100.
    pub share: usize,
    /// Of them, never more than so many.
    pub number: usize,
    /// Within this time.
    pub window: Duration,
}

impl Limits {
    /// For a process that has so many of all shards: together they let go no more than one would, but for one each.
    #[must_use]
    pub fn of_share(self, held: usize, shards: usize) -> Self {
        let number = self.number.saturating_mul(held).div_ceil(shards.max(1)).max(1);
        Self { number, ..self }
    }

    /// How many of `total` may go within a window.
    #[must_use]
    pub fn allowance(&self, total: usize) -> usize {
        total.saturating_mul(self.share).div_ceil(100).min(self.number).max(1)
    }
}

/// What the brake says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All of them may go now. Tell [`Brake::went`] of each.
    Go,
    /// All of them may go, but not yet: the brake is new.
    Later {
        /// In so long, if nothing changes.
        after: Duration,
    },
    /// None of them may go: they are too many.
    Tripped {
        /// So many may go within a window.
        allowance: usize,
    },
}

/// Remembers what went.
#[derive(Clone, Debug)]
pub struct Brake {
    limits: Limits,
    begin: Instant,
    /// When, oldest first; none older than a window.
    went: VecDeque<Instant>,
}

impl Brake {
    /// A brake that lets one go at once, and the next ones little by little.
    #[must_use]
    pub fn new(limits: Limits, now: Instant) -> Self {
        Self { limits, begin: now, went: VecDeque::new() }
    }

    /// From now on it has other limits, and knows what it knew.
    pub fn limit(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Its limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Whether `wanted` of the `total` that are there may go, all of them together.
    pub fn ask(&mut self, now: Instant, total: usize, wanted: usize) -> Verdict {
        self.forget(now);
        // Of what was there when the window began: a crowd that shrinks must not be held by what already went.
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

    /// One went, or may have gone.
    pub fn went(&mut self, now: Instant) {
        self.forget(now);
        self.went.push_back(now);
    }

    /// One that went at `before`, or may have, was tried again: it counts from now on, and once.
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

/// `window * part / whole`, never less than that.
fn share_of(window: Duration, part: usize, whole: usize) -> Duration {
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let (part, whole) = (small(part), small(whole).max(1));
    // Divided first: seconds times nodes may be more than a Duration holds. What that cuts off is less than a nanosecond a part.
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

    /// A brake that has run for a window, and the time.
    fn warm(share: usize, number: usize) -> (Brake, Instant) {
        let begin = Instant::now();
        (Brake::new(limits(share, number), begin), begin + WINDOW + Duration::from_secs(1))
    }

    #[test]
    fn the_smaller_limit_counts_and_one_may_always_go() {
        let cases = [
            // share, number, total, allowance
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
    async fn a_crowd_is_held_as_a_whole() {
        let (mut brake, now) = warm(30, 50);
        assert_eq!(brake.ask(now, 100, 31), Verdict::Tripped { allowance: 30 });
        assert_eq!(brake.ask(now, 100, 100), Verdict::Tripped { allowance: 30 });
        assert_eq!(
            brake.ask(now + 10 * WINDOW, 100, 31),
            Verdict::Tripped { allowance: 30 },
            "time is no proof"
        );
        assert_eq!(brake.ask(now, 100, 30), Verdict::Go);
        assert_eq!(brake.ask(now, 100, 0), Verdict::Go);
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_small_cluster_one_goes_a_window() {
        let (mut brake, now) = warm(30, 50);
        assert_eq!(brake.ask(now, 3, 2), Verdict::Tripped { allowance: 1 });
        assert_eq!(brake.ask(now, 3, 1), Verdict::Go);
        brake.went(now);
        let before = now + WINDOW - Duration::from_secs(1);
        assert_eq!(brake.ask(before, 2, 1), Verdict::Tripped { allowance: 1 });
        assert_eq!(brake.ask(now + WINDOW, 2, 1), Verdict::Go);
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_went_one_by_one_count_with_those_that_come() {
        let (mut brake, now) = warm(30, 50);
        for n in 0..30 {
            assert_eq!(brake.ask(now, 100 - n, 1), Verdict::Go, "{n} went");
            brake.went(now);
        }
        assert_eq!(brake.ask(now, 70, 1), Verdict::Tripped { allowance: 30 });
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_tried_again_counts_once_and_from_then_on() {
        let (mut brake, now) = warm(30, 50);
        let second = Duration::from_secs(1);
        brake.went(now);
        brake.went(now + second);
        brake.went_again(now, now + WINDOW - second);
        assert_eq!(brake.ask(now + WINDOW - second, 8, 2), Verdict::Tripped { allowance: 3 }, "two went");
        assert_eq!(brake.ask(now + WINDOW - second, 8, 1), Verdict::Go, "and not three");
        brake.went_again(now + WINDOW - second, now + 2 * WINDOW);
        assert_eq!(
            brake.ask(now + 2 * WINDOW, 9, 3),
            Verdict::Tripped { allowance: 3 },
            "a window later too"
        );
        assert_eq!(brake.ask(now + 2 * WINDOW, 9, 2), Verdict::Go);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_brake_lets_go_little_by_little() {
        let begin = Instant::now();
        let mut brake = Brake::new(limits(30, 50), begin);
        let Verdict::Later { after } = brake.ask(begin, 100, 3) else { panic!("it is new") };
        assert_eq!(after.as_secs(), 40, "the third of 30 after two parts of the window");
        assert_eq!(brake.ask(begin + after, 100, 3), Verdict::Go);
        for _ in 0..3 {
            brake.went(begin + after);
        }
        assert!(matches!(brake.ask(begin + after, 97, 1), Verdict::Later { .. }));
        assert_eq!(
            Brake::new(limits(30, 50), begin).ask(begin, 3, 1),
            Verdict::Go,
            "nobody waits for a single one"
        );
        assert_eq!(brake.ask(begin, 97, 28), Verdict::Tripped { allowance: 30 }, "too many at any time");
    }

    proptest! {
        /// Whatever is wanted when, and however often the process is started anew: within a window never more than the limits allow.
        #[test]
        fn within_any_window_no_more_than_allowed(
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
                // A start in the middle forgets what went: then twice, at most, and one for each start.
                prop_assert!(
                    recent(&went) <= 2 * limits.allowance(60) + recent(&starts),
                    "{} went, {} starts",
                    recent(&went),
                    recent(&starts)
                );
            }
        }

        /// A process that never comes to the end of a window: one a start, and what the time allows.
        #[test]
        fn a_crash_loop_lets_no_more_go_than_time_allows(pauses in prop::collection::vec(1_u64..120, 1..40)) {
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
            prop_assert!(f64::from(went) <= fair + starts, "{went} went, {fair} would be fair, and {starts} starts");
        }
    }
}
