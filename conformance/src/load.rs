//! Background calls while a check changes something. The check asserts that none of the calls fails.

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

const PAUSE: Duration = Duration::from_millis(20);
/// Time limit for the calls that a check waits for.
const TIMEOUT: Duration = Duration::from_secs(30);
const SHOWN_MAX: usize = 5;

/// Callers that repeat calls. Dropping this value stops the callers.
#[derive(Debug, Default)]
pub struct Load {
    callers: JoinSet<()>,
    done: Vec<Arc<AtomicU64>>,
    failed: Arc<Mutex<Vec<String>>>,
}

impl Load {
    /// Adds a caller. `call` gets the number of the call, counted from 0, and returns an error if the call failed.
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

    /// Waits until each caller has made this many more calls.
    /// Returns an error if a call hangs.
    pub async fn more(&self, cx: &Context, calls: u64) -> Result<(), Stop> {
        let counts = || self.done.iter().map(|done| done.load(Ordering::Relaxed));
        let wanted: Vec<u64> = counts().map(|done| done.saturating_add(calls)).collect();
        let reached = || counts().zip(&wanted).all(|(done, wanted)| done >= *wanted);
        cx.until(TIMEOUT, "background calls continue", || async { Ok(reached().then_some(())) }).await
    }

    /// Asserts that every call so far succeeded.
    /// Returns an error if a call failed.
    pub fn whole(&self, wants: &str) -> Verdict {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let calls: u64 = self.done.iter().map(|done| done.load(Ordering::Relaxed)).sum();
        expect::that(failed.is_empty(), wants, || {
            let shown: Vec<&str> = failed.iter().take(SHOWN_MAX).map(String::as_str).collect();
            format!("{} of {calls} calls failed:\n{}", failed.len(), shown.join("\n"))
        })
    }
}

fn text(stop: Stop) -> String {
    match stop {
        Stop::Failed(finding) => format!("{}: {}", finding.wants, finding.came),
        Stop::Skipped(why) => why,
    }
}
