//! Handles Ctrl-C while nextest runs: nextest and its tests also receive the signal and clean up, and this program waits for them.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Waker};

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// From the creation of this value on, Ctrl-C does not end this process, even after the value is dropped.
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

    /// Whether Ctrl-C was pressed.
    pub(super) fn came(&mut self) -> bool {
        let Self { runtime, signal } = self;
        runtime.block_on(async {
            // Let the runtime process pending signals before the check.
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
    fn interrupt_is_recorded_and_does_not_end_the_process() {
        let mut interrupts = Interrupts::catch().unwrap();
        assert!(!interrupts.came());
        kill_process(getpid(), Signal::INT).unwrap();
        // The system may deliver the signal to any thread of this process, and with a delay.
        while !interrupts.came() {}
    }
}
