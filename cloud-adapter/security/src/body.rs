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
use http_body::{Body, Frame};
use tokio::time::Sleep;
use tonic::{Status, codegen::StdError};

/// What is kept of all bodies together, in bytes: of the beginnings, and of all that goes beyond. Apart, so that who sends little
/// is not refused for those who send much.
const BEGINNINGS: usize = 16 * 1024 * 1024;
const BEYOND: usize = 32 * 1024 * 1024;
/// What counts as the beginning of a body: more than most requests have.
const BEGINNING: usize = 16 * 1024;
/// A body is received within this time. A request of the contract is one message, sent at once.
const TIME: Duration = Duration::from_secs(30);

/// The room that is left.
#[derive(Debug)]
pub struct Room {
    beginnings: AtomicUsize,
    beyond: AtomicUsize,
}

impl Default for Room {
    fn default() -> Self {
        Self { beginnings: AtomicUsize::new(BEGINNINGS), beyond: AtomicUsize::new(BEYOND) }
    }
}

impl Room {
    /// Takes room for more bytes of a body that has this many. False: there is none, and nothing is taken.
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

    /// Gives back what a body of this many bytes took.
    fn give_back(&self, body: usize) {
        let (beginning, beyond) = parts(body);
        self.beginnings.fetch_add(beginning, Ordering::AcqRel);
        self.beyond.fetch_add(beyond, Ordering::AcqRel);
    }
}

/// The beginning of a body, and the rest.
fn parts(body: usize) -> (usize, usize) {
    (body.min(BEGINNING), body.saturating_sub(BEGINNING))
}

fn take(left: &AtomicUsize, bytes: usize) -> bool {
    left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(bytes)).is_ok()
}

/// A request's body within these bounds. What it took is given back when it is dropped, which is when the message is read.
#[derive(Debug)]
pub struct Bounded<B> {
    body: Pin<Box<B>>,
    /// What came before the service began to read.
    first: Option<Frame<Bytes>>,
    room: Arc<Room>,
    taken: usize,
    end: Pin<Box<Sleep>>,
}

impl<B> Bounded<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<StdError>,
{
    /// Waits for the first of it: a call that never goes on costs no more than this.
    ///
    /// # Errors
    /// If it does not come, or there is no room for it.
    pub(crate) async fn begun(body: B, room: Arc<Room>) -> Result<Self, Status> {
        let end = Box::pin(tokio::time::sleep(TIME));
        let mut bounded = Self { body: Box::pin(body), first: None, room, taken: 0, end };
        let first = std::future::poll_fn(|context| Pin::new(&mut bounded).poll_frame(context)).await;
        bounded.first = first.transpose().map_err(Status::from_error)?;
        Ok(bounded)
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
    fn who_sends_little_finds_room_among_those_who_send_much() {
        let room = Room::default();
        let mut large = 0;
        while room.grow(0, 4 * 1024 * 1024) {
            large += 1;
        }
        assert_eq!(large, BEYOND / (4 * 1024 * 1024 - BEGINNING));
        assert!(room.grow(0, 100) && room.grow(100, BEGINNING - 100), "a beginning");
        assert!(!room.grow(BEGINNING, 1024 * 1024), "and no more");
        room.give_back(4 * 1024 * 1024);
        assert!(room.grow(BEGINNING, 1024 * 1024));
    }

    #[test]
    fn all_that_was_taken_comes_back() {
        let room = Room::default();
        let mut body = 0;
        for bytes in [1, 20_000, 5, 100_000, 0] {
            assert!(room.grow(body, bytes));
            body += bytes;
        }
        room.give_back(body);
        assert_eq!(room.beginnings.into_inner(), BEGINNINGS);
        assert_eq!(room.beyond.into_inner(), BEYOND);
    }
}
