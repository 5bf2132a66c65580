//! Faults between a client and the API server, which a test sets.
//!
//! A fault applies to requests, not to objects. It selects requests by verb, resource and name, and limits their number.

use std::{collections::VecDeque, fmt, time::Duration};

use http::StatusCode;

use super::{FakeKube, request::Target};

/// The verb of a request, as in RBAC. Only the later pages of a listing have a verb of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// One object.
    Get,
    /// The first page of a listing.
    List,
    /// A later page of a listing.
    Continue,
    /// A watch.
    Watch,
    /// The creation of an object.
    Create,
    /// A change.
    Patch,
    /// A removal.
    Delete,
}

/// A fault, and the requests to which it applies. A fault applies to requests for Events only if it is limited to `events`.
#[derive(Clone, Debug)]
#[must_use]
pub struct Fault {
    what: What,
    on: On,
    name: Option<String>,
    /// Number of further requests to which the fault applies. `None` means all requests until [`FakeKube::heal`].
    left: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
enum On {
    Everything,
    Writes,
    One(Verb, &'static str),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// The request is refused, with this `Retry-After` in the answer.
    Refused(StatusCode, Option<Duration>),
    /// The request takes effect at once, and is answered after this time.
    Slow(Duration),
    /// The request has neither effect nor answer.
    Hangs,
}

impl Fault {
    /// The request is answered with this HTTP status and has no effect.
    pub fn status(code: u16) -> Self {
        Self::new(What::Refused(StatusCode::from_u16(code).unwrap_or_default(), None))
    }

    /// The request is answered as by the API server's own flow control. The answer has the status 429, a plain text body and a
    /// `Retry-After` in whole seconds.
    pub fn throttled(retry_after: Duration) -> Self {
        Self::new(What::Refused(StatusCode::TOO_MANY_REQUESTS, Some(retry_after)))
    }

    /// The request takes effect at once and is answered after this time. A client with a shorter timeout does not know the outcome.
    pub fn slow(by: Duration) -> Self {
        Self::new(What::Slow(by))
    }

    /// The request has no effect. It also gets no answer until [`FakeKube::heal`] breaks the connection.
    pub fn hang() -> Self {
        Self::new(What::Hangs)
    }

    /// Limits the fault to requests of this verb to this resource. `nodes` includes the subresources of nodes, but `nodes/status` is only
    /// that subresource.
    pub fn on(mut self, verb: Verb, resource: &'static str) -> Self {
        self.on = On::One(verb, resource);
        self
    }

    /// Limits the fault to requests that change something.
    pub fn on_writes(mut self) -> Self {
        self.on = On::Writes;
        self
    }

    /// Limits the fault to requests for the object with this name.
    pub fn of(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Limits the fault to this number of requests.
    pub fn times(mut self, n: u32) -> Self {
        self.left = Some(n);
        self
    }

    const fn new(what: What) -> Self {
        Self { what, on: On::Everything, name: None, left: None }
    }

    fn meets(&self, target: &Target) -> bool {
        let on = match self.on {
            On::One(verb, resource) => target.verb() == verb && target.is_about(resource),
            On::Writes => target.is_write() && !target.is_about("events"),
            On::Everything => !target.is_about("events"),
        };
        let name = self.name.is_none() || self.name == target.name;
        on && name && self.left != Some(0)
    }
}

#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    pub(super) fn order(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns what happens to a request, according to the first fault that applies.
    pub(super) fn meet(&mut self, target: &Target) -> Option<What> {
        let fault = self.0.iter_mut().find(|fault| fault.meets(target))?;
        fault.left = fault.left.map(|left| left.saturating_sub(1));
        Some(fault.what)
    }
}

/// The changes that other clients make just before writes are checked.
#[derive(Default)]
pub(super) struct Hooks(VecDeque<Hook>);

/// A change of the fake's state by another client.
pub(super) type Hook = Box<dyn FnOnce(&FakeKube) + Send>;

impl Hooks {
    pub(super) fn push(&mut self, hook: Hook) {
        self.0.push_back(hook);
    }

    pub(super) fn next(&mut self) -> Option<Hook> {
        self.0.pop_front()
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} hooks", self.0.len())
    }
}
