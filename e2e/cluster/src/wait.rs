//! Waiting for conditions, the only kind of waiting here. Who waits is told for what, and for how long it took.

use std::io::Write;
use std::time::Duration;

use anyhow::{anyhow, bail};
use tokio::time::{Instant, sleep};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Measured: the slowest, a node's first report, takes 2 s. The rest is for a machine under load.
const WITHIN: Duration = Duration::from_secs(90);
/// Who has waited so long is told for what, and told again.
const TELL_EVERY: Duration = Duration::from_secs(3);

/// So many characters of what is there instead.
const SHOWN: usize = 120;

/// Says a line to whoever waits. Standard output is for answers.
pub(crate) fn say(line: &str) {
    // Nobody reads any more when standard error is gone; the work goes on.
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).ok();
}

/// What one look told.
pub(crate) enum Seen<T> {
    /// It is so.
    Yes(T),
    /// Not yet; what is there instead.
    NotYet(String),
    /// It never will be.
    Never(String),
}

/// Looks until it is so.
pub(crate) async fn wait<T>(what: &str, mut look: impl FnMut() -> Seen<T>) -> anyhow::Result<T> {
    let begin = Instant::now();
    let mut tell_at = begin + TELL_EVERY;
    loop {
        let seen = match look() {
            Seen::Yes(value) => {
                say(&format!("  {what} after {:.1} s", begin.elapsed().as_secs_f64()));
                return Ok(value);
            }
            Seen::Never(why) => bail!("in vain: {what}: {why}"),
            Seen::NotYet(seen) => seen,
        };
        if begin.elapsed() >= WITHIN {
            return Err(anyhow!("waited {WITHIN:?} in vain: {what}; last seen: {seen}"));
        }
        if Instant::now() >= tell_at {
            tell_at = Instant::now() + TELL_EVERY;
            say(&format!("  ... {:.0} s until {what}; now: {}", begin.elapsed().as_secs_f64(), short(&seen)));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// The end of the first line, where programs say what is wrong.
fn short(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let cut = line.chars().count().saturating_sub(SHOWN);
    line.chars().skip(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_condition_holds_at_last_or_is_told_with_what_was_seen() {
        let mut looks = 0;
        let third = || {
            looks += 1;
            if looks == 3 { Seen::Yes(looks) } else { Seen::NotYet(String::new()) }
        };
        assert_eq!(wait("three", third).await.unwrap(), 3);
        let error = wait("green", || Seen::<()>::NotYet("red".to_owned())).await.unwrap_err();
        assert_eq!(error.to_string(), "waited 90s in vain: green; last seen: red");
        let error = wait("green", || Seen::<()>::Never("broken".to_owned())).await.unwrap_err();
        assert_eq!(error.to_string(), "in vain: green: broken");
    }
}
