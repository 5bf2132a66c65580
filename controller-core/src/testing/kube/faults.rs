//! What goes wrong between a client and the API server, as a test orders it.
//!
//! A fault meets requests, not objects: it says which by verb, resource and name, and how many of them.

use std::{collections::VecDeque, fmt, time::Duration};

use http::StatusCode;

use super::{FakeKube, request::Target};

/// What a request wants, in the words of the API server's rights, but that a listing's later pages have a word of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// One object.
    Get,
    /// The first page of a listing.
    List,
    /// A later page.
    Continue,
    /// Whatever happens from now on.
    Watch,
    /// A new object.
    Create,
    /// A change.
    Patch,
    /// A removal.
    Delete,
}

/// Something that goes wrong, and with which requests. Events are met only by a fault that names them.
#[derive(Clone, Debug)]
#[must_use]
pub struct Fault {
    what: What,
    on: On,
    name: Option<String>,
    /// How many requests it still meets. `None`: all, until [`FakeKube::heal`].
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
    /// Refused, with the `Retry-After` that the answer bears.
    Refused(StatusCode, Option<Duration>),
    /// Done at once, and answered after this time.
    Slow(Duration),
    /// Not done and never answered.
    Hangs,
}

impl Fault {
    /// Answered with this HTTP status; nothing is done.
    pub fn status(code: u16) -> Self {
        Self::new(What::Refused(StatusCode::from_u16(code).unwrap_or_default(), None))
    }

    /// Answered as the API server's own flow control does: 429 in plain text, with a `Retry-After` in whole seconds.
    pub fn throttled(retry_after: Duration) -> Self {
        Self::new(What::Refused(StatusCode::TOO_MANY_REQUESTS, Some(retry_after)))
    }

    /// Done at once, and answered after this time: a client that does not wait so long does not know whether it was done.
    pub fn slow(by: Duration) -> Self {
        Self::new(What::Slow(by))
    }

    /// Not done and not answered, until [`FakeKube::heal`] breaks the connection.
    pub fn hang() -> Self {
        Self::new(What::Hangs)
    }

    /// Only requests of this verb to this resource: `nodes` with all that belongs to it, `nodes/status` that alone.
    pub fn on(mut self, verb: Verb, resource: &'static str) -> Self {
        self.on = On::One(verb, resource);
        self
    }

    /// Only requests that change something.
    pub fn on_writes(mut self) -> Self {
        self.on = On::Writes;
        self
    }

    /// Only requests for the object of this name.
    pub fn of(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Only the next so many requests.
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

/// The faults that are ordered, in the order in which they were.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    pub(super) fn order(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// What becomes of a request: the first fault that meets it counts.
    pub(super) fn meet(&mut self, target: &Target) -> Option<What> {
        let fault = self.0.iter_mut().find(|fault| fault.meets(target))?;
        fault.left = fault.left.map(|left| left.saturating_sub(1));
        Some(fault.what)
    }
}

/// What somebody else does just before writes are judged.
#[derive(Default)]
pub(super) struct Hooks(VecDeque<Hook>);

/// Gets the fake, to change it.
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
