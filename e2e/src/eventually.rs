//! Waits for a condition; these tests have no other kind of waiting.

use std::time::Duration;

use anyhow::anyhow;
use tokio::time::{Instant, sleep, timeout_at};

use crate::seconds;

/// The deadline of every check. Most conditions hold within a second. The slowest need a listing of the cloud, every 30 s, or a controller
/// that reconnects to a peer, after 10 s.
pub const WITHIN: Duration = seconds(60);

const CHECK_EVERY: Duration = Duration::from_millis(100);

/// Calls `check` until it returns a value.
///
/// While the condition does not hold, `check` returns an error with its observation; the last such error is the cause of the returned error.
/// The deadline also ends a call of `check` that hangs.
pub async fn eventually<T, Check>(
    what: &str,
    deadline: Duration,
    mut check: impl FnMut() -> Check,
) -> anyhow::Result<T>
where
    Check: Future<Output = anyhow::Result<T>>,
{
    let end = Instant::now() + deadline;
    let mut last_seen = anyhow!("the condition was not checked");
    loop {
        match timeout_at(end, check()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(seen)) => last_seen = seen,
            Err(_) => last_seen = last_seen.context("the last check got no answer; the check before it"),
        }
        if Instant::now() + CHECK_EVERY >= end {
            let text = format!("condition not met within {deadline:?}: {what}; last seen");
            return Err(last_seen.context(text));
        }
        sleep(CHECK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use anyhow::ensure;

    use super::{Duration, eventually};

    #[tokio::test(start_paused = true)]
    async fn value_is_returned_when_available() {
        let mut checks = 0;
        let value = eventually("three checks were made", Duration::from_secs(1), || {
            checks += 1;
            let seen = checks;
            async move {
                ensure!(seen == 3, "{seen}");
                Ok(seen)
            }
        });
        assert_eq!(value.await.unwrap(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn error_has_the_last_observation() {
        let error =
            eventually::<(), _>("it is green", Duration::from_secs(1), || async { anyhow::bail!("red") });
        let text = format!("{:#}", error.await.unwrap_err());
        assert_eq!(text, "condition not met within 1s: it is green; last seen: red");
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_check_ends_at_the_deadline() {
        let error = eventually::<(), _>("it answers", Duration::from_secs(1), pending);
        assert!(format!("{:#}", error.await.unwrap_err()).contains("got no answer"));
    }
}
