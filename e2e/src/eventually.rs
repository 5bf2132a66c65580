//! Waiting for a condition, the only kind of waiting in these tests.

use std::time::Duration;

use anyhow::anyhow;
use tokio::time::{Instant, sleep, timeout_at};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Looks again and again until `look` gives a value.
///
/// While the condition does not hold, `look` fails with what it saw instead; the last such error is the cause of ours.
/// A look that hangs is cut off by the deadline.
///
/// # Errors
/// When the condition does not hold by the deadline.
pub async fn eventually<T, Look>(
    what: &str,
    deadline: Duration,
    mut look: impl FnMut() -> Look,
) -> anyhow::Result<T>
where
    Look: Future<Output = anyhow::Result<T>>,
{
    let end = Instant::now() + deadline;
    let mut last_seen = anyhow!("not looked at once");
    loop {
        match timeout_at(end, look()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(seen)) => last_seen = seen,
            Err(_) => last_seen = last_seen.context("the last look got no answer; the one before it"),
        }
        if Instant::now() + LOOK_EVERY >= end {
            let text = format!("waited {deadline:?} until {what}, in vain; last seen");
            return Err(last_seen.context(text));
        }
        sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use anyhow::ensure;

    use super::{Duration, eventually};

    #[tokio::test(start_paused = true)]
    async fn the_value_is_returned_as_soon_as_there_is_one() {
        let mut looks = 0;
        let value = eventually("three looks were made", Duration::from_secs(1), || {
            looks += 1;
            let seen = looks;
            async move {
                ensure!(seen == 3, "{seen}");
                Ok(seen)
            }
        });
        assert_eq!(value.await.unwrap(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn the_error_tells_what_was_seen_last() {
        let error =
            eventually::<(), _>("it is green", Duration::from_secs(1), || async { anyhow::bail!("red") });
        let text = format!("{:#}", error.await.unwrap_err());
        assert_eq!(text, "waited 1s until it is green, in vain; last seen: red");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_hangs_is_cut_off() {
        let error = eventually::<(), _>("it answers", Duration::from_secs(1), pending);
        assert!(format!("{:#}", error.await.unwrap_err()).contains("got no answer"));
    }
}
