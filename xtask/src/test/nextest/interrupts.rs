//! Ctrl-C while nextest runs: it reaches nextest and its tests too, which end and clean up, and we wait for them.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Waker};

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// While this lives, and after it, Ctrl-C does not end us.
#[derive(Debug)]
pub(super) struct Interrupts {
    runtime: Runtime,
    signal: Signal,
}

impl Interrupts {
    pub(super) fn catch() -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build().context("cannot start a runtime")?;
        let entered = runtime.enter();
        let signal = signal(SignalKind::interrupt()).context("cannot catch Ctrl-C")?;
        drop(entered);
        Ok(Self { runtime, signal })
    }

    /// Whether it has come by now.
    pub(super) fn came(&mut self) -> bool {
        let Self { runtime, signal } = self;
        runtime.block_on(async {
            // The runtime reads what has come before it looks again.
            tokio::task::yield_now().await;
            pin!(signal.recv()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
        })
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal, getpid, kill_process};

    use super::Interrupts;

    #[test]
    fn one_that_came_is_seen_and_ends_nobody() {
        let mut interrupts = Interrupts::catch().unwrap();
        assert!(!interrupts.came());
        kill_process(getpid(), Signal::INT).unwrap();
        // The system delivers it to this thread or another of ours, at once or a moment later.
        while !interrupts.came() {}
    }
}
