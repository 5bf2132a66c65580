//! The log of vendor calls. Its size is bounded: the oldest calls are dropped.

use std::{collections::VecDeque, fmt};

use http::Method;
use tokio::time::Instant;

use crate::{
    params::VendorParams,
    verdict::{Stop, Verdict},
};

const CALLS_MAX: usize = 200_000;
const SHOWN_MAX: usize = 100;

/// One vendor call.
#[derive(Clone, Debug)]
pub struct Call {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// Whether the call may change something.
    pub write: bool,
    /// The collection that the call lists, according to `vendor.lists`.
    pub list: Option<String>,
    /// The status that the adapter received. `None`: no response yet, or none at all.
    pub status: Option<u16>,
    /// Whether the call reached the vendor.
    pub reached: bool,
    /// The vendor's request ID, from the header `vendor.requestIdHeader`.
    pub request_id: Option<String>,
    /// A digest of the `authorization` header, which identifies the credentials. `None`: the call had no such header.
    pub credentials: Option<u64>,
    /// When the proxy received the call.
    pub started: Instant,
    /// When the call was answered or cut off.
    pub ended: Option<Instant>,
}

/// A selection of calls, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Calls(pub Vec<Call>);

#[derive(Debug, Default)]
pub(super) struct Log {
    forgotten: usize,
    calls: VecDeque<Call>,
}

impl Log {
    pub(super) fn len(&self) -> usize {
        self.forgotten.saturating_add(self.calls.len())
    }

    pub(super) fn begin(&mut self, call: Call) -> usize {
        if self.calls.len() == CALLS_MAX {
            self.calls.pop_front();
            self.forgotten = self.forgotten.saturating_add(1);
        }
        self.calls.push_back(call);
        self.len().saturating_sub(1)
    }

    pub(super) fn change(&mut self, at: usize, change: impl FnOnce(&mut Call)) {
        let at = at.checked_sub(self.forgotten);
        if let Some(call) = at.and_then(|at| self.calls.get_mut(at)) {
            change(call);
        }
    }

    pub(super) fn since(&self, mark: usize) -> Calls {
        Calls(self.calls.iter().skip(mark.saturating_sub(self.forgotten)).cloned().collect())
    }
}

impl Call {
    pub(crate) fn new(method: Method, path: String, vendor: &VendorParams) -> Self {
        let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&method)
            || vendor.reads.iter().any(|pattern| pattern.matches(&method, &path));
        let list = vendor.lists.iter().find(|list| list.call.matches(&method, &path));
        Self {
            list: list.map(|list| list.collection.clone()),
            method,
            path,
            write: !reads,
            status: None,
            reached: false,
            request_id: None,
            credentials: None,
            started: Instant::now(),
            ended: None,
        }
    }
}

impl Calls {
    /// The number of calls.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no calls.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Asserts that there are no calls.
    /// Returns an error with the calls if there are any.
    pub fn must_be_none(&self, wants: &str) -> Verdict {
        if self.is_empty() { Ok(()) } else { Err(Stop::failed(wants, self.to_string())) }
    }

    /// Calls that may change something.
    pub fn writes(&self) -> Self {
        self.only(|call| call.write)
    }

    /// Calls that change nothing.
    pub fn reads(&self) -> Self {
        self.only(|call| !call.write)
    }

    /// Calls that list this collection.
    pub fn lists_of(&self, collection: &str) -> Self {
        self.only(|call| call.list.as_deref() == Some(collection))
    }

    /// Calls for which the predicate holds.
    pub fn only(&self, holds: impl Fn(&Call) -> bool) -> Self {
        Self(self.0.iter().filter(|call| holds(call)).cloned().collect())
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} -> ", self.method, self.path)?;
        match self.status {
            Some(status) => write!(f, "{status}")?,
            None if self.ended.is_some() => f.write_str("cut off")?,
            None => f.write_str("no answer")?,
        }
        f.write_str(if self.reached { "" } else { " (did not reach the vendor)" })
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} calls", self.len())?;
        for call in self.0.iter().take(SHOWN_MAX) {
            write!(f, "\n  {call}")?;
        }
        let more = self.len().saturating_sub(SHOWN_MAX);
        if more > 0 { write!(f, "\n  and {more} more calls") } else { Ok(()) }
    }
}
