//! Changes watch streams, message by message.

use futures::StreamExt as _;
use tonic::{Response, Status, Streaming};

use super::{Front, Stream};

impl Front {
    /// Passes a stream through `bend`, which may drop messages.
    pub(super) fn stream<M: Send + 'static>(
        &self,
        answer: Result<Response<Streaming<M>>, Status>,
        mut bend: impl FnMut(M) -> Option<M> + Send + 'static,
    ) -> Result<Response<Stream<M>>, Status> {
        let front = self.clone();
        let answer = answer.map_err(|status| self.reported(status))?;
        Ok(answer.map(|stream| {
            let bent = stream.filter_map(move |message| {
                std::future::ready(match message {
                    Ok(message) => bend(message).map(Ok),
                    Err(status) => Some(Err(front.reported(status))),
                })
            });
            Box::pin(bent) as Stream<M>
        }))
    }
}
