//! Limits the total memory of request bodies, and the time in which a body must arrive.
//!
//! A message is buffered until it is complete, so callers that never complete their messages could exhaust the memory. The services limit
//! the size of a single message.

use std::{
    future::Future as _,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use cloud_api_proto::{AdapterError, Reason};
use http_body::{Body, Frame};
use tokio::time::Sleep;
use tonic::{Status, codegen::StdError};

/// Memory in bytes for all bodies together. `BEGINNINGS` limits the first 16 KiB of each body, and `BEYOND` all later bytes. The limits are
/// separate, so that large requests do not cause refusals of small ones.
const BEGINNINGS: usize = 16 * 1024 * 1024;
const BEYOND: usize = 32 * 1024 * 1024;
/// Size in bytes of the first part of a body. Most requests are smaller.
const BEGINNING: usize = 16 * 1024;
/// Time limit for the arrival of a body. A request of the contract is a single message that is sent at once.
const TIME: Duration = Duration::from_secs(30);

/// The memory that is still available for request bodies.
#[derive(Debug)]
pub struct BodyMemory {
    beginnings: AtomicUsize,
    beyond: AtomicUsize,
}

impl Default for BodyMemory {
    fn default() -> Self {
        Self { beginnings: AtomicUsize::new(BEGINNINGS), beyond: AtomicUsize::new(BEYOND) }
    }
}

impl BodyMemory {
    /// Reserves memory for `bytes` more bytes of a body that has `body` bytes so far. Returns false, and reserves nothing, if there is not
    /// enough memory.
    fn grow(&self, body: usize, bytes: usize) -> bool {
        let (now, then) = (parts(body), parts(body + bytes));
        if !take(&self.beginnings, then.0 - now.0) {
            return false;
        }
        let taken = take(&self.beyond, then.1 - now.1);
        if !taken {
            self.beginnings.fetch_add(then.0 - now.0, Ordering::AcqRel);
        }
        taken
    }

    fn release(&self, body: usize) {
        let (beginning, beyond) = parts(body);
        self.beginnings.fetch_add(beginning, Ordering::AcqRel);
        self.beyond.fetch_add(beyond, Ordering::AcqRel);
    }
}

fn parts(body: usize) -> (usize, usize) {
    (body.min(BEGINNING), body.saturating_sub(BEGINNING))
}

fn take(left: &AtomicUsize, bytes: usize) -> bool {
    left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(bytes)).is_ok()
}

/// A request body with a limit on its memory and on the time of its arrival. The memory is released on drop, after the message has been
/// read.
#[derive(Debug)]
pub struct Bounded<B> {
    body: Pin<Box<B>>,
    /// The frame that arrived before the service began to read.
    first: Option<Frame<Bytes>>,
    room: Arc<BodyMemory>,
    taken: usize,
    end: Pin<Box<Sleep>>,
}

impl<B> Bounded<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<StdError>,
{
    /// Waits for the first frame, so that a call whose body never arrives uses no further resources.
    pub(crate) async fn begun(body: B, room: Arc<BodyMemory>) -> Result<Self, Status> {
        let end = Box::pin(tokio::time::sleep(TIME));
        let mut bounded = Self { body: Box::pin(body), first: None, room, taken: 0, end };
        let first = std::future::poll_fn(|context| Pin::new(&mut bounded).poll_frame(context)).await;
        bounded.first = first.transpose().map_err(Status::from_error)?;
        Ok(bounded)
    }
}

impl<B> Drop for Bounded<B> {
    fn drop(&mut self) {
        self.room.release(self.taken);
    }
}

impl<B> Body for Bounded<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<StdError>,
{
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let frame = match self.body.as_mut().poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => frame,
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => {
                let late =
                    || Status::deadline_exceeded(format!("the request did not arrive within {TIME:?}"));
                return self.end.as_mut().poll(context).map(|()| Some(Err(late().into())));
            }
        };
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        if !self.room.grow(self.taken, bytes) {
            let full = AdapterError::new(Reason::QueueFull, "too many requests are being received at once");
            return Poll::Ready(Some(Err(Status::from(full).into())));
        }
        self.taken += bytes;
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_requests_are_accepted_among_large_ones() {
        let room = BodyMemory::default();
        let mut large = 0;
        while room.grow(0, 4 * 1024 * 1024) {
            large += 1;
        }
        assert_eq!(large, BEYOND / (4 * 1024 * 1024 - BEGINNING));
        assert!(room.grow(0, 100) && room.grow(100, BEGINNING - 100), "a beginning");
        assert!(!room.grow(BEGINNING, 1024 * 1024), "no memory beyond the first part");
        room.release(4 * 1024 * 1024);
        assert!(room.grow(BEGINNING, 1024 * 1024));
    }

    #[test]
    fn all_reserved_memory_is_released() {
        let room = BodyMemory::default();
        let mut body = 0;
        for bytes in [1, 20_000, 5, 100_000, 0] {
            assert!(room.grow(body, bytes));
            body += bytes;
        }
        room.release(body);
        assert_eq!(room.beginnings.into_inner(), BEGINNINGS);
        assert_eq!(room.beyond.into_inner(), BEYOND);
    }
}
