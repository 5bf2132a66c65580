//! Runs named tasks until a stop. The way in which the tasks end decides how the process ends.

use std::{future::Future, time::Duration};

use anyhow::{anyhow, bail};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::warn;

#[derive(Debug, Default)]
pub(super) struct Tasks(JoinSet<&'static str>);

impl Tasks {
    pub(super) fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(async move {
            task.await;
            name
        });
    }

    /// Waits for `stop`, and then at most `grace` for the tasks to end. If a task ends before `stop` is cancelled, this function cancels
    /// `stop`.
    pub(super) async fn until(mut self, stop: &CancellationToken, grace: Duration) -> anyhow::Result<()> {
        let early = tokio::select! {
            biased;
            () = stop.cancelled() => None,
            Some(ended) = self.0.join_next() => Some(ended),
        };
        let result = match early {
            Some(Ok(name)) if !stop.is_cancelled() => Err(anyhow!("task «{name}» ended unexpectedly")),
            Some(Err(error)) => Err(anyhow!(error).context("a task failed")),
            Some(Ok(_)) | None => Ok(()),
        };
        stop.cancel();
        let rest = async {
            while let Some(ended) = self.0.join_next().await {
                ended?;
            }
            Ok::<_, tokio::task::JoinError>(())
        };
        match tokio::time::timeout(grace, rest).await {
            Ok(Ok(())) => result,
            Ok(Err(error)) => bail!("a task failed while stopping: {error}"),
            Err(_elapsed) => {
                warn!(
                    seconds = grace.as_secs(),
                    "Some work did not finish in time and was cancelled; the next start resumes it"
                );
                result
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(20);

    // Behaviour: P7, W18
    #[tokio::test(start_paused = true)]
    async fn work_in_progress_is_finished_before_the_end() {
        let (stop, mut tasks) = (CancellationToken::new(), Tasks::default());
        let token = stop.clone();
        tasks.spawn("slow", async move {
            token.cancelled().await;
            tokio::time::sleep(GRACE / 2).await;
        });
        stop.cancel();
        let start = tokio::time::Instant::now();
        tasks.until(&stop, GRACE).await.expect("a requested stop");
        assert_eq!(start.elapsed(), GRACE / 2);
    }

    // Behaviour: W18
    #[tokio::test(start_paused = true)]
    async fn slow_work_is_cut_off() {
        let (stop, mut tasks) = (CancellationToken::new(), Tasks::default());
        tasks.spawn("endless", std::future::pending());
        stop.cancel();
        let start = tokio::time::Instant::now();
        tasks.until(&stop, GRACE).await.expect("a requested stop");
        assert_eq!(start.elapsed(), GRACE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_by_itself_ends_the_process() {
        let (stop, mut tasks) = (CancellationToken::new(), Tasks::default());
        let token = stop.clone();
        tasks.spawn("other", async move { token.cancelled().await });
        tasks.spawn("queue", async {});
        let error = tasks.until(&stop, GRACE).await.expect_err("the stop was not requested");
        assert_eq!(error.to_string(), "task «queue» ended unexpectedly");
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_ends_the_process() {
        let (stop, mut tasks) = (CancellationToken::new(), Tasks::default());
        tasks.spawn("bad", async { panic!("a defect") });
        assert!(tasks.until(&stop, GRACE).await.is_err());
    }
}
