//! What the bodies of requests may hold at once, and how long one may take.
//!
//! A message is kept until it is complete, so callers that never complete theirs could fill the memory. The limit on one message
//! is the services' own.

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
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;
use tonic::Status;

/// All bodies that are being received, together, in bytes.
const ROOM: usize = 64 * 1024 * 1024;
/// A body is received within this time. A request of the contract is one message, sent at once.
const TIME: Duration = Duration::from_secs(30);

/// The room that is left.
#[derive(Debug)]
pub struct Room(AtomicUsize);

impl Default for Room {
    fn default() -> Self {
        Self(AtomicUsize::new(ROOM))
    }
}

impl Room {
    fn take(&self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::AcqRel);
    }
}

/// A request's body within these bounds. What it took is given back when it is dropped, which is when the message is read.
#[derive(Debug)]
pub struct Bounded<B> {
    body: Pin<Box<B>>,
    room: Arc<Room>,
    taken: usize,
    end: Pin<Box<Sleep>>,
}

impl<B> Bounded<B> {
    pub(crate) fn new(body: B, room: Arc<Room>) -> Self {
        Self { body: Box::pin(body), room, taken: 0, end: Box::pin(tokio::time::sleep(TIME)) }
    }
}

impl<B> Drop for Bounded<B> {
    fn drop(&mut self) {
        self.room.give_back(self.taken);
    }
}

impl<B> Body for Bounded<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<tonic::codegen::StdError>,
{
    type Data = Bytes;
    type Error = tonic::codegen::StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
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
        if !self.room.take(bytes) {
            let full = AdapterError::new(Reason::QueueFull, "too many requests are being received at once");
            return Poll::Ready(Some(Err(Status::from(full).into())));
        }
        self.taken += bytes;
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
