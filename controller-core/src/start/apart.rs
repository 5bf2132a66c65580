//! A thread of its own: what runs there goes on whatever hangs in the others.

use std::{future::Future, io, thread};

use tokio::sync::oneshot;
use tracing::error;

/// Runs a task on a thread of its own, and waits for its end. The pages are such a task: who asks whether this process is alive has to have
/// an answer even if each other thread hangs in a call to the system, such as a read from a volume that does not answer.
pub(super) async fn run<F>(name: &'static str, task: impl FnOnce() -> F + Send + 'static)
where
    F: Future<Output = io::Result<()>>,
{
    let (done, ended) = oneshot::channel::<()>();
    let body = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        if let Err(error) = runtime.and_then(|runtime| runtime.block_on(task())) {
            error!(task = name, %error, "Ends");
        }
        drop(done);
    };
    match thread::Builder::new().name(name.to_owned()).spawn(body) {
        // Dropped at the end, nothing is ever sent.
        Ok(_thread) => drop(ended.await),
        Err(error) => error!(task = name, %error, "No thread for it"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn it_goes_on_while_the_threads_of_the_runtime_hang() {
        let (ask, asked) = mpsc::channel();
        let (answer, answered) = mpsc::channel();
        let mut apart = tokio::task::JoinSet::new();
        apart.spawn(run("apart", move || async move {
            asked.recv().map_err(io::Error::other)?;
            answer.send("here").map_err(io::Error::other)
        }));
        tokio::task::yield_now().await;
        // This is the only thread of the runtime, and it hangs.
        ask.send(()).expect("it listens");
        assert_eq!(answered.recv(), Ok("here"));
        apart.join_next().await.expect("one").expect("it ends");
    }
}
