//! Runs a task on a thread of its own, because this task must run even if all other threads hang.

use std::{future::Future, io, thread};

use tokio::sync::oneshot;
use tracing::error;

/// Runs a task on a thread of its own, and waits for its end. The HTTP pages use such a thread. Liveness probes need an answer even if all
/// other threads hang in a system call, such as a read from an unresponsive volume.
pub(super) async fn run<F>(name: &'static str, task: impl FnOnce() -> F + Send + 'static)
where
    F: Future<Output = io::Result<()>>,
{
    let (done, ended) = oneshot::channel::<()>();
    let body = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        if let Err(error) = runtime.and_then(|runtime| runtime.block_on(task())) {
            error!(task = name, %error, "Task failed");
        }
        drop(done);
    };
    match thread::Builder::new().name(name.to_owned()).spawn(body) {
        // Nothing is ever sent on this channel. The channel closes when the thread ends.
        Ok(_thread) => drop(ended.await),
        Err(error) => error!(task = name, %error, "Cannot spawn a thread for the task"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_thread_apart_runs_while_the_runtime_hangs() {
        let (ask, asked) = mpsc::channel();
        let (answer, answered) = mpsc::channel();
        let mut apart = tokio::task::JoinSet::new();
        apart.spawn(run("apart", move || async move {
            asked.recv().map_err(io::Error::other)?;
            answer.send("here").map_err(io::Error::other)
        }));
        tokio::task::yield_now().await;
        // From here on, the only thread of the runtime hangs in `recv`.
        ask.send(()).expect("it listens");
        assert_eq!(answered.recv(), Ok("here"));
        apart.join_next().await.expect("one").expect("it ends");
    }
}
