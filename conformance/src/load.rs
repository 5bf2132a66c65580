//! Calls that go on in the background while a check changes something: none of them may fail for it.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::task::JoinSet;

use crate::{
    check::{Stop, Verdict},
    context::Context,
    expect,
};

/// From the end of one call to the next one of the same caller.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest that a few calls take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Failures that are shown.
const SHOWN_MAX: usize = 5;

/// Callers that call again and again. Dropping it ends them.
#[derive(Debug, Default)]
pub struct Load {
    callers: JoinSet<()>,
    done: Vec<Arc<AtomicU64>>,
    failed: Arc<Mutex<Vec<String>>>,
}

impl Load {
    /// One more caller. Its calls say by themselves what is a failure; their number, from 0, is told to them.
    pub fn add<F>(&mut self, call: impl Fn(u64) -> F + Send + 'static)
    where
        F: Future<Output = Result<(), Stop>> + Send + 'static,
    {
        let done = Arc::<AtomicU64>::default();
        self.done.push(Arc::clone(&done));
        let failed = Arc::clone(&self.failed);
        self.callers.spawn(async move {
            loop {
                if let Err(stop) = Box::pin(call(done.load(Ordering::Relaxed))).await {
                    failed.lock().unwrap_or_else(PoisonError::into_inner).push(text(stop));
                }
                done.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(PAUSE).await;
            }
        });
    }

    /// Waits until each caller has made so many calls more.
    ///
    /// # Errors
    /// If one of them hangs.
    pub async fn more(&self, cx: &Context, calls: u64) -> Result<(), Stop> {
        let counts = || self.done.iter().map(|done| done.load(Ordering::Relaxed));
        let wanted: Vec<u64> = counts().map(|done| done.saturating_add(calls)).collect();
        let reached = || counts().zip(&wanted).all(|(done, wanted)| done >= *wanted);
        cx.until(PATIENCE, "calls go on", || async { Ok(reached().then_some(())) }).await
    }

    /// Claims that every call so far came through.
    ///
    /// # Errors
    /// If one did not.
    pub fn whole(&self, wants: &str) -> Verdict {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let calls: u64 = self.done.iter().map(|done| done.load(Ordering::Relaxed)).sum();
        expect::that(failed.is_empty(), wants, || {
            let shown: Vec<&str> = failed.iter().take(SHOWN_MAX).map(String::as_str).collect();
            format!("{} of {calls} failed:\n{}", failed.len(), shown.join("\n"))
        })
    }
}

fn text(stop: Stop) -> String {
    match stop {
        Stop::Failed(finding) => format!("{}: {}", finding.wants, finding.came),
        Stop::Skipped(why) => why,
    }
}
