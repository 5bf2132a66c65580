//! Explains what a Service waits for, with the texts of the Events.

use controller_core::{
    events::gist,
    explain::{Ledger, Object, ObjectKey, Waits},
    mirror::ObjectName,
};

use crate::{
    error::Error,
    events::whole,
    plan::{Fact, memory::Outcome, service::ServiceId},
};

impl ServiceId {
    /// Returns the Service as an object of the ledger. All controllers identify their objects in this form.
    pub(crate) fn object(&self) -> Object {
        let name = ObjectName::namespaced(&self.namespace, &self.name);
        Object { name, uid: self.uid.clone() }
    }
}

impl ObjectKey for ServiceId {
    fn of(object: &Object) -> Self {
        let ObjectName { namespace, name } = object.name.clone();
        Self { namespace: namespace.unwrap_or_default(), name, uid: object.uid.clone() }
    }

    fn object(&self) -> (ObjectName, Option<String>) {
        let Object { name, uid } = Self::object(self);
        (name, Some(uid))
    }
}

/// What a Service waits for after an error. `reported`: an Event with this text is emitted, too.
pub(crate) fn failing(error: &Error, reported: bool) -> Waits {
    let reason = error.reason().map(|reason| reason.word());
    Waits { reason, topic: error.name(), ..waiting(&error.fact(), reported) }
}

/// What a Service waits for, explained with the Event text of `fact`.
pub(crate) fn waiting(fact: &Fact, reported: bool) -> Waits {
    let text = whole(fact).note;
    Waits { topic: text.clone(), text, reason: None, reported }
}

pub(crate) fn note(ledger: &Ledger, id: &ServiceId, outcome: &Outcome) {
    let Outcome { problem, waits, facts, .. } = outcome;
    if let Some(problem) = problem {
        let mut waits = waiting(problem, facts.contains(problem));
        if let Fact::WriteFailed(_, failure) = problem {
            // The whole text is no stable topic, because it contains the time until the next try.
            waits.topic = gist(&failure.error);
        }
        ledger.record_wait(&id.object(), &waits);
    } else if !waits.is_empty() {
        let (text, topic) = (waits.clone(), "progress".to_owned());
        ledger.record_wait(&id.object(), &Waits { text, topic, reason: None, reported: false });
    }
}
